"""Runs issue 9's CIFAR-10 reproduction (tools/cifar_commands.py) within a time budget; resumable.

    python tools/cifar_gpu.py list    [--only gaussian] [--sigmas 0.25 0.5]
    python tools/cifar_gpu.py train   --data DIR --work build/cifar --out OUT --seconds 540 [--only gaussian-0.25]
    python tools/cifar_gpu.py certify --data DIR --work build/cifar --out OUT --seconds 540
    python tools/cifar_gpu.py keep    --work build/cifar

DIR holds cifar10_test.npz and cifar10_train_part*.npz, and the folders ``weights`` (the clean networks and denoisers)
and ``imagenet_samples``. Commands run in the work folder in order of value, trainings at the same time in one process;
each continues where it stopped, because that is what the same command does. OUT gets archives of at most 14 MiB
(tools/gpu_packing.py): unpacked into a work folder they restore it. keep verifies what is finished and copies it into
results/cifar10 and zoo/cifar10. --tiny runs everything on a single image, to see that it runs.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from pathlib import Path

from cifar_commands import KINDS, LEARNED, RHOS, RUNS, Command, certification, training
from command_worker import GRACE, Worker, end_of, started
from gpu_packing import keep, pack_runs, pack_zoo

ROOT = Path(__file__).resolve().parents[1]
KEPT = {f"{kind}-{sigma}": 3 for kind in KINDS for sigma in ("0.25", "0.5", "1.0")}
KEPT |= {f"drt-{rho1}-{rho2}-0.25": 1 for rho1, rho2 in RHOS} | {"consistency-resnet110-0.25": 0}
"""Members of these trainings that are kept: all of them together would not fit under the checkout's 30 MiB."""


def prepare(work: Path, data: Path) -> None:
    """Make the work folder, with links to the data and to this folder, so that settings name no machine."""
    work.mkdir(parents=True, exist_ok=True)
    for name, target in (("data", data), ("tools", ROOT / "tools")):
        link = work / name
        link.unlink(missing_ok=True)
        link.symlink_to(target.resolve(), target_is_directory=True)


def train(commands: list[Command], seconds: float, work: Path) -> bool:
    """All trainings that can begin at the same time in one process, then those that waited for them."""
    begin = time.monotonic()
    while waiting := [one for one in commands if not finished(one, work)]:
        ready = [one for one in waiting if not missing(one, work)]
        left = seconds - (time.monotonic() - begin)
        if not ready or left < 1:
            break
        names = ", ".join(one.name for one in ready)
        print(f"{names}: begin with {left:.0f} s left", flush=True)
        words = [str(ROOT / "tools" / "train_together.py"), *(shlex.join(one.words) for one in ready)]
        code = end_of(started(words, work), left)
        print(f"{names}: ended with code {code} after {time.monotonic() - begin:.0f} s", flush=True)
        if code:
            break
    for one in waiting:
        print(f"{one.name}: not finished", flush=True)
    return not waiting


def certify(commands: list[Command], seconds: float, work: Path, processes: int = 1) -> bool:
    """Run what is not done, so many commands at a time, until the seconds are over: then they are interrupted."""
    begin, complete = time.monotonic(), True
    waiting = [one for one in commands if not finished(one, work)]
    running: dict[Worker, Command] = {}
    idle = [Worker(work) for _ in range(processes)]

    def passed() -> float:
        return time.monotonic() - begin

    def note(one: Command, code: int) -> bool:
        print(f"{passed():.0f} s: {one.name} ended with code {code}", flush=True)
        return code == 0

    try:
        while passed() < seconds:
            for one in [one for one in waiting if not missing(one, work)][: len(idle)]:
                waiting.remove(one)
                print(f"{passed():.0f} s: {one.name} begins", flush=True)
                worker = idle.pop(0)
                worker.begin(resolved(one.words, work), partial_of(one.done[0]) if one.printed else None)
                running[worker] = one
            if not running:
                break  # the rest waits for what is missing
            for worker, one in list(running.items()):
                if (code := worker.code()) is not None:
                    del running[worker]
                    idle.append(worker)
                    if one.printed and code == 0:
                        (work / partial_of(one.done[0])).replace(work / one.done[0])
                    complete &= note(one, code)
            time.sleep(0.1)
    finally:
        for worker in idle:
            worker.end(GRACE)
        for worker, one in running.items():
            complete &= note(one, worker.end() or 1)
    for one in waiting:
        print(f"{one.name}: waits for {next(iter(missing(one, work)), 'time')}", flush=True)
    return complete and not waiting


def finished(command: Command, work: Path) -> bool:
    return all((work / path).exists() for path in command.done)


def missing(command: Command, work: Path) -> list[str]:
    return [str(path) for path in command.needs if not (work / path).exists()]


def partial_of(file: Path) -> Path:
    """Where output goes while it is being written."""
    return file.with_name(f".writing-{file.name}")


def resolved(words: tuple[str, ...], work: Path) -> list[str]:
    """The words with ``learned:FILE`` replaced by the weights in that file."""
    return [learned_weights(work / word.removeprefix(LEARNED)) if word.startswith(LEARNED) else word for word in words]


def learned_weights(file: Path) -> str:
    """What ``--member-weights`` takes, from what ``ringfence weights --json`` printed."""
    from ringfence.analysis.holdout import written

    found = json.loads(file.read_text(encoding="utf-8"))["learned"]
    return written(next(one["weights"] for one in found if one["method"] == "gradient"))


def run_phase(options: argparse.Namespace, commands: list[Command]) -> int:
    """The trainings or certifications, as far as the time goes, and what was made as archives; 1 if some are left."""
    prepare(options.work, options.data)
    if options.phase == "train":
        complete = train(commands, options.seconds, options.work)
    else:
        complete = certify(commands, options.seconds, options.work, options.processes)
    if options.out is not None:
        packing = pack_zoo if options.phase == "train" else pack_runs
        packing(options.work / ("zoo" if options.phase == "train" else RUNS), options.out)
    return 0 if complete else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("phase", choices=("list", "train", "certify", "keep"))
    parser.add_argument("--data", type=Path, help="folder of the data")
    parser.add_argument("--work", type=Path, default=Path("build/cifar"), help="folder kept between calls")
    parser.add_argument("--out", type=Path, help="where the archives go")
    parser.add_argument("--seconds", type=float, default=540, help="stop after this time")
    parser.add_argument("--sigmas", nargs="+", default=["0.25"], choices=("0.25", "0.5", "1.0"))
    parser.add_argument("--only", nargs="+", help="only commands whose name begins so")
    parser.add_argument(
        "--processes", type=int, default=1, help="certifications at a time: while one loads, another runs"
    )
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
        places = (ROOT / "zoo/cifar10", ROOT / "results/cifar10")
        keep(options.work / "zoo" / "cifar10", options.work / RUNS, *places, KEPT, pictures=False)
        return 0
    if options.data is None:
        parser.error("--data: name the folder of the data")
    return run_phase(options, chosen[options.phase])


PHASES = {"train": training, "certify": certification}

if __name__ == "__main__":
    sys.exit(main())
