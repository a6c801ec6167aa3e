"""``ringfence simplex``: which certificate is best where, on the simplex and for a run's own inputs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ringfence.cli import options as o
from ringfence.cli.console import friendly, print_json, remark, say, say_facts
from ringfence.cli.help import HelpfulCommand
from ringfence.errors import ArgumentError, StoreError
from ringfence.progress import followed
from ringfence.rounding import written_down

if TYPE_CHECKING:
    from ringfence.analysis.simplex import SimplexMap, SimplexPoints

simplex_app = typer.Typer(help="Which certificate is best where on the simplex of class probabilities.")

Left = Annotated[str, typer.Option(help="A mechanism, or the best of several: renyi+analytic-dp.")]
Right = Annotated[str, typer.Option(help="What it is compared with; a mechanism or a set.")]
StatisticName = Annotated[str, typer.Option("--statistic", help="ratio or difference of the two radii.")]
Step = Annotated[float, typer.Option(help="Step of the grid.")]
Picture = Annotated[Path, typer.Option("--out", help="The picture to write, .png, .svg or .pdf.")]
Page = Annotated[Path | None, typer.Option("--page", help="Also write an interactive page, one HTML file.")]


@simplex_app.command("map", cls=HelpfulCommand)
def map_command(
    out: Picture,
    left: Left = "one-sided",
    right: Right = "renyi",
    statistic: StatisticName = "ratio",
    sigma: Annotated[float, typer.Option(help="Noise level; all radii are proportional to it.")] = 1.0,
    step: Step = 0.005,
    page: Page = None,
    as_json: o.Json = False,
) -> None:
    """Draw the ratio or difference of two mechanisms, or sets of them, over the simplex."""
    with friendly():
        from ringfence.analysis.simplex import simplex_map

        _check_files(out, page)
        found = simplex_map(left, right, statistic, sigma, step)  # type: ignore[arg-type]
        _draw(found, None, out, page)
        facts = found.summary()
        if as_json:
            print_json(facts)
        else:
            _print_map(facts)
            _name_files(out, page)


@simplex_app.command("scatter", cls=HelpfulCommand)
def scatter_command(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    out: Picture,
    left: Left = "one-sided",
    right: Right = "renyi+analytic-dp",
    statistic: StatisticName = "ratio",
    step: Step = 0.005,
    page: Page = None,
    lane: o.LaneName = None,
    as_json: o.Json = False,
) -> None:
    """Draw a run's inputs, by their bounds and empirical means, over a map of the simplex."""
    with friendly():
        from ringfence.analysis.bounds import RunBounds
        from ringfence.analysis.simplex import simplex_map, simplex_points

        _check_files(out, page)
        bounds = RunBounds.load(run, lane)
        if (family := bounds.config.noise.family) != "gaussian":
            rule, remedy = "must be of gaussian noise, as the map is", "Use ringfence compare for it."
            raise StoreError(run, rule, f"{family} noise", remedy)
        points = simplex_points(bounds, left, right)
        found = simplex_map(left, right, statistic, bounds.sigma, step)  # type: ignore[arg-type]
        _draw(found, points, out, page)
        facts = {"map": found.summary(), "points": points.summary()}
        if as_json:
            print_json(facts)
            return
        there = facts["points"]
        say(f"{there['inputs']} inputs of {run}")
        larger = {f"{found.left} larger": there["left_wins"], f"{found.right} larger": there["right_wins"]}
        largest = {f"largest: {name}": count for name, count in there["largest"].items()}
        say_facts({**larger, "neither certifies": there["neither_certifies"], **largest}, "  ")
        _name_files(out, page)


@simplex_app.command("at", cls=HelpfulCommand)
def at_command(
    p_a: Annotated[float, typer.Argument(help="Lower bound on the chosen class.")],
    p_b: Annotated[float, typer.Argument(help="Upper bound on every other class.")],
    sigma: Annotated[float, typer.Option(help="Noise level.")] = 1.0,
    as_json: o.Json = False,
) -> None:
    """Radius of every mechanism at one point of the simplex."""
    with friendly():
        from ringfence.mechanisms import mechanisms_named

        radii = {one: float(one(p_a, p_b, sigma)) for one in mechanisms_named("all")}
        if as_json:
            finite = {one.name: radius if radius < float("inf") else None for one, radius in radii.items()}
            print_json({"p_a": p_a, "p_b": p_b, "sigma": sigma, "radii": finite})
            return
        ordered = sorted(radii.items(), key=lambda pair: -pair[1])
        say_facts({one.spelled: written_down(radius, 6) for one, radius in ordered})


def _check_files(out: Path, page: Path | None) -> None:
    from ringfence.report.rendering import check_picture

    check_picture(out)
    if page is not None and page.resolve() == out.resolve():
        raise ArgumentError("page", "must be another file than the picture", page, "Name it e.g. simplex.html.")


def _draw(found: SimplexMap, points: SimplexPoints | None, out: Path, page: Path | None) -> None:
    from ringfence.report.rendering import save_page, save_picture
    from ringfence.report.simplex_drawing import simplex_specification, simplex_title

    drawn: dict[str, Any] = {}
    steps: list[Callable[[], None]] = [
        lambda: drawn.update(simplex_specification(found, points)),
        lambda: save_picture(drawn, out),
        lambda: None if page is None else save_page(drawn, page, simplex_title(found)),
    ]
    for step in followed(steps, "drawing"):
        step()


def _print_map(facts: dict[str, Any]) -> None:
    say(f"{facts['points']:,} points with E0 > E1 > 0 and E0 + E1 <= 1, in steps of {facts['step']:g}")
    left, right = facts["left"], facts["right"]
    shares = {f"{left} larger": "left_wins", f"{right} larger": "right_wins", "equal": "equal"}
    shares |= {f"only {left} certifies": "only_left_certifies", f"only {right} certifies": "only_right_certifies"}
    for words, key in shares.items():
        say(f"  {words} on {facts[key]:.1%}")
    level = f"difference left - right at sigma {facts['sigma']:g}"
    for words, one in (("ratio left / right where both certify", facts["ratio"]), (level, facts["difference"])):
        if one:
            say(f"  {words}: median {one['median']:.3f}, {one['min']:.3f} to {one['max']:.3f}")
    for name, share in facts["largest"].items():
        say(f"  largest single mechanism: {name} on {share:.1%}")


def _name_files(out: Path, page: Path | None) -> None:
    remark(f"written: {out}" + (f", {page}" if page else ""))
