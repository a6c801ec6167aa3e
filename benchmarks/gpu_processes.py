"""Trainings side by side on one GPU: in one process as branches of one graph, or in several that share it by MPS.

    python benchmarks/gpu_processes.py [--cases resnet110:consistency:4,resnet20:drt:3] [--seconds 3]

A case is a network, an objective and a number of trainings, which are spread over 1, 2, ... processes that divide it.
All are built at the same time, then each spread steps by itself. NVIDIA's MPS, which lets kernels of several processes
overlap, is started and ended here; where it does not run, processes take turns, and the table says so.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from common import Grid, Report, finish, options_parser
from gpu_training import environment
from gpu_training_cases import NETWORKS, objective_of
from gpu_training_steps import JOINT, Size, our_step, our_trainings

from ringfence.training.compared import algorithms_tried

CASES = "resnet110:consistency:4,resnet20:drt:3,lenet:drt:4"
COMPILED = argparse.Namespace(cache=Path("runs/training-cache"))
"""Where gpu_training.py keeps compiled code."""
READY = "READY"


@contextlib.contextmanager
def shared_device() -> Iterator[dict[str, str]]:
    """With MPS running where there is one: the variables by which processes find it."""
    with tempfile.TemporaryDirectory() as folder:
        found = {"CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
        try:
            subprocess.run(["nvidia-cuda-mps-control", "-d"], env={**os.environ, **found}, check=True)
        except (OSError, subprocess.CalledProcessError):
            yield {}
            return
        try:
            yield found
        finally:
            subprocess.run(["nvidia-cuda-mps-control"], input="quit\n", env={**os.environ, **found}, text=True)


def child(network: str, objective: str, count: int, options: argparse.Namespace) -> None:
    """Build so many trainings, say so, and step for some seconds each time a line comes: steps and seconds."""
    device = torch.device("cpu" if options.quick else "cuda")
    batch = 4 if options.quick else 256
    arch = "resnet8" if options.quick and network.startswith("resnet") else network
    size = Size(arch, device, batch, 2 * batch if options.quick else NETWORKS[network], 1)
    with algorithms_tried():
        step = our_step(our_trainings(size, count, objective_of(objective)))
        step()
    print(READY, flush=True)
    for _ in sys.stdin:
        if size.cuda:
            torch.cuda.synchronize()
        begin, steps = time.perf_counter(), 0
        while time.perf_counter() - begin < options.seconds:
            step()
            if size.cuda:
                torch.cuda.synchronize()
            steps += 1
        print(steps, time.perf_counter() - begin, flush=True)


def spreads(count: int) -> list[int]:
    """Numbers of processes that divide it."""
    return [one for one in range(1, count + 1) if count % one == 0]


def begun(case: str, processes: int, surroundings: dict[str, str]) -> list[subprocess.Popen[str]]:
    """The processes of one spread."""
    network, objective, count = case.split(":")
    words = [sys.executable, __file__, *sys.argv[1:], "--child", f"{network}:{objective}:{int(count) // processes}"]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    return [
        subprocess.Popen(words, env={**environment(COMPILED, 6), **surroundings}, **pipes) for _ in range(processes)
    ]


def told(process: subprocess.Popen[str]) -> list[str]:
    """The next words of a process; none where it is gone."""
    assert process.stdout is not None
    return process.stdout.readline().split()


def rate(processes: list[subprocess.Popen[str]]) -> float:
    """Steps a second of all together, while all of them step; 0.0 where one fails."""
    for one in processes:
        assert one.stdin is not None
        one.stdin.write("go\n")
        one.stdin.flush()
    answers = [told(one) for one in processes]
    return sum(int(steps) / float(seconds) for steps, seconds in answers) if all(answers) else 0.0


def main() -> int:
    parser = options_parser(__doc__ or "")
    parser.add_argument("--cases", default=CASES)
    parser.add_argument("--seconds", type=float, default=3.0, help="that each spread steps")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        network, objective, count = options.child.split(":")
        child(network, objective, int(count), options)
        return 0
    rows = []
    with contextlib.ExitStack() as held:
        surroundings = {} if options.quick else held.enter_context(shared_device())
        spread = {
            (case, n): begun(case, n, surroundings)
            for case in options.cases.split(",")
            for n in spreads(int(case.split(":")[2]))
        }
        for one in [one for each in spread.values() for one in each]:
            held.callback(one.kill)
        for each in spread.values():
            for one in each:
                told(one)
        for (case, processes), each in spread.items():
            network, objective, count = case.split(":")
            members = int(count) * (JOINT if objective_of(objective).grouping == "together" else 1)
            found = rate(each)  # steps of int(count) // processes trainings
            steps = found * (int(count) // processes)
            ms = 1000 * int(count) / steps if steps else None
            epoch = None if ms is None else ms / 1000 * NETWORKS[network] / 256 / members
            rows.append({"case": case, "processes": processes, "members": members, "ms": ms, "s_epoch_member": epoch})
            print(rows[-1], flush=True)
    columns = ["trainings", "processes", "ms until each has stepped once", "s an epoch and member"]
    lines = [
        [
            one["case"],
            str(one["processes"]),
            *(f"{one[key]:.2f}" if one[key] else "failed" for key in ("ms", "s_epoch_member")),
        ]
        for one in rows
    ]
    how = "by MPS" if surroundings else "in turns: no MPS"
    grid = Grid(f"Trainings side by side, processes {how}", columns, lines)
    return finish(
        Report("gpu_processes", {"of": "single timings", "cases": options.cases}, [grid], [], {"rows": rows}), options
    )


if __name__ == "__main__":
    sys.exit(main())
