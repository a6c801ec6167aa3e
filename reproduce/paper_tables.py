"""What every page of reproduce/ is made of: Markdown tables, sections, and parts of a page between markers.

A page is a text that code makes from committed runs and published numbers; nothing in it is typed by hand.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RADII = (0.0, 0.25, 0.5, 0.75)

Row = Sequence[str]


def published(folder: Path) -> Any:
    """The numbers a paper printed: ``published.json`` beside the page."""
    return json.loads((folder / "published.json").read_text(encoding="utf-8"))


def section(title: str, about: Sequence[str], *tables: Sequence[str]) -> list[str]:
    """A heading, what is compared with what, and tables; nothing where there is no table."""
    if not tables:
        return []
    return [f"## {title}", "", *about, "", *(line for table in tables for line in (*table, ""))]


def table(head: Row, rows: Sequence[Row]) -> list[str]:
    """Markdown, one line a row."""
    return [line(head), "|" + "---|" * len(head), *map(line, rows)]


def line(cells: Row) -> str:
    """One row."""
    return "| " + " | ".join(cells) + " |"


def paper(cells: Row) -> Row:
    """A row of published numbers: in italics."""
    return [f"*{cell}*" if cell else "" for cell in cells]


def headed(*names: str, radii: Sequence[float] = RADII) -> list[str]:
    """A table's head that ends in radii."""
    return [*names, *(f"r = {radius:g}" for radius in radii)]


def percents(shares: Mapping[float, float], radii: Sequence[float] = RADII) -> list[str]:
    """Certified accuracies of ours, in percent."""
    return [f"{100 * shares[radius]:.1f}" for radius in radii]


def printed(shares: Mapping[str, float], radii: Sequence[float] = RADII) -> list[str]:
    """Certified accuracies as a paper prints them, a dash where it has none."""
    return [f"{shares[f'{radius:g}']:.1f}" if f"{radius:g}" in shares else "-" for radius in radii]


def listed(values: Sequence[float]) -> str:
    """Percentages one after the other."""
    return ", ".join(f"{value:.1f}" for value in values)


def filled(page: Path, parts: Mapping[str, str], begin: str = "<!-- table {} -->", end: str = "<!-- end -->") -> str:
    """The page with what stands between the markers of every part replaced."""
    text = page.read_text(encoding="utf-8")
    for name, content in parts.items():
        head, tail = begin.format(name), end.format(name)
        places = list(re.finditer(rf"{re.escape(head)}\n.*?{re.escape(tail)}", text, re.DOTALL))
        if len(places) != 1:
            raise SystemExit(f"{page} must hold {head} ... {tail} once, it does {len(places)} times")
        text = text[: places[0].start()] + f"{head}\n{content}\n{tail}" + text[places[0].end() :]
    return text
