"""The words and the table of a report: what was certified, how, what that guarantees, and the metrics of each lane."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ringfence.analysis.metrics import guarantee
from ringfence.analysis.stages import stage_summary
from ringfence.report.lanes import Lane, Material
from ringfence.store import RunFolder

PAPER_BADGE = "paper mode: no proven guarantee"

Cell = tuple[str, float | str | None]
"""What is shown, and what it is sorted by (None last)."""

NATURAL = "natural"


def lane_guarantee(lane: Lane) -> str:
    """What the lane's numbers promise, in one sentence."""
    if lane.test is None:
        return "An imported log: its radii are taken as printed and could not be checked against counts."
    told = guarantee(lane.test, lane.records[0].norm, lane.metrics.sound, "input by itself")
    return told[0].upper() + told[1:]


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
        ("noise", f"{config.noise.family}, sigma {config.noise.sigma:g}"),
        ("alpha", f"{lane.records[0].alpha:g} per input"),
        ("procedure", f"{config.procedure.name} ({settings})" if settings else config.procedure.name),
        ("mechanism", config.mechanisms[0]),
        ("precision", config.precision),
        ("seed", str(config.seed)),
        ("lanes", ", ".join(config.classifier.names) or "main"),
        ("natural", _how_natural(material, lane)),
    ]
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
    radii = sorted({radius for lane in lanes for radius in lane.metrics.certified_accuracy if radius})[:6]

    def _time_rf(lane: Lane) -> float | None:
        return lane.metrics.against(lanes[0].metrics).time_rf

    columns: list[tuple[str, str, Callable[[Lane], Cell]]] = [
        ("run", "run and lane", lambda lane: (lane.name, lane.name)),
        ("sigma", "noise level", lambda lane: _number(lane.config.noise.sigma if lane.config else None, "g")),
        ("ACR", "average certified radius", _radius("acr")),
        (NATURAL, "natural accuracy: right under PREDICT", lambda lane: _percent(_natural(material, lane))),
        ("at 0", "certified accuracy at radius 0, abstained is wrong", lambda lane: _percent(lane.metrics.accuracy)),
        *((f"at {radius:g}", f"certified accuracy at radius {radius:g}", _at(radius)) for radius in radii),
        ("abstained", "nothing is claimed", lambda lane: _percent(lane.metrics.abstention)),
        ("median radius", "wrong and abstained count as 0", _radius("median_radius")),
        ("inputs", "certified inputs", lambda lane: (f"{lane.metrics.count:,}", lane.metrics.count)),
        ("draws", "noise draws per input", lambda lane: _number(_per_input(lane, "draws") or None, ",.0f")),
        ("ms", "milliseconds per input", lambda lane: _number(1000 * _per_input(lane, "seconds"), ",.1f")),
        ("draws/s", "rate of sampling", lambda lane: _number(_rate(lane), ",.0f")),
        ("forwards/draw", "network evaluations per draw", lambda lane: _number(_forwards(lane), ".2f")),
        ("KCR", "draws decided by the first K members", lambda lane: _percent(_kcr(lane))),
        ("SampleRF", "draws of fixed sampling over these", lambda lane: _number(_sample_rf(lane), ".1f")),
        ("TimeRF", f"time of {lanes[0].name} over this", lambda lane: _number(_time_rf(lane), ".2f")),
    ]  # fmt: skip
    judged = any(lane.labelled.any() for lane in lanes)
    kept = [
        column
        for column in columns
        if any(column[2](lane)[1] is not None for lane in lanes) or (column[0] == NATURAL and judged)
    ]
    if len(lanes) == 1:
        kept = [column for column in kept if column[0] != "TimeRF"]
    return {
        "columns": [{"name": name, "title": title} for name, title, _ in kept],
        "rows": [{"sound": lane.metrics.sound, "cells": [of(lane) for _, _, of in kept]} for lane in lanes],
    }


def _number(value: float | None, form: str) -> Cell:
    return ("-", None) if value is None else (format(value, form), value)


def _percent(share: float | None) -> Cell:
    return ("-", None) if share is None else (f"{100 * share:.1f}%", share)


def _at(radius: float) -> Callable[[Lane], Cell]:
    return lambda lane: _percent(_of_radii(lane, lane.metrics.certified_accuracy.get(radius)))


def _radius(name: str) -> Callable[[Lane], Cell]:
    return lambda lane: _number(_of_radii(lane, getattr(lane.metrics, name)), ".3f")


def _of_radii(lane: Lane, value: float | None) -> float | None:
    """The value, unless the lane claims no radii at all."""
    return value if lane.claims_radius else None


def _natural(material: Material, lane: Lane) -> float | None:
    found = material.natural(lane)
    return None if found is None else found.accuracy


def _per_input(lane: Lane, name: str) -> float:
    return float(getattr(lane.metrics, name)) / lane.metrics.count


def _rate(lane: Lane) -> float | None:
    return lane.metrics.draws / lane.metrics.seconds if lane.metrics.seconds and lane.metrics.draws else None


def _forwards(lane: Lane) -> float | None:
    return lane.metrics.forwards / lane.metrics.draws if lane.metrics.draws and lane.metrics.forwards else None


def _kcr(lane: Lane) -> float | None:
    return lane.metrics.consensus.kcr if lane.metrics.consensus else None


def _sample_rf(lane: Lane) -> float | None:
    if not lane.known_radius or not lane.records[0].stages:
        return None
    return stage_summary(lane.records).sample_rf
