"""Errors speak of arguments; who calls these otherwise is told in his own words."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import ringfence as rf
from ringfence.errors import ArgumentError

ROOT = Path(rf.__file__).parent
ROOMS = ("sampling", "classifiers", "operators", "lift", "data", "noise", "stats", "mechanisms")


def test_arguments_are_renamed_where_they_are_named_and_nowhere_else() -> None:
    error = ArgumentError("mean, size", "goes with `size`", "`size`", "Leave `mean` or resize out.")
    assert str(error) == "mean, size: goes with `size`; got `size`. Leave `mean` or resize out."
    told = error.told({"size": "--size", "mean": "--mean"})
    assert told == "--mean, --size: goes with --size; got `size`. Leave --mean or resize out."


def test_the_library_says_the_argument_and_the_command_line_its_option() -> None:
    for argument in ("skip", "limit"):
        with pytest.raises(ArgumentError, match=f"^{argument}: must be at least 1; got 0"):
            rf.load_dataset("default", **{argument: 0})  # type: ignore[arg-type]


@pytest.mark.parametrize("room", ROOMS)
def test_these_rooms_know_no_options(room: str) -> None:
    flag = re.compile(r"""["'( ]--[a-z]+""")
    named = re.compile(r"after ``--(model|data)``|--use_fast_math")
    found = [
        f"{path.name}:{number}"
        for path in (ROOT / room).rglob("*.py")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if flag.search(line) and not named.search(line)
    ]
    assert found == []
