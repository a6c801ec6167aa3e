"""Issue 9's CIFAR-10 reproduction as a list of ``ringfence`` commands, run within a time budget; resumable.

    python tools/cifar_gpu.py list    --data DIR
    python tools/cifar_gpu.py train   --data DIR --work build/cifar --out OUT --seconds 540 [--only gaussian]
    python tools/cifar_gpu.py certify --data DIR --work build/cifar --out OUT --seconds 540

DIR holds cifar10_test.npz and cifar10_train_part*.npz, and a folder ``weights`` with the clean networks and
denoisers. Commands run one after the other; each continues where it stopped, because that is what the same command
does. OUT gets ``zoo.tar`` or ``runs.tar``; unpacked into the work folder they restore it. --tiny runs everything on a
handful of images, to see that it runs.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from mnist_gpu import pack

NORMALISED = ("--mean", "0.4914,0.4822,0.4465", "--std", "0.2023,0.1994,0.2010")
"""Channel statistics of Cohen et al., which the papers' networks subtract and divide by."""
PAPER = ("--n0", "100", "--alpha", "0.001")
MEMBERS = 10


@dataclass(frozen=True)
class Command:
    """Words of the ``ringfence`` program, and the file that exists once it is done."""

    name: str
    words: tuple[str, ...]
    done: Path
    needs: tuple[Path, ...] = ()


def training(options: argparse.Namespace) -> list[Command]:
    """Paper 000's recipe for ten ResNet-20 and one ResNet-110 of each kind; paper 001's DRT over three of them."""
    zoo = options.work / "zoo" / "cifar10"
    tiny = ("--epochs", "1", "--limit", "256", "--batch", "64") if options.tiny else ()
    fast = ("--precision", "bf16", "--graph") if not options.tiny else ()
    found: list[Command] = []

    def add(name: str, words: tuple[str, ...], members: int, needs: tuple[Path, ...] = ()) -> None:
        common = ("--data", f"cifar10:{options.data}", *NORMALISED, "--out", str(zoo / name), *tiny)
        found.append(Command(name, ("train", *words, *common), zoo / name / f"final-{members - 1}.safetensors", needs))

    side_by_side = ("--parallel", str(1 if options.tiny else MEMBERS))
    for sigma in options.sigmas:
        for kind in ("gaussian", "consistency"):
            recipe = ("--recipe", f"paper000-cifar10-{kind}-{sigma}", *fast)
            many = ("--arch", "resnet20", "--members", str(MEMBERS), *side_by_side)
            add(f"{kind}-{sigma}", (*recipe, *many), MEMBERS)
            if sigma == "0.25":
                add(f"{kind}-resnet110-{sigma}", (*recipe, "--arch", "resnet110"), 1)
        for rho1, rho2 in (("0.1", "0.5"), ("0.2", "0.5")) if sigma == "0.25" else ():
            base = zoo / f"gaussian-{sigma}"
            words = ("--recipe", f"paper001-cifar10-drt-{sigma}", "--arch", "resnet20", "--init", str(base))
            rho = ("--rho1", rho1, "--rho2", rho2)
            add(f"drt-{rho1}-{rho2}-{sigma}", (*words, *rho), 3, (base / f"final-{MEMBERS - 1}.safetensors",))
    return found


def certification(options: argparse.Namespace) -> list[Command]:
    """Every run of results/cifar10: all lanes in one pass, known radii, ACES, denoisers, mechanisms."""
    zoo, runs = options.work / "zoo" / "cifar10", options.work / "runs"
    draws = "200" if options.tiny else "100000"
    some = ("--limit", "3") if options.tiny else ()
    fast = ("--precision", "bf16", "--compile", "--autotune") if not options.tiny else ()
    every20 = ("--data", f"cifar10:{options.data}", "--skip", "20", *some, *fast)
    found: list[Command] = []

    def files(name: str, members: int) -> list[Path]:
        return [zoo / name / f"final-{i}.safetensors" for i in range(members)]

    def specs(name: str, members: int) -> str:
        return ",".join(f"zoo:cifar10/{name}:{i}" for i in range(members))

    def add(name: str, words: tuple[str, ...], needs: list[Path]) -> None:
        found.append(Command(name, (*words, "--out", str(runs / name)), runs / name / "summary.json", tuple(needs)))

    for sigma in options.sigmas:
        for kind in ("gaussian", "consistency"):
            members = files(f"{kind}-{sigma}", MEMBERS)
            listed = ("--members", specs(f"{kind}-{sigma}", MEMBERS), "--sigma", sigma)
            votes = ("--vote", "soft,softmax,hard,max-margin", "--prefixes", "--singles", "--consensus", "2,3,5")
            fixed = (*every20, *PAPER, "--n", draws)
            add(f"{kind}-lanes-{sigma}", ("certify", *listed, *votes, *fixed), members)
            for radius in ("0.25", "0.5", "0.75") if sigma == "0.25" and kind == "consistency" else ():
                known = (*listed, "--radius", radius, *every20, "--alpha", "0.001")
                for procedure in ("staged", "sequential"):
                    words = ("certify", *known, "--procedure", procedure)
                    add(f"{kind}-{procedure}-{radius}", words, members)
                    add(f"{kind}-{procedure}-consensus-{radius}", (*words, "--consensus", "5"), members)
            if sigma == "0.25":
                deep = files(f"{kind}-resnet110-{sigma}", 1)
                one = ("certify", "--model", specs(f"{kind}-resnet110-{sigma}", 1), "--sigma", sigma)
                add(f"{kind}-resnet110-{sigma}", (*one, *fixed), deep)
        for rho in ("0.1-0.5", "0.2-0.5") if sigma == "0.25" else ():
            members = files(f"drt-{rho}-{sigma}", 3)
            votes = ("--vote", "softmax,max-margin", "--singles")
            words = ("certify", "--members", specs(f"drt-{rho}-{sigma}", 3), "--sigma", sigma, *votes)
            every10 = ("--data", f"cifar10:{options.data}", "--skip", "10", *some, *fast)
            add(f"drt-{rho}-{sigma}", (*words, *every10, *PAPER, "--n", draws), members)
    first = files("consistency-0.25", 1)
    core = f"resnet56-pad@{options.data}/weights/cifar10_resnet56.pt"
    selected = ("aces", "run", "--certify", specs("consistency-0.25", 1), "--core", core, "--sigma", "0.25")
    add("aces-0.25", (*selected, *every20, *PAPER, "--n", draws), first)
    return found


def run(commands: list[Command], seconds: float, zoo: Path) -> bool:
    """Run what is not done, until the seconds are over: then the running command is interrupted, as by Ctrl-C."""
    begin, complete = time.monotonic(), True
    for command in commands:
        left = seconds - (time.monotonic() - begin)
        if command.done.exists():
            continue
        missing = [str(path) for path in command.needs if not path.exists()]
        if missing or left < 1:
            print(f"{command.name}: waits for {missing[0] if missing else 'time'}", flush=True)
            complete = False
            continue
        print(f"{command.name}: begins with {left:.0f} s left", flush=True)
        words = [sys.executable, "-m", "ringfence", *command.words]
        process = subprocess.Popen(words, env={**os.environ, "RINGFENCE_ZOO": str(zoo)})
        try:
            code = process.wait(timeout=left)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            code = process.wait()
        print(f"{command.name}: ended with code {code} after {time.monotonic() - begin:.0f} s in all", flush=True)
        complete &= code == 0
    return complete


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("phase", choices=("list", "train", "certify"))
    parser.add_argument("--data", type=Path, required=True, help="folder of the CIFAR-10 files")
    parser.add_argument("--work", type=Path, default=Path("build/cifar"), help="folder kept between calls")
    parser.add_argument("--out", type=Path, help="where the tar goes")
    parser.add_argument("--seconds", type=float, default=540, help="stop after this time")
    parser.add_argument("--sigmas", nargs="+", default=["0.25"], choices=("0.25", "0.5", "1.0"))
    parser.add_argument("--only", nargs="+", help="only commands whose name begins so")
    parser.add_argument("--tiny", action="store_true")
    options = parser.parse_args()
    phases = {"train": training(options), "certify": certification(options)}
    wanted = tuple(options.only or [""])
    chosen = {phase: [one for one in every if one.name.startswith(wanted)] for phase, every in phases.items()}
    if options.phase == "list":
        for one in chosen["train"] + chosen["certify"]:
            print("ringfence", " ".join(one.words))
        return 0
    complete = run(chosen[options.phase], options.seconds, options.work / "zoo")
    if options.out is not None:
        folder, unfinished = ("zoo", ()) if options.phase == "train" else ("runs", ("lock",))
        leave_out = ("epoch-",) if complete and folder == "zoo" else unfinished
        pack(options.work / folder, options.out / f"{folder}.tar", leave_out)
    return 0 if complete else 1


if __name__ == "__main__":
    sys.exit(main())
