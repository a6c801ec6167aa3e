"""CAT-RS and reweighting: what they do with inputs that are mostly right, against formulas written out row by row."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from scipy.stats import beta, norm
from torch import Tensor, nn

from ringfence.errors import ArgumentError, DataError
from ringfence.training.data import Batch, TrainingNoise
from ringfence.training.objectives import Catrs, Macer, NoiseAugmentation, Objective, Reweight

pytestmark = pytest.mark.usefixtures("doubles")
SIGMA, INPUTS, CLASSES, COPIES = 0.4, 6, 3, 4


class Modes(nn.Module):
    """A network that notes whether it was training at each call; it answers otherwise while it is."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.inner = nn.Sequential(nn.Flatten(), nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, CLASSES))
        self.calls: list[bool] = []
        x, y = batch()
        optimizer = torch.optim.Adam(self.parameters(), lr=0.05)
        for _ in range(15):  # right on some of the copies of most inputs
            optimizer.zero_grad()
            nn.functional.cross_entropy(self.inner((x + draws()).flatten(0, 1)), y.repeat(COPIES)).backward()
            optimizer.step()

    def forward(self, x: Tensor) -> Tensor:
        self.calls.append(self.training)
        return self.inner(x) * (1.0 if self.training else 1.7)


def batch() -> tuple[Tensor, Tensor]:
    torch.manual_seed(1)
    return torch.rand(INPUTS, 1, 2, 2), torch.tensor([0, 1, 2, 0, 1, 2])


def soft_labels() -> Tensor:
    torch.manual_seed(2)
    found = torch.rand(INPUTS, CLASSES).softmax(1)
    found[0] = torch.tensor([1.0, 0.0, 0.0])  # 0 log 0
    return found


def stream() -> torch.Generator:
    return torch.Generator().manual_seed(9)


def draws() -> Tensor:
    return torch.randn((COPIES, INPUTS, 1, 2, 2), generator=stream(), dtype=torch.float32) * SIGMA


def measured(objective: Objective, member: nn.Module, soft: Tensor | None = None) -> Tensor:
    x, y = batch()
    return objective([member], Batch(x, y, soft), TrainingNoise(SIGMA), stream()).total


def agree(objective: Objective, member: Modes, reference: Callable[[], Tensor], soft: Tensor | None = None) -> None:
    """Value and every gradient."""
    parameters = list(member.parameters())
    total = measured(objective, member, soft)
    ours, slow = torch.autograd.grad(total, parameters), reference()
    assert math.isclose(total.item(), slow.item(), rel_tol=1e-5)
    for one, other in zip(ours, torch.autograd.grad(slow, parameters), strict=True):
        assert torch.allclose(one, other, rtol=1e-4, atol=2e-6)


def shares(member: Modes, x: Tensor, training: bool = True) -> Tensor:
    """Softmax (K,) of one input."""
    return torch.softmax(member.inner(x.unsqueeze(0))[0] * (1.0 if training else 1.7), 0)


def divergence(q: Tensor, p: Tensor) -> Tensor:
    return sum((q[k] * torch.log(q[k] / p[k]) for k in range(CLASSES) if q[k] > 0), torch.zeros(()))


def attacked(member: Modes, x: Tensor, q: Tensor, start: Tensor, eps: float, steps: int) -> Tensor:
    """CAT-RS's attack on one noise (1, 2, 2)."""
    e = start
    for _ in range(steps):
        e = e.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(divergence(q, shares(member, x + e, False)), e)
        away = (e + 2 * eps / steps * gradient / gradient.norm() - start).detach()
        e = start + away * min(1.0, eps / away.norm().item())
        e = start.mean() + (e - e.mean()) * (start.square().mean().sqrt() / e.square().mean().sqrt())
    return e.detach()


def catrs(member: Modes, soft: Tensor, weight: float, eps: float, steps: int) -> tuple[Tensor, list[int]]:
    x, y = batch()
    noise, generator = draws(), stream()
    torch.randn(noise.shape, generator=generator, dtype=torch.float32)
    tried = torch.rand((COPIES, INPUTS), generator=generator)
    total, chosen = torch.zeros(()), []
    for b in range(INPUTS):
        each = [shares(member, x[b] + noise[i, b]) for i in range(COPIES)]
        right = sum(int(one.argmax()) == int(y[b]) for one in each) / COPIES
        count = max(1, sum(float(tried[i, b]) < right for i in range(COPIES)))
        chosen.append(count)
        losses = sorted((-torch.log(one[y[b]]) for one in each), key=lambda one: one.item())
        total = total + sum(losses[:count]) / COPIES / INPUTS
        if count == COPIES:
            moved = [attacked(member, x[b], soft[b], noise[i, b], eps, steps) for i in range(COPIES)]
            worst = max((divergence(soft[b], shares(member, x[b] + e)) for e in moved), key=lambda one: one.item())
            total = total + weight * worst / INPUTS
    return total, chosen


def test_catrs_is_its_formula() -> None:
    member, soft = Modes(), soft_labels()
    agree(Catrs(weight=0.7, eps=0.3, steps=3), member, lambda: catrs(member, soft, 0.7, 0.3, 3)[0], soft)
    chosen = catrs(member, soft, 0.7, 0.3, 3)[1]
    assert COPIES in chosen  # neither part is empty, and not all inputs are alike
    assert min(chosen) < COPIES


def test_catrs_keeps_one_copy_of_an_input_that_is_never_right() -> None:
    member, soft = Modes(), soft_labels()
    with torch.no_grad():
        member.inner[3].bias[2] -= 8.0
    agree(Catrs(weight=0.7, eps=0.3, steps=1), member, lambda: catrs(member, soft, 0.7, 0.3, 1)[0], soft)
    x, y = batch()
    assert not (member.inner((x + draws()).flatten(0, 1)).argmax(1) == y.repeat(COPIES)).view(COPIES, -1)[:, 2].any()


def test_catrs_attacks_in_evaluation_mode_and_leaves_the_network_as_it_was() -> None:
    member = Modes().train()
    member.calls.clear()
    measured(Catrs(steps=3), member, soft_labels()).backward()
    assert member.calls == [True, False, False, False, True]
    assert member.training
    assert all(one.requires_grad and one.grad is not None for one in member.parameters())


def test_catrs_needs_soft_labels() -> None:
    with pytest.raises(DataError, match="catrs needs one row of class shares per input; got none"):
        measured(Catrs(), Modes())
    with pytest.raises(DataError, match=r"got shape \(2, 3\)"):
        measured(Catrs(), Modes(), soft_labels()[:2])
    with pytest.raises(ArgumentError, match="label_draws"):
        Catrs(label_draws=0)


def turned(member: Modes, x: Tensor, y: int, start: Tensor, steps: int, step: float) -> tuple[Tensor, int]:
    """Sun et al.'s attack on one noise, and at which step it was first answered wrongly (steps: never)."""
    e = start
    for number in range(steps):
        e = e.detach().requires_grad_()
        p = shares(member, x + e, False)
        if int(p.argmax()) != y:
            return e.detach(), number
        (gradient,) = torch.autograd.grad(-torch.log(p[y]), e)
        e = e + step * gradient / gradient.norm()
        e = (e * start.norm() / e.norm()).detach()
    return e, steps


def test_reweight_is_its_formula() -> None:
    member, (x, y), noise = Modes(), batch(), draws()
    seen: set[int] = set()

    def reference() -> Tensor:
        total = torch.zeros(())
        for i in range(COPIES):
            for b in range(INPUTS):
                e, number = turned(member, x[b], int(y[b]), noise[i, b], 3, 0.2)
                seen.add(number)
                total = total - torch.log(shares(member, x[b] + e)[y[b]]) / (COPIES * INPUTS)
        return total

    agree(Reweight(begin=0, steps=3, step=0.2), member, reference)
    assert {0, 3} < seen  # wrong from the start, on the way, and never


def test_reweight_attacks_in_evaluation_mode_at_the_noises_own_length() -> None:
    member, (x, y), noise = Modes().train(), batch(), draws()
    member.calls.clear()
    found = Reweight(steps=2).turned(member, Batch(x, y), noise)
    assert member.calls == [False, False]
    assert member.training
    assert torch.allclose(found.flatten(2).norm(dim=2), noise.flatten(2).norm(dim=2))
    measured(Reweight(steps=2), member).backward()
    assert all(one.requires_grad and one.grad is not None for one in member.parameters())


def test_reweight_begins_as_gaussian_training() -> None:
    objective = Reweight(begin=3, copies=COPIES)
    assert [objective.at(epoch) for epoch in (0, 2, 3, 9)] == [NoiseAugmentation(COPIES)] * 2 + [objective] * 2


def test_reweight_drops_once_and_weighs_every_so_many_epochs() -> None:
    objective, asked = Reweight(begin=6, least=0.5, every=10), list[int]()
    first, later = torch.tensor([0.49, 0.5, 0.9, 1.0]), torch.tensor([1.0, 0.1, 0.8125, 1.0])

    def right(n: int) -> Tensor:
        asked.append(n)
        return first if n == 100 else later

    assert objective.weights(5, None, right) is None
    assert not asked
    begun = objective.weights(6, None, right)
    assert begun is not None
    assert asked == [100, 16]
    # Lower bounds of 12, 13 and 16 right of 16, each at level .1: shares below .75 count as it.
    expected = [norm.ppf(beta.ppf(0.1, hits, 17 - hits)) for hits in (12, 13, 16)]
    assert begun.tolist() == pytest.approx([0.0, *expected], rel=1e-5)
    assert objective.weights(7, begun, right) is begun
    assert asked == [100, 16]
    later = torch.tensor([1.0, 1.0, 1.0, 0.75])
    again = objective.weights(16, begun, right)
    assert again is not None
    assert asked == [100, 16, 16]
    assert again.tolist() == pytest.approx([0.0, expected[2], expected[2], expected[0]], rel=1e-5)
    with pytest.raises(ArgumentError, match="must leave inputs to train on"):
        objective.weights(6, None, lambda n: torch.zeros(4))


@pytest.mark.parametrize("wrong", [{"begin": -1}, {"every": 0}, {"least": 1.5}, {"steps": 0}, {"step": 0.0}])
def test_reweight_refuses(wrong: dict[str, float]) -> None:
    with pytest.raises(ArgumentError, match=next(iter(wrong))):
        Reweight(**wrong)  # type: ignore[arg-type]


def test_macer_defers_its_second_term() -> None:
    objective = Macer(weight=5.0, deferred=2)
    assert [objective.at(epoch).settings()["weight"] for epoch in (0, 1, 2)] == [0.0, 0.0, 5.0]
    with pytest.raises(ArgumentError, match="deferred"):
        Macer(deferred=-1)
