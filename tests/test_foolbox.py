"""The smoothed loss for other libraries: foolbox attacks the smoothed classifier, and its certificate holds."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

import ringfence as rf
from ringfence.attacks import SmoothedScores, smoothed_loss
from ringfence.errors import ArgumentError

SIGMA = 0.25


@pytest.fixture(scope="module")
def net() -> nn.Module:
    return rf.load_model("default").module


@pytest.fixture(scope="module")
def digits() -> tuple[torch.Tensor, torch.Tensor]:
    data = rf.load_dataset("default", limit=8)
    return torch.stack([one.x for one in data]), torch.tensor(data.labels)


def test_its_cross_entropy_is_the_smoothed_loss(net: nn.Module, digits: tuple[torch.Tensor, torch.Tensor]) -> None:
    x, y = digits
    scores = SmoothedScores(net, SIGMA, copies=4, seed=7)
    drawn = torch.empty((4, 1, *x.shape[1:]))
    rf.Gaussian(SIGMA).fill(drawn, 7)
    expected = smoothed_loss(net, x, y, drawn.expand(4, len(x), *x.shape[1:]))
    torch.testing.assert_close(nn.functional.cross_entropy(scores(x), y, reduction="none"), expected)
    torch.testing.assert_close(scores(x).exp().sum(1), torch.ones(len(x)))
    torch.testing.assert_close(scores(x[:3]), scores(x)[:3])  # one function, whatever else is in the batch


def test_copies_must_be_some(net: nn.Module) -> None:
    with pytest.raises(ArgumentError, match="copies: must be at least 1; got 0"):
        SmoothedScores(net, SIGMA, copies=0)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::SyntaxWarning", "ignore::UserWarning")
def test_foolbox_attacks_it_and_the_certificate_holds(
    net: nn.Module, digits: tuple[torch.Tensor, torch.Tensor]
) -> None:
    foolbox = pytest.importorskip("foolbox")
    x, y = digits
    scores = SmoothedScores(net, SIGMA, copies=8).eval()
    model = foolbox.PyTorchModel(scores, bounds=(0, 1), device="cpu")
    smoothed = rf.Smoothed(net, SIGMA, execution=rf.Execution(device="cpu"))
    certified = smoothed.certify(x, n=1000)
    radius = min(record.radius for record in certified)
    assert radius > 0.3
    attack = foolbox.attacks.L2ProjectedGradientDescentAttack(rel_stepsize=0.15, steps=20)
    _, (inside, far), fooled = attack(model, x, y, epsilons=[radius * 0.99, 6.0])
    assert fooled[1].float().mean() > 0.5  # with enough room it succeeds, so it is an attack
    assert all(math.isclose(float((a - b).norm()), 0, abs_tol=radius) for a, b in zip(inside, x, strict=True))
    answers = smoothed.predict(inside, n=500)
    assert [one.prediction for one in answers] == [one.prediction for one in certified]
    assert (scores(far).argmax(1) != y).float().mean() > 0.5
