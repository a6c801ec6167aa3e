"""Errors speak of arguments; who calls these otherwise is told in his own words."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import ringfence as rf
from ringfence.errors import ArgumentError, StoreError, check_word

ROOT = Path(rf.__file__).parent


def test_arguments_are_renamed_where_they_are_named_and_nowhere_else() -> None:
    error = ArgumentError("mean, size", "goes with `size`", "`size`", "Leave `mean` or resize out.")
    assert str(error) == "mean, size: goes with `size`; got `size`. Leave `mean` or resize out."
    told = error.told({"size": "--size", "mean": "--mean"})
    assert told == "--mean, --size: goes with --size; got `size`. Leave --mean or resize out."
    assert StoreError("out a/b", "is full", 1, "").told({"out": "--out"}).startswith("--out a/b: is full")
    assert StoreError(Path("out"), "is full", 1, "").told({"out": "--out"}).startswith("out: is full")


def test_a_file_is_no_argument_whatever_its_folder_is_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("out x").mkdir()
    Path("out x", "config.json").write_text("{")
    with pytest.raises(StoreError) as found:
        rf.RunFolder.open("out x")
    assert found.value.told({"out": "--out"}).startswith("out x/config.json: must hold JSON")


def test_the_library_says_the_argument_and_the_command_line_its_option() -> None:
    for argument in ("skip", "limit"):
        with pytest.raises(ArgumentError, match=f"^{argument}: must be at least 1; got 0"):
            rf.load_dataset("default", **{argument: 0})  # type: ignore[arg-type]


@pytest.mark.parametrize("value", ["l3", None, ["l2"], {"l2"}])
def test_a_word_that_is_none_of_the_known_ones_is_refused(value: object) -> None:
    """Of whatever kind: a list cannot be looked up in a table."""
    check_word("norm", "l2", {"l2": 2.0, "l1": 1.0}, "Use l2.")
    with pytest.raises(ArgumentError, match=r"norm: must be l2 or l1; got .* Use l2\."):
        check_word("norm", value, {"l2": 2.0, "l1": 1.0}, "Use l2.")


def test_the_library_knows_no_options() -> None:
    """Whole commands are another thing: some places write those."""
    flag, command = (
        re.compile(r"(?<![\w-])--[a-z]"),
        re.compile(r"^(--[\w-]+|certify .*|.*(ringfence|ray)( [\w ]+)? --.*)$", re.S),
    )
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for path in ROOT.rglob("*.py")
        if path.relative_to(ROOT).parts[0] not in ("cli", "serve")
        for line, text in texts(path)
        if flag.search(text) and not command.search(text)
    ]
    assert found == []


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """The texts of a program that are not about it; one that stands in several lines, or has values in it, is one."""
    tree = ast.parse(path.read_text())
    about = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = [one for one in node.values if isinstance(one, ast.Constant)]
            about |= set(map(id, parts))
            yield node.lineno, "X".join(str(one.value) for one in parts)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in about:
            yield node.lineno, node.value
