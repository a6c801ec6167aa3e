"""The report: one HTML file that holds its scripts, its pictures, its data and its references, and needs no network."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any, final

from ringfence.progress import followed
from ringfence.report import need
from ringfence.report.answer import answer, opening_picture
from ringfence.report.drawing import PALETTE
from ringfence.report.figure import Figure
from ringfence.report.gallery import gallery
from ringfence.report.lane_figures import lane_figures
from ringfence.report.lanes import Lane, Material
from ringfence.report.other_figures import Note, attack_notes, attacks_on, broken_badges, other_figures
from ringfence.report.rendering import in_utf8, specification, vega
from ringfence.report.summary import lane_guarantee, run_heads, summary_table
from ringfence.version import __version__

_SCRIPTS = ("page.js", "table.js", "gallery.js", "frontier.js")
_UNSAFE = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
_PLACES = {
    "curve": "accuracy",
    "outcomes": "accuracy",
    "ecdf": "accuracy",
    "draws": "time",
    "stages": "time",
    "simplex": "mechanisms",
}
ANSWER = "answer"
_TITLES = {
    ANSWER: "The answer",
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
    """The sections there is data for, in the order of the page; the first holds the picture that opens it."""
    figures: dict[str, list[Figure]] = {ANSWER: []}
    drawn = lane_figures(material.lanes) | other_figures(material)
    first = opening_picture(drawn, material.lanes)
    for kind, figure in drawn.items():
        place = ANSWER if kind == first else _PLACES.get(kind, kind.partition("-")[0])
        figures.setdefault(place, []).append(figure)
    notes = {"attacks": attack_notes(material)}
    there = [*figures, *(place for place in notes if notes[place] and place not in figures)]
    return [Section(place, _TITLES[place], figures.get(place, []), notes.get(place, ())) for place in there]


def file_name(material: Material, figure: Figure) -> str:
    """What a saved figure is called, without its ending: its run (the first of several) and its title."""
    runs = list(material.runs)
    more = f"-and-{len(runs) - 1}-more" if len(runs) > 1 else ""
    plain = (re.sub(r"[^A-Za-z0-9._]+", "-", part).strip("-.") for part in (runs[0] + more, figure.title.lower()))
    return "-".join(part[:80] for part in plain if part)


def report_page(
    material: Material, title: str = "Certified robustness", class_names: Sequence[str] | None = None
) -> str:
    """The page as text; every name in it is escaped, and its policy lets only its own scripts run."""
    jinja = need("jinja2")
    environment = jinja.Environment(
        loader=jinja.PackageLoader("ringfence.report"),
        autoescape=True,
        undefined=jinja.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # Harmless as markup: our own files, and JSON that script_json escaped.
    safe = need("markupsafe").Markup
    scripts = [vega(), *(_static(name) for name in _SCRIPTS)]
    parts: tuple[Callable[[], Any], ...] = (
        lambda: sections(material),
        lambda: gallery(material, class_names),
        lambda: summary_table(material),
    )
    made, inputs, table = (make() for make in followed(parts, "making the page"))
    drawn = [(f"{section.id}-{n}", one) for section in made for n, one in enumerate(section.figures)]
    specs = {name: specification(one) for name, one in followed(drawn, "drawing")}
    frontier: list[Any] = next((one.rows for section in made for one in section.figures if one.kind == "frontier"), [])
    page: str = environment.get_template("report.html.j2").render(
        title=title,
        version=__version__,
        policy=_policy(scripts),
        style=safe(_static("report.css")),
        scripts=[safe(script) for script in scripts],
        runs=run_heads(material),
        broken=broken_badges(material),
        guarantees=list(dict.fromkeys(lane_guarantee(lane) for lane in material.lanes)),
        remarks=list(material.remarks),
        table=table,
        judged=any(lane.columns.labelled.any() for lane in material.lanes),
        answer=answer(material.lanes),
        opening=made[0].figures,
        sections=made[1:],
        file_names={name: file_name(material, one) for name, one in drawn},
        lanes=[lane.name for lane in material.lanes],
        other=_comparable(material),
        pictured=inputs["pictures"] is not None,
        count=len(inputs["items"]["id"]),
        references=references(material),
        figures=safe(script_json(specs)),
        table_data=safe(script_json(table)),
        frontier=safe(script_json(frontier)),
        thetas=sorted({row["theta"] for row in frontier}),
        gallery=_packed({**inputs, "palette": list(PALETTE)}),
    )
    return page


def _comparable(material: Material) -> int:
    """Place of the first lane whose radii can be compared with the first one's; -1 where none can."""
    first = material.lanes[0]
    alike = [lane.metrics.target == first.metrics.target for lane in material.lanes]
    return alike.index(True, 1) if True in alike[1:] else -1


def script_json(value: Any) -> str:
    """JSON that may stand inside a script element: no tag, comment or entity can begin in it."""
    text = _json(value)
    return "".join(_UNSAFE.get(letter, letter) for letter in text) if any(c in text for c in _UNSAFE) else text


def _json(value: Any) -> str:
    return json.dumps(value, allow_nan=False, separators=(",", ":"), ensure_ascii=False)


def _packed(value: Any) -> str:
    """Gzipped JSON in base64: what the browser unpacks itself; equal values give equal text."""
    return base64.b64encode(gzip.compress(in_utf8(_json(value)), compresslevel=6, mtime=0)).decode()


def _static(name: str) -> str:
    """A style sheet or script of this package."""
    return (files("ringfence.report") / "static" / name).read_text(encoding="utf-8")


def _policy(scripts: list[str]) -> str:
    """Nothing may be loaded from anywhere and only these scripts may run, whatever a page's data says."""
    hashes = (base64.b64encode(hashlib.sha256(in_utf8(script)).digest()).decode() for script in scripts)
    own = " ".join(f"'sha256-{one}'" for one in hashes)
    return (
        "default-src 'none'; img-src data: blob:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
        f"script-src {own}"
    )


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
    holds = {
        "several mechanisms": len(lane.records[0].radii) > 1,
        "ensemble": bool(config.ensemble),
        "thresholds": lane.theta is not None,
        "reduced": config.root in ("patches", "clips"),  # wherever the noise enters
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
