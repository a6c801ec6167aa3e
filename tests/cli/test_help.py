"""Help: everyday options on one screen, all of them on request, and no word broken on a narrow terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import typer.main
from click.testing import Result
from typer import Context

from ringfence.cli import app
from ringfence.cli.help import EXAMPLES

Call = Callable[..., Result]


def leaves(command: Any, *words: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, inner in getattr(command, "commands", {}).items():
        yield from leaves(inner, *words, name)
    if not hasattr(command, "commands"):
        yield words, command


COMMANDS = dict(leaves(typer.main.get_command(app)))


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_no_word_is_broken_and_no_line_too_long(call: Call, words: tuple[str, ...]) -> None:
    command = COMMANDS[words]
    shown = call(*words, "--help-all" if command.brief else "--help").stdout
    assert max(map(len, shown.splitlines())) <= 80
    there = set(shown.split())
    for option in command.get_params(Context(command)):
        if option.param_type_name == "option" and option.name not in ("help", "help_all"):
            plain = (option.help or "").removesuffix(".").split()
            assert set(plain[:-1]) <= there, option.name
            assert any(flag in shown for flag in option.opts), option.name


@pytest.mark.parametrize("name", ["certify", "predict", "plan"])
def test_everyday_options_fit_one_screen_and_the_rest_is_one_word_away(call: Call, name: str) -> None:
    short, whole = call(name, "--help").stdout, call(name, "--help-all").stdout
    assert len(short.splitlines()) <= 48
    assert len(whole.splitlines()) > len(short.splitlines())
    command = COMMANDS[(name,)]
    flags = [one.opts for one in command.get_params(Context(command)) if one.name not in ("help", "help_all")]
    listed = {word.strip(",") for line in short.splitlines() if line.startswith("  --") for word in line.split()}
    hidden = [names for names in flags if names[0].startswith("--") and not listed & set(names)]
    assert f"{len(hidden)} more options" in short
    assert f"{name} --help-all" in short
    assert all(names[0] in whole for names in hidden)


@pytest.mark.parametrize(
    ("words", "told"),
    [("verify", "RUN..."), ("gate", "RUN"), ("info", "[RUN]"), ("plot", "RUN..."), ("zoo add", "FILE...")],
)
def test_usage_has_arguments_in_one_form(call: Call, words: str, told: str) -> None:
    shown = call(*words.split(), "--help").stdout
    assert shown.startswith(f"Usage: ringfence {words} [OPTIONS] {told}\n")
    assert f"\n  {told.strip('[]')} " in shown, "as it is called below"


def test_help_is_a_letter_away(call: Call) -> None:
    for words in (("certify",), ("zoo", "list")):
        assert call(*words, "-h").output == call(*words, "--help").output


def test_certify_has_its_panels_in_order_and_examples_last(call: Call) -> None:
    lines = call("certify", "--help").stdout.splitlines()
    places = [lines.index(panel) for panel in ("What", "How", "Where", "Output", "Examples")]
    assert places == sorted(places)


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_example_is_a_command_that_parses(name: str) -> None:
    command = COMMANDS[(name,)]
    for example in EXAMPLES[name]:
        program, first, *words = example.split()
        assert (program, first) == ("ringfence", name)
        command.make_context(name, words)  # refuses an option that there is not


def test_choices_complete() -> None:
    (option,) = [one for one in COMMANDS["certify",].params if one.name == "noise"]
    found = option.shell_complete(Context(COMMANDS["certify",]), "u")
    assert [one.value for one in found] == ["uniform"]


def test_every_source_of_models_is_named(call: Call) -> None:
    import ringfence.models.load  # noqa: F401  (registers ours)
    from ringfence.models.registry import SOURCES

    shown = call("certify", "--help-all").stdout
    ours = [name for name, one in SOURCES.items() if type(one).__module__.startswith("ringfence.")]
    assert len(ours) >= 5
    for word in (*(f"{name}:" for name in ours), "zoo:NAME", ".py:factory", ".pt2", "TorchScript", "checkpoint"):
        assert word in shown, word
