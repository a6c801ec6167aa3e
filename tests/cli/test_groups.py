"""Option groups: a dataclass parameter becomes its fields on the command line, and one object in the command."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from ringfence.cli.console import as_options
from ringfence.cli.derived import grouped
from ringfence.errors import ArgumentError, Problems


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


def test_errors_of_the_library_are_told_in_the_words_of_the_command() -> None:
    app, heard = typer.Typer(), list[str]()

    @app.command()
    @grouped
    def place(point: Point, member_weights: Annotated[str, typer.Option(help="Theirs.")] = "") -> None:
        """Put it."""
        one = ArgumentError("y", "is down", 1, "Go up.")
        heard.extend([as_options(one), as_options(ArgumentError("member_weights, z", "differ", 1, "Go."))])
        heard.append(as_options(Problems([one, one])))

    CliRunner().invoke(app, ["--x", "1"])
    assert heard[0].startswith("--why: is down")
    assert heard[1].startswith("--member-weights, z: differ")
    assert heard[2].count("--why") == 2
    assert as_options(ArgumentError("y", "is down", 1, "Go up.")).startswith("y:")
