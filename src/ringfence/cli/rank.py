"""``ringfence rank``."""

from __future__ import annotations

import shlex

from ringfence.cli import options as o
from ringfence.cli.console import friendly, print_json, remark, results, say
from ringfence.cli.groups import grouped
from ringfence.cli.holdout import HoldoutChoice


@grouped
def rank_command(
    choice: HoldoutChoice,
    as_json: o.Json = False,
) -> None:
    """Order members by accuracy on noisy hold-out inputs, best first; by default inputs 1, 21, 41, ..."""
    with friendly():
        from ringfence.analysis.holdout import rank
        from ringfence.cli.tables import table

        scores, specs = choice.scores(), choice.specs
        ranked = rank(scores)
        order = ",".join(specs[one.member] for one in ranked)
        if as_json:
            entries = [
                {
                    "member": specs[one.member],
                    "accuracy": one.accuracy,
                    "error": one.error if one.error == one.error else None,
                }
                for one in ranked
            ]
            content = {
                "members": order,
                "ranking": entries,
                "inputs": len(scores.labels),
                "draws": choice.draws,
                "sigma": choice.sigma,
            }
            print_json(content)
            return
        rows = [(specs[one.member], f"{100 * one.accuracy:.2f}", f"{100 * one.error:.2f}") for one in ranked]
        results.print(table(("member", "noisy accuracy %", "± standard error"), rows, ("member",)))
        say(f"--members {shlex.quote(order)}")
        remark(
            f"{len(scores.labels)} hold-out inputs, {choice.draws} noisy copies each; fix this order before certifying."
        )
