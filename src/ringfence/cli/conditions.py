"""``ringfence conditions``: are votes of given members robust at given inputs, and do the members differ there?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from ringfence.cli import options as o
from ringfence.cli.console import friendly, print_json, remark, results
from ringfence.cli.groups import grouped
from ringfence.cli.holdout import FirstInputs


@dataclass(frozen=True)
class ConditionsChoice(FirstInputs):
    """The first twenty inputs, and enough draws for a mean gradient."""

    draws: Annotated[int, typer.Option(help="Draws that the gradients are averaged over.")] = 100


@grouped
def conditions_command(
    choice: ConditionsChoice,
    radius: Annotated[float, typer.Option("--radius", help="Radius of the ball that is asked about.")],
    as_json: o.Json = False,
) -> None:
    """Say where votes of the members are robust by the conditions of Yang et al. 2022: a diagnostic, no certificate."""
    with friendly():
        from ringfence.analysis.conditions import check_positive, judge, summary
        from ringfence.errors import ArgumentError
        from ringfence.sampling import check_seed

        check_seed(choice.seed)
        check_positive("--radius", radius)
        noise = choice.drawn  # refused here, before anything is loaded
        if noise.law.family != "gaussian":
            rule = "must be gaussian: the conditions are about the curvature that it leaves"
            raise ArgumentError("noise", rule, noise.law.family, "Leave it out.")
        members, dataset = choice.load()
        judged = judge(members, dataset, sigma=choice.sigma, radius=radius, draws=choice.draws, seed=choice.seed)
        found = {"sigma": choice.sigma, "radius": radius, "draws": choice.draws, **summary(judged)}
        if as_json:
            print_json(found)
            return
        for vote in ("softmax", "max_margin"):
            told = ", ".join(f"{name.replace('_', ' ')} {count}" for name, count in sorted(found[vote].items()))
            results.print(f"{vote.replace('_', '-')} vote: {told}")
        results.print(f"all members right on {found['all_right']:.0%}, largest gradient cosine {found['cosine']:.2f}")
        remark(f"{found['inputs']} inputs; gradients are estimated from draws: a diagnostic, never a certificate.")
