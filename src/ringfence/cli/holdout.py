"""``ringfence rank`` and ``ringfence weights``: members on noisy hold-out inputs; and what such commands share."""

from __future__ import annotations

import shlex
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from ringfence.cli import options as o
from ringfence.cli.console import friendly, print_json, remark, results, say, written_numbers
from ringfence.cli.derived import grouped
from ringfence.cli.help import SEVERAL
from ringfence.cli.progress import show_waiting
from ringfence.cli.tables import table
from ringfence.errors import ArgumentError, check_word

if TYPE_CHECKING:
    from torch import nn

    from ringfence.analysis.holdout import Holdout, LearnedWeights
    from ringfence.data import Dataset
    from ringfence.noise import Noise


Members = Annotated[
    str,
    typer.Option("--members", help="Model specs separated by commas (also arch@weights).", metavar=f"TEXT{SEVERAL}"),
]
Draws = Annotated[int, typer.Option(help="Noisy copies of every input.")]


@dataclass(frozen=True)
class HoldoutChoice:
    """Which members are compared on which noisy inputs; papers take test images 1, 21, 41, ..."""

    members: Members
    sigma: o.Sigma[float]
    noise: o.NoiseName = None
    data: o.Data[str] = "default"
    first: o.First = 1
    skip: o.Skip[int] = 20
    limit: o.Limit = None
    split: o.Split[str] = "test"
    size: o.Size = None
    mean: o.Mean = None
    std: o.Std = None
    classes: o.Classes = None
    seed: o.Seed[int] = 0
    device: o.Device[str] = "auto"

    @property
    def drawn(self) -> Noise:
        """The noise that the members are asked under."""
        from ringfence.noise import noise_with

        return noise_with(self.noise or "gaussian", self.sigma)

    @property
    def specs(self) -> list[str]:
        """The members as written."""
        from ringfence.models.grammar import split_models

        found = split_models(self.members)
        if not found:
            raise ArgumentError("--members", "needs at least one member", "none", "Write --members a,b,c.")
        return found

    def load(self) -> tuple[list[nn.Module], Dataset]:
        """The members, which must have the same classes, and the inputs."""
        from ringfence.data import load_dataset
        from ringfence.models import load_members
        from ringfence.sampling import count_classes, pick_device

        mean, std = written_numbers(self.mean, "--mean"), written_numbers(self.std, "--std")
        chosen = {name: getattr(self, name) for name in ("skip", "limit", "split", "size", "first")}
        with show_waiting("loading models and data"):
            loaded = load_members(self.specs, self.classes, mean, std)
            dataset = load_dataset(self.data, num_classes=loaded[0].num_classes, **chosen)
            for one in loaded if len(dataset) else ():
                count_classes(one.at_input, dataset[0].x, pick_device(self.device))  # do they take these at all?
        return [one.at_input for one in loaded], dataset

    def scores(self, draws: int) -> Holdout:
        """All members' scores on the noisy hold-out inputs."""
        from ringfence.analysis.holdout import holdout_scores
        from ringfence.sampling import check_seed, pick_device

        check_seed(self.seed)
        noise, device = self.drawn, pick_device(self.device)
        members, dataset = self.load()
        return holdout_scores(members, dataset, noise, draws, self.seed, device)


@dataclass(frozen=True)
class FirstInputs(HoldoutChoice):
    """The first twenty inputs, for commands that look closely at each."""

    first: o.First = 0
    skip: o.Skip[int] = 1
    limit: o.Limit = 20


@grouped
def rank_command(
    choice: HoldoutChoice,
    draws: Draws = 10,
    as_json: o.Json = False,
) -> None:
    """Order members by accuracy on noisy hold-out inputs, best first; by default inputs 1, 21, 41, ..."""
    with friendly():
        with show_waiting("loading libraries"):
            from ringfence.analysis.holdout import rank

        scores, specs = choice.scores(draws), choice.specs
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
                "sigma": choice.sigma,
            }
            print_json(content)
            return
        rows = [(specs[one.member], f"{100 * one.accuracy:.2f}", f"{100 * one.error:.2f}") for one in ranked]
        results.print(table(("member", "noisy accuracy %", "± standard error"), rows, ("member",)))
        say(f"--members {shlex.quote(order)}")
        remark(f"{len(scores.labels)} hold-out inputs, {draws} noisy copies each; fix this order before certifying.")


@grouped
def weights_command(
    choice: HoldoutChoice,
    draws: Draws = 10,
    on: Annotated[str, typer.Option("--on", help="logits or softmax: what the weights multiply.")] = "logits",
    method: Annotated[str, typer.Option(help="gradient, grid, or both.")] = "both",
    step: Annotated[float, typer.Option(help="Step of the grid on the weight simplex.")] = 0.1,
    as_json: o.Json = False,
) -> None:
    """Learn the members' weights on noisy hold-out inputs: by gradient descent and by grid search (SWEEN)."""
    with friendly():
        with show_waiting("loading libraries"):
            from ringfence.analysis.holdout import equal_weights, gradient_weights, grid_weights, written

        check_word("--on", on, ("logits", "softmax"), "logits is the default.")
        check_word("--method", method, ("gradient", "grid", "both"), "Use both.")
        scores = choice.scores(draws)
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
                "draws": draws,
                "learned": [{**asdict(one), "weights": list(one.weights)} for one in found],
            }
            print_json(content)
            return
        print_weights(found)
        for one in found[1:]:
            option = "" if on == "logits" else f" --weights-on {on}"
            results.print(f"{one.method}: --member-weights {written(one.weights)}{option}", soft_wrap=True)
        seen = f"{len(scores.labels)} hold-out inputs, {draws} noisy copies each"
        remark(f"{seen}; fix the weights before certifying.")


def print_weights(found: list[LearnedWeights]) -> None:
    """One line per method: weights, cross-entropy and accuracy on the noisy hold-out."""
    from ringfence.analysis.holdout import written

    rows = [(one.method, written(one.weights, 3), f"{one.loss:.4f}", f"{100 * one.accuracy:.2f}") for one in found]
    headings = ("method", "weights", "cross-entropy", "noisy accuracy %")
    results.print(table(headings, rows, ("method", "weights")))
