"""``ringfence weights``."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from ringfence.cli import options as o
from ringfence.cli.console import friendly, print_json, remark, results
from ringfence.cli.groups import grouped
from ringfence.cli.holdout import HoldoutChoice

if TYPE_CHECKING:
    from ringfence.analysis.holdout import LearnedWeights


@grouped
def weights_command(
    choice: HoldoutChoice,
    on: Annotated[str, typer.Option("--on", help="logits or softmax: what the weights multiply.")] = "logits",
    method: Annotated[str, typer.Option(help="gradient, grid, or both.")] = "both",
    step: Annotated[float, typer.Option(help="Step of the grid on the weight simplex.")] = 0.1,
    as_json: o.Json = False,
) -> None:
    """Learn the members' weights on noisy hold-out inputs: by gradient descent and by grid search (SWEEN)."""
    with friendly():
        from ringfence.analysis.holdout import equal_weights, gradient_weights, grid_weights, written
        from ringfence.errors import ArgumentError

        if on not in ("logits", "softmax"):
            raise ArgumentError("--on", "must be logits or softmax", repr(on), "logits is the default.")
        if method not in ("gradient", "grid", "both"):
            raise ArgumentError("--method", "must be gradient, grid or both", repr(method), "Use both.")
        scores = choice.scores()
        found: list[LearnedWeights] = [equal_weights(scores, on)]
        if method in ("gradient", "both"):
            found.append(gradient_weights(scores, on))
        if method in ("grid", "both"):
            found.append(grid_weights(scores, on, step))
        if as_json:
            content = {
                "members": choice.specs,
                "on": on,
                "sigma": choice.sigma,
                "inputs": len(scores.labels),
                "draws": choice.draws,
                "learned": [{**asdict(one), "weights": list(one.weights)} for one in found],
            }
            print_json(content)
            return
        print_weights(found)
        for one in found[1:]:
            option = "" if on == "logits" else f" --weights-on {on}"
            results.print(f"{one.method}: --member-weights {written(one.weights)}{option}", soft_wrap=True)
        seen = f"{len(scores.labels)} hold-out inputs, {choice.draws} noisy copies each"
        remark(f"{seen}; fix the weights before certifying.")


def print_weights(found: list[LearnedWeights]) -> None:
    """One line per method: weights, cross-entropy and accuracy on the noisy hold-out."""
    from ringfence.analysis.holdout import written
    from ringfence.cli.tables import table

    rows = [(one.method, written(one.weights, 3), f"{one.loss:.4f}", f"{100 * one.accuracy:.2f}") for one in found]
    headings = ("method", "weights", "cross-entropy", "noisy accuracy %")
    results.print(table(headings, rows, ("method", "weights")))
