"""The words and the table of a report: what was certified, how, what that guarantees, and the metrics of each lane."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ringfence.analysis.metrics import RunMetrics, guarantee, ratio
from ringfence.analysis.stages import stage_summary
from ringfence.report.lanes import Lane, Material
from ringfence.rounding import written, written_down
from ringfence.store import RunConfig, RunFolder

PAPER_BADGE = "paper mode: no proven guarantee"

Value = float | str | None
Cell = tuple[str, Value]
"""What is shown, and what it is sorted by (None last)."""
Column = tuple[str, str, str, Callable[[Lane], Value]]
"""Heading, what it means, how it is written (% for shares, _DOWN for radii), and a lane's value."""

MOST_RADII = 8
"""Columns of certified accuracy."""

NATURAL = "natural"
_AT = "at "
_DOWN = "down"
_PAPER = ("run", "sigma", "ACR", NATURAL)
"""With certified accuracy at radii the columns that a paper's table has; they alone are copied as LaTeX."""


def lane_guarantee(lane: Lane) -> str:
    """What the lane's numbers promise, in one sentence."""
    if lane.test is None:
        return "An imported log: its radii are taken as printed and could not be checked against counts."
    lattice = None if lane.config is None else lane.config.noise.lattice
    told = guarantee(lane.test, lane.records[0].norm, lane.metrics.sound, "input by itself", lattice)
    return told[0].upper() + told[1:]


def noise_in_words(config: RunConfig) -> str:
    """Family and sigma; of exact noise also its lattice."""
    exact = "" if config.noise.lattice is None else f", exact in steps of 1/{config.noise.lattice}"
    return f"{config.noise.family}, sigma {config.noise.sigma:g}{exact}"


def facts(lanes: Sequence[Lane], material: Material) -> list[tuple[str, str]]:
    """What was certified and how: settings, seed and versions of one run."""
    lane, run = lanes[0], lanes[0].source
    if lane.config is None or not isinstance(run, RunFolder):
        return [("source", f"a log of {len(lane.records)} rows"), ("radii", "as printed, rounded to nearest")]
    config = lane.config
    settings = ", ".join(
        f"{name} {value}" for name, value in config.procedure.settings.items() if value not in (None, [], "")
    )
    found = [
        ("model", config.classifier.tree),
        ("weights", config.classifier.digest or "-"),
        ("data", f"{config.data.source}, {len(lane.records)} inputs"),
        ("classes", str(config.classifier.classes)),
        ("noise", noise_in_words(config)),
        ("alpha", f"{lane.records[0].alpha:g} per input"),
        ("procedure", f"{config.procedure.name} ({settings})" if settings else config.procedure.name),
        ("mechanism", f"{config.mechanisms[0].replace('_', '-')}, in {config.norm}"),
        ("precision", config.precision),
        ("seed", str(config.seed)),
        ("lanes", ", ".join(config.classifier.names) or "main"),
        ("natural", _how_natural(material, lane)),
    ]
    if run.norm != config.norm:
        found.append(("radii", f"in {run.norm}, converted from {config.norm}, in which they were proved"))
    if config.lift.norm_bound != 1.0:
        found.append(("lift", f"{config.lift.name}, norm at most {config.lift.norm_bound:.6g}"))
    for place in run.environments():
        parts = [f"{name} {place[name]}" for name in ("ringfence", "torch", "numpy", "python") if place.get(name)]
        parts += [str(place[name]) for name in ("gpu", "cpu") if place.get(name)][:1]
        found.append(("made with", ", ".join(parts)))
    return [*found, ("config", config.digest)]


def run_heads(material: Material) -> list[dict[str, Any]]:
    """One entry per run for the page's head."""
    return [
        {
            "name": name,
            "facts": facts(lanes, material),
            "guarantee": lane_guarantee(lanes[0]),
            "sound": all(lane.metrics.sound for lane in lanes),
            "badge": "imported: no counts to check" if lanes[0].test is None else PAPER_BADGE,
        }
        for name, lanes in material.runs.items()
    ]


def _how_natural(material: Material, lane: Lane) -> str:
    """Which draws natural accuracy comes from, or why it is not known."""
    found = material.natural(lane)
    if found is None:
        return "not known: PREDICT does not answer for this procedure's classifier"
    whose = "this run's" if found.run == lane.run else f"those of {found.run}"
    return f"PREDICT with {found.draws:,} draws per input ({whose}) at alpha {found.alpha:g}"


def summary_table(material: Material) -> dict[str, Any]:
    """Columns and rows of the table; columns that no lane fills are left out, natural accuracy excepted."""
    lanes = material.lanes
    columns = _columns(material)
    if len(lanes) == 1:
        columns = [column for column in columns if column[0] != "TimeRF"]
    judged = any(lane.columns.labelled.any() for lane in lanes)
    values = {name: [of(lane) for lane in lanes] for name, _, _, of in columns}
    kept = [
        (name, title, [_cell(value, form) for value in values[name]])
        for name, title, form, _ in columns
        if any(value is not None for value in values[name]) or (name == NATURAL and judged)
    ]
    return {
        "columns": [
            {"name": name, "title": title, "paper": name in _PAPER or name.startswith(_AT)} for name, title, _ in kept
        ],
        "rows": [
            {"sound": lane.metrics.sound, "cells": [cells[place] for _, _, cells in kept]}
            for place, lane in enumerate(lanes)
        ],
    }


def _columns(material: Material) -> list[Column]:
    lanes = material.lanes
    radii = [radius for radius in material.radii if radius][:MOST_RADII]
    return [
        ("run", "run and lane", "", lambda lane: lane.name),
        ("sigma", "noise level", "g", lambda lane: lane.config.noise.sigma if lane.config else None),
        ("ACR", "average certified radius", ".3f", _if_radii_claimed(lambda of: of.acr)),
        (NATURAL, "natural accuracy: right under PREDICT", "%", lambda lane: _natural(material, lane)),
        (f"{_AT}0", "certified accuracy at radius 0, abstained is wrong", "%", lambda lane: lane.metrics.accuracy),
        *(
            (_AT + written(r), f"certified accuracy at {written(r)}", "%", partial(_reached, material, radius=r))
            for r in radii
        ),
        ("abstained", "nothing is claimed", "%", lambda lane: lane.metrics.abstention),
        ("median radius", "wrong and abstained count as 0", _DOWN, _if_radii_claimed(lambda of: of.median_radius)),
        ("inputs", "certified inputs", ",", lambda lane: lane.metrics.count),
        ("draws", "noise draws per input", ",.0f", lambda lane: ratio(lane.metrics.draws, lane.metrics.count)),
        ("ms", "milliseconds per input; lanes of a run share its time", ",.1f",
         lambda lane: 1000 * lane.metrics.seconds / lane.metrics.count),
        ("draws/s", "rate of sampling", ",.0f", _rate),
        ("forwards/draw", "network evaluations per draw", ".2f",
         lambda lane: ratio(lane.metrics.forwards, lane.metrics.draws)),
        ("KCR", "draws decided by the first K members", "%",
         lambda lane: lane.metrics.consensus.kcr if lane.metrics.consensus else None),
        ("SampleRF", "draws of fixed sampling over these", ".1f", _sample_rf),
        ("TimeRF", f"time of {lanes[0].name} over this", ".2f",
         lambda lane: lane.metrics.against(lanes[0].metrics).time_rf),
    ]  # fmt: skip


def _cell(value: Value, form: str) -> Cell:
    if value is None:
        return "-", None
    if isinstance(value, str) or form not in (_DOWN, "%"):
        return format(value, form), value
    return written_down(value, 3) if form == _DOWN else f"{100 * value:.1f}%", value


def _if_radii_claimed(value: Callable[[RunMetrics], float | None]) -> Callable[[Lane], float | None]:
    """The value, unless the lane claims no radii at all."""
    return lambda lane: value(lane.metrics) if lane.claims_radius else None


def _reached(material: Material, lane: Lane, radius: float) -> float | None:
    return material.metrics_of(lane).certified_accuracy.get(radius) if lane.claims_radius else None


def _rate(lane: Lane) -> float | None:
    """Lanes share their draws, and each has its part of the time alone."""
    return None if lane.metrics.lane else ratio(lane.metrics.draws, lane.metrics.seconds)


def _natural(material: Material, lane: Lane) -> float | None:
    found = material.natural(lane)
    return None if found is None else found.accuracy


def _sample_rf(lane: Lane) -> float | None:
    if not lane.known_radius or not lane.records[0].stages:
        return None
    return stage_summary(lane.records).sample_rf
