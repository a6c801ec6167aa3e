"""What every benchmark shares: interleaved repetitions, tables, bars, and one JSON file that says where it ran."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from ringfence.store.writer import describe_environment

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "results" / "benchmarks"
LOGS = ROOT / "tests" / "fixtures" / "cohen"
LOAD_BEFORE = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
"""Processes that wanted the CPU in the minute before the start: above the number of CPUs, times mean little."""


@dataclass(frozen=True)
class Bar:
    """A claim with its limit; relation is ``at most`` or ``at least``; measured None: could not be measured here."""

    claim: str
    relation: str
    limit: float
    measured: float | None
    unit: str = ""

    @property
    def passed(self) -> bool | None:
        """None where nothing was measured."""
        if self.measured is None:
            return None
        return self.measured <= self.limit if self.relation == "at most" else self.measured >= self.limit


@dataclass(frozen=True)
class Grid:
    """A table as text: what is printed here and copied into docs/benchmarks.md."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Report:
    """One benchmark's outcome; measurements keeps every raw number behind the tables."""

    name: str
    settings: Mapping[str, Any]
    grids: Sequence[Grid]
    bars: Sequence[Bar]
    measurements: Mapping[str, Any]
    notes: Sequence[str] = field(default_factory=tuple)


def arguments(description: str) -> argparse.Namespace:
    """The options of every script, as given."""
    return options_parser(description).parse_args()


def options_parser(description: str) -> argparse.ArgumentParser:
    """The options of every script: --quick, --repetitions, --out, --strict."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="tiny sizes: shows that it runs, proves nothing")
    parser.add_argument("--repetitions", type=int, default=5, help="interleaved rounds; medians are reported")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the JSON file")
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a bar is missed")
    return parser


def interleaved(tasks: Mapping[str, Callable[[], float | None]], repetitions: int) -> dict[str, list[float]]:
    """Seconds (or whatever number a task returns itself) of every task, one after the other in each round.

    Every task runs once unmeasured first; a load that drifts hits all tasks of a round alike.
    """
    for task in tasks.values():
        task()
    numbers: dict[str, list[float]] = {name: [] for name in tasks}
    for _ in range(repetitions):
        for name, task in tasks.items():
            begin = time.perf_counter()
            own = task()
            numbers[name].append(time.perf_counter() - begin if own is None else own)
    return numbers


def median_ratio(over: Sequence[float], under: Sequence[float]) -> float:
    """Median over the rounds of the ratio within a round."""
    return statistics.median(a / b for a, b in zip(over, under, strict=True))


def finish(
    report: Report, options: argparse.Namespace, origin: Mapping[str, Any] | None = None, shown: bool = True
) -> int:
    """Print tables and bars, write the JSON file, and return the exit code.

    origin: date and environment of a run whose tables are made later, elsewhere; None: here and now.
    shown: False writes the file alone, while more is measured.
    """
    console = Console(quiet=not shown) if sys.stdout.isatty() else Console(width=140, quiet=not shown)
    for grid in report.grids:
        table = Table(title=grid.title, title_justify="left")
        for place, column in enumerate(grid.columns):
            table.add_column(column, justify="right" if place else "left")
        for row in grid.rows:
            table.add_row(*row)
        console.print(table)
    for bar in report.bars:
        console.print(f"{verdict(bar.passed)}: {in_words(bar)}", highlight=False)
    for note in report.notes:
        console.print(f"Note: {note}", highlight=False)
    path = options.out / f"{report.name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**_as_json(report, options), **(origin or {})}, indent=1) + "\n")
    console.print(f"Written to {path.name}.", highlight=False)
    return int(options.strict and any(bar.passed is False for bar in report.bars))


def verdict(passed: bool | None) -> str:
    """One word for a bar."""
    return {True: "pass", False: "FAIL", None: "not measured"}[passed]


def in_words(bar: Bar) -> str:
    """Claim, limit and what was measured."""
    unit = f" {bar.unit}" if bar.unit else ""
    measured = "nothing" if bar.measured is None else f"{bar.measured:.3g}{unit}"
    return f"{bar.claim}: {bar.relation} {bar.limit:g}{unit}, measured {measured}"


def where() -> dict[str, Any]:
    """The machine, and how busy it was."""
    return {**describe_environment(), "cpus": os.cpu_count(), "load_before": LOAD_BEFORE}


def _as_json(report: Report, options: argparse.Namespace) -> dict[str, Any]:
    return {
        "benchmark": report.name,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "quick": options.quick,
        "repetitions": options.repetitions,
        "environment": where(),
        "settings": dict(report.settings),
        "tables": [asdict(grid) for grid in report.grids],
        "bars": [{**asdict(bar), "passed": bar.passed, "words": in_words(bar)} for bar in report.bars],
        "notes": list(report.notes),
        "measurements": dict(report.measurements),
    }
