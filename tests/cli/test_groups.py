"""Option groups: a dataclass parameter becomes its fields on the command line, and one object in the command."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import pytest
import typer
from ringfence.cli.job import Choices
from typer.testing import CliRunner

from ringfence.cli.groups import InputOptions, RunningOptions, grouped


@dataclass(frozen=True)
class Point:
    x: Annotated[int, typer.Option(help="Across.")]
    y: Annotated[int, typer.Option("--why", help="Down.")] = 3


def told(*words: str) -> list[object]:
    seen: list[object] = []
    app = typer.Typer()

    @app.command()
    @grouped
    def place(point: Point, name: str = "here") -> None:
        """Put it."""
        seen.extend([point, name])

    result = CliRunner().invoke(app, words)
    return seen if result.exit_code == 0 else [result.exit_code, result.output]


def test_fields_are_options_with_their_own_names_and_defaults() -> None:
    assert told("--x", "1") == [Point(1, 3), "here"]
    assert told("--x", "1", "--why", "2", "--name", "there") == [Point(1, 2), "there"]


@pytest.mark.parametrize(("words", "said"), [((), "--x"), (("--x", "a"), "--x"), (("--x", "1", "--y", "2"), "--y")])
def test_what_is_missing_or_wrong_is_named(words: tuple[str, ...], said: str) -> None:
    code, output = told(*words)
    assert code == 2
    assert said in str(output)


def test_the_help_describes_every_field() -> None:
    app = typer.Typer()

    @app.command()
    @grouped
    def place(point: Point) -> None:
        """Put it."""

    shown = CliRunner().invoke(app, ["--help"]).output
    assert all(words in shown for words in ("Put it.", "Across.", "Down.", "--why"))


def test_the_shared_groups_are_what_choices_take() -> None:
    choices = Choices(
        "default", "default", 0.5, "fixed", {"alpha": 0.001}, **vars(InputOptions()), **vars(RunningOptions())
    )
    assert choices == Choices("default", "default", 0.5, "fixed", {"alpha": 0.001})
