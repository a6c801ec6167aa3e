"""``ringfence report``: runs as one page that opens anywhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from ringfence.cli import options as o
from ringfence.cli.console import friendly, remark, results


def report_command(
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="RUN...", help="Run folders or logs; also what train, variance and attack wrote."),
    ],
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("report.html"),
    title: Annotated[str, typer.Option(help="Title of the page.")] = "Certified robustness",
    class_names: Annotated[
        Path | None, typer.Option("--class-names", help="A text file with the name of one class per line.")
    ] = None,
    as_json: o.Json = False,
) -> None:
    """Write one self-contained page about the runs: curves, tables, every input; no network needed."""
    with friendly():
        from ringfence.cli.tables import metrics_table
        from ringfence.report.page import report_page
        from ringfence.report.reading import load, read_names
        from ringfence.store.atomic import write_atomically, writing_errors

        names = None if class_names is None else read_names(class_names)
        material = load(paths)
        page = report_page(material, title, names).encode()
        with writing_errors(out):
            out.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(out, page)
        found = [lane.metrics for lane in material.lanes]
        if as_json:
            asked = [material.natural(lane) for lane in material.lanes]
            natural = [{"natural_accuracy": None if one is None else one.accuracy} for one in asked]
            runs = [{**one.to_dict(), **more} for one, more in zip(found, natural, strict=True)]
            answer = {"report": str(out), "bytes": len(page), "runs": runs}
            typer.echo(json.dumps(answer, indent=2, allow_nan=False))
            return
        results.print(metrics_table(found, results.width, curve=True))
        for said in material.remarks:
            remark(said)
        remark(f"report: {out} ({len(page) / 1e6:.1f} MB)")
