from __future__ import annotations

import ast
import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

import ringfence
from ringfence.cli import app
from ringfence.cli.report import KINDS
from ringfence.procedures import Sequential
from ringfence.report import lane_figures
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
    (run,) = json.loads(said)["runs"]
    assert 0.5 < run["natural_accuracy"] < 1
    assert run["certified_accuracy"]["0.0"] > 0


def test_plot_writes_a_figure_and_its_numbers(fake_run: FakeRun, tmp_path: Path) -> None:
    fake_run(tmp_path / "a")
    code, said = call("plot", tmp_path / "a", "--kind", "ecdf", "--out", tmp_path / "e.svg", "--json")
    assert code == 0
    assert json.loads(said)["rows"][-1]["share"] == 1
    assert (tmp_path / "e.svg").exists()


@pytest.mark.parametrize(("procedure", "kind"), [(None, "curve"), (Sequential(radius=0.3, n=2000), "outcomes")])
def test_plot_draws_what_there_is_where_no_kind_is_named(
    fake_run: FakeRun, tmp_path: Path, procedure: Sequential | None, kind: str
) -> None:
    fake_run(tmp_path / "a", 20, procedure)
    code, said = call("plot", tmp_path / "a", "--out", tmp_path / "e.svg", "--json")
    assert code == 0
    assert json.loads(said)["kind"] == kind


def test_the_help_names_every_kind_of_figure() -> None:
    assert re.findall(r"[a-z][a-z-]+", KINDS.replace(" or ", ", ")) == [*lane_figures.KINDS, *lane_figures.OTHERS]


def test_plot_draws_trainings_and_studies_too(tmp_path: Path) -> None:
    for place, member in enumerate(("member-0", "member-1")):
        (tmp_path / "t" / member).mkdir(parents=True)
        (tmp_path / "t" / member / "log.csv").write_text(f"epoch,loss\n1,{2 + place}\n")
    study = tmp_path / "v.json"
    study.write_text('{"zeta_p": 0.1, "sizes": [{"k": 2, "success": {"predicted": 0.5, "measured": 0.4}}]}')
    out = tmp_path / "f.svg"
    code, said = call("plot", tmp_path / "t", "--kind", "training-loss", "--out", out, "--json")
    assert code == 0
    assert [(row["run"], row["y"]) for row in json.loads(said)["rows"]] == [("t/member-0", 2), ("t/member-1", 3)]
    code, said = call("plot", study, "--kind", "variance-success", "--out", out, "--json")
    assert [row["y"] for row in json.loads(said)["rows"]] == [0.5, 0.4]
    code, said = call("plot", study, "--kind", "curve", "--out", out)
    assert code == 2
    assert "These runs have variance-success" in said


@pytest.mark.parametrize(
    "sizes", ['[{"k": 2, "radius": 3}]', '[{"radius": {"predicted": 1}}]', "7", '[{"k": 1e999, "radius": {}}]']
)
def test_damaged_studies_are_refused_by_name(tmp_path: Path, sizes: str) -> None:
    study = tmp_path / "v.json"
    study.write_text(f'{{"zeta_p": 0.1, "sizes": {sizes}}}')
    code, said = call("plot", study, "--kind", "variance-radius", "--out", tmp_path / "f.svg")
    assert code == 2
    assert "v.json" in said


@pytest.mark.parametrize("kind", ["folder", "pipe", "bytes"])
def test_class_names_come_from_a_text_file(fake_run: FakeRun, tmp_path: Path, kind: str) -> None:
    fake_run(tmp_path / "a")
    names = tmp_path / "names"
    {"folder": names.mkdir, "pipe": lambda: os.mkfifo(names), "bytes": lambda: names.write_bytes(b"\xff\xfe")}[kind]()
    code, said = call("report", tmp_path / "a", "--out", tmp_path / "r.html", "--class-names", names)
    assert code == 2
    assert f"{names}: must be" in said.replace("\n  ", " ")
    assert not (tmp_path / "r.html").exists()


@pytest.mark.parametrize("package", ["report", "analysis"])
def test_the_library_speaks_of_arguments_and_the_command_line_of_options(package: str) -> None:
    files = [path for path in (Path(ringfence.__file__).parent / package).rglob("*.py") if path.name != "compare.py"]
    assert files
    for path in files:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        words = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}  # docstrings
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in words:
                assert not re.search(r"(^|\s)--[a-z]", node.value), f"{path}:{node.lineno}"


@pytest.mark.parametrize("words", [["--kind", "pie"], ["--out", "x.gif"], ["--width", "3"], ["--kind", "draws"]])
def test_bad_plots_are_refused(fake_run: FakeRun, tmp_path: Path, words: list[str]) -> None:
    fake_run(tmp_path / "a")
    out = [] if "--out" in words else ["--out", tmp_path / "e.svg"]
    code, said = call("plot", tmp_path / "a", *out, *words)
    assert code == 2
    assert f"error: {words[0]}: " in said, "named as it was typed"
    assert not (tmp_path / "e.svg").exists()


def test_bad_runs_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing"):
        code, said = call("report", path, "--out", tmp_path / "r.html")
        assert code == 2
        assert str(path) in said.replace("\n", "")
    assert not (tmp_path / "r.html").exists()


@pytest.mark.parametrize("name", ["r.pdf", "r.PNG"])
def test_a_page_is_not_written_under_the_name_of_a_picture(fake_run: FakeRun, tmp_path: Path, name: str) -> None:
    fake_run(tmp_path / "a")
    code, said = call("report", tmp_path / "a", "--out", tmp_path / name)
    assert code == 2
    assert "--out: must not end like a picture: a report is a page of HTML" in " ".join(said.split())
    assert not (tmp_path / name).exists()
