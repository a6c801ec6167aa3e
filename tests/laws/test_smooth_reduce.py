"""Smooth-Reduce on linear classifiers, whose true distance is known: sound modes never exceed it, the paper does.

A patch network a . patch - b makes the reduced score linear in the lifted input, <c, lift(x) + e> - b. Its smoothed
classifier changes exactly at the distance margin / ||A^T c|| from x, A the map before the noise, while the
certificate is margin / (||c|| * factor). Both are read off by automatic differentiation of the real classes.
"""

from __future__ import annotations

import pytest
import torch
from scipy.stats import norm
from torch import Tensor, nn

import ringfence as rf
from ringfence.classifiers.patches import Patches
from ringfence.data import Input
from ringfence.lift import MODES, Lift, noise_place
from ringfence.operators import Crops

SIGMA, P = 0.25, 0.99


class MeanPixel(nn.Module):
    """Scores (B, 2): the weighted sum of a patch's pixels above or below a threshold."""

    def __init__(self, weights: Tensor, threshold: float = 0.0) -> None:
        super().__init__()
        self.weights, self.threshold = weights, threshold

    def forward(self, x: Tensor) -> Tensor:
        value = (x * self.weights.to(x.dtype)).flatten(1).sum(1) - self.threshold
        return torch.stack([-value, value], 1)


def claim_and_truth(
    mode: str, crops: Crops, side: int, weights: Tensor, form: str = "sound", input_id: int = 0
) -> tuple[float, float]:
    """(claimed radius, true distance) of an input at which the smoothed classifier is right with probability P."""
    lift, rest = noise_place(mode, crops, (1, side, side), form)
    classifier = Patches(MeanPixel(weights), rest)
    x = torch.zeros(1, side, side, requires_grad=True)
    (onto_input,) = torch.autograd.grad(classifier(lift.at(x, input_id)[None])[0, 1], x)
    lifted = lift.at(x.detach(), input_id).requires_grad_()
    (onto_lifted,) = torch.autograd.grad(classifier(lifted[None])[0, 1], lifted)
    margin = norm.ppf(P) * SIGMA * float(onto_lifted.norm())
    return SIGMA * norm.ppf(P) / lift.norm_bound, margin / float(onto_input.norm())


CROPS = Crops(size=32, resize=36, count=4)
MEAN = torch.full((1, 32, 32), 1 / 1024)


def test_the_example_of_the_issue() -> None:
    claim, truth = claim_and_truth("patch", CROPS, 32, MEAN, "paper")
    assert claim == pytest.approx(0.58, abs=0.005)
    assert truth == pytest.approx(0.277, abs=0.0005)
    assert claim > 2 * truth
    sound, same_truth = claim_and_truth("patch", CROPS, 32, MEAN)
    assert sound == pytest.approx(0.258, abs=0.0005)
    assert same_truth == truth


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("crops", [
    Crops(size=8, resize=11, count=4),
    Crops(size=8, resize=11, count=6, kind="bicubic"),
    Crops(size=8, pad=2, count=4),
    Crops(size=8, resize=12, pad=1, stride=3),
    Crops(size=8, resize=14, count=5, sampling="random", seed=3),
], ids=str)  # fmt: skip
def test_no_sound_mode_exceeds_the_truth(mode: str, crops: Crops) -> None:
    draw = torch.Generator().manual_seed(0)
    smooth = torch.ones(1, 8, 8) / 64
    for input_id, weights in enumerate((smooth, *(torch.randn(1, 8, 8, generator=draw) for _ in range(5)))):
        claim, truth = claim_and_truth(mode, crops, 10, weights, input_id=input_id)
        assert claim <= truth * (1 + 1e-5)


@pytest.mark.parametrize("mode", ["resized", "patch", "per-patch-input"])
def test_the_factor_is_needed(mode: str) -> None:
    """For the worst functional of the lifted space, which a network may compute, nothing smaller would do."""
    lift, _ = noise_place(mode, Crops(size=8, resize=11, count=4), (1, 10, 10))
    matrix = torch.autograd.functional.jacobian(lift, torch.zeros(1, 10, 10)).reshape(-1, 100).double()
    worst = torch.linalg.svd(matrix, full_matrices=False).U[:, 0]
    truth = float(worst.norm() / (matrix.T @ worst).norm())
    assert 1 / lift.norm_bound <= truth * (1 + 1e-6)
    assert 1 / (lift.norm_bound * 0.999) > truth


def certified(lift: Lift, classifier: nn.Module, x: Tensor) -> rf.Record:
    found = rf.certify(classifier, [x], noise=rf.Gaussian(SIGMA), procedure=rf.Fixed(n=20_000), lift=lift, seed=3)
    return next(iter(found))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("form", ["sound", "paper"])
def test_through_the_whole_engine(mode: str, form: str) -> None:
    crops, x = Crops(size=8, resize=9, count=4), torch.full((1, 8, 8), 0.5)
    lift, rest = noise_place(mode, crops, (1, 8, 8), form)
    weights = torch.full((1, 8, 8), 1 / 64)
    _, truth = claim_and_truth(mode, crops, 8, weights)
    value = float(Patches(MeanPixel(weights), rest)(lift(x)[None])[0, 1])
    margin_per_distance = float(torch.autograd.functional.jacobian(
        lambda one: Patches(MeanPixel(weights), rest)(lift(one)[None])[0, 1], x
    ).norm())  # fmt: skip
    classifier = Patches(MeanPixel(weights, value - truth * margin_per_distance), rest)
    record = certified(lift, classifier, x)
    assert record.prediction == 1
    assert record.lift_norm == lift.norm_bound
    assert record.forwards == 4 * record.draws
    assert record.sound == (form == "sound")
    if form == "sound":
        assert 0.5 * truth < record.radius <= truth
    elif mode in ("patch", "per-patch-input"):
        assert record.radius > 1.5 * truth


@pytest.mark.parametrize("mode", MODES)
def test_random_patches_through_the_engine_are_those_of_each_input(mode: str) -> None:
    """One image under six ids in shared batches: each is right exactly as often as its own patches say."""
    crops = Crops(size=6, resize=14, count=3, sampling="random", seed=11)
    x = torch.linspace(0, 1, 10).repeat(1, 10, 1) * torch.linspace(0.2, 1, 10)[:, None]
    weights = torch.full((1, 6, 6), 1 / 36)
    threshold, draws, ids = 0.3, 4000, [0, 1, 2, 5, 7, 40]
    lift, rest = noise_place(mode, crops, (1, 10, 10))
    classifier = Patches(MeanPixel(weights, threshold), rest)
    expected = {}
    for one in ids:
        lifted = lift.at(x, one).requires_grad_()
        value = classifier(lifted[None])[0, 1]
        (slope,) = torch.autograd.grad(value, lifted)
        expected[one] = float(norm.cdf(float(value.detach()) / (SIGMA * float(slope.norm()))))
    assert max(expected.values()) - min(expected.values()) > 0.2  # so that mixed-up patches would be seen
    found = rf.certify(
        classifier,
        [Input(one, x, None, "") for one in ids],
        noise=rf.Gaussian(SIGMA),
        procedure=rf.Fixed(n=draws),
        lift=lift,
        execution=rf.Execution(batch=1000),
    )
    for record in found:
        share = record.stages[-1].cells["votes"][1] / draws
        assert abs(share - expected[record.input_id]) < 6 * 0.5 / draws**0.5
