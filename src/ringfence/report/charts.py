"""Figures as Vega-Lite charts by Altair: the page embeds their JSON, ``ringfence plot`` renders them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ringfence.errors import ArgumentError
from ringfence.printable import one_line
from ringfence.report import need
from ringfence.report.figure import Figure, Row
from ringfence.report.marks import DRAW

SUFFIXES = (".png", ".svg", ".pdf")
_HEIGHT = 320


def chart(figure: Figure, width: int | str = "container") -> dict[str, Any]:
    """The Vega-Lite specification of a figure; ``container`` takes the width of the page."""
    alt = need("altair")
    made = DRAW[figure.kind](alt, figure).properties(
        width=width, height=_HEIGHT, description=f"{figure.title}. {figure.caption}"
    )
    spec: dict[str, Any] = made.to_dict()
    spec.pop("config", None)  # colours and sizes belong to the place where it is shown
    spec["autosize"] = {"type": "fit-x", "contains": "padding"}
    shown: dict[str, Any] = _printable(_share_data(spec))
    return shown


def _printable(part: Any) -> Any:
    """The same with every name in it printable: a control character makes the renderer abort the whole process."""
    if isinstance(part, dict):
        return {key: _printable(value) for key, value in part.items()}
    if isinstance(part, list):
        return [_printable(value) for value in part]
    return one_line(part) if isinstance(part, str) else part


def _share_data(spec: dict[str, Any]) -> dict[str, Any]:
    """The specification with equal data of its layers held once, by name."""
    names: list[list[Row]] = []
    for part in (spec, *spec.get("layer", ())):
        rows = part.get("data", {}).get("values")
        if rows is not None:
            if rows not in names:
                names.append(rows)
            part["data"] = {"name": f"rows-{names.index(rows)}"}
    return {**spec, "datasets": {f"rows-{place}": rows for place, rows in enumerate(names)}}


def save(figure: Figure, out: Path, width: int = 640, scale: float = 2.0) -> None:
    """Write the figure as .png, .svg or .pdf, with its title and without the page around it."""
    from ringfence.store.atomic import write_atomically, writing_errors

    suffix = out.suffix.lower()
    if suffix not in SUFFIXES:
        raise ArgumentError("--out", "must end in .png, .svg or .pdf", repr(str(out)), "Write e.g. --out curve.pdf.")
    convert, bundled = need("vl_convert"), need("altair.utils._importers")
    spec = {**chart(figure, width), "title": figure.title, "background": "white", "config": {"legend": {"columns": 3}}}
    version = bundled.vl_version_for_vl_convert()
    if suffix == ".svg":
        content = convert.vegalite_to_svg(spec, vl_version=version).encode()
    elif suffix == ".pdf":
        content = convert.vegalite_to_pdf(spec, vl_version=version)
    else:
        content = convert.vegalite_to_png(spec, vl_version=version, scale=scale)
    with writing_errors(out):
        out.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(out, content)
