"""What the sections of results/cifar10.md share: the finished runs, the published numbers, rows of tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, final

from ringfence.analysis.metrics import RunMetrics, metrics_by_lane
from ringfence.store import RunFolder

SPREADS = 3.0
"""A figure further from the published one than so many published standard deviations is marked and listed."""
RADII = (0.0, 0.25, 0.5, 0.75)

Row = Sequence[str]


@final
@dataclass(frozen=True)
class Found:
    """Finished runs by the names of tools/cifar_commands.py, the papers' numbers by file, and figures far from them."""

    runs: Mapping[str, RunFolder]
    published: Mapping[str, Any]
    off: list[str] = field(default_factory=list)
    _known: dict[tuple[str, ...], dict[str, RunMetrics]] = field(default_factory=dict)

    def lanes(self, name: str, radii: Sequence[float] = RADII) -> dict[str, RunMetrics]:
        """Metrics of every lane of a run, ``main`` where it has one only; empty where the run is not there."""
        if name not in self.runs:
            return {}
        key = (name, *map(str, radii))
        if key not in self._known:
            self._known[key] = {one.lane or "main": one for one in metrics_by_lane(self.runs[name], radii)}
        return self._known[key]

    def beside(self, what: str, ours: float, theirs: float, spread: float, digits: int) -> str:
        """Our figure as text, marked and noted where it is far from the published one."""
        if abs(ours - theirs) <= SPREADS * spread:
            return f"{ours:.{digits}f}"
        times = (ours - theirs) / spread
        told = f"{ours:.{digits}f} here, {theirs:.{digits}f} ± {spread:.{digits}f} published ({times:+.1f} times it)"
        self.off.append(f"- {what}: {told}.")
        return f"{ours:.{digits}f} *"


def section(title: str, about: Sequence[str], *tables: Sequence[str]) -> list[str]:
    """A heading, what is compared with what, and tables."""
    return [f"## {title}", "", *about, "", *(line for table in tables for line in (*table, ""))]


def table(head: Row, rows: Sequence[Row]) -> list[str]:
    """Markdown."""
    return [line(head), "|" + "---|" * len(head), *map(line, rows)]


def line(cells: Row) -> str:
    return "| " + " | ".join(cells) + " |"


def paper(cells: Row) -> Row:
    """A row of published numbers: in italics."""
    return [f"*{cell}*" if cell else "" for cell in cells]


def percents(shares: Mapping[float, float], radii: Sequence[float] = RADII) -> list[str]:
    """Certified accuracies of ours, in percent."""
    return [f"{100 * shares[radius]:.1f}" for radius in radii]


def printed(shares: Mapping[str, float], radii: Sequence[float] = RADII) -> list[str]:
    """Certified accuracies as a paper prints them, a dash where it has none."""
    return [f"{shares[f'{radius:g}']:.1f}" if f"{radius:g}" in shares else "-" for radius in radii]


def headed(*names: str, radii: Sequence[float] = RADII) -> list[str]:
    """A table's head that ends in radii."""
    return [*names, *(f"r = {radius:g}" for radius in radii)]


def draws(run: RunFolder) -> str:
    """How many inputs and draws, for a section's text."""
    settings = run.config.procedure.settings
    return f"{run.config.data.count} inputs, n = {int(settings['n']):,}"
