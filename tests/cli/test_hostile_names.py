"""Names from elsewhere are printed, never obeyed: markup, emoji, terminal escapes, line ends, formulas."""

from __future__ import annotations

import csv
import io
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from ringfence.errors import DataError, cell, one_line, printable

Call = Callable[..., Result]

NAMES = [
    "[/]",
    "[bold]x",
    ":boom:",
    "\x1b[31mred\x07",
    "a\nrun: 9 records, every claim follows",
    "\u202etxt",
    "=1+1",
    "$\\frac$",
]
"""Markup that closes nothing, markup, an emoji, a terminal's escapes, a forged line, reversed text, a formula, TeX."""


def harmless(result: Result) -> None:
    for text in (result.stdout, result.stderr):
        assert not {"\x1b", "\x07", "\u202e"} & set(text), repr(text)
        assert not any(line.startswith("run: 9 records") for line in text.splitlines()), text
        assert "\N{COLLISION SYMBOL}" not in text


@pytest.fixture(params=NAMES, ids=range(len(NAMES)))
def hostile(request: pytest.FixtureRequest, finished: dict[str, Path], tmp_path: Path) -> Path:
    """A finished run in a folder of that name."""
    folder = tmp_path / "odd" / request.param
    folder.parent.mkdir(parents=True)
    shutil.copytree(finished["fixed"], folder)
    return folder


def test_commands_that_read_runs_print_them_harmlessly(call: Call, hostile: Path, finished: dict[str, Path]) -> None:
    shown = one_line(hostile.name)
    for words in (["verify"], ["info"], ["metrics"], ["export", "cohen"]):
        harmless(call(*words, hostile))
    assert shown in call("verify", hostile).stdout
    assert shown in call("info", hostile).stdout.replace("\n", "")
    harmless(call("compare", hostile, finished["fixed"]))
    page = hostile.parent / "page.html"
    harmless(call("report", hostile, "--out", page))
    harmless(call("plot", hostile, "--kind", "curve", "--out", hostile.parent / "plot.png"))


@pytest.mark.filterwarnings("always::ringfence.store.StoreWarning")
def test_errors_name_them_harmlessly(call: Call, hostile: Path) -> None:
    missing = hostile.parent / f"{hostile.name} gone"
    for words in (["verify", missing], ["metrics", missing], ["report", missing, "--out", hostile.parent / "x.html"]):
        result = call(*words, code=2)
        harmless(result)
        assert "error: " in result.stderr
    harmless(call("certify", "--model", missing, "--sigma", 0.5, "--out", hostile.parent / "new", code=2))
    harmless(call("certify", "--data", missing, "--sigma", 0.5, "--out", hostile.parent / "new", code=2))
    (hostile / "parts" / "part-000009.parquet").write_bytes(b"torn")
    harmless(call("verify", hostile, code=1))


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_factories_and_their_errors_are_printed_harmlessly(call: Call, tmp_path: Path, name: str) -> None:
    path = tmp_path / "odd.py"
    path.write_text(f"def boom():\n    raise RuntimeError({name!r})\nglobals()[{name!r}] = boom\n")
    for factory in ("boom", name):
        result = call("certify", "--model", f"{path}:{factory}", "--sigma", 0.5, "--out", tmp_path / "run", code=2)
        harmless(result)
        assert "error: " in result.stderr


@pytest.mark.parametrize("name", NAMES[1:5], ids=range(1, 5))  # no file has a slash in its name
def test_image_and_class_names_pass_through_a_run(call: Call, tmp_path: Path, name: str) -> None:
    Image = pytest.importorskip("PIL.Image")
    import numpy as np

    (tmp_path / "data" / name).mkdir(parents=True)
    Image.fromarray(np.zeros((28, 28), np.uint8)).save(tmp_path / "data" / name / f"{name}.png")
    out = tmp_path / "run"
    words = ["--data", tmp_path / "data", "--sigma", 0.5, "--n", 50, "--n0", 10, "--batch", 60]
    harmless(call("certify", *words, "--out", out))
    harmless(call("report", out, "--out", tmp_path / "page.html"))


def test_a_factory_called_boom_is_no_emoji(call: Call, tmp_path: Path) -> None:
    told = call("certify", "--model", f"{tmp_path}/no.py:boom:", "--sigma", 0.5, "--out", tmp_path / "r", code=2)
    assert ":boom:" in told.stderr


def test_control_characters_are_written_out() -> None:
    assert printable("a\x1b[2Jb\rc\x9bd\u2028e\udcff") == "a\\x1b[2Jb\\rc\\x9bd\\u2028e\\udcff"
    assert printable("two\nlines, an é and a \u202fspace") == "two\nlines, an é and a \u202fspace"
    assert one_line("two\nlines") == "two\\nlines"
    assert str(DataError("\x1b[31mx", "must be", "\x07", "Do.")) == "\\x1b[31mx: must be; got \\x07. Do."


def test_no_cell_is_a_formula() -> None:
    for text in ("=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\r=1"):
        assert cell(text) == f"'{text}"
    for plain in ("runs/a", "", "-", "-0.5", "+1e-3", -0.5, None, "a=b"):
        assert cell(plain) == plain


def test_comparisons_in_csv_hold_no_formula(
    call: Call, finished: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("=cmd", "@sum"):
        shutil.copytree(finished["fixed"], tmp_path / name)
    call("compare", "=cmd", "@sum", "--csv", "out.csv")
    rows = list(csv.reader(io.StringIO((tmp_path / "out.csv").read_text())))
    assert len(rows) == 2
    assert not [one for row in rows for one in row if one[:1] in ("=", "@")]
    assert any(one.startswith(("'=cmd", "'@sum")) for one in rows[1])


CERTIFY = ["certify", "--model", "default", "--data", "default", "--sigma", "0.5", "--limit", "1", "--n", "20", "--out"]


def test_a_run_is_whole_in_a_folder_whose_name_is_no_text(call: Call, tmp_path: Path) -> None:
    """Names of files are bytes; Arrow takes them for UTF-8."""
    folder = tmp_path / os.fsdecode(b"odd-\xff")
    try:
        folder.mkdir()
    except OSError:
        pytest.skip("this disk has no such names")
    for words in (CERTIFY, ["verify"], ["metrics", "--json"], CERTIFY):
        call(*words, folder)


def test_a_name_that_no_disk_has_is_told(call: Call, tmp_path: Path) -> None:
    told = call(*CERTIFY, tmp_path / ("x" * 300), code=2)
    assert "x: must be writable; got File name too long. Choose a shorter name." in told.stderr


def test_names_that_are_no_text_are_written_out(call: Call, finished: dict[str, Path], tmp_path: Path) -> None:
    """Of folders that another system named: \\xe4 is no UTF-8."""
    odd = tmp_path / os.fsdecode(b"l\xe4tin")
    shutil.copytree(finished["fixed"], odd)
    for words in (["verify"], ["info"], ["metrics", "--json"], ["export", "csv"]):
        call(*words, odd)
    call("report", odd, "--out", tmp_path / "page.html", "--title", odd.name)
    assert "<title>l\\udce4tin</title>" in (tmp_path / "page.html").read_text(encoding="utf-8")
    call("compare", odd, finished["fixed"], "--csv", tmp_path / "table.csv")
