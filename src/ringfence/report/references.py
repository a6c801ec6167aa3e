"""The reference list of a report: the papers it rests on (papers.toml), each with the runs that used it."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import final

from ringfence.report.lanes import Lane, Material
from ringfence.report.other_figures import attacks_on


@final
@dataclass(frozen=True)
class Paper:
    """A paper, what it is used for, and the facts of lanes, trainings, attacks and studies that rest on it."""

    text: str
    used_for: str
    of: frozenset[str]


@cache
def papers() -> tuple[Paper, ...]:
    """Every paper, in the order of a report."""
    held = tomllib.loads((files("ringfence.report") / "papers.toml").read_text(encoding="utf-8"))
    return tuple(Paper(one["text"], one["used_for"], frozenset(one["of"])) for one in held["paper"])


def references(material: Material) -> list[dict[str, str]]:
    """The papers this report rests on: text, use, and who used it with which settings."""
    users = list(_users(material))
    using = [(paper, dict.fromkeys(name for name, facts in users if facts & paper.of)) for paper in papers()]
    return [
        {"text": paper.text, "used_for": paper.used_for, "runs": "; ".join(names)} for paper, names in using if names
    ]


def _users(material: Material) -> Iterator[tuple[str, set[str]]]:
    """Everything on the page that may rest on a paper: how it is called, and its facts."""
    extras = material.extras
    for lane in material.lanes:
        yield f"{lane.run} ({_settings(lane)})", lane_facts(lane)
    for attack in attacks_on(material):
        yield f"{attack.title} ({attack.found.steps} steps)", {"attack", f"attack={attack.found.attack}"}
    for training in extras.training:
        yield f"{training.name} (training)", {f"objective={name}" for name in training.objectives}
    for name, _ in extras.variance:
        yield f"{name} (variance model)", {"variance"}


def lane_facts(lane: Lane) -> set[str]:
    """What a lane rests on, in the words of papers.toml."""
    config, facts = lane.config, {"lane"}
    if config is None:
        return facts
    facts |= set() if lane.test is None else set(lane.test.sources)
    facts |= {f"mechanism={name}" for name in config.mechanisms}
    facts |= {f"vote={vote}" for vote in _votes(lane)}
    reducing = config.reduced
    holds = {
        "several mechanisms": len(lane.records[0].radii) > 1,
        "ensemble": bool(config.ensemble),
        "thresholds": lane.theta is not None,
        "reduced": bool(reducing.get("crops") or reducing.get("clips")),  # wherever the noise enters
        "split alpha": config.split_alpha,
        "predicted": lane.natural is not None,
    }
    return facts | {name for name, held in holds.items() if held}


def _votes(lane: Lane) -> list[str]:
    """The vote by which a lane decides: by its name where a run has several, else the run's only one."""
    chosen = lane.config.ensemble if lane.config else {}
    if lane.config is not None and (vote := lane.config.classifier.lane(lane.lane).vote):
        return [vote]
    if lane.lane != "main":
        return []
    votes: list[str] = chosen.get("votes") or []
    return votes if len(votes) == 1 and not chosen.get("consensus") else []


def _settings(lane: Lane) -> str:
    if lane.config is None:
        return "log"
    return f"{lane.config.procedure.name}, sigma {lane.config.noise.sigma:g}, alpha {lane.records[0].alpha:g}"
