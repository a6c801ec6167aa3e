"""Runs a sweep file of reproduce/ (its form: tools/sweep_file.py) within a time budget; resumable.

    python tools/sweep.py list    reproduce/resnet110.yaml [--only gaussian]
    python tools/sweep.py train   reproduce/resnet110.yaml --data DIR --work WORK --out OUT --seconds 560 [--only A B]
    python tools/sweep.py certify reproduce/resnet110.yaml --data DIR --work WORK --out OUT --seconds 560

Trainings run at the same time in one process, certifications so many at a time; each continues where it stopped. OUT
gets archives of at most 14 MiB: unpacked into a work folder they restore it. --tiny: a few inputs, to see that it runs.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path

from cifar_gpu import run_phase
from sweep_file import read_sweep


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("phase", choices=("list", "train", "certify"))
    parser.add_argument("sweep", type=Path, help="the sweep file")
    parser.add_argument("--data", type=Path, help="folder of the data")
    parser.add_argument("--work", type=Path, default=Path("build/sweep"), help="folder kept between calls")
    parser.add_argument("--out", type=Path, help="where the archives go")
    parser.add_argument("--seconds", type=float, default=560, help="stop after this time")
    parser.add_argument("--only", nargs="+", default=[""], help="only jobs whose name begins so")
    parser.add_argument("--processes", type=int, default=1, help="certifications at a time")
    parser.add_argument("--tiny", action="store_true")
    options = parser.parse_args()
    every = read_sweep(options.sweep, options.tiny)
    chosen = {phase: [one for one in jobs if one.name.startswith(tuple(options.only))] for phase, jobs in every.items()}
    if options.phase == "list":
        for one in chosen["train"] + chosen["certify"]:
            print(f"# {one.name}\nringfence {shlex.join(one.words)}")
        return 0
    if options.data is None:
        parser.error("--data: name the folder of the data")
    return run_phase(options, chosen[options.phase])


if __name__ == "__main__":
    sys.exit(main())
