"""``ringfence import`` and ``ringfence export``: the tab-separated logs everyone in the field has."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from ringfence.cli import options as o
from ringfence.cli.console import friendly, remark, to_a_reader
from ringfence.cli.help import HelpfulCommand

import_app = typer.Typer(help="Make a run folder from somebody else's log.", no_args_is_help=True)
export_app = typer.Typer(help="Write a run in somebody else's format.", no_args_is_help=True)


@import_app.command("cohen", cls=HelpfulCommand)
def import_cohen_command(
    log: Annotated[Path, typer.Argument(help="A log with columns idx label predict radius correct time.")],
    sigma: o.Sigma[float],
    out: o.Out[Path],
    alpha: o.Alpha = 0.001,
    n0: Annotated[int, typer.Option("--n0", "--N0", help="Draws that chose the class.")] = 100,
    n: Annotated[int, typer.Option("--n", "--N", help="Draws that bounded it.")] = 100_000,
) -> None:
    """Import a Cohen-style log. Its radii were rounded, so the run carries no guarantee of its own."""
    with friendly():
        from ringfence.store import import_cohen

        run = import_cohen(log, sigma, out, alpha, n0, n)
        remark(f"{log} -> {run.path}")


@export_app.command("cohen", cls=HelpfulCommand)
def export_cohen_command(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    out: Annotated[Path | None, typer.Option(help="The log to write; standard output without it.")] = None,
    lane: o.LaneName = None,
    coordinates: Annotated[
        int | None, typer.Option(help="Numbers of an input, where radii in l1 are exported and the run does not say.")
    ] = None,
) -> None:
    """Export a run as a Cohen-style log, radii in l2, rounded down."""
    with friendly():
        from ringfence.store import RunFolder, export_cohen
        from ringfence.store.logs import PROVED

        folder = RunFolder.open(run)
        with to_a_reader():
            written = export_cohen(folder, sys.stdout if out is None else out, lane, coordinates=coordinates)
        if folder.norm != PROVED:
            remark(f"{run} was proved in {folder.norm}; logs hold radii in {PROVED}, to which they were converted")
        if written not in (None, out):
            remark(f"{run} has no proven guarantee, so its log is {written}")


@export_app.command("csv", cls=HelpfulCommand)
def export_csv_command(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    out: Annotated[Path | None, typer.Option(help="The table to write; standard output without it.")] = None,
) -> None:
    """Export one row per input: file name, label, prediction, radius and its norm, p_a, draws."""
    with friendly():
        from ringfence.analysis.columns import export_csv
        from ringfence.store import RunFolder

        with to_a_reader():
            export_csv(RunFolder.open(run), sys.stdout if out is None else out)


@import_app.callback()
def _import() -> None:
    """Formats that can be read."""


@export_app.callback()
def _export() -> None:
    """Formats that can be written."""
