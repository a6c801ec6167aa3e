"""Law, through torch: the radius certified for a linear classifier never exceeds its exact distance, alpha apart."""

from __future__ import annotations

import pytest
import torch
from simulate import most_failures
from torch import nn

import ringfence as rf
from ringfence.data import Input
from ringfence.procedures import Procedure
from ringfence.types import ABSTAIN

ALPHA, SIGMA, INPUTS, SIZE = 0.05, 0.5, 300, 16
CASES: dict[str, Procedure] = {
    "fixed": rf.Fixed(ALPHA, n0=20, n=400),
    "two-sided": rf.TwoSided(ALPHA, n0=20, n=400),
    "multinomial": rf.Multinomial(ALPHA, n=400),
    "anytime": rf.Anytime(ALPHA, n0=20, n=400),
    "staged": rf.Staged(0.25, ALPHA, n0=20, stages=(100, 400)),
    "sequential": rf.Sequential(0.25, ALPHA, n0=20, n=1000),
}


class HalfSpace(nn.Module):
    """Class 1 where the mean of x is positive: the distance to the boundary is |sum x| / sqrt(d)."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        side = x.flatten(1).sum(1)
        return torch.stack([-side, side], dim=1)


@pytest.mark.parametrize("name", CASES)
def test_certified_radii_stay_below_the_exact_distance(name: str) -> None:
    torch.manual_seed(7)
    distances = torch.linspace(0.0, 0.6, INPUTS)
    inputs = [Input(i, torch.full((1, 4, 4), float(d) / SIZE**0.5), None, "") for i, d in enumerate(distances)]
    execution = rf.Execution("cpu", batch=200)
    failures = claimed = 0
    for record in rf.certify(
        HalfSpace(), inputs, noise=rf.Gaussian(SIGMA), procedure=CASES[name], num_classes=2, execution=execution, seed=3
    ):
        if record.prediction == ABSTAIN:
            continue
        claimed += 1
        wrong_side = record.prediction == 0 and distances[record.input_id] > 0
        failures += wrong_side or record.radius > float(distances[record.input_id])
    assert claimed > INPUTS // 3
    assert failures <= most_failures(INPUTS, ALPHA)


class AxisHalfSpace(nn.Module):
    """Class 1 where the first coordinate is above -1/510, half-way between two points of an 8-bit lattice."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        side = x.flatten(1)[:, 0] + 1 / 510
        return torch.stack([-side, side], dim=1)


@pytest.mark.parametrize("form", ["float", "exact"])
@pytest.mark.parametrize("kind", [rf.Gaussian, rf.Uniform, rf.Laplace], ids=lambda kind: kind.name)
@pytest.mark.parametrize("name", ["fixed", "anytime"])
def test_radii_under_every_noise_stay_below_the_distance_along_an_axis(
    name: str, kind: type[rf.Gaussian], form: str
) -> None:
    """The boundary is (m + 1/2) / 255 away from m / 255, in l1 and l2 alike."""
    steps = torch.arange(INPUTS) // 2
    inputs = [Input(i, torch.tensor([int(m) / 255, 0.0, 1.0]), None, "") for i, m in enumerate(steps)]
    options = {"num_classes": 2, "execution": rf.Execution("cpu", batch=200), "seed": 3}
    records = list(rf.certify(AxisHalfSpace(), inputs, noise=kind(SIGMA, form), procedure=CASES[name], **options))
    claimed = [one for one in records if one.prediction != ABSTAIN and one.radius > 0]
    true = (steps + 0.5) / 255
    failures = sum(one.prediction == 0 or one.radius > float(true[one.input_id]) for one in claimed)
    assert len(claimed) > INPUTS // 5
    assert failures <= most_failures(INPUTS, ALPHA)
