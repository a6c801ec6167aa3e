"""``ringfence variance`` and ``ringfence conditions``: what theory says of given members, beside what is measured."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ringfence.cli import options as o
from ringfence.cli.console import friendly, print_json, remark, results, whole_numbers
from ringfence.cli.derived import grouped
from ringfence.cli.help import SEVERAL
from ringfence.cli.holdout import FirstInputs
from ringfence.cli.progress import show_progress, show_waiting
from ringfence.cli.tables import table
from ringfence.errors import ArgumentError


@grouped
def variance_command(
    choice: FirstInputs,
    draws: Annotated[int, typer.Option(help="Draws that estimate the model, and as many that measure it.")] = 1000,
    k: Annotated[
        str | None,
        typer.Option("--k", help="Ensemble sizes, e.g. 2,3 (default: all up to the members).", metavar=f"N{SEVERAL}"),
    ] = None,
    n: Annotated[int, typer.Option("--n", "--N", help="Draws of the certification that follows.")] = 1000,
    alpha: o.Alpha = 0.001,
    centre: Annotated[
        str, typer.Option(help="noisy: model the logits around their mean under noise; clean: as published.")
    ] = "noisy",
    as_json: o.Json = False,
) -> None:
    """Predict margin variance, success probability and radius of soft votes of k members, then certify and compare."""
    with friendly():
        with show_waiting("loading libraries"):
            from ringfence.analysis.variance_check import VarianceCheck, certified_sizes
            from ringfence.certifying import certify
            from ringfence.classifiers import Lanes
            from ringfence.mechanisms import one_sided_for
            from ringfence.procedures import Fixed
            from ringfence.sampling import check_seed
            from ringfence.work import Execution

        count = len(choice.specs)
        if count < 2:
            raise ArgumentError("--members", "needs at least two members to compare", count, "Name more.")
        sizes = whole_numbers(k, "--k") if k else tuple(range(1, count + 1))
        if not sizes or not all(1 <= one <= count for one in sizes):
            raise ArgumentError("--k", f"must lie between 1 and the {count} members", k, "Ask for fewer.")
        check_seed(choice.seed)
        noise, procedure = choice.drawn, Fixed(alpha, n=n)  # refused here, before anything is loaded
        check = VarianceCheck(sizes, choice.sigma, draws, n, alpha, centre, choice.seed, noise.name)
        members, dataset = choice.load()
        votes = Lanes(members, ("soft",), prefixes=True)
        size_of = {name: place + 1 for place, name in enumerate(votes.names)}
        with show_progress(len(dataset), 0, draws=procedure.most_draws) as report:
            execution = Execution(choice.device, on_progress=report)
            how: dict[str, Any] = {"noise": noise, "procedure": procedure, "mechanism": one_sided_for(noise.name)}
            records = certify(votes, dataset, lanes=votes.names, seed=choice.seed, execution=execution, **how)
            certified = certified_sizes(records, size_of)
        found = check.compare(members, dataset, certified)
        if as_json:
            print_json({"sigma": choice.sigma, "n": n, "draws": draws, **found})
            return
        print_comparison(found)
        remark(f"{found['inputs']} inputs; zeta_p {found['zeta_p']:.3f}; ± is the standard error over inputs.")


def print_comparison(found: dict[str, Any]) -> None:
    """One line per ensemble size."""
    from ringfence.analysis.variance_check import COMPARED

    def told(one: dict[str, float]) -> str:
        return f"{one['predicted']:.3f}/{one['measured']:.3f}±{one['error']:.3f}"

    rows = [(str(entry["k"]), *(told(entry[name]) for name in COMPARED)) for entry in found["sizes"]]
    title = "predicted / measured ± error of the difference"
    results.print(table(("k", *COMPARED.values()), rows, title=title, padding=0))


@grouped
def conditions_command(
    choice: FirstInputs,
    radius: Annotated[float, typer.Option("--radius", help="Radius of the ball that is asked about.")],
    draws: Annotated[int, typer.Option(help="Draws that the gradients are averaged over.")] = 100,
    as_json: o.Json = False,
) -> None:
    """Say where votes of the members are robust by the conditions of Yang et al. 2022: a diagnostic, no certificate."""
    with friendly():
        with show_waiting("loading libraries"):
            from ringfence.analysis.conditions import check_positive, judge, summary
            from ringfence.sampling import check_seed

        check_seed(choice.seed)
        check_positive("--radius", radius)
        noise = choice.drawn  # refused here, before anything is loaded
        if noise.law.family != "gaussian":
            rule = "must be gaussian: the conditions are about the curvature that it leaves"
            raise ArgumentError("noise", rule, noise.law.family, "Leave it out.")
        members, dataset = choice.load()
        judged = judge(members, dataset, sigma=choice.sigma, radius=radius, draws=draws, seed=choice.seed)
        found = {"sigma": choice.sigma, "radius": radius, "draws": draws, **summary(judged)}
        if as_json:
            print_json(found)
            return
        for vote in ("softmax", "max_margin"):
            told = ", ".join(f"{name.replace('_', ' ')} {count}" for name, count in sorted(found[vote].items()))
            results.print(f"{vote.replace('_', '-')} vote: {told}")
        results.print(f"all members right on {found['all_right']:.0%}, largest gradient cosine {found['cosine']:.2f}")
        remark(f"{found['inputs']} inputs; gradients are estimated from draws: a diagnostic, never a certificate.")
