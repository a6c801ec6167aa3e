"""How close certification comes to what one GPU can do: noisy forwards a second, as ratios within one run.

    python benchmarks/gpu.py [--depths 20,110] [--forms compiled,autotuned,fused] [--only networks,ensembles,start]
                             [--classifiers consensus,patches] [--keep results/benchmarks/gpu.json]

Forms of the network: compiled by torch, autotuned, or fused into our own kernel. Rows: the per-image loop of research
code (TF32, batch 1000), the raw forward of the very network and shape that the engine uses, the engine itself on a
fixed-n certification; then K-consensus, ACES with 101 thresholds and four patches, as member forwards a second over the
raw forward of one member. Weights are random: rates do not depend on them. What is measured is written as it comes.
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import torch
from common import Bar, Grid, Report, finish, options_parser
from gpu_rates import SHAPE, draws_each, engine, network, per_image_loop, plan_of, raw_forward
from gpu_starts import of_starts, start, starts
from torch import nn

import ringfence as rf
from ringfence.classifiers import Aces, EntropySelector, KConsensus
from ringfence.classifiers.fused import whole_waves
from ringfence.classifiers.patches import Patches
from ringfence.lift import noise_place
from ringfence.operators import Crops
from ringfence.procedures import AcesCertify, Procedure
from ringfence.sampling import ForwardPlan
from ringfence.sampling.probe import CONSENSUS_PARTS, LONG_PARTS, LONG_RUN, consensus_parts, sizes

Measured = dict[str, list[dict[str, Any]]]
TODAY = datetime.now(UTC).date().isoformat()
LOOP_TIMES = {110: 5.5, 20: 3.8}
"""Least times the per-image loop, by depth, of the fastest form."""
CLASSIFIERS = {"consensus": "K-consensus, 2 of 10", "aces": "ACES, 101 thresholds", "patches": "4 patches"}
LEAST = {"K-consensus, 2 of 10": 95, "4 patches": 98}
"""Least per cent of a member's raw rate, by the composed classifier."""


def one_network(depth: int, form: str, loop: float, options: argparse.Namespace) -> dict[str, Any]:
    """Raw and engine of one depth, in turns, beside the loop's rate."""
    model, device, seconds = network(depth), options.device, options.seconds
    plan = plan_of(form, options)
    first = engine(model, plan, rf.Fixed(n=100), 2, device)[2]
    forward = raw_forward(model, plan, seconds, device)
    raw, rates = [forward()], []
    for _ in range(options.repetitions):
        raw.append(forward())
        n = draws_each(raw[0], 2 * seconds, options.inputs)
        rates.append(engine(model, plan, rf.Fixed(n=n), options.inputs, device)[0])
    return {"depth": depth, "form": form, "loop": loop, "raw": raw[1:], "engine": rates, "compile_seconds": first}


def ensembles(form: str, options: argparse.Namespace, told: Callable[[Measured], None]) -> None:
    """Composed classifiers of ResNet-20: member forwards a second beside the raw forward of one; told as they come."""
    member, device, seconds = network(options.small), options.device, options.seconds
    plan = plan_of(form, options)
    twins = [member]
    for _ in range(9):
        twin = copy.deepcopy(member)
        with torch.no_grad():
            for weight in twin.parameters():
                weight.add_(0.05 * weight.std(correction=0) * torch.randn(weight.shape))
        twins.append(twin)
    crops = Crops(size=32, resize=36, count=4)
    lift, rest = noise_place("patch", crops, SHAPE)
    thetas = [round(0.01 * k, 2) for k in range(101)]
    aces = Aces(member, EntropySelector(thetas), twins[1])
    size = whole_waves(plan.batch, torch.device(device)) if plan.fused else plan.batch  # as plans of ensembles have it
    several = CONSENSUS_PARTS if plan.fused else consensus_parts(size, SHAPE, torch.device(device), 500 * 100_000)
    parts = ForwardPlan(**{**plan.settings(), "batch": size * several, "parts": several})
    rows = plan.batch // 4 if options.quick else max(sizes(torch.device(device), (4, *SHAPE)))  # as plans have them
    patched = ForwardPlan(**{**plan.settings(), "batch": rows})
    # With the forwards of a draw, roughly, so that all take as long.
    cases: dict[str, tuple[nn.Module, ForwardPlan, float, dict[str, Any]]] = {
        "K-consensus, 2 of 10": (KConsensus(twins, 2), parts, 2.4, {}),
        "ACES, 101 thresholds": (aces, plan, 1.0, {"lanes": aces.names}),
        "4 patches": (Patches(member, rest), patched, 4.0, {"lift": lift}),
    }
    found: dict[str, Any] = {"depth": options.small, "form": form, "cases": {}}
    forward = raw_forward(member, plan, seconds, device)
    for name in [CLASSIFIERS[one] for one in options.classifiers.split(",")]:
        model, shape, work, more = cases[name]
        raw, rates, each = [], [], 0.0
        for _ in range(options.repetitions):
            raw.append(forward())
            n = draws_each(raw[-1] / work, 2 * seconds, options.inputs)
            if shape.parts == LONG_PARTS:  # which only a long run has
                n = LONG_RUN * shape.batch // options.inputs
            procedure: Procedure = AcesCertify(n=n) if model is aces else rf.Fixed(n=n)
            rate, each, _ = engine(model, shape, procedure, options.inputs, device, **more)
            rates.append(rate)
        found["cases"][name] = {"raw": raw, "engine": rates, "forwards_per_draw": each, "date": TODAY}
        told({"ensembles": [found]})


def parsed() -> argparse.Namespace:
    parser = options_parser(__doc__ or "")
    parser.set_defaults(repetitions=3)  # rounds are long here
    parser.add_argument("--depths", default="20,110")
    parser.add_argument("--small", type=int, default=20, help="depth of the members")
    parser.add_argument("--batch", type=int, default=8192)
    parser.add_argument("--inputs", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=3.0, help="length of each measurement")
    parser.add_argument("--forms", default="compiled,autotuned,fused")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--only", default="networks,ensembles,start")
    parser.add_argument("--classifiers", default=",".join(CLASSIFIERS), help="of --only ensembles")
    parser.add_argument("--keep", type=Path, help="an earlier result, for what is not measured now")
    parser.add_argument("--start", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if unknown := set(options.classifiers.split(",")) - set(CLASSIFIERS):
        raise SystemExit(f"--classifiers: unknown {', '.join(sorted(unknown))}; there are {', '.join(CLASSIFIERS)}.")
    if options.quick:
        options.depths, options.small, options.batch, options.inputs, options.seconds = "8", 8, 400, 2, 0.1
        options.repetitions = 1
    return options


def share_of(one: dict[str, Any]) -> float:
    """The engine's rate over the raw forward's, median over the turns."""
    return median(rate / under for rate, under in zip(one["engine"], one["raw"], strict=True))


def of_networks(networks: list[dict[str, Any]]) -> tuple[Grid, list[Bar]]:
    """The table of single networks, and what they must reach."""
    rows, bars, best = [], [], {one["depth"]: 0.0 for one in networks}
    for one in networks:
        share, times = share_of(one), median(one["engine"]) / one["loop"]
        best[one["depth"]] = max(best[one["depth"]], times)
        rates = [f"{median(one['raw']):,.0f}", f"{median(one['engine']):,.0f}", f"{one['loop']:,.0f}"]
        shown = [f"{100 * share:.1f}", f"{times:.2f}", f"{one['compile_seconds']:.0f}", one["date"]]
        rows.append([f"ResNet-{one['depth']}, {one['form']}", *rates, *shown])
        name = f"ResNet-{one['depth']}, {one['form']}: engine over raw forward"
        bars.append(Bar(name, "at least", 98, 100 * share, "%"))
    for depth, times in best.items():
        if depth in LOOP_TIMES:
            name = f"ResNet-{depth}: engine over the per-image loop"
            bars.append(Bar(name, "at least", LOOP_TIMES[depth], times))
    columns = ["network", "raw/s", "engine/s", "loop/s", "engine over raw %", "over loop", "start s", "measured"]
    return Grid("Noisy forwards a second", columns, rows), bars


def of_ensembles(composed: list[dict[str, Any]]) -> tuple[Grid, list[Bar]]:
    """The table of composed classifiers, and what they must reach."""
    rows, bars = [], []
    for found in composed:
        for name, one in found["cases"].items():
            rates = [f"{median(one['raw']):,.0f}", f"{median(one['engine']):,.0f}"]
            each, share = f"{one['forwards_per_draw']:.2f}", 100 * share_of(one)
            rows.append([f"{name}, {found['form']}", each, *rates, f"{share:.1f}", one.get("date", found["date"])])
            if name in LEAST:
                bars.append(
                    Bar(f"{name}, {found['form']}: of a member's raw rate", "at least", LEAST[name], share, "%")
                )
    columns = ["classifier", "forwards/draw", "raw/s", "engine/s", "engine over raw %", "measured"]
    title = f"Member forwards a second of composed classifiers, ResNet-{composed[0]['depth']}"
    return Grid(title, columns, rows), bars


def with_kept(measured: Measured, kept: dict[str, Any] | None) -> Measured:
    """What was measured, each with its date, and of an earlier result what was not measured again."""
    raw = {name: [{**one, "date": TODAY} for one in ones] for name, ones in measured.items()}
    for name, earlier in (kept["measurements"] if kept else {}).items():
        again = {what(one): one for one in raw.get(name, [])}
        dated = [{"date": kept["date"][:10], **one} for one in earlier] if kept else []
        for one in dated:
            if "cases" in one and what(one) in again:  # of these single classifiers may have been measured
                before = {case: {"date": one["date"], **of} for case, of in one["cases"].items()}
                again[what(one)]["cases"] = before | again[what(one)]["cases"]
        raw[name] = [one for one in dated if what(one) not in again] + raw.get(name, [])
    return raw


def what(one: dict[str, Any]) -> tuple[Any, ...]:
    """What was measured."""
    return tuple(one.get(key) for key in ("depth", "form", "start"))


TABLES = {"networks": of_networks, "ensembles": of_ensembles, "starts": of_starts}
"""What is measured, and how it is shown."""


def main() -> int:
    options = parsed()
    if options.start:
        start(options)
        return 0
    forms, measured = options.forms.split(","), Measured()
    kept = json.loads(options.keep.read_text()) if options.keep else None
    gpu = torch.cuda.get_device_name() if options.device == "cuda" else "none"
    settings = {"forms": forms, "batch": options.batch, "gpu": gpu, "torch": torch.__version__}
    settings |= {"inputs": options.inputs, "seconds": options.seconds}

    def told(more: Measured, shown: bool = False) -> int:
        """Written as it comes: it stays, whatever ends this process."""
        for name, ones in more.items():
            again = {what(one) for one in ones}
            measured[name] = [one for one in measured.get(name, []) if what(one) not in again] + ones
        return finish(report(with_kept(measured, kept), settings), options, shown=shown)

    if "networks" in options.only:
        for depth in map(int, options.depths.split(",")):
            loop = per_image_loop(network(depth), options.seconds, options.device)
            for form in forms:
                told({"networks": [one_network(depth, form, loop, options)]})
    if "ensembles" in options.only:
        for form in forms:
            if form != "autotuned":
                ensembles(form, options, told)
    if "start" in options.only:
        told({"starts": starts(options)})
    if kept and not measured:  # the same once more, as tables
        origin = {key: kept[key] for key in ("date", "environment", "repetitions")}
        return finish(report(with_kept({}, kept), kept["settings"]), options, origin)
    return told({}, shown=True)


def report(raw: Measured, settings: dict[str, Any]) -> Report:
    """Tables and bars of what there is."""
    shown = [table(raw[name]) for name, table in TABLES.items() if name in raw]
    grids, bars = [grid for grid, _ in shown], [bar for _, limits in shown for bar in limits]
    return Report("gpu", settings, grids, bars, raw, [f"GPU: {settings['gpu']}"])


if __name__ == "__main__":
    sys.exit(main())
