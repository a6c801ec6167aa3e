"""Rows of ``gpu_limits.py`` as tables and bars."""

from __future__ import annotations

from statistics import median
from typing import Any

from common import Bar, Grid, Report

BATCH = 664
"""Rows of a forward; forms that must not find each other's algorithms have a few less."""
FUSED_ROWS = 8192
"""Of a forward of the fused kernel."""
RATES = {"resnet50": 40_000, "vit-b-16": 15_000}
"""Forwards a second that a certification must reach."""
Shown = tuple[list[Grid], list[Bar]]


def report(measured: dict[str, Any], settings: dict[str, Any]) -> Report:
    """What there is."""
    made = [show(measured[name]) for name, show in TABLES.items() if measured.get(name)]
    grids, bars = [grid for some, _ in made for grid in some], [bar for _, some in made for bar in some]
    return Report("gpu_limits", settings, grids, bars, measured, measured.get("notes", ()))


def of_networks(networks: list[dict[str, Any]]) -> Shown:
    """Forwards a second in every form and certified, and the kernels of the form that was certified last."""
    rows, listed, bars = [], [], []
    for one in networks:
        name = one["network"]
        for form, of in one["forms"].items():
            speed, date = of["rate"] * of["gflops"] / 1000, of.get("date", one["date"])
            rows.append([f"{name}, {form}", f"{of['rate']:,.0f}", f"{speed:.0f}", date])
            if "certified" in of and form != one["form"]:
                rows.append([f"{name}, certified, {form}", f"{of['certified']:,.0f}", "", date])
        rows.append([f"{name}, certified, {one['form']}", f"{one['certified']:,.0f}", "", one["date"]])
        bars.append(Bar(f"{name}: draws a second of a certification", "at least", RATES[name], one["certified"]))
        profile = one["forms"][one["form"]]["profile"]
        for kernel, count, us in profile["kernels"][:12]:
            numbers = [f"{count:.0f}", f"{us / 1000:.2f}", f"{100 * us / profile['us']:.1f}"]
            listed.append([f"{name}: {kernel[:70]}", *numbers])
    grids = [
        Grid(f"Forwards a second, batch {BATCH}", ["network", "a second", "TFLOP/s", "measured"], rows),
        Grid("Longest kernels of a forward", ["kernel", "launches", "ms", "% of all"], listed),
    ]
    return grids, bars


def of_members(found: list[dict[str, Any]]) -> Shown:
    """Convolutions of several members, by the way they were launched."""
    pieces = ("forward", "input gradient", "weight gradient")
    rows = [
        [f"{one['channels']} channels, {one['way']}", *(f"{one['us'][piece]:.1f}" for piece in pieces)] for one in found
    ]
    return [Grid("Convolutions of ten members of a ResNet, batch 256: us a member", ["way", *pieces], rows)], []


def of_consensus(found: dict[str, dict[str, Any]]) -> Shown:
    """Short runs, and what is reckoned from them; long ones are rows of gpu.py."""
    rows = []
    for name, one in found.items():
        numbers = [f"{one['forwards_per_draw']:.2f}", f"{batches(one):.0f}", f"{100 * one['share']:.1f}"]
        rows.append([name, *numbers, f"{per_batch(one):.1f}"])
    columns = ["K-consensus, 2 of 10 ResNet-20", "forwards/draw", "full batches", "of a member's rate %"]
    title = "A K-consensus of compiled members, 16 batches at a time"
    return [Grid(title, [*columns, "in a full batch, reckoned %"], rows)], []


def of_small(found: dict[str, Any]) -> Shown:
    """Small certifications in one process."""
    rows = [[name, f"{one['seconds']:.1f}", f"{one['draws_per_s']:,.0f}"] for name, one in found["ways"].items()]
    title = f"{found['count']} certifications of {found['inputs']} inputs, {found['draws_each']:,} draws"
    return [Grid(title, ["way", "s", "draws a second"], rows)], []


def of_lenet(found: dict[str, Any]) -> Shown:
    """Small networks by form, over what torch compiles in the same run."""
    rows, bars = [], []
    for name in dict.fromkeys(one["network"] for one in found["rows"]):
        plain, *others = [one for one in found["rows"] if one["network"] == name]
        for one in (plain, *others):
            times = [f"{one[key] / plain[key]:.2f}" for key in ("rate", "certified")]
            numbers = [f"{one['rate']:,.0f}", times[0], f"{one['certified']:,.0f}", times[1]]
            off = f"{one['off']:.4f}, {one['off_plain']:.4f}"
            rows.append([f"{name}, {one['form']}", *numbers, off, found["date"]])
        bars += [
            Bar(f"{name}, {one['form']}: forwards over compiled ones", "at least", 3, one["rate"] / plain["rate"])
            for one in others
        ]
    columns = ["network", "forwards/s", "over compiled", "certified draws/s", "over compiled"]
    title = f"Small networks, batch {found['batch']:,}, bf16"
    return [Grid(title, [*columns, "off float32, plain in bf16", "measured"], rows)], bars


def of_starts(found: list[dict[str, Any]]) -> Shown:
    """Stamps of commands; the second of a kind finds caches filled."""
    # Commands measured since torch is imported by the command itself have no stamp of it.
    parts = list(dict.fromkeys(key for one in found for key in one if key not in ("start", "date", "load")))
    rows = [
        [one["start"], *(f"{one[part]:.1f}" if part in one else "" for part in parts), one["date"]] for one in found
    ]
    seconds = [one for one in found if one["start"].endswith(", second")]
    bars = [
        Bar(
            f"{one['start'].removesuffix(', second')}: command to first batch, caches filled",
            "at most", 5, one["first batch"], "s",
        )
        for one in seconds
    ]  # fmt: skip
    return [Grid("Seconds after the command was called", ["start", *parts, "measured"], rows)], bars


def of_sweep(found: dict[str, Any]) -> Shown:
    """Processes side by side."""
    rows = [
        [name, f"{found[key]:.1f}", f"{found['draws'] / found[key]:,.0f}"]
        for name, key in ((f"six by a sweep, {found.get('beside', 3)} at a time", "sweep"), ("one of as many", "large"))
    ]
    title = f"Seconds of {found['draws']:,.0f} draws, ResNet-110, starts included"
    bar = Bar("six small certifications over one large", "at most", 1.1, found["sweep"] / found["large"])
    return [Grid(title, ["run", "s", "draws a second"], rows)], [bar]


def of_layers(found: list[dict[str, Any]]) -> Shown:
    """Single layers with a shortcut."""
    ways = list(found[0]["us"])
    rows = [[one["layer"], *(f"{one['us'][way]:,.0f}" for way in ways)] for one in found]
    return [Grid(f"Convolutions with a shortcut, batch {BATCH}: us", ["channels, pixels", *ways], rows)], []


def of_rooms(found: list[dict[str, Any]]) -> Shown:
    """The fused kernel by shared memory: medians over the turns, and that scores have the same bits everywhere."""
    rows, bars = [], []
    for depth, room in dict.fromkeys((one["depth"], one["room"]) for one in found):
        here = [one for one in found if (one["depth"], one["room"]) == (depth, room)]
        most = [one for one in found if (one["depth"], one["room"]) == (depth, max(other["room"] for other in found))]
        rate, largest = (median(one["rate"] for one in ones) for ones in (here, most))
        name = f"ResNet-{depth}, {room} KB a multiprocessor"
        rows.append([name, f"{rate:,.0f}", f"{100 * rate / largest:.1f}", f"{here[0]['off']:.1e}"])
        other = sum(not one["same"] for one in here)
        bars.append(Bar(f"{name}: turns with scores of other bits than the largest's", "at most", 0, other))
    columns = ["fused kernel, 97 KB a block", "rows/s", "% of the largest", "off float32"]
    return [Grid(f"The fused kernel by shared memory, batch {FUSED_ROWS:,}", columns, rows)], bars


def batches(one: dict[str, Any]) -> float:
    """Full ones, of 16 times 8,192 rows."""
    return float(one["draws"]) / (16 * 8192)


def per_batch(one: dict[str, Any]) -> float:
    """Per cent of a member's rate where one more batch than the full ones was run, the first: it chose the classes."""
    return 100 * float(one["share"]) * (batches(one) + 1) / batches(one)


TABLES = {
    "networks": of_networks,
    "members": of_members,
    "consensus": of_consensus,
    "small": of_small,
    "lenet": of_lenet,
    "starts": of_starts,
    "sweep": of_sweep,
    "layers": of_layers,
    "rooms": of_rooms,
}
"""In their order; some rows were measured by scripts that are gone."""
