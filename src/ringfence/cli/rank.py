"""``ringfence rank``."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from ringfence.cli import options as o
from ringfence.cli.console import friendly, remark, results

Members = Annotated[str, typer.Option("--members", help="Model specs separated by commas (also arch@weights).")]
Draws = Annotated[int, typer.Option(help="Noisy copies of every input.")]


def rank_command(
    members: Members,
    sigma: o.Sigma,
    data: o.Data = "default",
    first: o.First = 1,
    skip: o.Skip = 20,
    limit: o.Limit = None,
    split: o.Split = "test",
    size: o.Size = None,
    mean: o.Mean = None,
    std: o.Std = None,
    classes: o.Classes = None,
    draws: Draws = 10,
    seed: o.Seed = 0,
    device: o.Device = "auto",
    as_json: o.Json = False,
) -> None:
    """Order members by accuracy on noisy hold-out inputs, best first; by default inputs 1, 21, 41, ..."""
    with friendly():
        from rich import box
        from rich.table import Table

        from ringfence.analysis.ranking import rank
        from ringfence.cli.holdout import HoldoutChoice

        choice = HoldoutChoice(
            members, sigma, data, first, skip, limit, split, size, mean, std, classes, draws, seed, device
        )
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
                "draws": draws,
                "sigma": sigma,
            }
            typer.echo(json.dumps(content, indent=2, allow_nan=False))
            return
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        table.add_column("member", overflow="fold")
        table.add_column("noisy accuracy %", justify="right")
        table.add_column("± standard error", justify="right")
        for one in ranked:
            table.add_row(specs[one.member], f"{100 * one.accuracy:.2f}", f"{100 * one.error:.2f}")
        results.print(table)
        results.print(f"--members {order}", soft_wrap=True)
        remark(f"{len(scores.labels)} hold-out inputs, {draws} noisy copies each; fix this order before certifying.")
