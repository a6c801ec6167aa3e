"""``ringfence rank``."""

from __future__ import annotations

import json
import shlex

import typer

from ringfence.cli import options as o
from ringfence.cli.console import friendly, remark, results, say
from ringfence.cli.groups import grouped
from ringfence.cli.holdout import HoldoutChoice
from ringfence.printable import one_line


@grouped
def rank_command(
    choice: HoldoutChoice,
    as_json: o.Json = False,
) -> None:
    """Order members by accuracy on noisy hold-out inputs, best first; by default inputs 1, 21, 41, ..."""
    with friendly():
        from rich import box
        from rich.table import Table

        from ringfence.analysis.holdout import rank

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
            typer.echo(json.dumps(content, indent=2, allow_nan=False))
            return
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        table.add_column("member", overflow="fold")
        table.add_column("noisy accuracy %", justify="right")
        table.add_column("± standard error", justify="right")
        for one in ranked:
            table.add_row(one_line(specs[one.member]), f"{100 * one.accuracy:.2f}", f"{100 * one.error:.2f}")
        results.print(table)
        say(f"--members {shlex.quote(order)}")
        remark(
            f"{len(scores.labels)} hold-out inputs, {choice.draws} noisy copies each; fix this order before certifying."
        )
