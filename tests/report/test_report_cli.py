from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ringfence.cli import app
from ringfence.store import RunFolder

FakeRun = Callable[..., RunFolder]


def call(*words: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)
    return done.exit_code, done.output


def test_report_writes_a_page_and_prints_its_path(fake_run: FakeRun, tmp_path: Path) -> None:
    fake_run(tmp_path / "a")
    names = tmp_path / "names.txt"
    names.write_text("ant\nbee\ncat\ndog\n")
    out = tmp_path / "new" / "r.html"
    code, said = call("report", tmp_path / "a", "--out", out, "--class-names", names)
    assert code == 0
    assert str(out) in said
    assert "ACR" in said
    assert any(block in said for block in "▅▆▇█"), "the curve as blocks"
    assert out.read_text().startswith("<!doctype html>")
    code, said = call("report", tmp_path / "a", "--out", out, "--json")
    assert json.loads(said)["bytes"] == len(out.read_bytes())


def test_plot_writes_a_figure_and_its_numbers(fake_run: FakeRun, tmp_path: Path) -> None:
    fake_run(tmp_path / "a")
    code, said = call("plot", tmp_path / "a", "--kind", "ecdf", "--out", tmp_path / "e.svg", "--json")
    assert code == 0
    assert json.loads(said)["rows"][-1]["share"] == 1
    assert (tmp_path / "e.svg").exists()


@pytest.mark.parametrize("words", [["--kind", "pie"], ["--out", "x.gif"], ["--width", "3"], ["--kind", "draws"]])
def test_bad_plots_are_refused(fake_run: FakeRun, tmp_path: Path, words: list[str]) -> None:
    fake_run(tmp_path / "a")
    code, said = call("plot", tmp_path / "a", "--out", tmp_path / "e.svg", *words)
    assert code == 2
    assert "error" in said
    assert not (tmp_path / "e.svg").exists()


def test_bad_runs_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing"):
        code, said = call("report", path, "--out", tmp_path / "r.html")
        assert code == 2
        assert str(path) in said.replace("\n", "")
    assert not (tmp_path / "r.html").exists()
