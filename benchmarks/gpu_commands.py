"""Commands on a GPU in processes of their own, as users call them: their starts, and sweeps of small ones.

For gpu_limits.py.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

SMALL = shlex.split("--model net.py:make110 --classes 10 --data data.npz")
STARTED = {
    "ResNet-110, fused": [*SMALL, "--limit", "4", "--n", "1000"],
    "ResNet-110, compiled": shlex.split("--model net.py:plain110 --classes 10 --data data.npz --limit 4 --n 1000"),
    "ResNet-50, compiled": shlex.split("--model net.py:make50 --classes 1000 --data large.npz --limit 4 --n 500"),
}
NETWORK = """import torch
from ringfence.classifiers.architectures import resnet
def trained_like(found):
    for part in found.modules():
        if isinstance(part, torch.nn.BatchNorm2d): part.running_var.fill_(2.0)
    return found
class Plain(torch.nn.Module):  # the same network as one that nobody knows
    def __init__(self, inner):
        super().__init__()
        self.inner = inner
    def forward(self, x): return self.inner(x)
def make110():
    torch.manual_seed(0)
    return trained_like(resnet(110))
def plain110(): return Plain(make110())
def make50():
    from ringfence.models.extras import needed
    torch.manual_seed(0)
    return trained_like(needed("timm", "timm", "resnet50").create_model("resnet50", num_classes=1000))
"""
SWEEP = """certify:
- name: at-{sigma}
  each: {sigma: [0.25, 0.3, 0.35, 0.4, 0.45, 0.5]}
  settings: {model: "here/net.py:make110", classes: 10, data: here/data.npz, sigma: "{sigma}", limit: 60, n: 10000,
             no-check: true, fast: true}
"""
COMMAND = """
import atexit, json, sys, time
begun, stamps = float(sys.argv.pop(1)), {}
def stamp(name): stamps.setdefault(name, time.time() - begun)
from ringfence.__main__ import main
from ringfence.bytecode import keep_bytecode
keep_bytecode()  # as main does before it imports anything
from ringfence.cli import certify
asked, folder = certify.job_of, certify.certify_folder
def imported(*given):
    found = asked(*given)
    stamp("libraries")
    return found
def watched(*given, **more):
    from ringfence.sampling.sampler import Sampler
    made, step = Sampler.__init__, Sampler.step
    def checked(self, *given, **more):
        stamp("checks")
        made(self, *given, **more)
    def first(self, *given, **more):
        stamp("first batch")
        return step(self, *given, **more)
    Sampler.__init__, Sampler.step = checked, first
    return folder(*given, **more)
certify.job_of, certify.certify_folder = imported, watched
atexit.register(lambda: print(json.dumps(stamps)))  # main does not come back
main()
"""
"""The command line, in a process of its own, nothing imported that it does not import itself: when libraries were
loaded, the plan was chosen, the first batch begun."""


def laid_out(folder: Path, options: argparse.Namespace) -> None:
    """What the commands read."""
    generator, net, sweep = np.random.default_rng(0), NETWORK, SWEEP
    if options.quick:
        net = re.sub(r"needed\(.*1000\)", "resnet(8, 1000)", net.replace("resnet(110)", "resnet(8)"))
        sweep = sweep.replace("limit: 60, n: 10000", "limit: 2, n: 100, device: cpu").replace(", fast: true", "")
    (folder / "net.py").write_text(net)
    (folder / "sweep.yaml").write_text(sweep)
    pictures = generator.integers(0, 256, (400, 3, 32, 32), dtype=np.uint8)
    np.savez(folder / "data.npz", x=pictures, y=generator.integers(0, 10, 400))
    pictures = generator.integers(0, 256, (16, 3, 224, 224), dtype=np.uint8)
    np.savez(folder / "large.npz", x=pictures, y=generator.integers(0, 1000, 16))


def elsewhere() -> dict[str, str]:
    """What a program sees that runs in another folder: the search path may hold relative ones."""
    path = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return {**os.environ, "PYTHONPATH": os.pathsep.join(str(Path(one).resolve()) for one in path if one)}


def command(folder: Path, *words: str) -> dict[str, float]:
    """Stamps of a command, in seconds after it was called."""
    begun = time.time()
    program = [sys.executable, "-c", COMMAND, str(begun), *words]
    done = subprocess.run(program, cwd=folder, env=elsewhere(), check=True, stdout=subprocess.PIPE, text=True)
    return {**json.loads(done.stdout.splitlines()[-1]), "all": time.time() - begun}


def certify(options: argparse.Namespace) -> list[str]:
    """The command; a quick one compiles nothing."""
    words = ["certify", "--no-check", "--quiet", "--sigma", "0.5", "--device", options.device]
    return words if options.quick else [*words, "--fast"]


def starts(folder: Path, name: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    """A command twice: the second finds caches filled. And how busy the machine was."""
    found, words = [], [*STARTED[name][:-4], "--limit", "1", "--n", "100"] if options.quick else STARTED[name]
    for turn in ("first", "second"):
        stamps = command(folder, *certify(options), *words, "--out", f"{name}-{turn}")
        found.append({"start": f"{name}, {turn}", **stamps, "load": os.getloadavg()[0]})
    return found


def sweeps(folder: Path, options: argparse.Namespace) -> dict[str, float]:
    """Seconds of six small certifications by a sweep, and of one large one."""
    inputs, n = (12, 100) if options.quick else (360, 10_000)
    begin = time.perf_counter()
    sweep = [sys.executable, "-m", "ringfence", "sweep", "sweep.yaml", "--out", "swept", "--side-by-side", "6"]
    subprocess.run(sweep, cwd=folder, env=elsewhere(), check=True, stdout=subprocess.DEVNULL)
    several = time.perf_counter() - begin
    large = command(folder, *certify(options), *SMALL, "--n", str(n), "--limit", str(inputs), "--out", "large")
    return {
        "sweep": several,
        "large": large["all"],
        "draws": inputs * (n + 100),
        "beside": 6,
        "load": os.getloadavg()[0],
    }
