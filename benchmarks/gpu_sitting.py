"""What is left to measure on a lent GPU (docs/decisions/0017-limits-of-one-gpu.md), one step after the other.

    python benchmarks/gpu_sitting.py --seconds 570 --out OUT [STEP ...]
    python benchmarks/gpu_sitting.py --ready --seconds 570 [STEP ...]      # before, beside other work

A step begins only if there is time for it, and is ended at its limit. What it measured is copied to OUT behind every
step and noted in --work, where the same command finds it: it goes on with the steps that are left. What is measured is
put among the results of results/benchmarks, or of the steps before. --ready measures nothing: it fills the caches of
compiled code that the steps would fill first. Needs no library itself.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TABLES = 15
"""Seconds that a step needs behind its last row."""


@dataclass(frozen=True)
class Step:
    """words: of Python, {work}: the folder of results, {kept}: the latest result of that name, {seconds}: in which the
    last row must be there; result: what comes back.

    least: seconds without which it is not begun; most: it is ended then. ready: words that fill its caches.
    """

    words: str
    result: str
    least: int
    most: int
    ready: str = ""


LIMITS = "benchmarks/gpu_limits.py --out {work} --keep {kept} --only"
COMPOSED = "benchmarks/gpu.py --out {work} --keep {kept} --only ensembles"
TRAINING = "benchmarks/gpu_training.py --out {work}"
TESTED = "-m pytest -o addopts=--import-mode=importlib -p no:cacheprovider -rsf --junitxml={work}"
STEPS = {
    "tests": Step(
        f"{TESTED}/tests.xml tests/gpu/test_prepared_cuda.py tests/gpu/test_training_cuda.py",
        "tests.xml",
        150,
        300,
    ),
    "engine": Step(
        f"{TESTED}/engine.xml tests/gpu/test_engine_cuda.py tests/gpu/test_exact_words.py tests/gpu/test_cuda.py",
        "engine.xml",
        100,
        200,
    ),
    "kernels": Step(
        f"{TESTED}/kernels.xml"
        " tests/gpu/test_pooled_cuda.py tests/gpu/test_exchanging_cuda.py tests/gpu/test_gradients_cuda.py",
        "kernels.xml",
        100,
        240,
    ),
    "objectives": Step(
        f"{TRAINING} --cases missing --keep {{kept}} --brief --beside 3 --limit {{seconds}} --compile-limit 210",
        "gpu_training.json",
        300,
        480,
        ready=f"{TRAINING}/ready --cases missing --keep {{kept}} --limit 0 --compile-limit 540",
    ),
    "lenet": Step(f"{LIMITS} lenet", "gpu_limits.json", 60, 150),
    "networks": Step(f"{LIMITS} resnet50-joined,resnet50-images,vit-b-16-joined", "gpu_limits.json", 120, 220),
    "consensus": Step(
        f"{COMPOSED} --forms compiled,fused --classifiers consensus --repetitions 1", "gpu.json", 120, 240
    ),
    "patches": Step(f"{COMPOSED} --forms compiled,fused --classifiers patches", "gpu.json", 80, 150),
    "sweep": Step(f"{LIMITS} sweep", "gpu_limits.json", 50, 100),  # the kernels were compiled by the tests
    "starts": Step(f"{LIMITS} start", "gpu_limits.json", 120, 240),
    "autotuned": Step(f"{LIMITS} vit-b-16-autotuned,resnet50-autotuned", "gpu_limits.json", 200, 400),
}


def words_of(text: str, step: Step, work: Path, seconds: float = 0.0) -> list[str]:
    """A step's command: what is measured is put among the latest result; seconds: that it has."""
    newest = next(
        (one for one in (work / step.result, ROOT / "results" / "benchmarks" / step.result) if one.exists()), None
    )
    text = text if newest is not None else text.replace("--keep {kept}", "")
    given = {"work": work, "kept": newest, "seconds": int(seconds - TABLES)}
    return [sys.executable, *(word.format(**given) for word in text.split())]


def begun(words: Sequence[str]) -> subprocess.Popen[bytes]:
    """In a session of its own, so that all of it can be ended."""
    return subprocess.Popen(words, cwd=ROOT, start_new_session=True)


def ended(process: subprocess.Popen[bytes], until: float) -> int:
    """Its code; at the limit it is killed with all that it started."""
    try:
        return process.wait(max(0.0, until - time.monotonic()))
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return process.wait()


def copied(names: Sequence[str], work: Path, out: Path) -> None:
    """What came out of these steps so far, under names that say whose it is."""
    out.mkdir(parents=True, exist_ok=True)
    for result in {STEPS[name].result for name in names}:
        if (work / result).exists():
            shutil.copy(work / result, out / result.replace("/", "-"))


def run(names: Sequence[str], work: Path, out: Path, seconds: float) -> list[str]:
    """Take the steps that are not done as far as the time goes; those that are left."""
    over = time.monotonic() + seconds
    work.mkdir(parents=True, exist_ok=True)
    for name in names:
        step, mark = STEPS[name], work / f"{name}.done"
        if mark.exists() or over - time.monotonic() < step.least:
            continue
        turn = time.monotonic()
        until = min(turn + step.most, over)
        code = ended(begun(words_of(step.words, step, work, until - turn)), until)
        if code >= 0 or until < over:  # what had no time is taken again
            mark.write_text(f"{code}\n")
        print(f"== {name}: code {code} after {time.monotonic() - turn:.0f} s", flush=True)
        copied(names, work, out)
    copied(names, work, out)
    return [name for name in names if not (work / f"{name}.done").exists()]


def make_ready(names: Sequence[str], work: Path, seconds: float) -> None:
    """Fill the caches of these steps, all at the same time."""
    until = time.monotonic() + seconds
    work.mkdir(parents=True, exist_ok=True)
    processes = [begun(words_of(STEPS[one].ready, STEPS[one], work)) for one in names if STEPS[one].ready]
    for process in processes:
        ended(process, until)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("steps", nargs="*", default=list(STEPS), help=f"of {', '.join(STEPS)}; all, without any")
    parser.add_argument("--seconds", type=float, default=570.0, help="for everything")
    parser.add_argument("--ready", action="store_true", help="only fill caches")
    parser.add_argument("--out", type=Path, help="where results are copied to")
    parser.add_argument("--work", type=Path, default=ROOT / "runs" / "sitting", help="where they are made")
    options = parser.parse_args()
    if unknown := [one for one in options.steps if one not in STEPS]:
        parser.error(f"unknown {', '.join(unknown)}; there are {', '.join(STEPS)}")
    if options.ready:
        make_ready(options.steps, options.work.resolve(), options.seconds)
        return 0
    if options.out is None:
        parser.error("--out: say where results are to be copied to")
    left = run(options.steps, options.work.resolve(), options.out, options.seconds)
    print(f"left: {' '.join(left)}" if left else "all steps are done", flush=True)
    return 3 if left else 0


if __name__ == "__main__":
    sys.exit(main())
