"""Runs issue 9's CIFAR-10 reproduction (tools/cifar_commands.py) within a time budget; resumable.

    python tools/cifar_gpu.py list    [--only gaussian] [--sigmas 0.25 0.5]
    python tools/cifar_gpu.py train   --data DIR --work build/cifar --out OUT --seconds 540 [--only gaussian-0.25]
    python tools/cifar_gpu.py certify --data DIR --work build/cifar --out OUT --seconds 540
    python tools/cifar_gpu.py keep    --work build/cifar

DIR holds cifar10_test.npz and cifar10_train_part*.npz, and the folders ``weights`` (the clean networks and denoisers)
and ``imagenet_samples``. Commands run in the work folder one after the other, in order of value; each continues where
it stopped, because that is what the same command does. OUT gets archives of at most 14 MiB (tools/gpu_packing.py):
unpacked into a work folder they restore it. keep verifies what is finished and copies it into results/cifar10 and
zoo/cifar10. --tiny runs everything on a single image, to see that it runs.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from cifar_commands import LEARNED, RUNS, Command, certification, training
from gpu_packing import keep, pack_runs, pack_zoo

ROOT = Path(__file__).resolve().parents[1]
GRACE = 60
"""Seconds that an interrupted command may take to end."""


def prepare(work: Path, data: Path) -> None:
    """Make the work folder, with links to the data and to this folder, so that settings name no machine."""
    work.mkdir(parents=True, exist_ok=True)
    for name, target in (("data", data), ("tools", ROOT / "tools")):
        link = work / name
        link.unlink(missing_ok=True)
        link.symlink_to(target.resolve(), target_is_directory=True)


def run(commands: list[Command], seconds: float, work: Path) -> bool:
    """Run what is not done, until the seconds are over: then the running command is interrupted, as by Ctrl-C."""
    begin, complete = time.monotonic(), True
    for command in commands:
        left = seconds - (time.monotonic() - begin)
        if all((work / path).exists() for path in command.done):
            continue
        missing = [str(path) for path in command.needs if not (work / path).exists()]
        if missing or left < 1:
            print(f"{command.name}: waits for {missing[0] if missing else 'time'}", flush=True)
            complete = False
            continue
        print(f"{command.name}: begins with {left:.0f} s left", flush=True)
        code = run_one(command, left, work)
        print(f"{command.name}: ended with code {code} after {time.monotonic() - begin:.0f} s in all", flush=True)
        complete &= code == 0
    return complete


def run_one(command: Command, seconds: float, work: Path) -> int:
    """The command in the work folder, for so many seconds at most; its exit code."""
    words = [sys.executable, "-m", "ringfence", *resolved(command.words, work)]
    # The search path may hold relative folders, and the command runs elsewhere.
    path = os.pathsep.join(str(Path(entry).resolve()) for entry in sys.path if entry)
    environment = {**os.environ, "RINGFENCE_ZOO": "zoo", "PYTHONPATH": path}
    output = subprocess.PIPE if command.printed else None
    process = subprocess.Popen(words, cwd=work, env=environment, stdout=output, text=True)
    try:
        printed, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        try:
            process.communicate(timeout=GRACE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
        return process.returncode or 1
    if command.printed and process.returncode == 0:
        file = work / command.done[0]
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(printed, encoding="utf-8")
    return process.returncode


def resolved(words: tuple[str, ...], work: Path) -> list[str]:
    """The words with ``learned:FILE`` replaced by the weights in that file."""
    return [learned_weights(work / word.removeprefix(LEARNED)) if word.startswith(LEARNED) else word for word in words]


def learned_weights(file: Path) -> str:
    """What ``--member-weights`` takes, from what ``ringfence weights --json`` printed."""
    from ringfence.analysis.sween import written

    found = json.loads(file.read_text(encoding="utf-8"))["learned"]
    return written(next(one["weights"] for one in found if one["method"] == "gradient"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("phase", choices=("list", "train", "certify", "keep"))
    parser.add_argument("--data", type=Path, help="folder of the data")
    parser.add_argument("--work", type=Path, default=Path("build/cifar"), help="folder kept between calls")
    parser.add_argument("--out", type=Path, help="where the archives go")
    parser.add_argument("--seconds", type=float, default=540, help="stop after this time")
    parser.add_argument("--sigmas", nargs="+", default=["0.25"], choices=("0.25", "0.5", "1.0"))
    parser.add_argument("--only", nargs="+", help="only commands whose name begins so")
    parser.add_argument("--tiny", action="store_true")
    options = parser.parse_args()
    phases = {phase: made(tuple(options.sigmas), options.tiny) for phase, made in PHASES.items()}
    wanted = tuple(options.only or [""])
    chosen = {phase: [one for one in every if one.name.startswith(wanted)] for phase, every in phases.items()}
    if options.phase == "list":
        for one in chosen["train"] + chosen["certify"]:
            print(f"# {one.name}\nringfence", " ".join(one.words))
        return 0
    if options.phase == "keep":
        keep(options.work / "zoo" / "cifar10", options.work / RUNS, ROOT / "zoo/cifar10", ROOT / "results/cifar10")
        return 0
    if options.data is None:
        parser.error("--data: name the folder of the data")
    prepare(options.work, options.data)
    complete = run(chosen[options.phase], options.seconds, options.work)
    if options.out is not None:
        packing = pack_zoo if options.phase == "train" else pack_runs
        packing(options.work / ("zoo" if options.phase == "train" else RUNS), options.out)
    return 0 if complete else 1


PHASES = {"train": training, "certify": certification}

if __name__ == "__main__":
    sys.exit(main())
