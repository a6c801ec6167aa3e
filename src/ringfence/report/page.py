"""The report: one HTML file that holds its scripts, its pictures and its data, and needs no network."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ringfence.errors import StoreError
from ringfence.report import need
from ringfence.report.attacks import broken_badges
from ringfence.report.chart_parts import PALETTE
from ringfence.report.charts import chart
from ringfence.report.embed import SCRIPTS, packed, policy, script_json, static, vega
from ringfence.report.extras import sort_out
from ringfence.report.gallery import gallery
from ringfence.report.gather import gather
from ringfence.report.lanes import Material
from ringfence.report.overview import guarantee, run_heads
from ringfence.report.references import references
from ringfence.report.sections import sections
from ringfence.report.summary import summary_table
from ringfence.version import __version__


def load(paths: Sequence[str | Path], without_runs: bool = False) -> Material:
    """Read what was named: runs and logs, and trainings, variance studies and attacks beside them."""
    runs, extras = sort_out(paths)
    if not runs and not without_runs:
        rule, remedy = "must name at least one run", "Add a run folder; training logs and attacks come beside one."
        raise StoreError("RUN", rule, ", ".join(map(str, paths)) or "none", remedy)
    return gather(runs, extras)


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
    inputs, table = gallery(material, class_names), summary_table(material)
    page: str = environment.get_template("report.html.j2").render(
        title=title,
        version=__version__,
        policy=policy(scripts),
        style=_safe(jinja, static("report.css")),
        scripts=[_safe(jinja, script) for script in scripts],
        runs=run_heads(material),
        broken=broken_badges(material.extras.attacks, material.lanes),
        guarantees=list(dict.fromkeys(guarantee(lane) for lane in material.lanes)),
        remarks=list(material.remarks),
        table=table,
        judged=any(lane.labelled.any() for lane in material.lanes),
        sections=made,
        lanes=[lane.name for lane in material.lanes],
        other=_comparable(material),
        pictured=inputs["pictures"] is not None,
        count=len(inputs["items"]["id"]),
        references=references(material),
        figures=_safe(jinja, script_json(specs)),
        table_data=_safe(jinja, script_json(table)),
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
