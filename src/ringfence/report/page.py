"""The report: one HTML file that holds its scripts, its pictures and its data, and needs no network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

from ringfence.errors import StoreError
from ringfence.report import need
from ringfence.report.charts import PALETTE, chart
from ringfence.report.embed import SCRIPTS, packed, policy, script_json, static, vega
from ringfence.report.figures import KINDS, Figure
from ringfence.report.gallery import gallery
from ringfence.report.lanes import Material, gather, short_names
from ringfence.report.overview import guarantee, run_heads, summary_table
from ringfence.report.references import references
from ringfence.report.sections import training_figures, training_log, variance_figures, variance_study
from ringfence.version import __version__

_PLACES = {"curve": "accuracy", "ecdf": "accuracy", "draws": "time", "stages": "time"}
_TITLES = {
    "accuracy": "How much is certified",
    "time": "Where the time went",
    "mechanisms": "Mechanisms",
    "simplex": "On the simplex",
    "frontier": "ACES frontier",
    "training": "Training",
    "variance": "Variance model",
}


@final
@dataclass(frozen=True)
class Section:
    """A part of the page: it exists only if it has figures."""

    id: str
    title: str
    figures: list[Figure] = field(default_factory=list)


def load(paths: Sequence[str | Path]) -> Material:
    """Sort what was named into runs and logs, training logs and variance studies, and read it."""
    runs: list[Path] = []
    training: list[tuple[str, Path]] = []
    studies: list[tuple[str, Any]] = []
    for path, name in zip(map(Path, paths), short_names([str(path) for path in paths]), strict=True):
        if not path.exists():
            raise StoreError(str(path), "must be a run folder or a log", "nothing there", "Check the path.")
        if log := training_log(path):
            training.append((name, log))
        elif study := variance_study(path):
            studies.append((name, study))
        else:
            runs.append(path)
    if not runs:
        rule, remedy = "must name at least one run", "Add a run folder; training logs come beside one."
        raise StoreError("RUN", rule, ", ".join(map(str, paths)) or "none", remedy)
    return gather(runs, {"training": training, "variance": studies})


def sections(material: Material) -> list[Section]:
    """The sections these runs have data for, in the order of the page."""
    found: dict[str, Section] = {}
    for kind, of in KINDS.items():
        figure = of(material.lanes)
        if figure is not None:
            place = _PLACES.get(kind, kind)
            found.setdefault(place, Section(place, _TITLES[place])).figures.append(figure)
    for place, figures in (
        ("training", training_figures(material.extras.get("training", ()))),
        ("variance", variance_figures(material.extras.get("variance", ()))),
    ):
        if figures:
            found[place] = Section(place, _TITLES[place], figures)
    return list(found.values())


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
    scripts = [vega(), *(static(name) for name in SCRIPTS)]
    made = sections(material)
    specs = {f"{section.id}-{n}": chart(one) for section in made for n, one in enumerate(section.figures)}
    frontier = next((one for section in made for one in section.figures if one.kind == "frontier"), None)
    inputs = gallery(material, class_names)
    page: str = environment.get_template("report.html.j2").render(
        title=title,
        version=__version__,
        policy=policy(scripts),
        style=_safe(jinja, static("report.css")),
        scripts=[_safe(jinja, script) for script in scripts],
        runs=run_heads(material),
        guarantees=list(dict.fromkeys(guarantee(lane) for lane in material.lanes)),
        remarks=list(material.remarks),
        table=summary_table(material.lanes),
        sections=made,
        lanes=[lane.name for lane in material.lanes],
        other=_comparable(material),
        pictured=inputs["pictures"] is not None,
        count=len(inputs["items"]["id"]),
        references=references(material.lanes),
        figures=_safe(jinja, script_json(specs)),
        table_data=_safe(jinja, script_json(summary_table(material.lanes))),
        frontier=_safe(jinja, script_json(frontier.rows if frontier else [])),
        thetas=sorted({row["theta"] for row in frontier.rows}) if frontier else [],
        gallery=packed({**inputs, "palette": list(PALETTE)}),
    )
    return page


def _comparable(material: Material) -> int:
    """Place of the first lane whose radii can be compared with the first one's; -1 where none can."""
    first = material.lanes[0]
    alike = [lane.metrics.target == first.metrics.target for lane in material.lanes]
    return alike.index(True, 1) if True in alike[1:] else -1


def _safe(jinja: Any, text: str) -> Any:
    """Mark as markup what is known to be harmless: our own files, and JSON that script_json escaped."""
    return need("markupsafe").Markup(text)
