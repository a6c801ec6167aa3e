"""Attacks: inside the ball, at the optimum of a linear classifier, and with the noise held fixed."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from ringfence.attacks import ATTACKS, ORDERS, Ddn, Pgd, PgdL1, log_mean_softmax, smoothed_loss
from ringfence.attacks.through_noise import into_l1_ball
from ringfence.errors import ArgumentError
from ringfence.noise.exact import in_steps, inside, onto_lattice


def linear(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Flatten(), nn.Linear(9, 2))


def test_log_mean_softmax_is_the_log_of_the_mean_even_when_saturated() -> None:
    torch.manual_seed(0)
    scores = torch.randn(3 * 4, 5)
    mean = scores.softmax(-1).view(3, 4, 5).mean(0)
    assert torch.allclose(log_mean_softmax(scores, 3), mean.log(), atol=1e-6)
    assert torch.isfinite(log_mean_softmax(1000 * scores, 3)).all()


@pytest.mark.parametrize("kind", ATTACKS.values(), ids=list(ATTACKS))
@pytest.mark.parametrize("box", [False, True])
def test_attacks_stay_in_the_ball_and_the_box_and_raise_the_loss(kind: type, box: bool) -> None:
    network, x = linear(), torch.rand(6, 1, 3, 3)
    y, noise = network(x).argmax(1), 0.2 * torch.randn(4, 6, 1, 3, 3)
    attack = kind(eps=0.5, steps=8, box=box)
    moved = attack(network, x, y, noise)
    assert (moved - x).flatten(1).norm(ORDERS[kind.norm], dim=1).max() <= 0.5 + 1e-5
    if box:
        assert moved.min() >= -1e-6
        assert moved.max() <= 1 + 1e-6
    assert (smoothed_loss(network, moved, y, noise) > smoothed_loss(network, x, y, noise)).all()
    assert not moved.requires_grad


def test_pgd_reaches_the_worst_point_of_a_linear_classifier() -> None:
    network, x = linear(), torch.rand(3, 1, 3, 3)
    y, noise = network(x).argmax(1), 0.1 * torch.randn(2, 3, 1, 3, 3)
    moved = Pgd(eps=0.3, steps=10, box=False)(network, x, y, noise)
    direction = network[1].weight[1 - y] - network[1].weight[y]
    best = x + 0.3 * (direction / direction.norm(dim=1, keepdim=True)).view_as(x)
    assert torch.allclose(moved, best, atol=1e-4)


def test_pgd_in_l1_reaches_the_worst_point_of_a_linear_classifier() -> None:
    """All of eps on the coordinate of the largest weight."""
    network, x = linear(), torch.rand(3, 1, 3, 3)
    y, noise = network(x).argmax(1), 0.1 * torch.randn(2, 3, 1, 3, 3)
    moved = PgdL1(eps=0.3, steps=10, box=False)(network, x, y, noise)
    direction = network[1].weight[1 - y] - network[1].weight[y]
    largest = direction.abs().argmax(1, keepdim=True)
    best = torch.zeros_like(direction).scatter(1, largest, 0.3 * direction.sign().gather(1, largest))
    assert torch.allclose(moved, x + best.view_as(x), atol=1e-4)
    far = PgdL1(eps=3.0, steps=30)(network, x, y, noise)  # the box stops one pixel, others move on
    assert ((far - x).abs() > 0.01).flatten(1).sum(1).min() >= 2
    assert float((far - x).abs().flatten(1).sum(1).min()) > 1.5


@pytest.mark.parametrize("eps", [0.0, 0.5, 2.0, 100.0])
def test_the_projection_onto_the_l1_ball_is_the_nearest_point(eps: float) -> None:
    torch.manual_seed(1)
    delta = torch.randn(50, 2, 3, dtype=torch.float64)
    found = into_l1_ball(delta, eps)
    sizes = delta.abs().flatten(1).sum(1)
    assert (found.abs().flatten(1).sum(1) <= eps + 1e-12).all()
    assert torch.equal(found[sizes <= eps], delta[sizes <= eps])
    # The nearest point p of a convex set: <delta - p, q - p> <= 0 for its corners q.
    for place in range(6):
        for sign in (-1, 1):
            corner = torch.zeros(6, dtype=torch.float64)
            corner[place] = sign * eps
            rest = (delta - found).flatten(1)
            assert ((rest * (corner - found.flatten(1))).sum(1) <= 1e-12).all()
    each = torch.linspace(0.1, 3, 50, dtype=torch.float64).view(50, 1, 1)
    assert torch.allclose(into_l1_ball(10 * delta, each).abs().sum((1, 2)), each.flatten())


def test_ddn_finds_the_shortest_perturbation_of_a_linear_classifier() -> None:
    network = linear()
    weight, bias = network[1].weight[0] - network[1].weight[1], network[1].bias[0] - network[1].bias[1]
    x = torch.rand(20, 1, 3, 3)
    margin = (x.flatten(1) @ weight + bias).abs() / weight.norm()
    y, still = network(x).argmax(1), torch.zeros(1, 20, 1, 3, 3)
    moved = Ddn(eps=5.0, steps=200, box=False)(network, x, y, still)
    assert (network(moved).argmax(1) != y).all()
    length = (moved - x).flatten(1).norm(dim=1)
    assert (length >= margin - 1e-4).all()
    assert (length <= 1.2 * margin + 0.02).all()


def test_warm_up_scales_the_ball() -> None:
    network, x = linear(), torch.rand(4, 1, 3, 3)
    y, noise = network(x).argmax(1), torch.zeros(1, 4, 1, 3, 3)
    moved = Pgd(eps=1.0, steps=4, box=False)(network, x, y, noise, share=0.25)
    assert torch.allclose((moved - x).flatten(1).norm(dim=1), torch.full((4,), 0.25), atol=1e-5)


def test_a_classifier_without_gradient_leaves_inputs_where_they_are() -> None:
    class Flat(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.zeros(len(x), 2) * x.sum()

    x = torch.rand(2, 1, 3, 3)
    for kind in ATTACKS.values():
        moved = kind(eps=1.0, steps=3)(Flat(), x, torch.zeros(2, dtype=torch.int64), torch.zeros(1, 2, 1, 3, 3))
        assert torch.isfinite(moved).all()


def test_bad_settings_are_refused() -> None:
    x = torch.rand(1, 1, 3, 3)
    arguments = (linear(), x, torch.zeros(1, dtype=torch.int64), torch.zeros(1, 1, 1, 3, 3))
    for attack in (Pgd(eps=0.0), Pgd(eps=math.nan), Pgd(steps=0)):
        with pytest.raises(ArgumentError, match=r"eps|steps"):
            attack(*arguments)


def test_points_for_exact_noise_are_on_the_lattice_and_no_farther_away() -> None:
    torch.manual_seed(0)
    x = torch.randint(0, 256, (6, 1, 8, 8)) / 255
    points = x + 0.02 * torch.randn_like(x)
    far = (points - x).flatten(1).norm(dim=1)
    found = torch.stack([inside(one, centre, float(r), 255) for one, centre, r in zip(points, x, far, strict=True)])
    assert torch.equal(torch.stack([onto_lattice("", one, 255) for one in found]), found)
    assert ((found - x).flatten(1).norm(dim=1) <= (points - x).flatten(1).norm(dim=1)).all()
    nearest = torch.stack([in_steps(one, 255) / 255 for one in points])
    assert ((nearest - x).flatten(1).norm(dim=1) > (points - x).flatten(1).norm(dim=1)).any()
    assert (found != x).any()
