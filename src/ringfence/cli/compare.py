"""``ringfence compare``: certificates against each other, input by input."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ringfence.cli import options as o
from ringfence.cli.console import friendly, numbers, remark, results

if TYPE_CHECKING:
    from rich.table import Table

    from ringfence.analysis.bounds import RunBounds
    from ringfence.analysis.compare import Comparison, RunSummary


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
    csv: Annotated[Path | None, typer.Option(help="Also write the comparisons as CSV.")] = None,
    as_json: o.Json = False,
) -> None:
    """Compare mechanisms on a run, or runs with each other, paired on common inputs."""
    with friendly():
        from ringfence.analysis.bounds import RunBounds
        from ringfence.analysis.compare import as_csv, summarise
        from ringfence.store.atomic import write_atomically

        runs = [RunBounds.load(path, lane) for path in paths]
        found = comparisons(runs, mechanism, by, (best, alpha), above, numbers(gains, "--gains"))
        summaries = [summarise(run, above=above) for run in runs]
        if csv is not None:
            write_atomically(csv, as_csv(found).encode())
        if as_json:
            answer = {
                "above": above,
                "runs": [asdict(one) for one in summaries],
                "comparisons": [f.row() for f in found],
            }
            typer.echo(json.dumps(answer, indent=2, allow_nan=False))
            return
        results.print(run_table(summaries, above))
        results.print(comparison_table(found, above))
        for dropped, against, name in {(one.dropped, one.against, one.name) for one in found if one.dropped}:
            remark(f"{name} against {against}: {dropped} inputs that only one of the two has were dropped")
        for run in runs:
            if not run.has_counts:
                remark(f"{run.path}: the log has no raw counts, so top-1 and other mechanisms are unknown")


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


def run_table(summaries: Sequence[RunSummary], above: float) -> Table:
    """Table 1 of paper 004; sorted by n within a sigma it is figure 6."""
    from rich.table import Table

    table = Table(title="Runs", title_justify="left")
    names = ("run", "sigma", "n", "top-1", "ms/input", "mechanism", "median r", f"r>{above:g}", "largest")
    for name in names:
        table.add_column(name, justify="left" if name in ("run", "mechanism") else "right", overflow="fold")
    for run in sorted(summaries, key=lambda one: (one.sigma, one.n or 0)):
        label = run.path + ("" if run.sound else " (paper: no guarantee)")
        head = [label, f"{run.sigma:g}", "-" if run.n is None else f"{run.n:,}", _share(run.top_1)]
        head.append(f"{1000 * run.seconds:.0f}")
        for one in run.mechanisms:
            row = [*head, one.mechanism, f"{one.median_radius:.3f}", _share(one.above), _share(one.largest)]
            table.add_row(*(cell.replace("[", r"\[") for cell in row))
            head = [""] * 5
    return table


def comparison_table(found: Sequence[Comparison], above: float) -> Table:
    """Table 2 of paper 004 with figure 7's shares."""
    from rich.table import Table

    table = Table(title="Gains, paired per input", title_justify="left")
    gains = list(found[0].gaining)
    columns = ("A", "against B", "inputs", "won", "lost", "median", "%", "mean", "% ", f"r>{above:g} A", "B", "p")
    for name in (*columns, *(f">{x:g}%" for x in gains)):
        table.add_column(name, justify="left" if name in ("A", "against B") else "right", overflow="fold")
    for one in found:
        row: list[Any] = [one.name, one.against, str(one.inputs), _share(one.won), _share(one.lost)]
        row += [f"{one.median_gain:.4f}", _percent(one.median_gain_percent)]
        row += [f"{one.mean_gain:.4f}", _percent(one.mean_gain_percent)]
        row += [_share(one.above), _share(one.above_against), f"{one.p_value:.1g}"]
        row += [_share(share) for share in one.gaining.values()]
        table.add_row(*(str(cell).replace("[", r"\[") for cell in row))
    return table


def _share(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}%"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}%"
