"""Every objective against a slow, literal reference: one input at a time, every formula written out."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import permutations

import pytest
import torch
from torch import Tensor, nn

from ringfence.errors import ArgumentError, DataError
from ringfence.training.data import Batch, TrainingNoise
from ringfence.training.objectives import (
    OBJECTIVES,
    Adp,
    Consistency,
    DenoiseMse,
    DenoiseStability,
    Drt,
    Gal,
    Macer,
    NoiseAugmentation,
    Objective,
    Select,
    SmoothAdv,
    SmoothMix,
    Stability,
    build_objective,
)

pytestmark = pytest.mark.usefixtures("doubles")
SIGMA, INPUTS, CLASSES = 0.4, 5, 3
Net = nn.Module


def number(value: Tensor) -> float:
    """A 0-dimensional tensor as a number, gradient or not."""
    return value.item()


def net(seed: int, scale: float = 1.5) -> Net:
    torch.manual_seed(seed)
    module = nn.Sequential(nn.Flatten(), nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, CLASSES))
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.mul_(scale)
    return module


def batch() -> tuple[Tensor, Tensor]:
    torch.manual_seed(1)
    return torch.rand(INPUTS, 1, 2, 2), torch.tensor([0, 1, 2, 0, 1])


def draws(copies: int) -> Tensor:
    """The noise the objective will see: (m, B, 1, 2, 2)."""
    x, _ = batch()
    return torch.randn((copies, *x.shape), generator=torch.Generator().manual_seed(9), dtype=torch.float32) * SIGMA


def measured(objective: Objective, members: Sequence[Net], noise: TrainingNoise | None = None):
    x, y = batch()
    soft = torch.full((INPUTS, CLASSES), 1 / CLASSES)
    return objective(members, Batch(x, y, soft), noise or TrainingNoise(SIGMA), torch.Generator().manual_seed(9))


def agree(objective: Objective, members: Sequence[Net], reference: Callable[[], Tensor], tolerance=1e-6) -> None:
    """Value and every parameter's gradient; log-softmax runs in float32 inside, hence the tolerance."""
    parameters = [one for member in members for one in member.parameters()]
    total = measured(objective, members).total
    ours = torch.autograd.grad(total, parameters, allow_unused=True)
    slow = reference()
    theirs = torch.autograd.grad(slow, parameters, allow_unused=True)
    assert math.isclose(number(total), number(slow), rel_tol=tolerance, abs_tol=tolerance)
    for a, b in zip(ours, theirs, strict=True):
        a, b = (torch.zeros(()) if one is None else one for one in (a, b))
        assert torch.allclose(a, b, rtol=1e-4, atol=2e-6), (a - b).abs().max()


def share(member: Net, x: Tensor) -> Tensor:
    """Softmax (K,) of one input (1, 2, 2)."""
    scores = member(x.unsqueeze(0))[0]
    powers = [torch.exp(one) for one in scores]
    return torch.stack([one / sum(powers) for one in powers])


def each_row(copies: int):
    """(x, y, e) for every copy and input."""
    x, y = batch()
    noise = draws(copies)
    return [(x[b], int(y[b]), noise[i, b]) for i in range(copies) for b in range(INPUTS)]


def cross_entropy(member: Net, copies: int) -> Tensor:
    rows = each_row(copies)
    return -sum(torch.log(share(member, x + e)[y]) for x, y, e in rows) / len(rows)


def test_gaussian_is_the_mean_cross_entropy_of_the_copies() -> None:
    member = net(0)
    agree(NoiseAugmentation(copies=2), [member], lambda: cross_entropy(member, 2))


def test_a_single_copy() -> None:
    member = net(0)
    agree(NoiseAugmentation(copies=1), [member], lambda: cross_entropy(member, 1))
    agree(Consistency(copies=1), [member], lambda: consistency(member, 1, 10.0, 0.5))
    agree(Macer(copies=1, beta=1.0, weight=3.0), [member], lambda: macer(member, 1, 3.0, 8.0, 1.0))


def test_single_objectives_add_up_over_members_without_mixing_them() -> None:
    members = [net(0), net(1)]
    # The second member sees the next draws of the generator, so only the first can be compared with the reference.
    total = measured(NoiseAugmentation(), members).total
    gradient = torch.autograd.grad(total, list(members[0].parameters()))
    alone = torch.autograd.grad(measured(NoiseAugmentation(), members[:1]).total, list(members[0].parameters()))
    assert all(torch.allclose(a, b) for a, b in zip(gradient, alone, strict=True))


def consistency(member: Net, copies: int, weight: float, eta: float) -> Tensor:
    x, _ = batch()
    noise = draws(copies)
    total = cross_entropy(member, copies)
    for b in range(INPUTS):
        each = [share(member, x[b] + noise[i, b]) for i in range(copies)]
        mean = sum(each) / copies
        kl = sum(sum(mean[k] * torch.log(mean[k] / one[k]) for k in range(CLASSES)) for one in each) / copies
        entropy = -sum(mean[k] * torch.log(mean[k]) for k in range(CLASSES))
        total = total + (weight * kl + eta * entropy) / INPUTS
    return total


def test_consistency() -> None:
    member = net(2)
    agree(Consistency(weight=7.0, eta=0.3), [member], lambda: consistency(member, 2, 7.0, 0.3), 1e-5)


def macer(member: Net, copies: int, weight: float, gamma: float, beta: float) -> Tensor:
    x, y = batch()
    noise = draws(copies)
    normal = torch.distributions.Normal(torch.zeros(()), torch.ones(()))
    total = torch.zeros(())
    for b in range(INPUTS):
        plain = sum(share(member, x[b] + noise[i, b]) for i in range(copies)) / copies
        total = total - torch.log(plain[y[b]]) / INPUTS
        sharp = [torch.softmax(beta * member((x[b] + noise[i, b]).unsqueeze(0))[0], 0) for i in range(copies)]
        z = sum(sharp) / copies
        other = max(z[k] for k in range(CLASSES) if k != y[b])
        if z[y[b]] <= other:
            continue
        gap = normal.icdf(z[y[b]]) - normal.icdf(other)
        if torch.isfinite(gap) and gap.abs() <= gamma and gap < gamma:
            total = total + weight * SIGMA / 2 * (gamma - gap) / INPUTS
    return total


def test_macer_counts_right_inputs_with_a_small_gap() -> None:
    member = net(3)
    objective = Macer(weight=5.0, gamma=2.0, beta=2.0, copies=4)
    agree(objective, [member], lambda: macer(member, 4, 5.0, 2.0, 2.0), 1e-5)
    assert measured(objective, [member]).terms["radius"] > 0  # the case is not empty


def test_macer_leaves_out_saturated_inputs_without_breaking_gradients() -> None:
    member = net(3, scale=6000.0)  # softmax exactly 0 and 1, and of all copies alike: the gap is infinite
    found = measured(Macer(copies=3), [member], noise=TrainingNoise(1e-9))
    gradients = torch.autograd.grad(found.total, list(member.parameters()))
    assert found.terms["radius"] == 0
    assert all(torch.isfinite(one).all() for one in gradients)


def test_stability_in_both_forms() -> None:
    member, rows = net(4), each_row(2)

    def reference(renyi: bool) -> Tensor:
        x, y = batch()
        total = -sum(torch.log(share(member, x[b])[y[b]]) for b in range(INPUTS)) / INPUTS
        for clean, _, e in rows:
            p, q = share(member, clean), share(member, clean + e)
            far = torch.log(sum(p**2 / q)) if renyi else -sum(p[k] * torch.log(q[k]) for k in range(CLASSES))
            total = total + 2.0 * far / len(rows)
        return total

    agree(Stability(copies=2), [member], lambda: reference(False), 1e-5)
    agree(Stability(copies=2, divergence="renyi"), [member], lambda: reference(True), 1e-5)


def ascend(member: Net, x: Tensor, y: int, noise: Tensor, steps: int, length: float, eps: float | None) -> Tensor:
    """PGD (eps) or free ascent of one input (1, 2, 2) on -log mean softmax, noise (m, 1, 2, 2) fixed."""
    at = x.clone()
    for _ in range(steps):
        at = at.detach().requires_grad_()
        mean = sum(share(member, at + e)[y] for e in noise) / len(noise)
        gradient = torch.autograd.grad(-torch.log(mean), at)[0]
        moved = (at + length * gradient / gradient.norm()).clamp(0, 1).detach()
        delta = moved - x
        if eps is not None and delta.norm() > eps:
            delta = delta * eps / delta.norm()
        at = x + delta
    return at.detach()


def test_smoothadv_attacks_with_the_noise_of_the_loss() -> None:
    member, noise = net(5), draws(2)
    x, y = batch()

    def reference() -> Tensor:
        total = torch.zeros(())
        for b in range(INPUTS):
            far = ascend(member, x[b], int(y[b]), noise[:, b], 3, 2 * 0.6 / 3, 0.6)
            total = total - sum(torch.log(share(member, far + noise[i, b])[y[b]]) for i in range(2)) / (2 * INPUTS)
        return total

    agree(SmoothAdv(eps=0.6, steps=3), [member], reference, 1e-4)
    plain = number(measured(NoiseAugmentation(copies=2), [member]).total)
    assert number(measured(SmoothAdv(eps=0.6, steps=3), [member]).total) > plain
    cold = TrainingNoise(SIGMA, attack=torch.zeros(()))
    assert math.isclose(number(measured(SmoothAdv(), [member], cold).total), plain, rel_tol=1e-6)


@pytest.mark.parametrize("attack", ["pgd", "ddn"])
def test_smoothadv_attacks_the_network_as_it_will_be_used(attack: str) -> None:
    """In evaluation mode: dropout would move the target at every step, batch norms would learn from adversaries."""
    modes: list[bool] = []

    class Watched(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = net(5)

        def forward(self, x: Tensor) -> Tensor:
            modes.append(self.training)
            return self.inner(x)

    measured(SmoothAdv(attack=attack, steps=3), [Watched().train()])  # type: ignore[arg-type]
    assert len(modes) > 3
    assert not any(modes[:-1])
    assert modes[-1]  # the loss itself trains


def test_smoothadv_leaves_parameters_trainable_and_the_mode_as_it_was() -> None:
    member = net(5).train()
    measured(SmoothAdv(attack="ddn", steps=2), [member]).total.backward()
    assert member.training
    assert all(one.requires_grad and one.grad is not None for one in member.parameters())


@pytest.mark.parametrize("mix_steps", [0, 1])
def test_smoothmix_mixes_towards_the_adversary_and_uniform_confidence(mix_steps: int) -> None:
    member, noise = good(6), draws(2)
    x, y = batch()
    generator = torch.Generator().manual_seed(9)
    torch.randn((2, *x.shape), generator=generator, dtype=torch.float32)
    lengths = 0.5 * torch.rand(INPUTS, generator=generator)

    def reference() -> Tensor:
        total = torch.zeros(())
        for b in range(INPUTS):
            near = ascend(member, x[b], int(y[b]), noise[:, b], mix_steps, 0.3, 0.3)
            far = ascend(member, x[b], int(y[b]), noise[:, b], 2, 0.3, None)
            each = [share(member, near + noise[i, b]) for i in range(2)]
            total = total - sum(torch.log(one[y[b]]) for one in each) / (2 * INPUTS)
            mean = sum(each) / 2  # the target has a gradient too
            if int(mean.argmax()) != int(y[b]):
                continue
            target = (1 - lengths[b]) * mean + lengths[b] / CLASSES
            mixed = (1 - lengths[b]) * near + lengths[b] * far
            for i in range(2):
                logs = torch.log(share(member, mixed + noise[i, b]))
                total = total + 5.0 * sum(target * (torch.log(target) - logs)) / (2 * INPUTS)
        return total

    objective = SmoothMix(steps=2, step=0.3, mix_steps=mix_steps)
    agree(objective, [member], reference, 1e-4)
    assert measured(objective, [member]).terms["mix"] > 0


def test_smoothmix_begins_at_the_input_itself() -> None:
    cold, (x, y) = TrainingNoise(SIGMA, attack=torch.zeros(())), batch()
    near, far = SmoothMix(steps=3, step=0.3, mix_steps=2).adversaries(net(6), Batch(x, y), draws(2), cold.attack)
    assert torch.equal(near, x)
    assert not torch.equal(far, x)


# Ensembles ----------------------------------------------------------------------------------------------------


def drt(members: Sequence[Net], rho1: float, rho2: float, squared: bool = False, form: str = "pairwise") -> Tensor:
    """Yang et al. 2022, equations 9 and 10 (or 54 and 55), row by row over ordered pairs, gradients by autograd."""
    total = sum(cross_entropy(member, 2) for member in members)
    rows = each_row(2)
    for x, y, e in rows:
        noisy = (x + e).detach().requires_grad_()
        gradients, margins, right = [], [], []
        for member in members:
            p = share(member, noisy)
            second = max((k for k in range(CLASSES) if k != y), key=lambda k: number(p[k]))
            right.append(int(p.argmax()) == y)
            margins.append(p[second] - p[y])
            gradients.append(torch.autograd.grad(p[y] - p[second], noisy, create_graph=True)[0])

        def size(g: Tensor) -> Tensor:
            return (g**2).sum() if squared else (g**2).sum().sqrt()

        if form == "summed":
            if all(right):
                total = total + (rho1 * size(sum(gradients)) + rho2 * sum(margins)) / len(rows)
            continue
        for i, j in permutations(range(len(members)), 2):
            if right[i] and right[j]:
                term = rho1 * size(gradients[i] + gradients[j]) + rho2 * (margins[i] + margins[j])
                total = total + term / len(rows)
    return total


def good(seed: int) -> Net:
    """A network that is right on most noisy inputs of the batch, so that pairs are valid."""
    module, (x, y) = net(seed), batch()
    optimizer = torch.optim.Adam(module.parameters(), lr=0.05)
    for _ in range(60):
        optimizer.zero_grad()
        nn.functional.cross_entropy(module((x + draws(2)).flatten(0, 1)), y.repeat(2)).backward()
        optimizer.step()
    return module


@pytest.mark.parametrize("form", ["pairwise", "summed"])
@pytest.mark.parametrize("squared", [False, True])
def test_drt_values_and_second_order_gradients(form, squared) -> None:
    members = [good(0), good(1), net(2)]
    objective = Drt(rho1=0.7, rho2=1.3, squared=squared, form=form)
    agree(objective, members, lambda: drt(members, 0.7, 1.3, squared, form), 1e-5)
    assert measured(objective, members).terms["diversity"] > 0


def test_drt_gradient_diversity_alone_and_margin_alone() -> None:
    members = [good(0), good(1)]
    agree(Drt(rho1=0.7, rho2=0.0), members, lambda: drt(members, 0.7, 0.0), 1e-5)
    agree(Drt(rho1=0.0, rho2=1.3), members, lambda: drt(members, 0.0, 1.3), 1e-5)


def test_drt_without_a_valid_pair_is_the_standard_loss() -> None:
    class Wrong(nn.Module):
        """Never the label of this batch: class 0 gets the lowest score everywhere, labels below are all 0."""

        def __init__(self) -> None:
            super().__init__()
            self.inner = net(3)

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(x) + torch.tensor([-50.0, 0.0, 0.0])

    members = [Wrong(), good(1)]
    x, _ = batch()
    y = torch.zeros(INPUTS, dtype=torch.int64)
    for reduction in ("paper_sum", "mean"):
        found = Drt(reduction=reduction)(members, Batch(x, y), TrainingNoise(SIGMA), torch.Generator().manual_seed(9))
        assert found.terms["diversity"] == 0
        gradient = torch.autograd.grad(found.terms["diversity"], list(members[1].parameters()), allow_unused=True)
        assert all(one is None or (one == 0).all() for one in gradient)
    assert found.terms["cross_entropy"] > 0


def test_drt_of_saturated_members_has_finite_gradients() -> None:
    members = [net(0, scale=80.0), net(0, scale=80.0)]  # identical: their gradients vanish together
    found = measured(Drt(), members)
    gradients = torch.autograd.grad(found.total, [one for member in members for one in member.parameters()])
    assert torch.isfinite(found.total)
    assert all(torch.isfinite(one).all() for one in gradients)


def test_drt_mean_averages_over_valid_pairs_and_over_all_that_members_have_right() -> None:
    members = [good(0), net(1), net(2)]
    found = measured(Drt(rho1=1.0, rho2=1.0, reduction="mean", squared=True), members)
    lengths: list[float] = []
    margins: list[list[float]] = [[], [], []]
    for x, y, e in each_row(2):
        noisy = (x + e).requires_grad_()
        gradients, right = [], []
        for i, member in enumerate(members):
            p = share(member, noisy)
            second = max(number(p[k]) for k in range(CLASSES) if k != y)
            margin = p[y] - max((p[k] for k in range(CLASSES) if k != y), key=number)
            right.append(int(p.argmax()) == y)
            if right[-1]:
                margins[i].append(second - number(p[y]))
            gradients.append(torch.autograd.grad(margin, noisy)[0])
        for i in range(3):
            for j in range(i):
                if right[i] and right[j]:
                    lengths.append(number(((gradients[i] + gradients[j]) ** 2).sum()))
    assert lengths
    assert math.isclose(number(found.terms["diversity"]), sum(lengths) / len(lengths), rel_tol=1e-4)
    every = [value for one in margins for value in one]
    assert len({len(one) for one in margins}) > 1  # else a mean of the members' means would be the same
    assert math.isclose(number(found.terms["margin"]), sum(every) / len(every), rel_tol=1e-4)


def test_drt_over_smoothadv_attacks_each_member_and_regularises_at_the_plain_noise() -> None:
    members = [good(0), good(1)]
    found = measured(Drt(SmoothAdv(eps=0.3, steps=2), rho1=0.7, rho2=1.3), members)
    plain = measured(Drt(rho1=0.7, rho2=1.3), members)
    for term in ("diversity", "margin"):
        assert math.isclose(number(found.terms[term]), number(plain.terms[term]), rel_tol=1e-6)
    assert found.terms["cross_entropy"] > plain.terms["cross_entropy"]


def test_drt_over_smoothadv_can_regularise_each_member_at_its_own_attack() -> None:
    members, base = [good(0), good(1)], SmoothAdv(eps=0.3, steps=2)
    found = measured(Drt(base, rho1=0.7, rho2=1.3, regularise_at="attacked"), members)
    (x, y), noise = batch(), TrainingNoise(SIGMA)
    slopes, gaps, valid = [], [], []
    for member in members:
        attacked = base.attacked(member, Batch(x, y), draws(2), noise.attack)
        rows = (attacked + draws(2)).flatten(0, 1).detach().requires_grad_()
        shares, label = torch.softmax(member(rows), -1), y.repeat(2)
        others = shares.scatter(1, label[:, None], -1.0)
        gap = shares.gather(1, label[:, None])[:, 0] - others.max(1).values
        slopes.append(torch.autograd.grad(gap.sum(), rows)[0])
        gaps.append(gap)
        valid.append(gap > 0)
    both = valid[0] & valid[1]
    assert 0 < both.sum() < len(both)
    length = (slopes[0] + slopes[1]).flatten(1).norm(dim=1)[both].sum() * 2 / len(both)
    assert math.isclose(number(found.terms["diversity"]), 0.7 * number(length), rel_tol=1e-4)
    margin = (gaps[0] + gaps[1])[both].sum() * 2 / len(both)
    assert math.isclose(number(found.terms["margin"]), -1.3 * number(margin), rel_tol=1e-4)
    noisy = measured(Drt(base, rho1=0.7, rho2=1.3), members)
    assert math.isclose(number(found.terms["cross_entropy"]), number(noisy.terms["cross_entropy"]), rel_tol=1e-6)
    with pytest.raises(ArgumentError, match="regularise_at: needs a base that attacks its inputs"):
        Drt(regularise_at="attacked")


@pytest.mark.parametrize("form", ["pairwise", "summed"])
def test_drt_one_by_one_pairs_the_new_member_with_the_earlier_ones(form) -> None:
    """Appendix E: the earlier members stay as they are, and pairs among them do not count."""
    earlier, new = [good(0), good(1)], good(2)
    for one in earlier:
        one.eval().requires_grad_(False).zero_grad()

    def reference() -> Tensor:
        if form == "summed":  # all members in one sum, of which only the new one is trained
            every = drt([*earlier, new], 0.7, 1.3, form="summed")
            return every - sum(cross_entropy(member, 2) for member in earlier)
        pairs = sum(drt([member, new], 0.7, 1.3) - cross_entropy(member, 2) for member in earlier)
        return pairs - cross_entropy(new, 2)  # which both pairs hold

    objective = Drt(rho1=0.7, rho2=1.3, form=form, earlier=tuple(earlier))
    agree(objective, [new], reference, 1e-5)
    found = measured(objective, [new])
    assert found.terms["diversity"] > 0
    found.total.backward()
    assert all(one.grad is None for member in earlier for one in member.parameters())
    assert number(found.right) == number(measured(NoiseAugmentation(), [new]).right)


@pytest.mark.parametrize("base", [NoiseAugmentation(), SmoothAdv(eps=0.3, steps=2)])
def test_the_first_of_members_trained_one_by_one_has_its_base_alone(base) -> None:
    member = good(0)
    found, plain = measured(Drt(base, one_by_one=True), [member]), measured(base, [member])
    assert math.isclose(number(found.total), number(plain.total), rel_tol=1e-9)
    assert Drt(base, one_by_one=True).grouping == "in turn"
    assert Drt(base).grouping == "together"


def test_drt_one_by_one_averages_over_its_own_pairs_and_rows() -> None:
    earlier, new = [good(0), net(1)], good(2)
    found = measured(Drt(rho1=1.0, rho2=1.0, reduction="mean", earlier=tuple(earlier)), [new])
    lengths, margins = [], []
    for x, y, e in each_row(2):
        noisy = (x + e).requires_grad_()
        shares = [share(member, noisy) for member in (*earlier, new)]
        steep = [p[y] - max((p[k] for k in range(CLASSES) if k != y), key=number) for p in shares]
        slopes = [torch.autograd.grad(one, noisy)[0] for one in steep]
        right = [int(p.argmax()) == y for p in shares]
        lengths += [number((slopes[i] + slopes[2]).norm()) for i in range(2) if right[i] and right[2]]
        margins += [-number(steep[2])] if right[2] else []
    assert math.isclose(number(found.terms["diversity"]), sum(lengths) / len(lengths), rel_tol=1e-4)
    assert math.isclose(number(found.terms["margin"]), sum(margins) / len(margins), rel_tol=1e-4)


def test_adp_rewards_entropy_and_volume() -> None:
    members, offset = [net(0), net(1), net(2)], 1e-6

    def reference() -> Tensor:
        total = sum(cross_entropy(member, 2) for member in members)
        rows = each_row(2)
        for x, y, e in rows:
            each = [share(member, x + e) for member in members]
            mean = sum(each) / 3
            entropy = -sum(mean * torch.log(mean))
            others = [torch.stack([p[k] for k in range(CLASSES) if k != y]) for p in each]
            matrix = torch.stack([one / one.norm() for one in others])
            volume = torch.log(torch.linalg.det(matrix @ matrix.T + offset * torch.eye(3)))
            total = total - (0.5 * 3 * entropy + 0.1 * volume) / len(rows)
        return total

    # Two classes remain, so three members span no volume but the offset's: gradients are large and float32-rough.
    value = number(measured(Adp(), members).total)
    assert math.isclose(value, number(reference()), rel_tol=1e-2)


def test_adp_with_two_members_agrees_in_gradients_too() -> None:
    members = [net(0), net(1)]

    def reference() -> Tensor:
        total = sum(cross_entropy(member, 2) for member in members)
        rows = each_row(2)
        for x, y, e in rows:
            each = [share(member, x + e) for member in members]
            mean = sum(each) / 2
            others = [torch.stack([p[k] for k in range(CLASSES) if k != y]) for p in each]
            matrix = torch.stack([one / one.norm() for one in others])
            volume = torch.log(torch.linalg.det(matrix @ matrix.T + 1e-6 * torch.eye(2)))
            total = total - (0.4 * 2 * -sum(mean * torch.log(mean)) + 0.2 * volume) / len(rows)
        return total

    total = measured(Adp(alpha=0.4, beta=0.2), members).total
    assert math.isclose(number(total), number(reference()), rel_tol=1e-4)
    parameters = [one for member in members for one in member.parameters()]
    ours, theirs = (torch.autograd.grad(one, parameters) for one in (total, reference()))
    assert all(torch.allclose(a, b, rtol=1e-2, atol=1e-4) for a, b in zip(ours, theirs, strict=True))


def test_gal_penalises_aligned_loss_gradients() -> None:
    members = [net(0), net(1), net(2)]

    def reference() -> Tensor:
        total = sum(cross_entropy(member, 2) for member in members)
        rows = each_row(2)
        for x, y, e in rows:
            noisy = (x + e).requires_grad_()
            gradients = [
                torch.autograd.grad(-torch.log(share(one, noisy)[y]), noisy, create_graph=True)[0] for one in members
            ]
            powers = [
                torch.exp((gradients[i] * gradients[j]).sum() / (gradients[i].norm() * gradients[j].norm()))
                for i in range(3)
                for j in range(i)
            ]
            total = total + 0.5 * torch.log(sum(powers)) / len(rows)
        return total

    agree(Gal(), members, reference, 1e-4)


def test_gal_of_members_without_gradient_is_finite() -> None:
    members = [net(0, scale=200.0), net(1, scale=200.0)]
    found = measured(Gal(), members)
    gradients = torch.autograd.grad(found.total, [one for member in members for one in member.parameters()])
    assert all(torch.isfinite(one).all() for one in gradients)


# Denoisers, one class never predicted, bad input ---------------------------------------------------------------


def test_denoisers() -> None:
    torch.manual_seed(0)
    denoiser, classifier = nn.Conv2d(1, 1, 1), net(0)

    def squares() -> Tensor:
        rows = each_row(2)
        return sum(((denoiser((x + e).unsqueeze(0))[0] - x) ** 2).sum() for x, _, e in rows) / len(rows)

    def stability() -> Tensor:
        rows = each_row(2)
        answers = [int(share(classifier, x).argmax()) for x, _, _ in rows]
        cleaned = [denoiser((x + e).unsqueeze(0))[0] for x, _, e in rows]
        losses = [-torch.log(share(classifier, one)[a]) for one, a in zip(cleaned, answers, strict=True)]
        return sum(losses) / len(rows)

    agree(DenoiseMse(copies=2), [denoiser], squares, 1e-5)
    agree(DenoiseStability(classifier, copies=2), [denoiser], stability, 1e-5)
    assert all(one.grad is None and one.requires_grad for one in classifier.parameters())


@pytest.mark.parametrize("base", [NoiseAugmentation(), SmoothAdv(steps=2), Consistency(), Macer(copies=2), SmoothMix()])
def test_select_is_its_base_on_other_labels(base: Objective) -> None:
    member = net(0)
    ours, theirs = (measured(one, [member]) for one in (Select(base), base))  # type: ignore[arg-type]
    assert Select(base).copies == base.copies  # type: ignore[arg-type]
    assert {name: number(value) for name, value in ours.terms.items()} == {
        name: number(value) for name, value in theirs.terms.items()
    }


@pytest.mark.parametrize("name", sorted(set(OBJECTIVES) - {"denoise-mse", "denoise-stability"}))
def test_a_class_that_is_never_predicted_breaks_nothing(name) -> None:
    class Silent(nn.Module):
        def __init__(self, seed: int) -> None:
            super().__init__()
            self.inner = net(seed)

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(x) + torch.tensor([0.0, 0.0, -1e4])

    members = [Silent(0), Silent(1)]
    found = measured(build_objective(name, {}), members)
    gradients = torch.autograd.grad(found.total, [one for member in members for one in member.parameters()])
    assert torch.isfinite(found.total)
    assert all(torch.isfinite(one).all() for one in gradients)


def test_joint_objectives_need_two_members() -> None:
    for objective in (Drt(), Adp(), Gal()):
        with pytest.raises(ArgumentError, match="at least two members"):
            measured(objective, [net(0)])


def test_labels_that_do_not_fit_are_refused() -> None:
    x, _ = batch()
    with pytest.raises(DataError, match="one int64 label per input"):
        NoiseAugmentation()(
            [net(0)], Batch(x, torch.zeros(3, dtype=torch.int64)), TrainingNoise(SIGMA), torch.Generator()
        )


def test_settings_come_as_text_and_unknown_ones_are_named() -> None:
    built = build_objective("drt", {"rho1": "0.5", "squared": "true", "eps": "0.3", "steps": "4"}, "smoothadv")
    assert built == Drt(SmoothAdv(eps=0.3, steps=4), rho1=0.5, squared=True)
    with pytest.raises(ArgumentError, match="drt has the settings"):
        build_objective("drt", {"rho3": "1"})
    with pytest.raises(ArgumentError, match="rho1: must be a number"):
        build_objective("drt", {"rho1": "much"})
    with pytest.raises(ArgumentError, match="belongs to the objectives drt and select"):
        build_objective("gaussian", {}, "smoothadv")
    with pytest.raises(ArgumentError, match="of drt must be one of gaussian, smoothadv; got 'macer'"):
        build_objective("drt", {}, "macer")
    with pytest.raises(ArgumentError, match="must be at least 0"):
        build_objective("drt", {"rho1": "-1"})


def test_select_hands_to_its_base_what_is_not_its_own() -> None:
    built = build_objective("select", {"eta": "0.95", "n": "200", "weight": "20", "copies": "3"}, "consistency")
    assert built == Select(Consistency(weight=20, copies=3), eta=0.95, n=200)
    assert build_objective("select", {}) == Select(NoiseAugmentation())
    with pytest.raises(ArgumentError, match="of select must be one of gaussian, smoothadv, consistency"):
        build_objective("select", {}, "drt")
    for settings, message in (
        ({"eta": "0"}, r"eta: must lie in \(0, 1\]"),
        ({"eta": "1.5"}, "eta: must lie"),
        ({"n": "0"}, "n: must be at least 1"),
        ({"base": "macer"}, "select has the settings"),
    ):
        with pytest.raises(ArgumentError, match=message):
            build_objective("select", settings)
