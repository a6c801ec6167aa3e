"""Values that would get lost are refused: empty ones, and, of an option that takes one value, all but the last."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer import Context

from tests.cli.test_help import COMMANDS

Call = Callable[..., Result]


def told(call: Call, *words: object) -> str:
    """What is said of a wrong command line, without the frame around it."""
    result = call(*words, code=2)
    assert result.stdout == ""
    return " ".join(result.stderr.replace("│", " ").split())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--vote", "softmax", "--vote=max-margin"],
            "--vote: must be given once; got softmax and max-margin. Write --vote softmax,max-margin.",
        ),
        (
            ["--larger", "0.6", "--larger", "0.9"],
            "--larger: must be given once; got 0.6 and 0.9. Write --larger 0.6,0.9.",
        ),
        (["--n", "10", "--N", "20"], "--n: must be given once; got 10 and 20. Keep the one that you mean."),
        (["--sigma", "0.5", "--sigma", "0.5"], "--sigma: must be given once; got 0.5 and 0.5."),
        (["--out", "a b", "--out", "c"], "--out: must be given once; got a b and c."),
        (["--compile", "--no-compile"], "--compile: must be given once; got --compile and --no-compile."),
    ],
)
def test_both_values_and_the_remedy_are_told(call: Call, words: list[str], message: str) -> None:
    assert message in told(call, "certify", *words)


def test_all_of_them_are_told_together(call: Call) -> None:
    message = told(call, "certify", "--n", 1, "--n", 2, "--alpha", 0.1, "--alpha", 0.2)
    assert "--n: must be given once" in message
    assert "--alpha: must be given once" in message


def test_a_pair_is_one_value(call: Call) -> None:
    message = told(call, "compare", "run", "--mechanism", "a", "b", "--mechanism", "c", "d")
    assert "--mechanism: must be given once; got a b and c d." in message


def test_what_may_be_repeated_stays_so(call: Call, tmp_path: Path) -> None:
    words = ["certify", "--sigma", 0.5, "--limit", 1, "--n", 100, "--out", tmp_path / "run", "--quiet", "--quiet"]
    call(*words, "--log", "logging", "--log", "logging")


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_option_of_every_command(words: tuple[str, ...]) -> None:
    """Options that take one value are refused twice, and those that take several are not: by what typer was told."""
    command: Any = COMMANDS[words]
    for one in command.get_params(Context(command)):
        if one.param_type_name != "option" or one.is_flag:
            continue
        given = [one.opts[0], *["7"] * one.nargs]
        try:
            command.make_context(words[-1], [*given, *given])
            message = ""
        except Exception as error:
            message = str(error)
        assert ("must be given once" in message) is not one.multiple, (one.name, message)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_empty_values_are_refused(words: tuple[str, ...]) -> None:
    """As a variable of a shell gives that is not set: an empty path is this folder, an empty list the usual one."""
    command: Any = COMMANDS[words]
    known = command.get_params(Context(command))
    first = [one for one in known if one.param_type_name == "argument"][:1]
    for one in known:
        if one.param_type_name == "option" and not one.is_flag:
            name, given = max(one.opts, key=len), [one.opts[0], *[""] * one.nargs]
        elif one in first:
            upper = one.name.upper()
            name, given = one.metavar or (upper if one.nargs == 1 else f"{upper.removesuffix('S')}..."), [" "]
        else:
            continue
        with pytest.raises(Exception, match=re.escape(name)) as refused:
            command.make_context(words[-1], given)
        expected = f"{name}: must have a value; got an empty one. Give it one, or leave it out."
        assert expected in str(refused.value) or "unable to parse string" in str(refused.value), name
