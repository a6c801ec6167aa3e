"""``ringfence report``: runs as one page that opens anywhere; ``ringfence plot``: its figures as pictures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ringfence.cli import options as o
from ringfence.cli.console import friendly, named_paths, print_json, remark, results
from ringfence.cli.derived import grouped
from ringfence.cli.progress import show_waiting
from ringfence.cli.tables import metrics_table

Named = Annotated[
    list[Path],
    typer.Argument(
        metavar="RUN...",
        help="Run folders or logs, each as PATH or NAME=PATH; also what train, variance and attack wrote.",
    ),
]
KINDS = (
    "curve, outcomes, ecdf, draws, stages, mechanisms, simplex, frontier, attacks, training-loss, "
    "training-accuracy, variance-ratio, variance-success or variance-radius."
)

if TYPE_CHECKING:
    from ringfence.stats.norms import InNorm


@grouped
def report_command(
    paths: Named,
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("report.html"),
    title: Annotated[str, typer.Option(help="Title of the page.")] = "Certified robustness",
    class_names: Annotated[
        Path | None, typer.Option("--class-names", help="A text file, a class per line (default: the data's names).")
    ] = None,
    within: o.NormOptions = o.NormOptions(),
    as_json: o.Json = False,
) -> None:
    """Write one self-contained page about the runs: curves, tables, every input; no network needed."""
    with friendly():
        answer = write_report(paths, out, title, class_names, shown=not as_json, in_norm=within.shown)
        if as_json:
            print_json(answer)


def write_report(
    paths: Sequence[Path],
    out: Path,
    title: str,
    class_names: Path | None = None,
    shown: bool = True,
    in_norm: InNorm | None = None,
) -> dict[str, Any]:
    """Write the page, and say what is in it; shown: also as a table, with what there is to remark."""
    with show_waiting("reading the runs"):
        from ringfence.report import need
        from ringfence.report.page import report_page
        from ringfence.report.reading import load, read_names
        from ringfence.report.rendering import check_page, in_utf8, write

        check_page(out)
        need("vl_convert")  # before anything is read: what is missing is told at once
        names = None if class_names is None else read_names(class_names)
        places, called = named_paths(paths)
        material = load(places, shown=in_norm, names=called)
    page = in_utf8(report_page(material, title, names))
    write(out, page)
    found = [material.metrics_of(lane) for lane in material.lanes]
    if shown:
        results.print(metrics_table(found, results.width, curve=True))
        for said in (*material.remarks, f"report: {out} ({len(page) / 1e6:.1f} MB)"):
            remark(said)
    asked = [material.natural(lane) for lane in material.lanes]
    natural = [{"natural_accuracy": None if one is None else one.accuracy} for one in asked]
    runs = [{**one.to_dict(), **more} for one, more in zip(found, natural, strict=True)]
    return {"report": str(out), "bytes": len(page), "runs": runs}


@grouped
def plot_command(
    paths: Named,
    out: Annotated[Path, typer.Option(help="The picture to write, .png, .svg or .pdf.")],
    kind: Annotated[str | None, typer.Option(help=f"{KINDS} By default the first that there is.")] = None,
    width: Annotated[int, typer.Option(help="Width of the plot in pixels.")] = 640,
    within: o.NormOptions = o.NormOptions(),
    as_json: o.Json = False,
) -> None:
    """Write one figure of the report as a picture; --json also prints the numbers behind it."""
    with friendly():
        from ringfence.report.lane_figures import figure
        from ringfence.report.other_figures import other_figures
        from ringfence.report.reading import load
        from ringfence.report.rendering import save

        places, called = named_paths(paths)
        material = load(places, without_runs=True, shown=within.shown, names=called)
        found = figure(kind and kind.replace("_", "-"), material.lanes, other_figures(material))
        save(found, out, width)
        if as_json:
            answer = {"figure": str(out), "kind": found.kind, "title": found.title, "rows": found.rows}
            print_json(answer)
            return
        for said in (*material.remarks, f"written: {out}"):
            remark(said)
