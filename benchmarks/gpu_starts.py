"""How long a command takes to start on a GPU: with an empty compile cache, and with a filled one."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from common import Bar, Grid
from gpu_rates import engine, network, plan_of

import ringfence as rf

STARTED = ("compiled", "fused")
"""The forms whose starts are measured: kernels are tried out apart."""
PARTS = ("libraries", "device", "answers", "all")
"""When, after a start, the libraries were loaded, the device answered, and the first answers were there."""


def of_starts(found: list[dict[str, Any]]) -> tuple[Grid, list[Bar]]:
    """Seconds by start and part as a table, and what they may be."""
    rows = [[one["start"], *(f"{one[part]:.1f}" for part in PARTS), one["date"]] for one in found]
    by_name = {one["start"]: one for one in found}
    bars = []
    for form in STARTED:
        second = by_name[f"{form}, second"]
        name = f"Start with filled caches, Python's included, {form}"
        bars.append(Bar(f"{name}: until the first answers", "at most", 5, second["answers"], "s"))
        bars.append(Bar(f"{name}: all", "at most", 10, second["all"], "s"))
    return Grid("Seconds from the call of Python", ["start", *PARTS, "measured"], rows), bars


def starts(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Seconds after the call of Python, with an empty compile cache and with a filled one; all: until it has ended."""
    found: list[dict[str, Any]] = []
    program = [sys.executable, str(Path(__file__).with_name("gpu.py")), "--only", "nothing"]
    shape = ["--small", str(options.small), "--batch", str(options.batch), "--device", options.device]
    for form in STARTED:
        with tempfile.TemporaryDirectory() as cache:
            folders = {"TORCHINDUCTOR_CACHE_DIR": "", "TRITON_CACHE_DIR": "triton", "CUPY_CACHE_DIR": "cupy"}
            place = {**os.environ, **{name: f"{cache}/{folder}" for name, folder in folders.items()}}
            for name in ("first", "second"):
                begun = time.time()
                words = [*program, *shape, "--forms", form, "--start", str(begun)]
                done = subprocess.run(words, env=place, check=True, stdout=subprocess.PIPE, text=True)
                ended = time.time() - begun
                found.append({"start": f"{form}, {name}", **json.loads(done.stdout.splitlines()[-1]), "all": ended})
    return found


def start(options: argparse.Namespace) -> None:
    """What ``starts`` calls: prints the seconds after which libraries were there, then the device, then the answers."""
    found = {"libraries": time.time() - options.start}
    torch.zeros(1, device=options.device)
    found["device"] = time.time() - options.start
    engine(network(options.small), plan_of(options.forms, options), rf.Fixed(n=100), 1, options.device)
    found["answers"] = time.time() - options.start
    print(json.dumps(found))
