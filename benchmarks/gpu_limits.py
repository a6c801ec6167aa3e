"""How close untuned networks, starts and small runs come to what one GPU can do; rows are chosen by name.

    python benchmarks/gpu_limits.py [--only resnet50-joined,start,sweep] [--keep results/benchmarks/gpu_limits.json]
    python benchmarks/gpu_limits.py --list

resnet50, vit-b-16: forwards a second at 224 pixels, bf16 and compiled, in a form of the network, its kernels, and
a certification in that form, noise and counting included. start: seconds from the command `ringfence certify` to its
first batch, compilers' caches filled by a first one. sweep: six small certifications by `ringfence sweep`, six at a
time, beside one with as many draws; small: the like in one process. layers: convolutions with a shortcut by themselves.
lenet: small networks, whose first layers are one kernel, and as torch compiles them, alone and voting (gpu_lenets.py).
rooms: the fused kernel on multiprocessors with as much shared memory as smaller GPUs have. Weights are random. What is
measured is written after every case; --only takes a name or its beginning.
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
import tempfile
import time
import traceback
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from common import finish, options_parser
from gpu_commands import STARTED, laid_out, starts, sweeps
from gpu_defaults import NETWORKS
from gpu_lenets import small_networks
from gpu_limits_report import BATCH, FUSED_ROWS, report
from gpu_rates import certified, network, seconds_of
from gpu_training_steps import Size, kernels
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

import ringfence as rf
from ringfence.classifiers import joining
from ringfence.classifiers.fused import FusedResNet, kernel_on
from ringfence.sampling import Forward, ForwardPlan

FORMS = {
    "joined": "joined",
    "autotuned": "joined, autotuned",
    "compiled": "compiled",
    "tried": "joined, algorithms tried",
    "images": "joined, image by image",
}
"""By name: plans have the first, with layers exchanged, of long runs the second, where torch tries kernels, which may
hold what follows a product, and cuDNN its algorithms; tried: cuDNN alone does; images: where pixels are read alone,
too, images come one by one."""
INPUTS, BATCHES = 8, 300
ROOMS = {228: 100, 164: 71, 100: 43}
"""KB of shared memory of a multiprocessor (H100, A100, and most others), and which per cent of ours that is."""
STARTS = dict(zip(("start-fused", "start-compiled", "start-resnet50"), STARTED, strict=True))
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
BY_CUDNN = joining.by_cudnn if DEVICE == "cuda" else joining.one_after_the_other
LAYERS = ((64, 56, 3), (128, 28, 3), (256, 14, 5), (512, 7, 2))
"""Of ResNet-50: channels of the input (four times as many come out), pixels of a side, and how often there is one."""


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


def one_network(name: str, key: str, options: argparse.Namespace) -> dict[str, Any]:
    """Forwards a second and kernels of a form, and a certification in it."""
    (_, shape, classes), device = NETWORKS[name], torch.device(options.device)
    if options.quick:
        shape, classes = (3, 32, 32), 10
    model = network(8).eval() if options.quick else made(name)
    # cuDNN keeps the algorithm that it first took for a shape: each form has its own number of rows.
    batch = 4 if options.quick else BATCH - 8 * list(FORMS).index(key)
    how = {"channels_last": True, "fold": True, "compile": not options.quick, "joined": key != "compiled"}
    how |= {"autotune": key == "autotuned", "exchanged": how["joined"] and how["compile"]}
    plan = ForwardPlan(batch, "bf16", **how)  # type: ignore[arg-type]
    torch.backends.cudnn.benchmark = key == "tried"
    joining.by_cudnn = image_by_image if key == "images" else BY_CUDNN
    joining.keeps_nan.cache_clear()
    try:
        run, x = Forward(model, plan, device, classes), torch.randn(batch, *shape, device=device)
        seconds = seconds_of(lambda: run(x), 12, options.device)
        profile = kernels(Size("", device, batch, 0, 1), lambda: run(x), 25)
        draws = certified(model, plan, shape, classes, INPUTS, BATCHES, options.device)
        found = {"rate": batch / seconds, "gflops": gflops(model, shape), "profile": profile, "certified": draws}
    finally:
        torch.backends.cudnn.benchmark, joining.by_cudnn = False, BY_CUDNN
    return {**found, "keeps_nan": joining.joins_on(device)}


def gflops(model: nn.Module, shape: tuple[int, ...]) -> float:
    """Of a forward of one input: products and sums of all matrices, counted without computing any."""
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        copy.deepcopy(model).to("meta")(torch.empty(1, *shape, device="meta"))
    return counter.get_total_flops() / 1e9


def image_by_image(x: Tensor, weight: Tensor, bias: Tensor, shortcut: Tensor | None, *how: Any) -> Tensor:
    """As it is where pixels are not read alone: cuDNN chooses another kernel for it."""
    if shortcut is None or not x.is_cuda:
        return BY_CUDNN(x, weight, bias, shortcut, *how)
    return torch.cudnn_convolution_add_relu(x, weight, shortcut, 1, bias, *how)


def rooms() -> list[dict[str, Any]]:
    """The fused kernel where a multiprocessor has less shared memory, in turns: rates, bits, distance from float32."""
    device, found, first = torch.device("cuda"), [], dict[int, torch.Tensor]()
    x = torch.rand(FUSED_ROWS, 3, 32, 32, device=device)
    for depth in (20, 110):
        plain = network(depth).eval()
        exact, fused = copy.deepcopy(plain).to(device)(x[:512]).detach(), FusedResNet(plain).to(device)
        scores = fused(x.bfloat16())
        kernel = kernel_on(scores.device)
        for turn in range(3):
            for room, share in ROOMS.items():
                kernel.preferred_shared_memory_carveout = share
                scores = fused(narrow := x.bfloat16())
                seconds = seconds_of(lambda fused=fused, narrow=narrow: fused(narrow), 4000 // depth, "cuda")  # type: ignore[misc]
                same = torch.equal(scores, first.setdefault(depth, scores))
                off = float((scores[:512] - exact).norm() / exact.norm())
                found.append(
                    {"turn": turn, "depth": depth, "room": room, "rate": len(x) / seconds, "same": same, "off": off}
                )
    return found


def small(options: argparse.Namespace) -> dict[str, Any]:
    """Small certifications one after the other in a process that has made one before, beside one with as many draws."""
    count, inputs, draws = (2, 2, 100) if options.quick else (6, 60, 3000)
    model, ways = network(8 if options.quick else 110).eval(), dict[str, dict[str, float]]()
    execution = rf.Execution(options.device, compile=not options.quick)
    given: dict[str, Any] = {"sigma": 0.25, "procedure": rf.Fixed(n0=100, n=draws), "check": False}
    given |= {"precision": "fp32" if options.quick else "bf16", "execution": execution, "num_classes": 10}

    def run(times: int, each: int) -> float:
        begin = time.perf_counter()
        for _ in range(times):
            list(rf.certify(model, torch.randint(0, 256, (each, 3, 32, 32)) / 255, **given))
        return time.perf_counter() - begin

    run(1, 2)
    for way, how in {"one large": (1, count), "one after the other": (count, 1), "one large again": (1, count)}.items():
        seconds = run(how[0], how[1] * inputs)
        ways[way] = {"seconds": seconds, "draws_per_s": count * inputs * (draws + 100) / seconds}
    return {"count": count, "inputs": inputs, "draws_each": draws, "ways": ways}


def layers(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Microseconds of 1 x 1 convolutions with bias, shortcut and ReLU."""
    found = []
    for channels, side, number in LAYERS:
        us: dict[str, float] = {}
        # cuDNN keeps the algorithm that it first took for a shape.
        for way, run, rows in (
            ("cuDNN's choice", image_by_image, BATCH),
            ("as one picture", BY_CUDNN, BATCH),
            ("algorithms tried", image_by_image, BATCH - 8),
        ):
            rows = 2 if options.quick else rows
            torch.backends.cudnn.benchmark = way == "algorithms tried"
            shapes = ((rows, channels, side, side), (4 * channels, channels, 1, 1), (rows, 4 * channels, side, side))
            x, weight, shortcut = (
                torch.randn(shape, device=DEVICE).bfloat16().contiguous(memory_format=torch.channels_last)
                for shape in shapes
            )
            given = (x, weight, weight.new_zeros(4 * channels), shortcut, (1, 1), (0, 0), (1, 1), 1)
            difference = (run(*given).float() - BY_CUDNN(*given).float()).norm()
            assert difference <= 1e-2 * shortcut.float().norm(), way
            seconds = seconds_of(lambda run=run, given=given: run(*given), 30, DEVICE)  # type: ignore[misc]
            us[way] = 1e6 * seconds * (1 if options.quick else BATCH / rows)
        torch.backends.cudnn.benchmark = False
        found.append({"layer": f"{channels} to {4 * channels}, {side} x {side}, {number} of them", "us": us})
    return found


def merged(before: list[dict[str, Any]], later: list[dict[str, Any]], key: str) -> list[dict[str, Any]]:
    """The earlier ones that were not measured again, then the later."""
    again = {one[key] for one in later}
    return [one for one in before if one[key] not in again] + later


def measure(name: str, measured: dict[str, Any], folder: Path, options: argparse.Namespace) -> None:
    """A case, put among what was measured, with its date."""
    today = {"date": datetime.now(UTC).date().isoformat()}
    if name == "rooms":
        measured["rooms"] = rooms()
    elif name == "layers":
        measured["layers"] = layers(options)
    elif name == "lenet":
        measured["lenet"] = {**small_networks(options.device, options.quick), **today}
    elif name == "small":
        measured["small"] = {**small(options), **today}
    elif name == "sweep":
        measured["sweep"] = {**sweeps(folder, options), **today}
    elif name.startswith("start-"):
        found = [{**one, **today} for one in starts(folder, STARTS[name], options)]
        measured["starts"] = merged(measured.get("starts", []), found, "start")
    else:
        which, _, key = name.rpartition("-")
        before = next((one for one in measured.get("networks", []) if one["network"] == which), {"forms": {}})
        found = {**one_network(which, key, options), **today}
        # Each form has its own date from now on.
        dated = {form: {"date": before["date"], **of} for form, of in before["forms"].items()}
        entry = {**before, "network": which, "forms": {**dated, FORMS[key]: found}}
        planned = key in ("joined", "autotuned") and found["certified"] > before.get("certified", 0)
        if planned or before.get("form") in (None, FORMS[key]):
            entry |= {"form": FORMS[key], "certified": found["certified"], **today}
        measured["networks"] = merged(measured.get("networks", []), [entry], "network")


CASES = [
    *(f"resnet50-{key}" for key in FORMS),
    *(f"vit-b-16-{key}" for key in ("joined", "autotuned", "compiled")),
    *STARTS,
    "sweep",
    "small",
    "lenet",
    "layers",
    "rooms",
]
"""Each is meant to take less than a minute on an H200 that does nothing else, compilers' caches filled; trying kernels
takes one to three."""


def main() -> int:
    parser = options_parser(__doc__ or "")
    parser.set_defaults(repetitions=1)
    parser.add_argument("--only", default=",".join(CASES), help="names or their beginnings; empty: tables alone")
    parser.add_argument("--list", action="store_true", help="name the cases and stop")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--keep", type=Path, help="an earlier result, for what is not measured now")
    parser.add_argument("--note", action="append", help="a remark below the tables; the earlier ones go, then")
    options: argparse.Namespace = parser.parse_args()
    if options.list:
        print("\n".join(CASES))
        return 0
    asked = [one for one in options.only.split(",") if one]
    if unknown := [one for one in asked if not any(name.startswith(one) for name in CASES)]:
        raise SystemExit(f"--only: unknown {', '.join(unknown)}; --list names them.")
    kept = json.loads(options.keep.read_text()) if options.keep else {"measurements": {}, "settings": {}}
    measured, failed, code = dict(kept["measurements"]), list[str](), 0
    if options.note is not None:
        measured["notes"] = [one for one in options.note if one]
    if not asked:
        origin = {key: kept[key] for key in ("date", "environment", "repetitions")}
        return finish(report(measured, kept["settings"]), options, origin)
    gpu = torch.cuda.get_device_name() if options.device == "cuda" else "none"
    settings = {**kept["settings"], "gpu": gpu, "torch": torch.__version__, "of": "single timings"}
    chosen = [name for name in CASES if any(name.startswith(one) for one in asked)]
    with tempfile.TemporaryDirectory() as folder:
        laid_out(Path(folder), options)
        for name in chosen:
            begin = time.perf_counter()
            try:
                measure(name, measured, Path(folder), options)
            except Exception:  # the next ones are worth as much
                traceback.print_exc()
                failed.append(name)
            print(f"{name} took {time.perf_counter() - begin:.0f} s", flush=True)
            # What is measured stays, whatever ends this process.
            code = finish(report(measured, settings), options, shown=name == chosen[-1])
    if failed:
        print(f"FAILED: {', '.join(failed)}")
    return int(bool(failed)) or code


if __name__ == "__main__":
    sys.exit(main())
