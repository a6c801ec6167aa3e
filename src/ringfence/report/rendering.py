"""From a drawing to what a reader opens: its specification for the page, a picture, or a page of its own."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from ringfence.errors import ArgumentError, one_line
from ringfence.report import need
from ringfence.report.drawing import DRAW
from ringfence.report.figure import Figure, Row

SUFFIXES = (".png", ".svg", ".pdf")
_HEIGHT = 320
_BAR = 48
_EVERYWHERE = {"axis": {"labelFlush": False, "labelSeparation": 4}}
"""Numbers stand below their ticks: moved inwards, the first and the last would run into their neighbours.
Numbers that would touch are left out."""


def specification(figure: Figure, width: int | str = "container") -> dict[str, Any]:
    """The Vega-Lite specification of a figure; ``container`` takes the width of the page."""
    height = max(2, len(figure.names)) * _BAR if figure.kind == "outcomes" else _HEIGHT
    made = DRAW[figure.kind](need("altair"), figure).properties(
        width=width, height=height, description=f"{figure.title}. {figure.caption}"
    )
    return {**plain(made), "autosize": {"type": "fit-x", "contains": "padding"}}


def plain(chart: Any) -> dict[str, Any]:
    """The specification of a chart: printable names, data held once, no colours or sizes of any place it is shown."""
    spec: dict[str, Any] = {**chart.to_dict(), "config": _EVERYWHERE}
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


def save(figure: Figure, out: Path, width: int = 640) -> None:
    """Write the figure as .png, .svg or .pdf, with its title and without the page around it."""
    check_picture(out)
    write(out, rendered(figure, out.suffix, width))


def rendered(figure: Figure, suffix: str, width: int = 640) -> bytes:
    """The same as the bytes of a file that ends so."""
    if not 100 <= width <= 4000:
        raise ArgumentError("width", "must lie between 100 and 4000 pixels", width, "The usual value is 640.")
    spec = {**specification(figure, width), "title": figure.title}
    return _converted(spec, suffix, {"legend": {"columns": 3}}, scale=2.0)


def save_picture(spec: dict[str, Any], out: Path, config: dict[str, Any] | None = None, scale: float = 2.0) -> None:
    """Write a specification as the picture that the name's ending says; scale: pixels of a .png for each of its own."""
    check_picture(out)
    write(out, _converted(spec, out.suffix, config, scale))


def _converted(spec: dict[str, Any], suffix: str, config: dict[str, Any] | None, scale: float) -> bytes:
    shown = {**spec, "background": "white", "config": {**spec.get("config", {}), **(config or {})}}
    convert, settings = need("vl_convert"), {"vl_version": _version()}
    match suffix.lower():
        case ".svg":
            content: bytes = convert.vegalite_to_svg(shown, **settings).encode()
        case ".pdf":
            content = convert.vegalite_to_pdf(shown, **settings)
        case _:
            content = convert.vegalite_to_png(shown, **settings, scale=scale)
    return content


def check_picture(out: Path) -> None:
    """Refuse a name that no picture can have, before anything is computed for it."""
    if out.suffix.lower() not in SUFFIXES:
        raise ArgumentError("out", "must end in .png, .svg or .pdf", repr(str(out)), "Write e.g. curve.pdf.")


def check_page(out: Path) -> None:
    """Refuse a name that promises a picture where a page is written."""
    if out.suffix.lower() in SUFFIXES:
        remedy = "Write e.g. report.html; ringfence plot makes pictures, and browsers print pages as PDF."
        raise ArgumentError("out", "must not end like a picture: a report is a page of HTML", repr(str(out)), remedy)


def save_page(spec: dict[str, Any], out: Path, title: str) -> None:
    """Write a specification as one HTML file with its scripts inside, which opens without a network."""
    # Vega's menu may save the picture, but not send the data to an editor on the network.
    menu = {"actions": {"export": True, "source": False, "compiled": False, "editor": False}}
    spec = {**spec, "usermeta": {"embedOptions": menu}}
    page: str = need("vl_convert").vegalite_to_html(spec, vl_version=_version(), bundle=True)
    write(out, in_utf8(page.replace("<head>", f"<head>\n  <title>{title}</title>", 1)))


@cache
def vega() -> str:
    """Vega, Vega-Lite and vega-embed as one script that sets window.vegaEmbed; no part of it loads anything."""
    bundle: str = need("vl_convert").javascript_bundle(vl_version=_version())
    return bundle.replace("</script", "<\\/script").replace("<!--", "<\\!--").replace("\r", "")


def _version() -> str:
    """The Vega-Lite that Altair writes for, as its renderer names it."""
    return ".".join(str(need("altair").SCHEMA_VERSION).removeprefix("v").split(".")[:2])


def in_utf8(text: str) -> bytes:
    """For a page; what names of files hold that is no text (``\\udce4``) is written out, as in JSON."""
    return text.encode(errors="backslashreplace")


def write(out: Path, content: bytes) -> None:
    """Write a picture or a page into a folder that need not exist yet."""
    from ringfence.store.atomic import write_output, writing_errors

    with writing_errors(out):
        out.parent.mkdir(parents=True, exist_ok=True)
    write_output(out, content)
