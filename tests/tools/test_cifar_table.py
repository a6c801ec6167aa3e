"""results/cifar10.md from runs without a network: every run of the list appears, beside the paper it belongs to."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from typer.testing import CliRunner

from ringfence.analysis.metrics import metrics
from ringfence.classifiers import vote_lanes
from ringfence.cli import app
from ringfence.engines.local import summarise
from ringfence.lift import Identity
from ringfence.procedures import Fixed, Procedure, procedure
from ringfence.store import RunFolder

ROOT = Path(__file__).resolve().parents[2]
PUBLISHED = ROOT / "results" / "published"
SIGMAS = ("0.25", "0.5", "1.0")
Tool = Callable[[str], ModuleType]


def option(words: tuple[str, ...], name: str) -> str | None:
    return words[words.index(name) + 1] if name in words else None


def few_draws(words: tuple[str, ...]) -> Procedure:
    """The command's procedure with few draws."""
    name, radius = option(words, "--procedure"), option(words, "--radius")
    if name == "staged":
        return procedure("staged", {"radius": float(radius or 0), "alpha": 0.001})
    if name == "sequential":
        return procedure("sequential", {"radius": float(radius or 0), "alpha": 0.001, "n": 20_000})
    return procedure("multinomial", {"alpha": 0.001, "n": 500}) if name == "multinomial" else Fixed(n=500)


def imitate(fake_run: Callable[..., RunFolder], name: str, words: tuple[str, ...], folder: Path) -> None:
    """A finished run with the lanes and settings that the command would give it."""
    members = (option(words, "--members") or "").split(",")
    consensus = [int(one) for one in (option(words, "--consensus") or "").split(",") if one]
    votes, prefixes, singles = (
        (option(words, "--vote") or "soft").split(","),
        "--prefixes" in words,
        "--singles" in words,
    )
    lanes = (
        tuple(one.name for one in vote_lanes(len(members), votes, prefixes, singles, consensus))
        if singles
        else ("main",)
    )
    weights = [1 / len(members)] * len(members) if "weighted" in votes else []
    ensemble = {"members": members, "consensus": consensus, "weights": weights} if members != [""] else None
    reducing = {"mode": option(words, "--mode") or "input"}
    run = fake_run(
        folder / name,
        12,
        few_draws(words),
        lanes=lanes,
        mechanisms=("neyman_pearson", "one_sided"),
        sigma=float(option(words, "--sigma") or 0),
        model="+".join(members) if ensemble else option(words, "--model"),
        lift=Identity().settings(),
        extra={"count": 12, "ensemble": ensemble, "smooth_reduce": reducing},
        shape=None,
    )
    run.write_summary(summarise(run, 100.0, 9.0))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, fake_run: Callable[..., RunFolder]) -> Path:
    """Every run of the list, at all sigmas; ACES from the embedded networks."""
    folder = tmp_path_factory.mktemp("cifar10")
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        from cifar_commands import certification
    finally:
        sys.path.remove(str(ROOT / "tools"))
    tree = "aces(certify=default, core=default:1, theta=0:1:0.1)"
    aces = ["certify", "--model", tree, "--sigma", "0.25"]
    aces += ["--limit", "3", "--n0", "10", "--n", "50", "--batch", "60", "--quiet"]
    done = CliRunner().invoke(app, [*aces, "--out", str(folder / "aces-gaussian-0.25")])
    assert done.exit_code == 0, done.output
    shutil.copytree(folder / "aces-gaussian-0.25", folder / "aces-consistency-0.25")
    for command in certification(SIGMAS):
        if not command.printed and command.words[0] != "aces":
            imitate(fake_run, command.name, command.words, folder)
    return folder


class Noted(dict[str, RunFolder]):
    """Runs, and which of them were looked at."""

    def __init__(self, runs: dict[str, RunFolder]) -> None:
        super().__init__(runs)
        self.read: set[str] = set()

    def __getitem__(self, name: str) -> RunFolder:
        self.read.add(name)
        return super().__getitem__(name)


@pytest.fixture
def write(tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, Path]]:
    """Call the program; its exit code and the page."""

    def call(runs: Path, *words: str) -> tuple[int, Path]:
        out, none = tmp_path / "cifar10.md", tmp_path / "no-zoo"
        monkeypatch.setattr(
            "sys.argv", ["cifar_table", "--runs", str(runs), "--out", str(out), "--zoo", str(none), *words]
        )
        return tool("cifar_table").main(), out

    return call


@pytest.fixture(scope="module")
def small(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two of the runs."""
    folder = tmp_path_factory.mktemp("small")
    for name in ("imagenet-0.25", "denoised-0.25"):
        shutil.copytree(runs / name, folder / name)
    return folder


def rows(page: str, title: str) -> list[list[str]]:
    """The rows of a section, cells stripped."""
    body = page.split(f"## {title}")[1].split("\n## ")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in body.splitlines() if line.startswith("|")]


def test_without_runs_there_is_no_page(write: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out = write(tmp_path)
    assert code == 1
    assert not out.exists()
    assert "no finished runs" in capsys.readouterr().err


def test_the_page_holds_our_figures_beside_the_published_ones(write: Any, runs: Path) -> None:
    code, out = write(runs)
    assert code == 0
    page = out.read_text()
    ours = metrics(RunFolder.open(runs / "consistency-lanes-0.25"), [0.25, 0.5], "soft-10")
    sizes = rows(page, "Paper 000, table 12")
    assert ["consistency", "10", f"{ours.acr:.3f}"] in [row[:3] for row in sizes]
    assert ["*paper, consistency*", "*10*", "*0.547*"] in [row[:3] for row in sizes]
    (vote,) = [row for row in rows(page, "Paper 000, table 11") if row[:2] == ["consistency", "soft"]]
    assert vote[4:6] == [f"{100 * ours.certified_accuracy[r]:.1f}" for r in (0.25, 0.5)]
    staged = RunFolder.open(runs / "gaussian-resnet110-staged-r0.75")
    share = metrics(staged, [0.75]).certified_accuracy[0.75]
    assert ["gaussian", "0.75", "staged", f"{100 * share:.1f}"] in [
        row[:4] for row in rows(page, "Paper 000, tables 4")
    ]


def test_every_run_of_the_list_is_read_into_whole_tables(tool: Tool, runs: Path, tmp_path: Path) -> None:
    tables = tool("cifar_table")
    papers = {name: json.loads((PUBLISHED / f"{name}.json").read_text()) for name in tables.PAPERS}
    noted = Noted(tables.finished_runs(runs))
    found = tables.Found(noted, papers)
    page = tables.page(found, tmp_path)
    assert noted.read == set(noted)
    heads = [line for line in page.splitlines() if line.startswith("## ")]
    assert len(heads) == len(set(heads)) == len(tables.SECTIONS) + 2  # differences and trainings
    widths: list[int] = []
    for line in page.splitlines():
        widths = [*widths, line.count("|")] if line.startswith("|") else []
        assert len(set(widths)) <= 1, line
    assert "None" not in page
    assert "| nan" not in page
    marked = [cell for row in rows(page, "Paper 000, table 13") for cell in row if cell.endswith(" *")]
    assert len(marked) == len(found.off) > 0
    assert all(line in page.split("## What differs")[1] for line in found.off)


def test_only_the_sections_of_the_runs_there_are_written(write: Any, small: Path) -> None:
    _, out = write(small)
    heads = [line for line in out.read_text().splitlines() if line.startswith("## ")]
    assert heads == [
        "## Paper 000, table 6: denoised smoothing",
        "## At ImageNet size",
    ]


def test_an_unfinished_run_is_left_out(write: Any, small: Path, tmp_path: Path) -> None:
    shutil.copytree(small / "imagenet-0.25", tmp_path / "some" / "imagenet-0.25")
    assert write(tmp_path / "some")[0] == 0
    (tmp_path / "some" / "imagenet-0.25" / "summary.json").unlink()
    assert write(tmp_path / "some")[0] == 1


def test_check_tells_a_page_that_is_out_of_date(write: Any, small: Path) -> None:
    assert write(small, "--check")[0] == 1
    _, out = write(small)
    assert write(small, "--check")[0] == 0
    out.write_text(out.read_text().replace("0.445", "0.446"))
    assert write(small, "--check")[0] == 1


def test_figures_beyond_three_spreads_are_marked_and_listed(tool: Tool) -> None:
    found = tool("cifar_page").Found({}, {})
    assert found.beside("near", 0.4350 + 3 * 0.0046, 0.4350, 0.0046 + 1e-9, 4) == "0.4488"
    assert found.off == []
    assert found.beside("far", 0.40, 0.4350, 0.0046, 4) == "0.4000 *"
    assert found.off == ["- far: 0.4000 here, 0.4350 ± 0.0046 published (-7.6 times it)."]


def test_tables_of_paper_000_agree_with_each_other() -> None:
    """Tables 2 and 4 repeat parts of 14 and 18: a slip in copying one of them would show."""
    paper = json.loads((PUBLISHED / "paper000.json").read_text())
    detailed = {(one["architecture"], one["K"]): one for one in paper["table_14"]}
    for one in paper["table_2"]:
        if one["K"] > 1:
            there = detailed[(one["architecture"], one["K"])]
            assert [one[key] for key in ("acr", "time_rf", "kcr")] == [there[key] for key in ("acr", "time_rf", "kcr")]
    staged = {(one["radius"], one["training"], tuple(one["stages"])): one for one in paper["table_18"]}
    assert len(staged) == 24
    for one in paper["table_4"]:
        there = staged[(one["radius"], one["training"], tuple(one["stages"]))]
        assert one["asr"] == pytest.approx([a + c for a, c in zip(there["asa"], there["asc"], strict=True)])
        assert one["certified_accuracy"] == there["certified_accuracy"]
        assert (one["sample_rf"], one["time_rf"]) == (there["sample_rf"], there["time_rf"])
    first = {one["training"]: one for one in paper["table_12"] if (one["sigma"], one["k"]) == (0.25, 1)}
    for one in paper["table_13"]:
        if one["k"] == 1:  # the best of fifty lies near their mean
            assert abs(first[one["training"]]["acr"] - one["acr"]) < 3 * one["acr_spread"]
