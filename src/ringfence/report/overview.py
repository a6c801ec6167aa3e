"""The words and tables of a report: what was certified, what that guarantees, the summary table, the sources."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ringfence.analysis.stages import SEQUENTIAL, STAGED, stage_summary
from ringfence.report.lanes import Lane, Material
from ringfence.store import RunFolder

Cell = tuple[str, float | str | None]
"""What is shown, and what it is sorted by (None last)."""

PAPER_BADGE = "paper mode: no proven guarantee"


def guarantee(lane: Lane) -> str:
    """What the lane's numbers promise, in one sentence."""
    if lane.test is None:
        return "An imported log: its radii are taken as printed and could not be checked against counts."
    if not lane.metrics.sound:
        return "Paper mode: these results reproduce a published procedure and carry no proven guarantee."
    sure = f"{1 - lane.test.alpha:.10g}"
    if lane.ceiling is None:
        claim = "each answer is the smoothed classifier's most probable class"
    else:
        claim = "no perturbation of l2 norm below its radius changes the smoothed classifier's answer"
    return f"For each input by itself, with probability at least {sure} over the noise, {claim}."


def facts(lanes: Sequence[Lane]) -> list[tuple[str, str]]:
    """What was certified and how: settings, seed and versions of one run."""
    lane, run = lanes[0], lanes[0].source
    if lane.config is None or not isinstance(run, RunFolder):
        return [("source", f"a log of {len(lane.records)} rows"), ("radii", "as printed, rounded to nearest")]
    config = lane.config
    settings = ", ".join(
        f"{name} {value}" for name, value in config.procedure_settings.items() if value not in (None, [], "")
    )
    found = [
        ("model", config.model),
        ("weights", config.weights_hash or "-"),
        ("data", f"{config.data}, {len(lane.records)} inputs"),
        ("classes", str(config.num_classes)),
        ("noise", f"{config.noise}, sigma {config.sigma:g}"),
        ("alpha", f"{lane.records[0].alpha:g} per input"),
        ("procedure", f"{config.procedure} ({settings})" if settings else config.procedure),
        ("mechanism", config.mechanism),
        ("precision", config.precision + (", compiled" if config.compile else "")),
        ("seed", str(config.seed)),
        ("lanes", ", ".join(config.lanes) or "main"),
    ]
    if float(config.lift.get("norm_bound", 1.0)) != 1.0:
        found.append(("lift", f"{config.lift.get('name')}, norm at most {config.lift['norm_bound']:.6g}"))
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
            "facts": facts(lanes),
            "guarantee": guarantee(lanes[0]),
            "sound": all(lane.metrics.sound for lane in lanes),
            "badge": "imported: no counts to check" if lanes[0].test is None else PAPER_BADGE,
        }
        for name, lanes in material.runs.items()
    ]


def summary_table(lanes: Sequence[Lane]) -> dict[str, Any]:
    """Columns and rows of the table; columns that no lane fills are left out."""
    radii = sorted({radius for lane in lanes for radius in lane.metrics.certified_accuracy if radius})[:6]

    def _time_rf(lane: Lane) -> float | None:
        return lane.metrics.against(lanes[0].metrics).time_rf

    columns: list[tuple[str, str, Callable[[Lane], Cell]]] = [
        ("run", "run and lane", lambda lane: (lane.name, lane.name)),
        ("sigma", "noise level", lambda lane: _number(lane.config.sigma if lane.config else None, "g")),
        ("ACR", "average certified radius", lambda lane: _number(lane.metrics.acr, ".3f")),
        ("accuracy", "right and not abstained, at radius 0", lambda lane: _percent(lane.metrics.accuracy)),
        *((f"at {radius:g}", f"certified accuracy at radius {radius:g}", _at(radius)) for radius in radii),
        ("abstained", "nothing is claimed", lambda lane: _percent(lane.metrics.abstention)),
        ("median radius", "wrong and abstained count as 0", lambda lane: _number(lane.metrics.median_radius, ".3f")),
        ("inputs", "certified inputs", lambda lane: (f"{lane.metrics.count:,}", lane.metrics.count)),
        ("draws", "noise draws per input", lambda lane: _number(_per_input(lane, "draws") or None, ",.0f")),
        ("ms", "milliseconds per input", lambda lane: _number(1000 * _per_input(lane, "seconds"), ",.1f")),
        ("draws/s", "rate of sampling", lambda lane: _number(_rate(lane), ",.0f")),
        ("forwards/draw", "network evaluations per draw", lambda lane: _number(_forwards(lane), ".2f")),
        ("KCR", "draws decided by the first K members", lambda lane: _percent(_kcr(lane))),
        ("SampleRF", "draws of fixed sampling over these", lambda lane: _number(_sample_rf(lane), ".1f")),
        ("TimeRF", f"time of {lanes[0].name} over this", lambda lane: _number(_time_rf(lane), ".2f")),
    ]  # fmt: skip
    kept = [column for column in columns if any(column[2](lane)[1] is not None for lane in lanes)]
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
    return lambda lane: _percent(lane.metrics.certified_accuracy.get(radius))


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
