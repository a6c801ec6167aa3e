"""Trains and certifies every row of results/mnist.md on one GPU, within a time budget; resumable.

    python tools/mnist_gpu.py train   --data mnist.npz --work build/mnist --out OUT --seconds 480
    python tools/mnist_gpu.py certify --data mnist.npz --work build/mnist --out OUT --seconds 480
    python tools/mnist_gpu.py keep    --work build/mnist

Tasks run side by side, a process each; trainings of one task overlap as branches of one recorded step. What is
unfinished when the seconds are over is stopped; the same command goes on with it.
Afterwards OUT holds ``zoo-N.tgz`` (weights, settings, logs) and ``rest-N.tgz`` (checkpoints of what is unfinished), or
``runs-N.tgz`` (run folders). A work folder can be restored by unpacking them into it. keep copies what is finished to
zoo/mnist and results/mnist.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from gpu_packing import keep, pack_runs, pack_zoo
from mnist_certification import certification_tasks
from mnist_training import SIGMAS, training_tasks
from side_by_side import run_tasks

ROOT = Path(__file__).resolve().parents[1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("phase", choices=("train", "certify", "keep"))
    parser.add_argument("--data", type=Path, help="mnist.npz")
    parser.add_argument("--work", type=Path, default=Path("build/mnist"), help="folder kept between calls")
    parser.add_argument("--out", type=Path, help="where the archives go")
    parser.add_argument("--seconds", type=float, default=480, help="stop after this time")
    parser.add_argument("--processes", type=int, default=12, help="tasks side by side")
    parser.add_argument("--epochs", type=int, default=90, help="epochs of the cheap objectives")
    parser.add_argument("--heavy-epochs", type=int, default=90, help="epochs of those with an attack")
    parser.add_argument("--tune-epochs", type=int, default=90, help="epochs of DRT, which starts from trained members")
    parser.add_argument("--graph", action=argparse.BooleanOptionalAction, default=True, help="CUDA graphs")
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, default=True, help="compile networks")
    parser.add_argument("--sigmas", type=float, nargs="+", default=list(SIGMAS))
    parser.add_argument("--rows", nargs="+", help="only these rows (groups)")
    parser.add_argument("--limit", type=int, help="train on the first so many images only (to try it out)")
    parser.add_argument("--skip", type=int, default=10, help="certify every so many-th test image")
    parser.add_argument("--n", type=int, default=100_000, help="draws per image")
    parser.add_argument("--batch", type=int, help="certify: rows per forward (small networks want many)")
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()
    if options.phase == "keep":
        keep(options.work / "zoo", options.work / "runs", ROOT / "zoo/mnist", ROOT / "results/mnist")
        return 0
    if options.data is None:
        parser.error("--data: name the file")
    tasks = training_tasks(options) if options.phase == "train" else certification_tasks(options)
    (options.work / "runs").mkdir(parents=True, exist_ok=True)
    complete = run_tasks(tasks, options.processes, options.seconds)
    if options.out is not None:
        if options.phase == "train":
            pack_zoo(options.work / "zoo", options.out)
        else:
            pack_runs(options.work / "runs", options.out)
    return 0 if complete else 1


if __name__ == "__main__":
    sys.exit(main())
