"""The summary table of a report: one row per lane, from the metrics that ``ringfence metrics`` prints."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ringfence.analysis.stages import SEQUENTIAL, STAGED, stage_summary
from ringfence.report.lanes import Lane, Material

Cell = tuple[str, float | str | None]
"""What is shown, and what it is sorted by (None last)."""

NATURAL = "natural"


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
    if lane.records[0].procedure not in (STAGED, SEQUENTIAL) or not lane.records[0].stages:
        return None
    return stage_summary(lane.records).sample_rf
