"""The report: one HTML file that holds its scripts, its pictures and its data, and needs no network."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, final

from ringfence.progress import followed
from ringfence.report import need
from ringfence.report.drawing import PALETTE
from ringfence.report.figure import Figure
from ringfence.report.gallery import gallery
from ringfence.report.lane_figures import lane_figures
from ringfence.report.lanes import Material
from ringfence.report.other_figures import Note, attack_notes, broken_badges, other_figures
from ringfence.report.references import references
from ringfence.report.rendering import specification, vega
from ringfence.report.summary import lane_guarantee, run_heads, summary_table
from ringfence.version import __version__

_SCRIPTS = ("page.js", "table.js", "gallery.js", "frontier.js")
_UNSAFE = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
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
    figures: dict[str, list[Figure]] = {}
    for kind, figure in (lane_figures(material.lanes) | other_figures(material)).items():
        figures.setdefault(_PLACES.get(kind, kind.partition("-")[0]), []).append(figure)
    notes = {"attacks": attack_notes(material)}
    there = [*figures, *(place for place in notes if notes[place] and place not in figures)]
    return [Section(place, _TITLES[place], figures.get(place, []), notes.get(place, ())) for place in there]


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
        judged=any(lane.labelled.any() for lane in material.lanes),
        sections=made,
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
    return base64.b64encode(gzip.compress(_json(value).encode(), compresslevel=6, mtime=0)).decode()


def _static(name: str) -> str:
    """A style sheet or script of this package."""
    return (files("ringfence.report") / "static" / name).read_text(encoding="utf-8")


def _policy(scripts: list[str]) -> str:
    """Nothing may be loaded from anywhere and only these scripts may run, whatever a page's data says."""
    hashes = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    own = " ".join(f"'sha256-{one}'" for one in hashes)
    return (
        "default-src 'none'; img-src data: blob:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
        f"script-src {own}"
    )
