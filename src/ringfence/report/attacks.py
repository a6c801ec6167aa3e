"""Attacks beside certificates: what was proved, what an attack left standing, and what it broke."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from ringfence.report.figure import Figure, Row, drawn
from ringfence.report.lanes import Lane
from ringfence.store.attack import AttackResult, Broken

Named = Sequence[tuple[str, AttackResult]]


@final
@dataclass(frozen=True)
class Note:
    """What a section says, and how that is known; alarm: it must not be overlooked; items: evidence, line by line."""

    text: str
    detail: str
    alarm: bool = False
    items: Sequence[str] = ()


def attack_figure(attacks: Named, lanes: Sequence[Lane]) -> Figure | None:
    """Certified and empirical accuracy against radius, one colour per attack: its lane's own where that is drawn."""
    rows: list[Row] = []
    for name, (_, found) in zip(titles(attacks, lanes), attacks, strict=True):
        for kind, shares in (("certified", found.certified), ("empirical", found.empirical)):
            pairs = zip(found.radii, shares, strict=True)
            rows += [
                {"run": name, "radius": r, "accuracy": share, "kind": kind} for r, share in pairs if share is not None
            ]
    if not rows:
        return None
    caption = (
        "Solid: certified accuracy, what the run claims against every attack. Dashed: the share of inputs whose right "
        "answer this attack did not change (PREDICT at the attacked point, with noise it had not seen), an upper "
        "bound on the share that is truly robust. The truth lies between the two."
    )
    names = titles(attacks, lanes)
    return Figure("attacks", "Accuracy under attack", caption, rows, names, _colours(attacks, lanes))


def titles(attacks: Named, lanes: Sequence[Lane]) -> list[str]:
    """How the page calls each attack: the run (as elsewhere on the page, if it is there) and the attack."""
    found = [f"{_run(one, lanes)}, {one.attack}" for _, one in attacks]
    return [
        f"{title} ({name})" if found.count(title) > 1 else title
        for title, (name, _) in zip(found, attacks, strict=True)
    ]


def attack_notes(attacks: Named, lanes: Sequence[Lane]) -> list[Note]:
    """Per attack: its settings and its outcome, with every broken certificate and the evidence against it."""
    return [_note(title, found) for title, (_, found) in zip(titles(attacks, lanes), attacks, strict=True)]


def broken_badges(attacks: Named, lanes: Sequence[Lane]) -> list[str]:
    """What the head of the page says about attacks that broke something."""
    named = zip(titles(attacks, lanes), attacks, strict=True)
    return [
        f"{title}: {len(found.broken)} of {found.attacked} attacked certificates were broken"
        for title, (_, found) in named
        if found.broken
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
        f"At alpha {found.alpha:g} up to {found.chance:.2g} of them may fail by chance; many more mean an error in the "
        f"run. Evidence by PREDICT with {found.recheck:,} further draws:"
    )
    return Note(text, f"{settings} {chance}", alarm=True, items=[_evidence(one) for one in found.broken])


def _evidence(one: Broken) -> str:
    return (
        f"input {one.input_id}: class {one.certified_class} was certified within {one.radius:.6g}, but at distance "
        f"{one.distance:.6g} PREDICT says class {one.attacked_class} ({one.votes:,} of {one.draws:,} fresh draws)"
    )


def _lane(found: AttackResult, lanes: Sequence[Lane]) -> Lane | None:
    """The lane of the page that was attacked; None where it is not among them."""
    same = (lane for lane in lanes if lane.config is not None and lane.config.digest == found.config_hash)
    return next((lane for lane in same if lane.lane == found.lane), None)


def _run(found: AttackResult, lanes: Sequence[Lane]) -> str:
    lane = _lane(found, lanes)
    if lane is not None:
        return lane.name
    return found.run if found.lane == "main" else f"{found.run} · {found.lane}"


def _colours(attacks: Named, lanes: Sequence[Lane]) -> list[int]:
    """The colour of the attacked lane, or the next free one where it is not drawn or already taken."""
    places = {lane.name: place for place, lane in enumerate(drawn(lanes))}
    chosen: list[int] = []
    for _, found in attacks:
        lane = _lane(found, lanes)
        own = places.get(lane.name) if lane is not None else None
        free = next(place for place in range(len(places), len(places) + len(attacks) + 1) if place not in chosen)
        chosen.append(own if own is not None and own not in chosen else free)
    return chosen
