"""``ringfence compare``: certificates against each other, input by input."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ringfence.cli import options as o
from ringfence.cli.console import friendly, named_paths, numbers, print_json, remark, results, say, written_numbers
from ringfence.cli.derived import grouped
from ringfence.cli.help import SEVERAL
from ringfence.cli.tables import percent, sparkline, table
from ringfence.errors import ArgumentError
from ringfence.rounding import written, written_down

if TYPE_CHECKING:
    from rich.table import Table

    from ringfence.analysis.bounds import RunBounds
    from ringfence.analysis.compare import Comparison, RunSummary
    from ringfence.stats.norms import InNorm


STEPS = 8
"""Blocks of a curve in the terminal."""
LONGEST = 30
"""Letters that a column of the comparisons holds; more are told below it."""


@grouped
def compare_command(
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="RUN...", help="Run folders, or Cohen-style logs with --sigma; each PATH or NAME=PATH."),
    ],
    mechanism: Annotated[
        tuple[str, str] | None,
        typer.Option(help="Two mechanisms A B: what A gains over B, in every run.", metavar="A B"),
    ] = None,
    by: Annotated[str | None, typer.Option(help="Compare several runs by this mechanism, not their own.")] = None,
    best: Annotated[bool, typer.Option("--best", help="Add the best of all runs per input; alpha must pay.")] = False,
    alpha: Annotated[float | None, typer.Option(help="Failure probability that --best may spend.")] = None,
    above: Annotated[float, typer.Option(help="Count the inputs certified above this radius.")] = 0.05,
    gains: Annotated[
        str, typer.Option(help="Percentages x for the share that gains more than x.", metavar=f"X{SEVERAL}")
    ] = "0,10,25,50,100",
    lane: o.LaneName = None,
    sigma: Annotated[float | None, typer.Option(help="Noise level of the logs among the runs.")] = None,
    envelope: Annotated[
        bool, typer.Option("--envelope", help="Only the best run of every radius: chosen per radius, after the fact.")
    ] = False,
    radii: o.Radii = None,
    within: o.NormOptions = o.NormOptions(),
    csv: Annotated[Path | None, typer.Option(help="Also write the comparisons as CSV.")] = None,
    as_json: o.Json = False,
) -> None:
    """Compare mechanisms on a run, or runs with each other, paired on common inputs."""
    with friendly():
        from ringfence.analysis.bounds import RunBounds
        from ringfence.analysis.compare import as_csv, comparisons, summarise
        from ringfence.store.atomic import write_output

        shown = within.shown
        unused: dict[str, Any] = {"mechanism": mechanism, "by": by, "best": best or None, "lane": lane, "csv": csv}
        unused["sigma"] = sigma
        _refuse_unused(envelope, unused if envelope else {"radii": radii}, None if best else alpha)
        paths, names = named_paths(paths)
        if envelope:
            _envelope(paths, names, radii, as_json, shown)
            return
        runs = [RunBounds.load(path, lane, shown, sigma) for path in paths]
        runs = [replace(run, path=names.get(run.path, run.path)) for run in runs]
        found = comparisons(runs, mechanism, by, best, alpha, above, numbers(gains, "--gains"))
        summaries = [summarise(run, above=above) for run in runs]
        if csv is not None:
            write_output(csv, as_csv(found).encode())
        if as_json:
            answer = {"runs": [asdict(one) for one in summaries], "comparisons": [one.row() for one in found]}
            print_json({"above": above, **_norm(shown, runs), **answer})
            return
        print_runs(list(zip(runs, summaries, strict=True)), above)
        results.print(comparison_table(found, above))
        _print_remarks(found, runs, shown)


def _print_remarks(found: Sequence[Comparison], runs: Sequence[RunBounds], shown: InNorm | None) -> None:
    """What a reader of the tables should know of pairs and runs."""
    for one in found:
        if len(told := _differ(one)) > LONGEST:
            say(f"{one.name} and {one.against} differ in {told}")
    for dropped, against, name in {(one.dropped, one.against, one.name) for one in found if one.dropped}:
        remark(f"{name} against {against}: {dropped} inputs that only one of the two has were dropped")
    for one in found:
        if "precision" in one.differing:
            remark(f"{one.name} and {one.against} ran in different precision: two classifiers, paired all the same")
    for run in runs:
        if shown is not None and shown.norm != run.config.norm:
            remark(f"{run.path}: radii in {shown.norm}, converted from {run.config.norm}, in which they were proved")
        if not run.has_counts:
            unknown = "the log has no raw counts, so top-1 and other mechanisms are unknown"
            remark(
                f"{run.path}: {unknown}; nor does it say n and alpha, which are as ringfence import cohen takes them"
            )


def _refuse_unused(envelope: bool, unused: dict[str, Any], alpha: float | None) -> None:
    """What would be dropped without a word: options of the other form, and an alpha that pays for nothing."""
    for name, value in unused.items():
        if value is not None:
            rule = f"{'does not go' if envelope else 'goes only'} with `envelope`"
            raise ArgumentError(name, rule, value, f"Leave {'one of them' if envelope else 'it'} out.")
    if alpha is not None:
        raise ArgumentError("alpha", "goes with `best`", alpha, "Leave it out: runs have alphas of their own.")


def _envelope(
    paths: Sequence[Path], names: dict[str, str], radii: str | None, as_json: bool, shown: InNorm | None
) -> None:
    """The best certified accuracy per radius, and whose it is."""
    from ringfence.analysis.envelope import envelope
    from ringfence.analysis.metrics import load_together

    asked = written_numbers(radii, "--radii")
    runs = [replace(one, path=names.get(one.path, one.path)) for one in load_together(paths, asked, shown=shown)]
    points, counts = envelope(runs), {one.count for one in runs}
    if len(counts) > 1:
        remark(f"the runs have {min(counts)} to {max(counts)} inputs: one may be best because its own are easier")
    if as_json:
        document = {"envelope": "chosen per radius", **_norm(shown), "points": [asdict(one) for one in points]}
        print_json(document)
        return
    promises = {True: "", False: " (no proven guarantee)"}
    rows = [(written(p.radius), percent(p.certified_accuracy, "%"), p.run + promises[p.sound]) for p in points]
    converted = "" if shown is None else f" in {shown.norm}"
    title = f"Best certified accuracy, chosen per radius{converted}"
    results.print(table(("radius", "certified", "run"), rows, ("run",), title))


def _norm(shown: InNorm | None, runs: Sequence[RunBounds] = ()) -> dict[str, Any]:
    """What JSON says of the norm of the radii, where one was asked for."""
    proved = {"proved_norm": {run.path: run.config.norm for run in runs}} if runs else {}
    return {} if shown is None else {"norm": shown.norm, **proved}


def print_runs(runs: Sequence[tuple[RunBounds, RunSummary]], above: float) -> None:
    """Every mechanism, run by run in the order of sigma and n."""
    from rich.text import Text

    from ringfence.analysis.compare import certified_shares

    for bounds, run in sorted(runs, key=lambda one: (one[1].sigma, one[1].n or 0)):
        draws = "" if run.n is None else f", n {run.n:,}"
        promise = "" if run.sound else ", no proven guarantee"
        head = f"{run.path}: {run.procedure}, sigma {run.sigma:g}{draws}, alpha {run.alpha:g}{promise}"
        reach, shares_above = certified_shares(bounds, STEPS)
        facts = f"{run.inputs} inputs, top-1 {percent(run.top_1, '%')}, {1000 * run.seconds:,.0f} ms/input"
        facts += f"; curve: share certified above 0 to {reach:.3g}"
        say(head)
        say(facts)
        rows = []
        for one, curve in zip(run.mechanisms, shares_above, strict=True):
            shares = (percent(one.above, "%"), percent(one.largest, "%"))
            rows.append(
                (
                    one.mechanism.replace("_", "-"),
                    written_down(one.median_radius, 3),
                    *shares,
                    Text(sparkline(curve), style="cyan"),
                )
            )
        headings = ("mechanism", "median radius", f"above {above:g}", "largest", "curve")
        results.print(table(headings, rows, ("mechanism", "curve")))


def comparison_table(found: Sequence[Comparison], above: float) -> Table:
    """Gains and how sure they are, one column per comparison."""
    against, differ = [_short(one.against, found) for one in found], list(map(_differ, found))
    rows: list[tuple[str, list[str]]] = [
        ("B", against),
        ("inputs (dropped)", [f"{one.inputs} ({one.dropped})" for one in found]),
        *_average_rows(found),
        ("A larger", [percent(one.won, "%") for one in found]),
        ("B larger", [percent(one.lost, "%") for one in found]),
        ("median gain", [f"{one.median_gain:.4f}" for one in found]),
        ("median gain %", [_percent(one.median_gain_percent) for one in found]),
        ("mean gain", [f"{one.mean_gain:.4f}" for one in found]),
        ("mean gain %", [_percent(one.mean_gain_percent) for one in found]),
        ("median radius A", [written_down(one.median_radius, 3) for one in found]),
        ("median radius B", [written_down(one.median_radius_against, 3) for one in found]),
        (f"above {above:g} A", [percent(one.above, "%") for one in found]),
        (f"above {above:g} B", [percent(one.above_against, "%") for one in found]),
        ("Wilcoxon W+", [f"{one.statistic:,.0f}" for one in found]),
        ("p (one-sided)", [f"{one.p_value:.1g}" for one in found]),
        ("differ in", [told if len(told) <= LONGEST else "see below" for told in differ]),
        *((f"gain > {x:g}%", [percent(one.gaining[x], "%") for one in found]) for x in found[0].gaining),
    ]
    ours = (_short(one.name, found) for one in found)
    made = table(("A", *ours), [(name, *cells) for name, cells in rows], ("A",), "Gains of A over B per input")
    for column in made.columns[1:]:
        column.no_wrap = False  # names of runs may be long
    return made


def _average_rows(found: Sequence[Comparison]) -> list[tuple[str, list[str]]]:
    """Average certified radii, in which wrong answers count as 0; where there are any."""
    if all(one.acr is None for one in found):
        return []
    return [
        ("ACR A", [_average(one.acr) for one in found]),
        ("ACR B", [_average(one.acr_against) for one in found]),
        ("ACR A - B, 95%", [_between(one.acr_gain_low, one.acr_gain_high) for one in found]),
    ]


def _average(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _between(low: float | None, high: float | None) -> str:
    return "-" if low is None or high is None else f"{low:.3f} to {high:.3f}"


def _differ(one: Comparison) -> str:
    return "; ".join(one.differing) or "-"


def _short(name: str, found: Sequence[Comparison]) -> str:
    """The mechanism alone where all contestants come from one run, the last folder's name otherwise."""
    path, colon, mechanism = name.rpartition(": ")
    one_run = len({text.rpartition(": ")[0] for each in found for text in (each.name, each.against)}) == 1
    mechanism = mechanism.replace("_", "-") if colon else mechanism
    if colon and one_run:
        return mechanism
    return Path(path).name + colon + mechanism if colon else name if name.startswith("best of") else Path(name).name


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}%"
