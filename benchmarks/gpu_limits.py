"""How close untuned networks, starts and small runs come to what one GPU can do.

    python benchmarks/gpu_limits.py [--only networks,start,sweep,rooms] [--keep EARLIER.json]

networks: forwards a second of ResNet-50 and ViT-B/16 at 224 pixels, bf16 and compiled, in the forms that a plan may
have, their kernels, and a certification in the form that plans have, noise and counting included. start: seconds from
the command `ringfence certify` to its first batch, compilers' caches filled by a first one. sweep: six small
certifications by `ringfence sweep`, three at a time, beside one with as many draws. rooms: the fused kernel on
multiprocessors with as much shared memory as smaller GPUs have. Weights are random.
"""

from __future__ import annotations

import argparse
import copy
import json
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from common import Bar, Grid, Report, finish, options_parser
from gpu_defaults import NETWORKS
from gpu_rates import network
from gpu_starts import COMMAND
from gpu_training_steps import Size, kernels
from torch import nn

import ringfence as rf
from ringfence.classifiers.fused import FusedResNet, kernel_on
from ringfence.data import Input
from ringfence.sampling import Forward, ForwardPlan

GFLOPS = {"resnet50": 8.18, "vit-b-16": 35.2}
"""Of a forward."""
RATES = {"resnet50": 40_000, "vit-b-16": 15_000}
"""Forwards a second that a certification must reach."""
FORMS = {"joined": (True, False), "compiled": (False, False), "joined, algorithms tried": (True, True)}
"""Whether convolutions are joined with what follows, and whether cuDNN tries its algorithms; plans have the first."""
BATCH, INPUTS = 664, 8
ROOMS = {228: 100, 164: 71, 100: 43}
"""KB of shared memory of a multiprocessor (H100, A100, and most others), and which per cent of ours that is."""
CERTIFY = shlex.split("certify --device cuda --fast --no-check --quiet --sigma 0.5")
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


def made(name: str) -> nn.Module:
    """A network without zeros: statistics and weights as after a training."""
    torch.manual_seed(0)
    model = NETWORKS[name][0]().eval()
    for part in model.modules():
        if isinstance(part, nn.BatchNorm2d) and part.running_mean is not None and part.running_var is not None:
            with torch.no_grad():
                part.weight.uniform_(0.5, 1.0)
                part.bias.normal_(0, 0.1)
            part.running_mean.normal_(0, 0.1)
            part.running_var.uniform_(1, 2)
    return model


def one_network(name: str) -> dict[str, Any]:
    """Forwards a second and kernels of every form, then a certification in the one that plans have."""
    (_, shape, classes), model, device = NETWORKS[name], made(name), torch.device("cuda")
    found: dict[str, Any] = {"network": name, "forms": {}}
    plans = {}
    for number, (form, (joined, tried)) in enumerate(FORMS.items()):
        # cuDNN keeps the algorithm that it first took for a shape: each form has its own number of rows.
        plan = ForwardPlan(BATCH - 8 * number, "bf16", channels_last=True, compile=True, fold=True, joined=joined)
        torch.backends.cudnn.benchmark, plans[form] = tried, plan
        run, x = Forward(model, plan, device, classes), torch.randn(plan.batch, *shape, device=device)
        seconds = timed(lambda run=run, x=x: run(x), 12)  # type: ignore[misc]
        profile = kernels(Size("", device, BATCH, 0, 1), lambda run=run, x=x: run(x), 25)  # type: ignore[misc]
        found["forms"][form] = {"rate": plan.batch / seconds, "profile": profile}
    torch.backends.cudnn.benchmark, best = False, next(iter(FORMS))
    items = [Input(i, torch.randint(0, 256, shape) / 255, None, str(i)) for i in range(INPUTS)]
    begun: list[float] = []
    execution = rf.Execution("cuda", plan=plans[best], on_plan=lambda plan: begun.append(time.perf_counter()))
    given: dict[str, Any] = {"num_classes": classes, "precision": "bf16", "execution": execution}
    test = rf.Fixed(n0=100, n=100 * BATCH // INPUTS - 100)
    records = list(rf.certify(model, items, noise=rf.Gaussian(0.25), procedure=test, **given))
    draws = sum(one.draws for one in records)
    return {**found, "form": best, "certified": draws / (time.perf_counter() - begun[-1])}


def timed(run: Callable[[], object], times: int) -> float:
    """Seconds of one."""
    for _ in range(3):
        run()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(times):
        run()
    torch.cuda.synchronize()
    return (time.perf_counter() - begin) / times


def laid_out(folder: Path) -> None:
    """What the commands read."""
    generator = np.random.default_rng(0)
    (folder / "net.py").write_text(NETWORK)
    (folder / "sweep.yaml").write_text(SWEEP)
    pictures = generator.integers(0, 256, (400, 3, 32, 32), dtype=np.uint8)
    np.savez(folder / "data.npz", x=pictures, y=generator.integers(0, 10, 400))
    pictures = generator.integers(0, 256, (16, 3, 224, 224), dtype=np.uint8)
    np.savez(folder / "large.npz", x=pictures, y=generator.integers(0, 1000, 16))


def command(folder: Path, *words: str) -> dict[str, float]:
    """Stamps of a command, in seconds after it was called."""
    begun = time.time()
    program = [sys.executable, "-c", COMMAND, str(begun), *words]
    done = subprocess.run(program, cwd=folder, check=True, stdout=subprocess.PIPE, text=True)
    return {**json.loads(done.stdout.splitlines()[-1]), "all": time.time() - begun}


def starts(folder: Path) -> list[dict[str, Any]]:
    """Each command twice: the second finds caches filled."""
    return [
        {"start": f"{name}, {turn}", **command(folder, *CERTIFY, *words, "--out", f"{place}-{turn}")}
        for place, (name, words) in enumerate(STARTED.items())
        for turn in ("first", "second")
    ]


def rooms() -> list[dict[str, Any]]:
    """The fused kernel where a multiprocessor has less shared memory, in turns: rates, bits, distance from float32."""
    device, found, first = torch.device("cuda"), [], dict[int, torch.Tensor]()
    x = torch.rand(8192, 3, 32, 32, device=device)
    for depth in (20, 110):
        plain = network(depth).eval()
        exact, fused = copy.deepcopy(plain).to(device)(x[:512]).detach(), FusedResNet(plain).to(device)
        scores = fused(x.bfloat16())
        kernel = kernel_on(scores.device)[1]
        for turn in range(3):
            for room, share in ROOMS.items():
                kernel.preferred_shared_memory_carveout = share
                scores = fused(narrow := x.bfloat16())
                rate = len(x) / timed(lambda fused=fused, narrow=narrow: fused(narrow), 4000 // depth)  # type: ignore[misc]
                same = torch.equal(scores, first.setdefault(depth, scores))
                off = float((scores[:512] - exact).norm() / exact.norm())
                found.append({"turn": turn, "depth": depth, "room": room, "rate": rate, "same": same, "off": off})
    return found


def sweeps(folder: Path) -> dict[str, float]:
    """Seconds of six small certifications by a sweep, and of one large one."""
    begin = time.perf_counter()
    sweep = [sys.executable, "-m", "ringfence", "sweep", "sweep.yaml", "--out", "swept", "--side-by-side", "3"]
    subprocess.run(sweep, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    several = time.perf_counter() - begin
    large = command(folder, *CERTIFY, *SMALL, "--n", "10000", "--limit", "360", "--out", "large")
    return {"sweep": several, "large": large["all"], "draws": 360 * 10_100}


def report(measured: dict[str, Any], settings: dict[str, Any]) -> Report:
    """Tables and bars."""
    networks, grids, bars = measured.get("networks", []), [], []
    rows, listed = [], []
    for one in networks:
        name = one["network"]
        for form, of in one["forms"].items():
            share = of["rate"] * GFLOPS[name] / 1000
            rows.append([f"{name}, {form}", f"{of['rate']:,.0f}", f"{share:.0f}", one["date"]])
        rows.append([f"{name}, certified, {one['form']}", f"{one['certified']:,.0f}", "", one["date"]])
        bars.append(Bar(f"{name}: draws a second of a certification", "at least", RATES[name], one["certified"]))
        profile = one["forms"][one["form"]]["profile"]
        for kernel, count, us in profile["kernels"][:12]:
            listed.append(
                [f"{name}: {kernel[:70]}", f"{count:.0f}", f"{us / 1000:.2f}", f"{100 * us / profile['us']:.1f}"]
            )
    if rows:
        grids.append(Grid(f"Forwards a second, batch {BATCH}", ["network", "a second", "TFLOP/s", "measured"], rows))
        grids.append(Grid("Longest kernels of a forward", ["kernel", "launches", "ms", "% of all"], listed))
    if found := measured.get("members"):
        pieces = ("forward", "input gradient", "weight gradient")
        rows = [
            [f"{one['channels']} channels, {one['way']}", *(f"{one['us'][piece]:.1f}" for piece in pieces)]
            for one in found
        ]
        grids.append(Grid("Convolutions of ten members of a ResNet, batch 256: us a member", ["way", *pieces], rows))
    if found := measured.get("consensus"):
        rows = [
            [
                name,
                f"{one['forwards_per_draw']:.2f}",
                f"{batches(one):.0f}",
                f"{100 * one['share']:.1f}",
                f"{per_batch(one):.1f}",
            ]
            for name, one in found.items()
        ]
        columns = [
            "K-consensus, 2 of 10 ResNet-20",
            "forwards/draw",
            "full batches",
            "of a member's rate %",
            "in a full batch, reckoned %",
        ]
        grids.append(Grid("A K-consensus of compiled members, 16 batches at a time", columns, rows))
    if found := measured.get("small"):
        rows = [[name, f"{one['seconds']:.1f}", f"{one['draws_per_s']:,.0f}"] for name, one in found["ways"].items()]
        title = f"{found['count']} certifications of {found['inputs']} inputs, {found['draws_each']:,} draws"
        grids.append(Grid(title, ["way", "s", "draws a second"], rows))
    if found := measured.get("starts"):
        parts = [key for key in found[0] if key not in ("start", "date")]
        rows = [[one["start"], *(f"{one[part]:.1f}" for part in parts), one["date"]] for one in found]
        grids.append(Grid("Seconds after the command was called", ["start", *parts, "measured"], rows))
        for one in found:
            if one["start"].endswith("second"):
                name = one["start"].removesuffix(", second")
                bars.append(
                    Bar(f"{name}: command to first batch, caches filled", "at most", 5, one["first batch"], "s")
                )
    if found := measured.get("sweep"):
        rows = [[name, f"{found[key]:.1f}"] for name, key in (("six by a sweep", "sweep"), ("one of as many", "large"))]
        grids.append(Grid(f"Seconds of {found['draws']:,.0f} draws, ResNet-110, starts included", ["run", "s"], rows))
        bars.append(Bar("six small certifications over one large", "at most", 1.1, found["sweep"] / found["large"]))
    if found := measured.get("layers"):
        ways = list(found[0]["us"])
        rows = [[one["layer"], *(f"{one['us'][way]:,.0f}" for way in ways)] for one in found]
        grids.append(Grid("Convolutions with a shortcut, batch 664: us", ["channels, pixels", *ways], rows))
    if found := measured.get("rooms"):
        grid, limits = of_rooms(found)
        grids.append(grid)
        bars += limits
    return Report("gpu_limits", settings, grids, bars, measured, measured.get("notes", ()))


def of_rooms(found: list[dict[str, Any]]) -> tuple[Grid, list[Bar]]:
    """The fused kernel by shared memory: medians over the turns, and that scores have the same bits everywhere."""
    rows, bars = [], []
    for depth, room in dict.fromkeys((one["depth"], one["room"]) for one in found):
        here = [one for one in found if (one["depth"], one["room"]) == (depth, room)]
        most = [one for one in found if (one["depth"], one["room"]) == (depth, max(ROOMS))]
        rate, largest = (median(one["rate"] for one in ones) for ones in (here, most))
        name = f"ResNet-{depth}, {room} KB a multiprocessor"
        rows.append([name, f"{rate:,.0f}", f"{100 * rate / largest:.1f}", f"{here[0]['off']:.1e}"])
        other = sum(not one["same"] for one in here)
        bars.append(Bar(f"{name}: turns with scores of other bits than the largest's", "at most", 0, other))
    columns = ["fused kernel, 97 KB a block", "rows/s", "% of the largest", "off float32"]
    return Grid("The fused kernel by shared memory, batch 8,192", columns, rows), bars


def batches(one: dict[str, Any]) -> float:
    """Full ones, of 16 times 8,192 rows."""
    return float(one["draws"]) / (16 * 8192)


def per_batch(one: dict[str, Any]) -> float:
    """Per cent of a member's rate where one more batch than the full ones was run, the first: it chose the classes."""
    return 100 * float(one["share"]) * (batches(one) + 1) / batches(one)


def main() -> int:
    parser = options_parser(__doc__ or "")
    parser.add_argument("--only", default="networks,start,sweep,rooms")
    parser.add_argument("--keep", type=Path, help="an earlier result, for what is not measured now")
    options: argparse.Namespace = parser.parse_args()
    kept = json.loads(options.keep.read_text()) if options.keep else {"measurements": {}}
    measured, today = dict(kept["measurements"]), datetime.now(UTC).date().isoformat()
    if "networks" in options.only:
        measured["networks"] = [{**one_network(name), "date": today} for name in GFLOPS]
    with tempfile.TemporaryDirectory() as folder:
        laid_out(Path(folder))
        if "start" in options.only:
            measured["starts"] = [{**one, "date": today} for one in starts(Path(folder))]
        if "sweep" in options.only:
            measured["sweep"] = {**sweeps(Path(folder)), "date": today}
    if "rooms" in options.only:
        measured["rooms"] = rooms()
    if not options.only:
        origin = {key: kept[key] for key in ("date", "environment", "repetitions")}
        return finish(report(measured, kept["settings"]), options, origin)
    return finish(report(measured, {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__}), options)


if __name__ == "__main__":
    sys.exit(main())
