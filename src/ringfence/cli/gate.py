"""``ringfence gate``: a run as a condition of a release."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer

from ringfence.cli import options as o
from ringfence.cli.console import friendly, print_json, remark, say


def gate_command(
    run: Annotated[Path, typer.Argument(help="A finished run folder.")],
    certified: Annotated[
        list[str], typer.Option("--certified", help="ACCURACY@RADIUS, e.g. 0.60@0.5; may stand more than once.")
    ],
    confidence: Annotated[float, typer.Option(help="Of each lower bound, over inputs and noise.")] = 0.95,
    lane: Annotated[str | None, typer.Option(help="Which lane, for runs with several.")] = None,
    as_json: o.Json = False,
) -> None:
    """Exit with 1 unless the run shows the certified accuracy; a run that cannot be trusted exits with 2.

    The bound is exact (binomial) for inputs drawn independently, and already counts that each certificate may fail.
    """
    with friendly():
        from ringfence.gate import Demand, gate
        from ringfence.store import RunFolder

        demands, folder = [Demand.of(one) for one in certified], RunFolder.open(run)
        verdicts = [gate(folder, one, confidence, lane) for one in demands]
        passed = all(one.passed for one in verdicts)  # to need all of them makes no error likelier
        if as_json:
            print_json({"run": str(run), "passed": passed, "demands": [one.to_dict() for one in verdicts]})
        else:
            for one in verdicts:
                word, sign = ("passed", ">=") if one.passed else ("failed", "<")
                lower = math.floor(1e4 * one.lower) / 1e4
                bound = f"lower bound {lower:.4f} {sign} {one.accuracy:g} at {one.norm} radius {one.radius:g}"
                counted = f"{one.certified} of {one.inputs} inputs certified"
                say(f"{word}: {bound} ({counted}; confidence {one.confidence:g})")
        for doubt in dict.fromkeys(doubt for one in verdicts for doubt in one.doubts):
            remark(f"warning: {doubt}.")
    if not passed:
        raise typer.Exit(1)
