"""What is shown beside runs: attacks on them, trainings, and the variance model's predictions beside measurements."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from ringfence.errors import StoreError
from ringfence.report.figure import Figure, Row, drawn
from ringfence.report.lanes import Lane, Material, Training
from ringfence.store.atomic import reading_errors
from ringfence.store.attack import AttackResult

_ACCURACIES = ("noisy_accuracy", "held_out_accuracy")
_COMPARED = {
    "variance_ratio": ("ratio", "variance of the margins, relative to one member"),
    "success": ("success", "success probability"),
    "radius": ("radius", "certified radius"),
}
"""Entry of a study -> (its name in ``ringfence plot --kind variance-...``, the words on its axis)."""


@final
@dataclass(frozen=True)
class Note:
    """What a section says, and how that is known; alarm: it must not be overlooked; items: evidence, line by line."""

    text: str
    detail: str
    alarm: bool = False
    items: Sequence[str] = ()


def other_figures(material: Material) -> dict[str, Figure]:
    """Figures of what was named beside runs, by their names in ``ringfence plot``."""
    extras = material.extras
    return attack_figures(material) | training_figures(extras.training) | variance_figures(extras.variance)


@final
@dataclass(frozen=True)
class Attack:
    """An attack on this page: its title, what was found, and the attacked lane where that is on the page too."""

    title: str
    found: AttackResult
    lane: Lane | None


def attacks_on(material: Material) -> list[Attack]:
    """Every attack, titled by its run (as elsewhere on the page, if it is there) and the name of the attack."""
    named = [(name, found, _lane(found, material.lanes)) for name, found in material.extras.attacks]
    titles = [f"{lane.name if lane else _run(found)}, {found.attack}" for _, found, lane in named]
    return [
        Attack(f"{title} ({name})" if titles.count(title) > 1 else title, found, lane)
        for title, (name, found, lane) in zip(titles, named, strict=True)
    ]


def _lane(found: AttackResult, lanes: Sequence[Lane]) -> Lane | None:
    """The lane of the page that was attacked; None where it is not among them."""
    same = (lane for lane in lanes if lane.config is not None and lane.config.digest == found.config_hash)
    return next((lane for lane in same if lane.lane == found.lane), None)


def _run(found: AttackResult) -> str:
    return found.run if found.lane == "main" else f"{found.run} · {found.lane}"


def attack_figures(material: Material) -> dict[str, Figure]:
    """Certified and empirical accuracy against radius, one colour per attack: its lane's own where that is drawn."""
    attacks = attacks_on(material)
    rows: list[Row] = [
        {"run": one.title, "radius": radius, "accuracy": share, "kind": kind}
        for one in attacks
        for kind, shares in (("certified", one.found.certified), ("empirical", one.found.empirical))
        for radius, share in zip(one.found.radii, shares, strict=True)
        if share is not None
    ]
    caption = (
        "Solid: certified accuracy, what the run claims against every attack. Dashed: the share of inputs whose right "
        "answer this attack did not change (PREDICT at the attacked point, with noise it had not seen), an upper "
        "bound on the share that is truly robust. The truth lies between the two."
    )
    names, colours = [one.title for one in attacks], _colours(attacks, material.lanes)
    return {"attacks": Figure("attacks", "Accuracy under attack", caption, rows, names, colours)} if rows else {}


def _colours(attacks: Sequence[Attack], lanes: Sequence[Lane]) -> list[int]:
    """The colour of the attacked lane, or the next free one where it is not drawn or already taken."""
    places = {lane.name: place for place, lane in enumerate(drawn(lanes))}
    chosen: list[int] = []
    for one in attacks:
        own = places.get(one.lane.name) if one.lane is not None else None
        free = next(place for place in range(len(places), len(places) + len(attacks) + 1) if place not in chosen)
        chosen.append(own if own is not None and own not in chosen else free)
    return chosen


def attack_notes(material: Material) -> list[Note]:
    """Per attack: its settings and its outcome, with every broken certificate and the evidence against it."""
    return [_note(one.title, one.found) for one in attacks_on(material)]


def broken_badges(material: Material) -> list[str]:
    """What the head of the page says about attacks that broke something."""
    return [
        f"{one.title}: {len(one.found.broken)} of {one.found.attacked} attacked certificates were broken"
        for one in attacks_on(material)
        if one.found.broken
    ]


def _note(title: str, found: AttackResult) -> Note:
    kept = " kept in [0,1]" if found.box else ""
    settings = (
        f"{found.inputs:,} inputs; {found.steps} steps on {found.copies} fixed noise draws{kept}, PREDICT with "
        f"{found.n:,} fresh draws, seed {found.seed}."
    )
    if not found.broken:
        return Note(f"{title}: no certificate was broken ({found.attacked:,} attacked).", settings)
    text = f"{title}: {len(found.broken):,} of {found.attacked:,} attacked certificates were broken."
    chance = (
        f"At alpha {found.alpha:g} certificates of up to {found.chance:.2g} of the inputs, on average, fail by chance; "
        f"many more mean an error in the run. Evidence by PREDICT with {found.recheck:,} further draws:"
    )
    evidence = [
        f"input {one.input_id}: class {one.certified_class} was certified within {one.radius:.6g}, but at distance "
        f"{one.distance:.6g} PREDICT says class {one.attacked_class} ({one.votes:,} of {one.draws:,} fresh draws)"
        for one in found.broken
    ]
    return Note(text, f"{settings} {chance}", alarm=True, items=evidence)


def training_figures(trainings: Sequence[Training]) -> dict[str, Figure]:
    """Loss and accuracies against epoch, one line per training and measure, by their names in ``ringfence plot``."""
    losses: list[Row] = []
    accuracies: list[Row] = []
    for one in trainings:
        with reading_errors(one.log), one.log.open(newline="", encoding="utf-8", errors="replace") as file:
            for line in csv.DictReader(file):
                losses += _point(one.name, line, "loss", "loss")
                for column in _ACCURACIES:
                    accuracies += _point(f"{one.name}, {column.replace('_', ' ')}", line, column, "accuracy")
    about = {
        "loss": ("The objective's loss at the end of each epoch.", losses),
        "accuracy": ("Accuracy under noise in training, and on held-out inputs where some were.", accuracies),
    }
    return {
        f"training-{name}": _lines(f"Training: {name}", words, rows) for name, (words, rows) in about.items() if rows
    }


def variance_figures(studies: Sequence[tuple[str, Mapping[str, Any]]]) -> dict[str, Figure]:
    """Predicted beside measured for every ensemble size: the fit of Horváth et al.'s variance model."""
    found = {}
    for key, (title, words) in _COMPARED.items():
        rows: list[Row] = []
        for name, study in studies:
            for kind in ("predicted", "measured"):
                titles = {"x_title": "members", "y_title": words}
                entries = _entries(name, study, key, kind)
                rows += [{"run": f"{name}, {kind}", "x": k, "y": value, **titles} for k, value in entries]
        if rows:
            caption = f"Predicted by the variance model and measured by certification: {words}."
            found[f"variance-{title}"] = _lines(f"Variance model: {title}", caption, rows)
    return found


def _entries(name: str, study: Mapping[str, Any], key: str, kind: str) -> list[tuple[int, float]]:
    """(members, value) pairs of one measure; a study that was cut short or changed is refused by name."""
    try:
        pairs = [(int(size["k"]), float(size[key][kind])) for size in study["sizes"] if key in size]
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        remedy = "Save what ringfence variance prints as JSON once more."
        raise StoreError(name, f"must hold {kind} and k of every size", repr(error), remedy) from error
    return [(k, value) for k, value in pairs if math.isfinite(value)]


def _point(name: str, line: Mapping[str, str], column: str, title: str) -> list[Row]:
    """The row of one epoch; none where the log has no number there."""
    try:
        x, y = float(line["epoch"]), float(line[column])
    except (KeyError, TypeError, ValueError):
        return []
    return [{"run": name, "x": x, "y": y, "x_title": "epoch", "y_title": title}] if math.isfinite(y) else []


def _lines(title: str, caption: str, rows: list[Row]) -> Figure:
    names = list(dict.fromkeys(str(row["run"]) for row in rows))
    return Figure("lines", title, caption, rows, names, list(range(len(names))))
