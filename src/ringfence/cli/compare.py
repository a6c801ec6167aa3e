"""``ringfence compare``: certificates against each other, input by input."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ringfence.cli import options as o
from ringfence.cli.console import friendly, numbers, remark, results, say
from ringfence.printable import one_line

if TYPE_CHECKING:
    from rich.table import Table

    from ringfence.analysis.bounds import RunBounds
    from ringfence.analysis.compare import Comparison, RunSummary
    from ringfence.stats.norms import InNorm


STEPS = 8
"""Blocks of a curve in the terminal."""


def compare_command(
    paths: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders.")],
    mechanism: Annotated[
        tuple[str, str] | None,
        typer.Option(help="Two mechanisms A B: what A gains over B, in every run.", metavar="A B"),
    ] = None,
    by: Annotated[str | None, typer.Option(help="Compare several runs by this mechanism, not their own.")] = None,
    best: Annotated[bool, typer.Option("--best", help="Add the best of all runs per input; alpha must pay.")] = False,
    alpha: Annotated[float | None, typer.Option(help="Failure probability that --best may spend.")] = None,
    above: Annotated[float, typer.Option(help="Count the inputs certified above this radius.")] = 0.05,
    gains: Annotated[str, typer.Option(help="Percentages x for the share that gains more than x.")] = "0,10,25,50,100",
    lane: Annotated[str | None, typer.Option(help="Which lane, for runs with several.")] = None,
    envelope: Annotated[
        bool, typer.Option("--envelope", help="Only the best run of every radius: chosen per radius, after the fact.")
    ] = False,
    radii: o.Radii = None,
    norm: o.Norm = None,
    coordinates: o.Coordinates = None,
    csv: Annotated[Path | None, typer.Option(help="Also write the comparisons as CSV.")] = None,
    as_json: o.Json = False,
) -> None:
    """Compare mechanisms on a run, or runs with each other, paired on common inputs."""
    with friendly():
        from ringfence.analysis.bounds import RunBounds
        from ringfence.analysis.compare import as_csv, summarise
        from ringfence.stats.norms import InNorm
        from ringfence.store.atomic import write_atomically

        shown = None if norm is None else InNorm(norm, coordinates)
        if envelope:
            _envelope(paths, radii, as_json, shown)
            return
        runs = [RunBounds.load(path, lane, shown) for path in paths]
        found = comparisons(runs, mechanism, by, (best, alpha), above, numbers(gains, "--gains"))
        summaries = [summarise(run, above=above) for run in runs]
        if csv is not None:
            write_atomically(csv, as_csv(found).encode())
        if as_json:
            answer = {
                "above": above,
                **_norm(shown, runs),
                "runs": [asdict(one) for one in summaries],
                "comparisons": [f.row() for f in found],
            }
            typer.echo(json.dumps(answer, indent=2, allow_nan=False))
            return
        print_runs(list(zip(runs, summaries, strict=True)), above)
        results.print(comparison_table(found, above))
        for dropped, against, name in {(one.dropped, one.against, one.name) for one in found if one.dropped}:
            remark(f"{name} against {against}: {dropped} inputs that only one of the two has were dropped")
        for one in found:
            if "precision" in one.differing:
                remark(f"{one.name} and {one.against} ran in different precision: two classifiers, paired all the same")
        for run in runs:
            if shown is not None and shown.norm != run.config.norm:
                remark(
                    f"{run.path}: radii in {shown.norm}, converted from {run.config.norm}, in which they were proved"
                )
            if not run.has_counts:
                remark(f"{run.path}: the log has no raw counts, so top-1 and other mechanisms are unknown")


def _envelope(paths: Sequence[Path], radii: str | None, as_json: bool, shown: InNorm | None) -> None:
    """The best certified accuracy per radius, and whose it is."""
    from rich.table import Table

    from ringfence.analysis.compare import envelope
    from ringfence.analysis.metrics import load_metrics

    asked = None if radii is None else numbers(radii, "--radii")
    points = envelope([one for path in paths for one in load_metrics(path, asked, shown=shown)])
    if as_json:
        document = {"envelope": "chosen per radius", **_norm(shown), "points": [asdict(one) for one in points]}
        typer.echo(json.dumps(document, indent=2, allow_nan=False))
        return
    converted = "" if shown is None else f" in {shown.norm}"
    table = Table(title=f"Best certified accuracy, chosen per radius{converted}", title_justify="left")
    for name in ("radius", "certified", "run"):
        table.add_column(name, justify="left" if name == "run" else "right", overflow="fold")
    for one in points:
        promise = "" if one.sound else " (no proven guarantee)"
        table.add_row(f"{one.radius:g}", _share(one.certified_accuracy), one_line(one.run) + promise)
    results.print(table)


def _norm(shown: InNorm | None, runs: Sequence[RunBounds] = ()) -> dict[str, Any]:
    """What JSON says of the norm of the radii, where one was asked for."""
    proved = {"proved_norm": {run.path: run.config.norm for run in runs}} if runs else {}
    return {} if shown is None else {"norm": shown.norm, **proved}


def comparisons(
    runs: Sequence[RunBounds],
    mechanisms: tuple[str, str] | None,
    by: str | None,
    best: tuple[bool, float | None],
    above: float,
    gains: Sequence[float],
) -> list[Comparison]:
    """What was asked for: A against B in every run, runs against the first one, or one run's mechanisms."""
    from ringfence.analysis.compare import Radii, best_of_runs, compare
    from ringfence.analysis.simplex import contestant
    from ringfence.errors import ArgumentError
    from ringfence.mechanisms import MECHANISMS, one_sided

    asked_best, alpha = best
    if mechanisms and by:
        raise ArgumentError("--by", "excludes --mechanism", by, "Use --mechanism A B within runs, --by across them.")
    if mechanisms:
        first, second = (contestant(name) for name in mechanisms)
        pairs = [(Radii.of(run, first), Radii.of(run, second)) for run in runs]
    elif len(runs) == 1:
        runs[0].need_counts("to compare mechanisms")
        runs[0].need_mechanisms()
        base = Radii.of(runs[0], one_sided)
        pairs = [(Radii.of(runs[0], one), base) for one in MECHANISMS.values() if one is not one_sided]
    else:
        chosen = contestant(by) if by else None
        radii = [Radii.of(run, chosen) for run in runs]
        pairs = [(one, radii[0]) for one in radii[1:]]
    if asked_best:
        if len(runs) < 2:
            rule = "needs several runs"
            raise ArgumentError("--best", rule, "one run", "On one run's bounds --mechanism best-of:a+b B is free.")
        budget = alpha if alpha is not None else max(run.records[0].alpha for run in runs)
        pairs.append((best_of_runs(runs, budget), Radii.of(runs[0])))
    return [compare(ours, theirs, above, gains) for ours, theirs in pairs]


def print_runs(runs: Sequence[tuple[RunBounds, RunSummary]], above: float) -> None:
    """Every mechanism, run by run in the order of sigma and n."""
    from rich.table import Table
    from rich.text import Text

    for bounds, run in sorted(runs, key=lambda one: (one[1].sigma, one[1].n or 0)):
        draws = "" if run.n is None else f", n {run.n:,}"
        promise = "" if run.sound else ", no proven guarantee"
        head = f"{run.path}: {run.procedure}, sigma {run.sigma:g}{draws}, alpha {run.alpha:g}{promise}"
        reach, curves = certified_curves(bounds)
        facts = f"{run.inputs} inputs, top-1 {_share(run.top_1)}, {1000 * run.seconds:,.0f} ms/input"
        facts += f"; curve: share certified above 0 to {reach:.3g}"
        say(head)
        say(facts)
        table = Table()
        for name in ("mechanism", "median radius", f"above {above:g}", "largest", "curve"):
            table.add_column(name, justify="left" if name in ("mechanism", "curve") else "right", no_wrap=True)
        for one, curve in zip(run.mechanisms, curves, strict=True):
            cells = (f"{one.median_radius:.3f}", _share(one.above), _share(one.largest), Text(curve, style="cyan"))
            table.add_row(one.mechanism, *cells)
        results.print(table)


def certified_curves(run: RunBounds) -> tuple[float, list[str]]:
    """A radius R near the run's largest, and per mechanism the share of inputs above 0, R/8, ..., 7R/8 as blocks."""
    import numpy as np

    from ringfence.analysis.compare import radii_of
    from ringfence.cli.tables import sparkline

    radii = list(radii_of(run).values())
    reach = max((float(one[np.isfinite(one)].max(initial=0.0)) for one in radii), default=0.0)
    return reach, [sparkline([float(np.mean(one > reach * step / STEPS)) for step in range(STEPS)]) for one in radii]


def comparison_table(found: Sequence[Comparison], above: float) -> Table:
    """Gains and how sure they are, one column per comparison."""
    from rich.table import Table

    table = Table(title="Gains of A over B per input", title_justify="left")
    table.add_column("A")
    against = [_short(one.against, found) for one in found]
    for one in found:
        table.add_column(one_line(_short(one.name, found)), justify="right", overflow="fold")
    rows: list[tuple[str, list[str]]] = [
        ("B", against),
        ("inputs (dropped)", [f"{one.inputs} ({one.dropped})" for one in found]),
        ("A larger", [_share(one.won) for one in found]),
        ("B larger", [_share(one.lost) for one in found]),
        ("median gain", [f"{one.median_gain:.4f}" for one in found]),
        ("median gain %", [_percent(one.median_gain_percent) for one in found]),
        ("mean gain", [f"{one.mean_gain:.4f}" for one in found]),
        ("mean gain %", [_percent(one.mean_gain_percent) for one in found]),
        ("median radius A", [f"{one.median_radius:.3f}" for one in found]),
        ("median radius B", [f"{one.median_radius_against:.3f}" for one in found]),
        (f"above {above:g} A", [_share(one.above) for one in found]),
        (f"above {above:g} B", [_share(one.above_against) for one in found]),
        ("Wilcoxon W+", [f"{one.statistic:,.0f}" for one in found]),
        ("p (one-sided)", [f"{one.p_value:.1g}" for one in found]),
        ("differ in", ["; ".join(one.differing) or "-" for one in found]),
        *((f"gain > {x:g}%", [_share(one.gaining[x]) for one in found]) for x in found[0].gaining),
    ]
    for name, cells in rows:
        table.add_row(name, *map(one_line, cells))
    return table


def _short(name: str, found: Sequence[Comparison]) -> str:
    """The mechanism alone where all contestants come from one run, the last folder's name otherwise."""
    path, colon, mechanism = name.rpartition(": ")
    one_run = len({text.rpartition(": ")[0] for each in found for text in (each.name, each.against)}) == 1
    if colon and one_run:
        return mechanism
    return Path(path).name + colon + mechanism if colon else name if name.startswith("best of") else Path(name).name


def _share(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}%"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}%"
