"""The sections of a page: each exists only where there is data for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import final

from ringfence.report.attacks import Note, attack_figure, attack_notes
from ringfence.report.figure import Figure
from ringfence.report.figures import KINDS
from ringfence.report.lanes import Material
from ringfence.report.lines import training_figures, variance_figures

_PLACES = {"curve": "accuracy", "ecdf": "accuracy", "draws": "time", "stages": "time", "simplex": "mechanisms"}
_TITLES = {
    "accuracy": "How much is certified",
    "time": "Where the time went",
    "mechanisms": "Mechanisms and bounds",
    "frontier": "ACES frontier",
    "attacks": "Attacks",
    "training": "Training",
    "variance": "Variance model",
}


@final
@dataclass(frozen=True)
class Section:
    """A part of the page: its figures, and what is said above them."""

    id: str
    title: str
    figures: list[Figure] = field(default_factory=list)
    notes: Sequence[Note] = ()


def sections(material: Material) -> list[Section]:
    """The sections there is data for, in the order of the page."""
    found: dict[str, Section] = {}
    made = {kind: of(material.lanes) for kind, of in KINDS.items()} | other_figures(material)
    for kind, figure in made.items():
        if figure is not None:
            place = _PLACES.get(kind, kind.partition("-")[0])
            found.setdefault(place, Section(place, _TITLES[place])).figures.append(figure)
    attacks = material.extras.attacks
    if attacks:
        figures = found["attacks"].figures if "attacks" in found else []
        found["attacks"] = Section("attacks", _TITLES["attacks"], figures, attack_notes(attacks, material.lanes))
    return list(found.values())


def other_figures(material: Material) -> dict[str, Figure]:
    """Figures of what was named beside runs, by their names in ``ringfence plot``."""
    attacked = attack_figure(material.extras.attacks, material.lanes)
    found = {"attacks": attacked} if attacked is not None else {}
    return found | training_figures(material.extras.training) | variance_figures(material.extras.variance)
