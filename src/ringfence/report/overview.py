"""The words of a report: what was certified, how, and what that guarantees."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ringfence.report.lanes import Lane, Material
from ringfence.store import RunFolder

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
            "guarantee": guarantee(lanes[0]),
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
