"""How the answers of a run are shown: as a file, and on the terminal where they are few."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ringfence.cli.console import remark, results

if TYPE_CHECKING:
    from ringfence.store import RunFolder

MOST_ROWS = 20
"""Inputs times lanes of a run that is short enough to show every answer on the terminal."""


def show_answers(run: RunFolder, csv: Path | None, as_json: bool, quiet: bool) -> None:
    """Every input: in the file that was asked for, and as a table where those are few."""
    from ringfence.answers import answers, export_csv
    from ringfence.cli.tables import answers_table

    if csv is not None:
        export_csv(run, csv)
        if not quiet:
            remark(f"answers: {csv}")
    rows = (run.expected or MOST_ROWS + 1) * len(run.config.classifier.lanes)
    if not (as_json or quiet) and rows <= MOST_ROWS:
        results.print(answers_table(answers(run)))
