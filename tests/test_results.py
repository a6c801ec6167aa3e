"""The committed tables are what the committed runs give, byte for byte, and every record follows from its counts."""

from __future__ import annotations

import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest

from ringfence.models.zoo import read_sums
from ringfence.store import RunFolder
from ringfence.verification import verify

ROOT = Path(__file__).resolve().parents[1]
TABLES = ("cifar_table", "mnist_table", "smooth_reduce_table", "ensemble_study", "zoo_readme")
RUNS = sorted(path.parent for path in (ROOT / "results").rglob("config.json"))


@pytest.mark.parametrize("tool", TABLES)
def test_a_table_is_made_from_its_runs(tool: str) -> None:
    done = subprocess.run([sys.executable, ROOT / "tools" / f"{tool}.py", "--check"], timeout=300)
    assert done.returncode == 0, f"run python tools/{tool}.py"


@pytest.mark.parametrize("folder", RUNS, ids=lambda path: path.relative_to(ROOT / "results").as_posix())
def test_the_records_of_a_committed_run_follow_from_its_counts(folder: Path) -> None:
    run = RunFolder.open(folder)
    assert run.damaged == []
    assert verify(run) == []


def test_kept_weights_are_those_that_were_measured() -> None:
    sums = sorted((ROOT / "zoo").rglob("SHA256SUMS"))
    assert sums
    for path in sums:
        for name, digest in read_sums(path.parent).items():
            file = path.parent / name
            assert not file.exists() or sha256(file.read_bytes()).hexdigest() == digest


@pytest.mark.parametrize(("file", "head"), [("frontier", "| theta |"), ("selected", "| theta of the network |")])
def test_the_frontiers_in_the_documentation_are_the_measured_ones(file: str, head: str) -> None:
    """docs/aces.md shows some rows and columns of results/aces/frontier.txt and selected.txt."""
    measured: dict[str, list[str]] = {}
    for line in (ROOT / "results" / "aces" / f"{file}.txt").read_text().split("\n\n")[0].splitlines()[3:]:
        theta, natural, acr, abstained, _, *certified = line.split()
        measured[theta] = [natural, acr, abstained, certified[0], certified[1], certified[3]]
    page = (ROOT / "docs" / "aces.md").read_text()
    table = page.split(f"{head} natural accuracy |")[1].split("\n\n")[0].splitlines()[2:]
    assert len(table) > 5
    for line in table:
        theta, *cells = [cell.strip() for cell in line.strip("|").split("|")]
        assert cells == measured[theta.split()[0]]


def test_the_times_in_the_readme_are_the_measured_ones() -> None:
    """README.md shows two runs of results/cifar10.md, each beside the paper's."""
    lines = (
        (ROOT / "results" / "cifar10.md").read_text().split("## How long it takes")[1].split("\n## ")[0].splitlines()
    )
    rows = [[cell.strip(" *") for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]
    ours = {(row[1], row[2]): row[3:5] for row in rows if row[0] == "gaussian"}
    theirs = {(row[1], row[2]): row[4] for row in rows if row[0] == "paper, gaussian"}
    shown = (ROOT / "README.md").read_text().split("## How fast")[1].split("\n## ")[0]
    for run, paper in ((("fixed n", ""), ("fixed n", "")), (("sequential", "0.25"), ("staged", "0.25"))):
        share, seconds = ours[run]
        assert f"| {share}% | {seconds} | {theirs[paper]} |" in shown
