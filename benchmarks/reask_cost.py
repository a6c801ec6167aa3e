"""What the watch over a classifier costs: draws a second with all of it, and with one part of it left out at a time.

    python benchmarks/reask_cost.py [--form fused|compiled] [--depth 110] [--out reask.json] [--budget 90]

Left out are: asking remembered rows again, watching whether a network changes its input (a part of the check before
the run), and the kernel's care for NaN. The forms take turns; a round's ratios are to all of it on, in that round.
Draws a second count from the first batch to the last record, the seconds before are told apart. Rates do not depend on
weights: these are random. Without a GPU a small network is measured, which shows that it runs and no more.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import PropertyMock, patch

import torch
from common import Bar, Grid, Report, finish, options_parser
from gpu_rates import draws_each, engine, network, plan_of, raw_forward

import ringfence as rf
from ringfence.classifiers import fused
from ringfence.classifiers.fused import why_not
from ringfence.sampling import check
from ringfence.sampling.remembered import Filling, Remembered
from ringfence.sampling.sampler import Sampler

ALL = "all of it"
CARE = "pack<RELU>(low, high)"
RELUS = {
    "NaN: relu by fmaxf": "pack(RELU ? fmaxf(low, 0.f) : low, RELU ? fmaxf(high, 0.f) : high)",
    "NaN: relu by comparing": "pack(RELU && low < 0.f ? 0.f : low, RELU && high < 0.f ? 0.f : high)",
}
"""What stands in the kernel instead of its relu, which keeps NaN: one that turns it into 0, and a costlier one."""


@contextmanager
def no_reasks() -> Iterator[None]:
    """Nothing is asked again: every batch counts as confirmed."""
    every = PropertyMock(side_effect=lambda: sys.maxsize)
    with (
        patch.object(Remembered, "next", lambda *_: Filling((0,))),
        patch.object(Sampler, "confirm", lambda self: None),
        patch.object(Sampler, "confirmed", every),
    ):
        yield


@contextmanager
def no_watching() -> Iterator[None]:
    """Networks may change their input unseen."""
    with patch.object(check, "inputs_watched", nullcontext), patch.object(check, "check_unchanged", lambda *_: None):
        yield


@contextmanager
def another_relu(instead: str) -> Iterator[None]:
    """The kernel with another relu, compiled once and kept."""
    source = fused.source("tensor_cores.cu", "resnet.cu")
    assert CARE in source, "the kernel has changed: say here what its relu looks like"
    with patch.object(fused, "source", lambda *names: source.replace(CARE, instead)):
        yield


@contextmanager
def nothing() -> Iterator[None]:
    """None of it."""
    with no_reasks(), no_watching():
        yield


def forms(fused: bool) -> dict[str, Callable[[], Any]]:
    """What is measured: its name, and the context in which it is."""
    found: dict[str, Callable[[], Any]] = {
        ALL: nullcontext,
        "re-asks off": no_reasks,
        "watching of inputs off": no_watching,
        "both off": nothing,
    }
    relus = {name: (lambda text=text: another_relu(text)) for name, text in RELUS.items()} if fused else {}
    return found | relus


def measured(options: argparse.Namespace) -> dict[str, Any]:
    """Draws a second and seconds before the first batch of every form, round by round, until the time is up."""
    end = time.perf_counter() + options.budget
    model, plan, device = network(options.depth), plan_of(options.form, options), options.device
    every = forms(plan.fused)
    raw = raw_forward(model, plan, options.seconds, device)
    rates: dict[str, list[float]] = {name: [] for name in every}
    starts: dict[str, list[float]] = {name: [] for name in every}
    for context in every.values():  # kernels are compiled now
        with context():
            engine(model, plan, rf.Fixed(n=100), 2, device)
    n, rounds = draws_each(raw(), options.seconds, options.inputs), 0
    under: list[float] = []
    begin = time.perf_counter()
    while rounds < options.repetitions and (not rounds or time.perf_counter() + longest(begin, rounds) < end):
        under.append(raw())
        # Forms change places from round to round: a clock that falls as the device warms hits none more than others.
        order = list(every.items())
        for name, context in order[rounds % len(order) :] + order[: rounds % len(order)]:
            with context():
                rate, _, start = engine(model, plan, rf.Fixed(n=n), options.inputs, device)
            rates[name].append(rate)
            starts[name].append(start)
        rounds += 1
    return {"rates": rates, "starts": starts, "raw": under, "n": n, "rounds": rounds, "plan": plan.settings()}


def longest(begin: float, rounds: int) -> float:
    """Seconds that a round takes, from those so far."""
    return (time.perf_counter() - begin) / max(rounds, 1)


def table(found: Mapping[str, Any]) -> Grid:
    """Medians over the rounds, and of a form's ratio to all of it."""
    rows = []
    for name, rates in found["rates"].items():
        over = median(rate / one for rate, one in zip(rates, found["rates"][ALL], strict=True))
        share = median(rate / one for rate, one in zip(rates, found["raw"], strict=True))
        shown = [f"{median(rates):,.0f}", f"{100 * (over - 1):+.2f}", f"{100 * share:.2f}"]
        rows.append([name, *shown, f"{median(found['starts'][name]):.2f}"])
    columns = ["left out", "draws/s", "over all of it %", "over raw forward %", "start s"]
    return Grid(f"{found['rounds']} rounds of {found['n']:,} draws an input", columns, rows)


def bars(found: Mapping[str, Any]) -> list[Bar]:
    """What the watch may cost."""
    rates = found["rates"]
    pairs = zip(rates["both off"], rates[ALL], strict=True)
    cost = 100 * median(without / all_on - 1 for without, all_on in pairs)
    return [Bar("draws a second that re-asks and watching cost", "at most", 1, cost, "%")]


def parsed() -> argparse.Namespace:
    cuda = torch.cuda.is_available()
    parser = options_parser(__doc__ or "")
    parser.set_defaults(out=Path("reask.json"), repetitions=6 if cuda else 3)
    parser.add_argument("--form", choices=("fused", "compiled"), default="fused")
    parser.add_argument("--depth", type=int, default=110 if cuda else 8)
    parser.add_argument("--batch", type=int, default=8192 if cuda else 100)
    parser.add_argument("--inputs", type=int, default=40 if cuda else 4)
    parser.add_argument("--seconds", type=float, default=2.0 if cuda else 1.0, help="length of each measurement")
    parser.add_argument("--budget", type=float, default=90.0, help="seconds after which no round is begun")
    parser.add_argument("--device", default="cuda" if cuda else "cpu")
    options = parser.parse_args()
    if options.quick:
        options.repetitions, options.seconds = 1, 0.1
    if options.form == "fused" and cuda and (problem := why_not(torch.device(options.device))):
        print(f"Not fused here ({problem}): compiled.", file=sys.stderr)
        options.form = "compiled"
    return options


def main() -> int:
    options = parsed()
    found = measured(options)
    settings = {name: getattr(options, name) for name in ("form", "depth", "batch", "inputs", "seconds", "device")}
    name, options.out = options.out.stem, options.out.parent  # a file is named here, its folder there
    report = Report(name, settings, [table(found)], bars(found), found)
    return finish(report, options)


if __name__ == "__main__":
    raise SystemExit(main())
