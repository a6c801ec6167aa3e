"""Pages of reproduce/: runs are found by what they certified, and stand beside the published numbers."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pages
import pytest
from best_radii import best
from ensembles_page import SECTIONS, Beside, page
from paper_runs import Run, Runs
from paper_tables import filled, published

from ringfence.analysis.columns import columns_of
from ringfence.analysis.metrics import metrics
from ringfence.classifiers.lanes import vote_lanes
from ringfence.engines.into_folder import summarise
from ringfence.lift import Identity
from ringfence.models.compose import ensemble
from ringfence.procedures import Fixed, Multinomial, Procedure, Sequential, Staged
from ringfence.store import RunFolder

ROOT = Path(__file__).resolve().parents[2]
ENSEMBLES = ROOT / "reproduce" / "horvath2022-ensembles"
TRAININGS = {
    "gaussian-small": ("resnet20", "gaussian"),
    "consistency-small": ("resnet20", "consistency"),
    "gaussian-deep": ("resnet110", "gaussian"),
    "consistency-deep": ("resnet110", "consistency"),
    "reweight-deep": ("resnet110", "reweight"),
}


pytestmark = pytest.mark.filterwarnings("ignore:.*the run is not whole, 12 of")
"""Runs that say 500 or 10,000 inputs hold twelve, which is enough for a page."""


@pytest.fixture(scope="module")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Settings of trainings, without networks."""
    folder = tmp_path_factory.mktemp("zoo")
    schedule = {"lr": 0.1, "factor": 0.1, "every": 50}
    for name, (arch, objective) in TRAININGS.items():
        (folder / "cifar10" / name).mkdir(parents=True)
        plan = {"objective": {"name": objective}, "epochs": 7, "schedule": schedule, "batch": 64}
        settings = {"arch": arch, "members": 10, "plan": {**plan, "precision": "bf16", "seed": 0}}
        (folder / "cifar10" / name / "config.json").write_text(json.dumps(settings))
    return folder


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, fake_run: Callable[..., RunFolder]) -> Path:
    """Runs whose names say nothing: singles at four sigmas, tens of both networks, known radii, other schedules."""
    folder = tmp_path_factory.mktemp("runs")
    number = iter(range(1000))

    def run(
        training: str,
        procedure: Procedure,
        sigma: float,
        members: int = 1,
        count: int = 500,
        agree: tuple[int, ...] = (),
    ) -> None:
        specs = [f"zoo:cifar10/{training}:{i}" for i in range(members)]
        votes = members > 1 and not agree and not procedure.settings().get("radius")
        every = vote_lanes(members, ("soft", "softmax", "hard"), True, True, (2, 3, 5))
        lanes = [lane.name for lane in every] if votes else ["main"]
        made = fake_run(
            folder / f"run-{next(number):03}",
            12,
            procedure,
            lanes=lanes,
            mechanisms=("neyman_pearson", "one_sided"),
            sigma=sigma,
            model=str(ensemble(specs, consensus=agree)) if members > 1 else specs[0],
            lift=Identity().settings(),
            count=count,
            shape=None,
        )
        made.write_summary(summarise(made, 100.0, 9.0))

    for sigma in (0.12, 0.25, 0.5, 1.0):
        run("gaussian-deep", Fixed(n=100_000), sigma)
        run("consistency-deep", Fixed(n=10_000), sigma, count=10_000)
    run("gaussian-small", Multinomial(n=100_000), 1.0)
    for members in (1, 3):
        run("reweight-deep", Fixed(n=10_000), 0.5, members, count=10_000)
    run("gaussian-deep", Fixed(n=10_000), 0.5, count=10_000)
    for training in list(TRAININGS)[:4]:
        run(training, Fixed(n=100_000), 0.25, 10)
    run("consistency-deep", Fixed(n=100_000), 0.5, 10)
    for stages in ((1000, 10_000, 125_000), (1000, 115_000)):
        run("gaussian-deep", Staged(radius=0.25, stages=stages), 0.25)
    run("gaussian-deep", Sequential(radius=1.0), 0.5)
    run("consistency-small", Staged(radius=0.25), 0.25, 10)
    run("gaussian-deep", Staged(radius=1.0), 0.5, 10, agree=(6,))
    return folder


def rows(text: str, title: str) -> list[list[str]]:
    """The rows of a section, cells stripped."""
    body = text.split(f"## {title}")[1].split("\n## ")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in body.splitlines() if line.startswith("|")]


@pytest.fixture(scope="module")
def written(made: Path, zoo: Path) -> str:
    return page(Runs.under(made, zoo), published(ENSEMBLES))


def test_every_run_stands_beside_its_published_row(made: Path, zoo: Path, written: str) -> None:
    runs = Runs.under(made, zoo)
    for sigma, told in ((0.25, "*0.450*"), (0.5, "*0.535*"), (1.0, "*0.532*")):
        run = runs.one(kind="gaussian", architecture="ResNet110", sigma=sigma, size=1, procedure="fixed")
        assert run is not None
        acr = metrics(run.folder, [0.25]).acr
        assert ["gaussian, ResNet110", f"{acr:.3f}"] in [row[:2] for row in rows(written, "Table 9")]
        assert ["*paper, gaussian, ResNet110*", told] in [row[:2] for row in rows(written, "Table 9")]
    assert "sigma 0.12:" in written.split("## Table 9")[1].split("\n## ")[0]
    assert "all 10,000 test images, n = 10,000" in written
    sizes = [row[:3] for row in rows(written, "Tables 12, 1 and 9")]
    assert ["*paper, consistency*", "*10*", "*0.547*"] in sizes
    assert ["*paper, consistency, ResNet110*", "*10*", "*0.756*"] in sizes
    known = [row[:3] for row in rows(written, "Tables 4 and 18")]
    for cells in (["gaussian", "0.25", "staged 1000/115000"], ["*paper, gaussian*", "*0.25*", "*staged 1000/115000*"]):
        assert cells in known
    assert ["gaussian", "1", "sequential"] in known
    tens = [row[:3] for row in rows(written, "Tables 5, 15 and 16")]
    assert ["all", "0.25", "staged"] in tens
    assert ["ResNet110, gaussian, sigma 0.5, K = 6", "1", "staged"] in tens
    assert [row[3] for row in rows(written, "Tables 5, 15 and 16") if row[:2] == ["*paper, K = 6*", "*1*"]] == [
        "*30.2*"
    ]


def test_every_run_is_read_into_whole_tables(made: Path, zoo: Path, written: str) -> None:
    runs = Runs.under(made, zoo)
    found = Beside(runs, published(ENSEMBLES))
    for make in SECTIONS:
        make(found)
    unread = [run.procedure for run in runs if not run._known]
    assert unread == ["multinomial"], "runs that no section looked at; this one's bounds are read, not its metrics"
    assert "gaussian, ResNet20" in [row[0] for row in rows(written, "Table 9")]
    widths: list[int] = []
    for line in written.splitlines():
        widths = [*widths, line.count("|")] if line.startswith("|") else []
        assert len(set(widths)) <= 1, line
    assert "None" not in written
    assert "| nan" not in written
    marked = [cell for row in rows(written, "Table 13") for cell in row if cell.endswith(" *")]
    assert len(marked) == len(found.off) > 0
    assert all(line in written.split("## What differs")[1] for line in found.off)
    assert all(f"`cifar10/{name}`: 10 {arch}" in written for name, (arch, _) in TRAININGS.items())


def test_a_missing_run_is_a_missing_section(made: Path, zoo: Path, tmp_path: Path) -> None:
    shutil.copytree(made / "run-000", tmp_path / "one")
    heads = [
        line for line in page(Runs.under(tmp_path, zoo), published(ENSEMBLES)).splitlines() if line.startswith("## ")
    ]
    expected = ["Table 9: single networks", "The largest published average radii", "What was not run"]
    assert heads == [f"## {one}" for one in (*expected, "Intervals over the inputs", "How the networks were trained")]
    (tmp_path / "one" / "summary.json").unlink()
    assert list(Runs.under(tmp_path, zoo)) == []


def test_the_largest_radii_come_with_what_they_cost(made: Path, zoo: Path, written: str, tmp_path: Path) -> None:
    """Before there are runs a section says what they would show and how much is missing; then it fills itself."""
    title = "The largest published average radii"
    text = "\n".join(best(Beside(Runs(()), {})))
    assert "reweight 0.760, catrs 0.757" in text
    assert "**Not run, for lack of device time:** " in text
    assert "3 of 3 certifications (about" in text
    assert rows(text, title) == []
    radii = [row for row in rows(written, title) if len(row) == 12]
    shares = [row for row in rows(written, title) if len(row) == 10]
    assert [row[:2] for row in shares if row[0] == "reweight"] == [["reweight", k] for k in "1123"], "one, and of three"
    (single,) = Runs.under(made, zoo).of(kind="reweight", size=1)
    assert ["reweight", "1", f"{metrics(single.folder, [0.25]).acr:.3f}"] in [row[:3] for row in radii]
    assert [row[2] for row in radii if row[0] == "*paper, reweight*"] == ["*0.760*"]
    assert [row[3] for row in radii if row[0] == "gaussian"] == ["+0.0"]
    columns = columns_of(single.folder)
    held = 100 * np.mean((columns.prediction == columns.label) & (columns.p_a >= 0.6))
    assert 0 < held < 100
    assert ["reweight", "1", f"{held:.1f}"] in [[*row[:2], row[3]] for row in shares]
    shutil.copytree(single.folder.path, tmp_path / "reweight-resnet110-0.5-0-all")
    one = Runs.under(tmp_path, zoo)
    assert "2 of 3 certifications" in "\n".join(best(Beside(one, {}))), "what is kept under a job's name is done"


def test_figures_beyond_three_spreads_are_marked_and_listed() -> None:
    found = Beside(Runs(()), {})
    assert found.marked("near", 0.4350 + 3 * 0.0046, 0.4350, 0.0046 + 1e-9, 4) == "0.4488"
    assert found.off == []
    assert found.marked("far", 0.40, 0.4350, 0.0046, 4) == "0.4000 *"
    assert found.off == ["- far: 0.4000 here, 0.4350 ± 0.0046 published (-7.6 times it)."]


def test_a_page_that_is_out_of_date_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "reproduce"
    (root / "some").mkdir(parents=True)
    (root / "some" / "some_page.py").write_text(
        "from pathlib import Path\nHERE = Path(__file__).parent\ndef pages():\n    return {HERE / 'README.md': 'new'}\n"
    )
    monkeypatch.setattr(pages, "FOLDER", root)
    out = root / "some" / "README.md"

    def call(*words: str) -> int:
        monkeypatch.setattr("sys.argv", ["pages.py", *words])
        return pages.main()

    assert call("--check") == 1
    assert not out.exists()
    assert call("some") == 0
    assert call("--check") == 0
    out.write_text("old")
    assert call("--check") == 1
    with pytest.raises(SystemExit, match="no page in other; there are some"):
        call("other")


def test_parts_are_replaced_between_their_markers_only(tmp_path: Path) -> None:
    file = tmp_path / "page.md"
    file.write_text("a\n<!-- table x -->\nold\n<!-- end -->\nb\n<!-- table y -->\nkept\n<!-- end -->\n")
    assert filled(file, {"x": "new\\1"}) == file.read_text().replace("old", "new\\1")
    with pytest.raises(SystemExit, match="0 times"):
        filled(file, {"z": "new"})


def test_tables_of_horvath_et_al_agree_with_each_other() -> None:
    """Tables 2, 4, 5 and 9 repeat parts of 14, 18, 15 and 11: a slip in copying one of them would show."""
    paper = published(ENSEMBLES)
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
    soft = {one["training"]: one for one in paper["table_11"] if one["vote"] == "soft"}
    for one in paper["table_9"]:
        if (one["sigma"], one["k"]) == (0.25, 10):
            assert one["acr"] == soft[one["training"]]["acr"]
            assert one["certified_accuracy"] == soft[one["training"]]["certified_accuracy"]
        assert list(one["certified_accuracy"].values()) == sorted(one["certified_accuracy"].values(), reverse=True)
    agreed = {one["radius"]: one for one in paper["table_5"] if one["sigma"] == 0.25}
    for one in paper["table_15"]:
        assert sum(one["asa"]) + sum(one["asc"]) == pytest.approx(100, abs=0.11)
        assert one["certified_accuracy"] == agreed[one["radius"]]["certified_accuracy"]
    for one in paper["table_16"]:
        assert sum(one["asr"]) == pytest.approx(100)
    assert all(published(path.parent)["source"] for path in (ROOT / "reproduce").glob("*/published.json"))


def test_cells_of_yang_et_al_that_table_1_fills_are_determined_by_it() -> None:
    """The best over sigmas is that of the one whose cell is not legible only where the others are smaller."""
    rows = published(ROOT / "reproduce" / "yang2022-diversity")["certified_accuracy"]
    taken = [(one, radius) for one in rows for radius in one.get("from_table_1", ())]
    assert len(taken) == 7
    for one, radius in taken:
        others = [
            two["certified_accuracy"].get(radius, 0.0) for two in rows if two["row"] == one["row"] and two is not one
        ]
        assert 0 < max(others) < one["certified_accuracy"][radius]


def test_code_of_reproductions_uses_the_library_only() -> None:
    for file in (ROOT / "reproduce").rglob("*.py"):
        assert "ringfence.cli" not in file.read_text(), file


def test_a_run_says_what_it_certified(made: Path, zoo: Path) -> None:
    run = Run("run", RunFolder.open(made / "run-000"), zoo)
    assert (run.kind, run.architecture, run.sigma, run.size, run.n) == ("gaussian", "ResNet110", 0.12, 1, 100_000)
    assert run.plain
    assert run.mode == "input"
    assert run.radius is None
    assert run.draws == "500 inputs, n = 100,000"
