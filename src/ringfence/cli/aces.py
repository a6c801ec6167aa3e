"""``ringfence aces``: a smoothed selector between a certification network and a core network (Horvath et al. 2022)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ringfence.cli import options as o
from ringfence.cli.console import friendly, print_json, remark, results, written_numbers
from ringfence.cli.help import HelpfulCommand
from ringfence.cli.tables import points_json, print_points
from ringfence.errors import ArgumentError

if TYPE_CHECKING:
    from ringfence.analysis.aces import ThetaMetrics

aces_app = typer.Typer(help="Accurate and certified: decide per input between a certified and a strong network (ACES).")


@aces_app.command("compose", cls=HelpfulCommand)
def compose_command(
    certification: Annotated[Path, typer.Option(help="The certification network's results: a run folder or a log.")],
    selection: Annotated[
        list[Path],
        typer.Option(help="The selector's: an ACES run, or logs (files, folder, pattern, name's beginning)."),
    ],
    core: Annotated[Path, typer.Option(help="The core network's: an ACES run, a run folder or a log.")],
    radii: o.Radii = None,
    as_json: o.Json = False,
) -> None:
    """Join components that were evaluated apart, for every threshold, without any model."""
    with friendly():
        from ringfence.analysis.aces import compose, measured
        from ringfence.analysis.aces_runs import certification_part, core_part, selection_parts

        asked = written_numbers(radii, "--radii")
        found = compose(certification_part(certification), selection_parts(selection), core_part(core))
        points = measured(found, asked)
        if as_json:
            print_json(points_json(points))
        else:
            print_points(points)


@aces_app.command("frontier", cls=HelpfulCommand)
def frontier_command(
    run: Annotated[Path, typer.Argument(help="A run folder of an aces(...) tree.")],
    radii: o.Radii = None,
    accuracy: Annotated[float | None, typer.Option(help="The theta of largest ACR at this natural accuracy.")] = None,
    acr: Annotated[
        float | None, typer.Option("--acr", help="The theta of largest natural accuracy at this ACR.")
    ] = None,
    baseline: Annotated[
        list[Path] | None, typer.Option(help="Ordinary runs, e.g. at other sigmas, told and drawn beside it.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the pictures; without it none are drawn.")] = None,
    as_json: o.Json = False,
) -> None:
    """Natural accuracy against ACR and certified accuracy over all thresholds: a table, and with --out pictures."""
    with friendly():
        from ringfence.analysis.aces import best_theta, measured
        from ringfence.analysis.aces_runs import AcesRun
        from ringfence.analysis.aces_runs import baseline as baseline_figures
        from ringfence.report.aces_drawing import save_pictures
        from ringfence.report.rendering import SUFFIXES
        from ringfence.store import RunFolder

        if out is not None and out.suffix.lower() in SUFFIXES and not out.is_dir():
            raise ArgumentError("out", "must be a folder: there are three pictures", out, "Write e.g. --out pictures.")
        found = AcesRun.read(RunFolder.open(run))
        points = measured(found.answers(), written_numbers(radii, "--radii"))
        if any(point.natural_accuracy is None or point.acr is None for point in points):
            rule, remedy = "needs natural accuracy and ACR", "Make the run with --procedure fixed or two-sided."
            raise ArgumentError(run, rule, f"a run of {found.run.config.procedure.name}", remedy)
        asked = list(points[0].certified_accuracy)
        others = [baseline_figures(RunFolder.open(path), asked, found.core()) for path in baseline or []]
        chosen = {
            "accuracy": None if accuracy is None else best_theta(points, accuracy=accuracy),
            "acr": None if acr is None else best_theta(points, acr=acr),
        }
        pictures = [] if out is None else save_pictures(found, points, others, asked, out)
        if as_json:
            best = {name: point.to_dict() if point else None for name, point in chosen.items()}
            alone = [one.to_dict() for one in others]
            entries = [{"sigma": one.pop("theta"), **one} for one in alone]
            print_json({**points_json(points), "baseline": entries, "best": best})
            return
        print_points(points)
        most = {"accuracy": max(p.natural_accuracy or 0.0 for p in points), "acr": max(p.acr or 0.0 for p in points)}
        asked_for = {"accuracy": f"natural accuracy >= {accuracy}", "acr": f"ACR >= {acr}"}
        for name, asking in (("accuracy", accuracy), ("acr", acr)):
            if asking is not None:
                point = chosen[name]
                found_it = _place(point) if point else f"no theta reaches it, the most is {most[name]:.3f}"
                results.print(f"{asked_for[name]}: {found_it}")
        for one in others:
            results.print(f"baseline: {_place(one, 'sigma')}")
        if pictures:
            remark(f"written: {', '.join(map(str, pictures))}")


def _place(point: ThetaMetrics, name: str = "theta") -> str:
    """A point of the frontier in words."""
    share = 100 * (point.natural_accuracy or 0.0)
    return f"{name} {point.theta:g}, natural accuracy {share:.1f}%, ACR {point.acr or 0.0:.3f}"
