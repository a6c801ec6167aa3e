"""How the answers of a run are shown: as a file, and on the terminal where they are few."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, final

from ringfence.cli.console import remark, results

if TYPE_CHECKING:
    from ringfence.store import RunFolder

MOST_ROWS = 20
"""Inputs times lanes of a run that is short enough to show every answer on the terminal."""


@final
@dataclass(frozen=True)
class Shown:
    """How the result of a run is told, and to whom."""

    as_json: bool = False
    quiet: bool = False
    csv: Path | None = None

    def answers(self, run: RunFolder) -> None:
        """Every input: in the file that was asked for, and as a table where those are few."""
        from ringfence.answers import answers, export_csv
        from ringfence.cli.tables import answers_table

        if self.csv is not None:
            export_csv(run, self.csv)
            if not self.quiet:
                remark(f"answers: {self.csv}")
        rows = (run.expected or MOST_ROWS + 1) * len(run.config.classifier.lanes)
        if not (self.as_json or self.quiet) and rows <= MOST_ROWS:
            results.print(answers_table(answers(run)))
