"""``ringfence metrics``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ringfence.cli import options as o
from ringfence.cli.console import friendly, numbers, results


def metrics_command(
    paths: Annotated[list[Path], typer.Argument(help="Run folders or Cohen-style logs.")],
    radii: o.Radii = None,
    format: Annotated[str, typer.Option(help="auto, run or cohen.")] = "auto",
    sigma: Annotated[
        float | None, typer.Option(help="Sigma of the logs; only checked, their radii are absolute.")
    ] = None,
    as_json: o.Json = False,
) -> None:
    """Certified accuracy, average certified radius and abstention of runs and logs."""
    with friendly():
        from ringfence.analysis.metrics import load_metrics, metrics_json
        from ringfence.cli.tables import metrics_table
        from ringfence.errors import ArgumentError
        from ringfence.noise import Gaussian

        if format not in ("auto", "run", "cohen"):
            raise ArgumentError("--format", "must be auto, run or cohen", repr(format), "Use auto.")
        if sigma is not None:
            Gaussian(sigma)
        asked = None if radii is None else numbers(radii, "--radii")
        found = [one for path in paths for one in load_metrics(path, asked, format)]  # type: ignore[arg-type]
        if as_json:
            typer.echo(metrics_json(found))
        else:
            results.print(metrics_table(found))
