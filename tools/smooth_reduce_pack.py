"""Copies a finished study, or run folders, to where results are kept: no locks, and pictures of the inputs only once.

    python tools/smooth_reduce_pack.py runs/smooth_reduce/mnist results/smooth_reduce/mnist

Every run is verified on the way: its records are computed again from their counts.
"""

from __future__ import annotations

import argparse
import shutil
from dataclasses import replace
from pathlib import Path

from ringfence.store import RunFolder
from ringfence.verification import verify


def pack(source: Path, target: Path, pictures: bool) -> None:
    """Copy one run folder; what was kept there before is replaced."""
    if found := verify(RunFolder.open(source)):
        raise SystemExit(f"{source}: {len(found)} values differ from what the counts say, the first: {found[0]}")
    if target.exists():
        shutil.rmtree(target)
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("lock"))
    if not pictures:
        copy = RunFolder.open(target)
        copy.write_inputs([replace(one, thumbnail=None) for one in copy.inputs()])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, help="a study's folder")
    parser.add_argument("target", type=Path)
    options = parser.parse_args()
    runs = sorted(file.parent for file in (options.source / "runs").glob("*/config.json"))
    if not runs or not (options.source / "study.json").exists():
        raise SystemExit(f"{options.source} holds no finished study")
    for run in runs:
        pack(run, options.target / "runs" / run.name, pictures=run.name == "base")
    shutil.copy(options.source / "study.json", options.target / "study.json")
    print(f"{options.target}: {len(runs)} runs")


if __name__ == "__main__":
    main()
