"""``ringfence plot``: the figures of a report as pictures for papers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from ringfence.cli import options as o
from ringfence.cli.console import friendly, remark


def plot_command(
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="RUN...", help="Run folders or logs; also what train, variance and attack wrote."),
    ],
    out: Annotated[Path, typer.Option(help="The picture to write, .png, .svg or .pdf.")],
    kind: Annotated[
        str,
        typer.Option(
            help="curve, ecdf, draws, stages, mechanisms, simplex, frontier, attacks, training-loss, "
            "training-accuracy, variance-ratio, variance-success or variance-radius."
        ),
    ] = "curve",
    width: Annotated[int, typer.Option(help="Width of the plot in pixels.")] = 640,
    as_json: o.Json = False,
) -> None:
    """Write one figure of the report as a picture; --json also prints the numbers behind it."""
    with friendly():
        from ringfence.errors import ArgumentError
        from ringfence.report.lane_figures import figure
        from ringfence.report.other_figures import other_figures
        from ringfence.report.reading import load
        from ringfence.report.rendering import save

        if not 100 <= width <= 4000:
            raise ArgumentError("width", "must lie between 100 and 4000 pixels", width, "The usual value is 640.")
        material = load(paths, without_runs=True)
        found = figure(kind, material.lanes, other_figures(material))
        save(found, out, width)
        if as_json:
            answer = {"figure": str(out), "kind": kind, "title": found.title, "rows": found.rows}
            typer.echo(json.dumps(answer, indent=2, allow_nan=False))
            return
        for said in material.remarks:
            remark(said)
        remark(f"written: {out}")
