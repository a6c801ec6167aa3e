"""Copies finished run folders to where results are kept: no locks, and pictures of the inputs only if asked for.

    python tools/keep_runs.py runs/a runs/b --to results/cifar10 [--pictures]

Every run is verified on the way: its records are computed again from their counts.
"""

from __future__ import annotations

import argparse
import shutil
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
        RunFolder.open(target).drop_pictures()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--to", type=Path, required=True)
    parser.add_argument("--pictures", action="store_true")
    options = parser.parse_args()
    for run in options.runs:
        pack(run, options.to / run.name, options.pictures)
        print(f"kept: {options.to / run.name}")


if __name__ == "__main__":
    main()
