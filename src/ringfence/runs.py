"""Run: a run folder as a program reads it: records, a table, metrics, the report, a gate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from ringfence.analysis.columns import answers, export_csv
from ringfence.analysis.metrics import RunMetrics, metrics_by_lane
from ringfence.errors import package
from ringfence.gate import Demand, Verdict, gate
from ringfence.record import Record
from ringfence.rounding import written
from ringfence.store import RunConfig, RunFolder

if TYPE_CHECKING:
    import pandas


def load(path: str | Path) -> Run:
    """The run that ``certify`` wrote into this folder."""
    return Run(RunFolder.open(path))


@final
@dataclass(frozen=True)
class Picture:
    """A figure as SVG, which notebooks show."""

    svg: str

    def __repr__(self) -> str:
        return f"Picture of {len(self.svg) // 1000} kB; a notebook shows it"

    def _repr_svg_(self) -> str:
        return self.svg


@final
class Run:
    """What a run folder holds; a sequence of its records, sorted by input and lane.

    >>> run = rf.load("runs/x")
    >>> run.metrics()[0].certified_accuracy
    """

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder

    @cached_property
    def records(self) -> list[Record]:
        """Everything known about every input and lane."""
        return self.folder.read()

    def __len__(self) -> int:
        return len(self.records)

    def __iter__(self) -> Iterator[Record]:
        return iter(self.records)

    def __getitem__(self, place: int) -> Record:
        return self.records[place]

    def __repr__(self) -> str:
        return f"Run({str(self.folder.path)!r})"

    def _repr_html_(self) -> str:
        """What a notebook shows: a row for each lane, as ``ringfence metrics`` prints it."""
        if not self.records:
            return escape(f"{self!r}, without a record yet")
        lanes = self.metrics()
        radii = list(lanes[0].certified_accuracy)
        headings = ["lane", *(written(radius) for radius in radii), "ACR", "abstained %", "draws"]
        rows = [
            [
                one.lane or "main",
                *(f"{100 * one.certified_accuracy[radius]:.1f}" for radius in radii),
                "-" if one.acr is None else f"{one.acr:.3f}",
                f"{100 * one.abstention:.1f}",
                f"{one.draws / one.count:,.0f}",
            ]
            for one in lanes
        ]
        about = f"{self!r}: {lanes[0].count} inputs; certified accuracy (%) at {lanes[0].norm} radius, draws per input"
        proved = "" if lanes[0].sound else ". Paper mode: no proven guarantee"
        table = "".join(
            f"<tr>{''.join(f'<{kind}>{escape(cell)}</{kind}>' for cell in row)}</tr>"
            for kind, row in [("th", headings), *(("td", row) for row in rows)]
        )
        return f"<table><caption>{escape(about + proved)}</caption>{table}</table>"

    @property
    def config(self) -> RunConfig:
        """What was certified."""
        return self.folder.config

    def metrics(self, radii: Sequence[float] | None = None) -> list[RunMetrics]:
        """Certified accuracies and their summary, an entry for each lane; radii: the usual ones by default."""
        return metrics_by_lane(self.folder, radii)

    def frame(self) -> pandas.DataFrame:
        """One row per input and lane: name, id, lane, label, prediction, correct, radius, p_a, draws, sound, and
        the norm of the radius."""
        remedy = "Install it: pip install pandas; or use .rows(), plain dictionaries."
        found: pandas.DataFrame = package("pandas", "frame", remedy).DataFrame(self.rows())
        return found

    def rows(self) -> list[dict[str, Any]]:
        """The same as dictionaries."""
        return answers(self.folder)

    def csv(self, out: str | Path) -> Path:
        """The same as a file."""
        export_csv(self.folder, out)
        return Path(out)

    def report(self, out: str | Path | None = None, title: str = "Certified robustness") -> Path:
        """Write the page about this run, beside it where no place is named."""
        from ringfence.report.page import report_page
        from ringfence.report.reading import load
        from ringfence.report.rendering import in_utf8, write

        path = Path(f"{self.folder.path.absolute()}.html" if out is None else out)
        write(path, in_utf8(report_page(load([self.folder.path]), title)))
        return path

    def plot(
        self,
        out: str | Path | None = None,
        beside: Mapping[str, Run | str | Path] | None = None,
        kind: str | None = None,
        width: int = 640,
    ) -> Picture:
        """The figure of this run, which a notebook shows; also as a file (.png, .svg, .pdf) where one is named.

        kind: which; without it the curve, or of known radii the outcomes.
        beside: other runs and logs in it, by the names they are given there.
        """
        from ringfence.report.lane_figures import figure
        from ringfence.report.reading import load
        from ringfence.report.rendering import rendered, save

        others = {name: one.folder.path if isinstance(one, Run) else Path(one) for name, one in (beside or {}).items()}
        lanes = load(
            [self.folder.path, *others.values()], names={str(path): name for name, path in others.items()}
        ).lanes
        found = figure(kind, lanes)
        if out is not None:
            save(found, Path(out), width)
        return Picture(rendered(found, ".svg", width).decode())

    def gate(self, certified: str | Demand, confidence: float = 0.95, lane: str | None = None) -> Verdict:
        """Whether it shows a certified accuracy, such as ``0.60@0.5``, with this confidence over inputs and noise."""
        demand = certified if isinstance(certified, Demand) else Demand.of(str(certified))
        return gate(self.folder, demand, confidence, lane)
