"""The reference list of a report: the papers it rests on, each with the runs and settings that used it."""

from __future__ import annotations

from ringfence.report.attacks import titles
from ringfence.report.lanes import Lane, Material
from ringfence.report.sources import SOURCES, Source


def references(material: Material) -> list[dict[str, str]]:
    """The sources this report rests on: text, use, and who used it with which settings."""
    using = [(source, list(dict.fromkeys(_users(source, material)))) for source in SOURCES]
    return [
        {"text": source.text, "used_for": source.used_for, "runs": "; ".join(users)} for source, users in using if users
    ]


def _users(source: Source, material: Material) -> list[str]:
    extras = material.extras
    attacks = zip(titles(extras.attacks, material.lanes), extras.attacks, strict=True)
    return [
        *(f"{lane.run} ({_settings(lane)})" for lane in material.lanes if source.applies(lane)),
        *(f"{title} ({one.steps} steps)" for title, (_, one) in attacks if source.attacks(one)),
        *(f"{one.name} (training)" for one in extras.training if one.objectives & set(source.objectives)),
        *(f"{name} (variance model)" for name, _ in extras.variance if source.variance),
    ]


def _settings(lane: Lane) -> str:
    if lane.config is None:
        return "log"
    return f"{lane.config.procedure.name}, sigma {lane.config.noise.sigma:g}, alpha {lane.records[0].alpha:g}"
