"""Run: a run folder as a program reads it: records, a table, metrics, the report, a gate."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, final

from ringfence.analysis.metrics import RunMetrics, metrics_by_lane
from ringfence.errors import ArgumentError, cell, one_line
from ringfence.gate import Demand, Verdict, gate
from ringfence.record import Record
from ringfence.store import RunConfig, RunFolder
from ringfence.store.atomic import write_atomically, writing_errors

if TYPE_CHECKING:
    import pandas


def load(path: str | Path) -> Run:
    """The run that ``certify`` wrote into this folder."""
    return Run(RunFolder.open(path))


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

    @property
    def config(self) -> RunConfig:
        """What was certified."""
        return self.folder.config

    def metrics(self, radii: Sequence[float] | None = None) -> list[RunMetrics]:
        """Certified accuracies and their summary, an entry for each lane; radii: the usual ones by default."""
        return metrics_by_lane(self.folder, radii)

    def frame(self) -> pandas.DataFrame:
        """One row per input and lane: name, id, lane, label, prediction, correct, radius, p_a, draws, sound."""
        try:
            import pandas
        except ImportError as error:
            remedy = "Install it: pip install pandas; or use .rows(), plain dictionaries."
            raise ArgumentError("frame", "needs the package pandas", "not installed", remedy) from error
        return pandas.DataFrame(self.rows())

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
        from ringfence.report.rendering import write

        path = Path(f"{self.folder.path.absolute()}.html" if out is None else out)
        write(path, report_page(load([self.folder.path]), title).encode())
        return path

    def gate(self, certified: str | Demand, confidence: float = 0.95, lane: str | None = None) -> Verdict:
        """Whether it shows a certified accuracy, such as ``0.60@0.5``, with this confidence over inputs and noise."""
        demand = Demand.of(certified) if isinstance(certified, str) else certified
        return gate(self.folder, demand, confidence, lane)


COLUMNS = ("name", "id", "lane", "label", "prediction", "correct", "radius", "p_a", "draws", "sound")
"""prediction is -1 for an abstention; label and correct are empty where no label is known."""


def answers(run: RunFolder) -> list[dict[str, Any]]:
    """The rows, in the order of ids and lanes."""
    names = {one.id: one.name for one in run.inputs()}
    wanted = ["input_id", "lane", "label", "prediction", "radius", "p_a", "draws", "sound"]
    rows = []
    for row in run.records(wanted).to_pylist():
        one, label = row.pop("input_id"), row["label"]
        correct = None if label is None else row["prediction"] == label
        found = {"name": names.get(one, str(one)), "id": one, "correct": correct, **row}
        rows.append({name: found[name] for name in COLUMNS})
    return rows


def export_csv(run: RunFolder, target: str | Path | TextIO) -> None:
    """Write the rows as a table that a spreadsheet opens, and in which no name can be a formula.

    Radii and bounds have all their digits: what is read back is what was proved, not more.
    """
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for row in answers(run):
        writer.writerow({name: _written(value) for name, value in row.items()})
    if isinstance(target, str | Path):
        with writing_errors(Path(target)):
            Path(target).parent.mkdir(parents=True, exist_ok=True)
        write_atomically(Path(target), text.getvalue().encode())
    else:
        target.write(text.getvalue())


def _written(value: Any) -> Any:
    """Text on one line and never a formula; yes and no as 1 and 0; numbers so that they read back as they are."""
    if isinstance(value, bool):
        return int(value)
    return cell(one_line(value)) if isinstance(value, str) else value
