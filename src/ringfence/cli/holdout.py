"""What ``rank``, ``weights`` and ``variance`` share: members, their hold-out inputs and their scores on them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from ringfence.cli import options as o

if TYPE_CHECKING:
    from torch import nn

    from ringfence.analysis.holdout import Holdout
    from ringfence.data import Dataset
    from ringfence.noise import Noise


Members = Annotated[str, typer.Option("--members", help="Model specs separated by commas (also arch@weights).")]
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
    draws: Draws = 10
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
        from ringfence.errors import ArgumentError
        from ringfence.models.grammar import split_models

        found = split_models(self.members)
        if not found:
            raise ArgumentError("--members", "needs at least one member", "none", "Write --members a,b,c.")
        return found

    def load(self) -> tuple[list[nn.Module], Dataset]:
        """The members, which must have the same classes, and the inputs."""
        from ringfence.cli.console import written_numbers
        from ringfence.data import load_dataset
        from ringfence.models import load_members
        from ringfence.sampling import count_classes, pick_device

        mean, std = written_numbers(self.mean, "--mean"), written_numbers(self.std, "--std")
        loaded = load_members(self.specs, self.classes, mean, std)
        dataset = load_dataset(
            self.data,
            skip=self.skip,
            limit=self.limit,
            split=self.split,  # type: ignore[arg-type]
            size=self.size,
            num_classes=loaded[0].num_classes,
            first=self.first,
        )
        for one in loaded if len(dataset) else ():
            count_classes(one.at_input, dataset[0].x, pick_device(self.device))  # do they take these inputs at all?
        return [one.at_input for one in loaded], dataset

    def scores(self) -> Holdout:
        """All members' scores on the noisy hold-out inputs."""
        from ringfence.analysis.holdout import holdout_scores
        from ringfence.sampling import check_seed, pick_device

        check_seed(self.seed)
        noise, device = self.drawn, pick_device(self.device)
        members, dataset = self.load()
        return holdout_scores(members, dataset, noise, self.draws, self.seed, device)


@dataclass(frozen=True)
class FirstInputs(HoldoutChoice):
    """The first twenty inputs, for commands that look closely at each."""

    first: o.First = 0
    skip: o.Skip[int] = 1
    limit: o.Limit = 20
