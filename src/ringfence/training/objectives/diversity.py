"""Members that differ: DRT (Yang et al. 2022), and two older ways adapted to noise in its appendix G.4, ADP and GAL."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import ClassVar, Literal, final

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from ringfence.errors import ArgumentError
from ringfence.settings import setting
from ringfence.training.data import Batch, TrainingNoise, rows
from ringfence.training.objectives.adversarial import SmoothAdv
from ringfence.training.objectives.base import (
    Grouping,
    LossTerms,
    Members,
    Objective,
    entropy,
    logits_of,
    masked_mean,
    noise_copies,
    penalty,
    safe_norm,
    share_right,
)
from ringfence.training.objectives.compiled_gradient import Branches, Differentiated, differentiated
from ringfence.training.objectives.gaussian import NoiseAugmentation

OFFSET = 1e-6
"""Added to the Gram matrix's diagonal: members that agree span no volume, and log 0 has no gradient."""


@final
@dataclass(frozen=True)
class Adp(Objective):
    """sum_i CE_i - alpha * N * H(mean prediction) - beta * log(squared volume of the non-true predictions).

    Pang et al. 2019. The volume is that spanned by the members' softmax vectors without the true class, each at
    length 1. Both terms are rewards. Yang et al. (who print a plus) give no weights: the defaults are ours, a quarter
    and a fifth of Pang et al.'s 2 and 0.5 because the entropy is counted N times here.
    """

    alpha: float = penalty(0.5, "Weight of the entropy of the mean prediction.")
    beta: float = penalty(0.1, "Weight of the volume that predictions span.")
    copies: int = noise_copies(2)
    name: ClassVar[str] = "adp"
    grouping: ClassVar[Grouping] = "together"

    def loss(self, members: Members, batch: Batch, noise: TrainingNoise, generator: torch.Generator) -> LossTerms:
        """All members on the same noise."""
        noisy, labels = batch.under(noise.draw(batch, self.copies, generator)), batch.labels(self.copies)
        scores = [member(noisy) for member in members]
        logs = torch.stack([torch.log_softmax(one.float(), -1) for one in scores], dim=1)  # (rows, N, K)
        mean = torch.logsumexp(logs, 1) - math.log(len(members))
        volume = log_squared_volume(logs.exp(), labels).mean()
        terms = {
            "cross_entropy": torch.stack([cross_entropy(one, labels) for one in scores]).sum(),
            "entropy": -self.alpha * len(members) * entropy(mean).mean(),
            "volume": -self.beta * volume,
        }
        return LossTerms(terms, torch.stack([share_right(one, labels) for one in scores]).mean())


def log_squared_volume(shares: Tensor, y: Tensor) -> Tensor:
    """log det(M M^T + offset I) per row, M (N, K) the predictions (rows, N, K) with y zeroed, each at length 1."""
    others = shares.scatter(2, y.view(-1, 1, 1).expand(-1, shares.shape[1], 1), 0.0)
    unit = others / others.square().sum(-1, keepdim=True).add(1e-20).sqrt()
    gram = unit @ unit.transpose(1, 2) + OFFSET * torch.eye(shares.shape[1], device=shares.device)
    return log_determinant(gram)


def log_determinant(matrix: Tensor) -> Tensor:
    """log det of small positive definite matrices (rows, N, N) by elimination, without waiting for the device."""
    total = torch.zeros_like(matrix[:, 0, 0])
    while matrix.shape[1]:
        pivot = matrix[:, 0, 0].clamp_min(1e-12)
        total = total + pivot.log()
        matrix = matrix[:, 1:, 1:] - matrix[:, 1:, :1] * matrix[:, :1, 1:] / pivot.view(-1, 1, 1)
    return total


@final
@dataclass(frozen=True)
class Gal(Objective):
    """sum_i CE_i + weight * log sum_{i<j} exp(cos(grad_x CE_i, grad_x CE_j)), averaged over noisy inputs.

    Kariyappa and Qureshi 2019, whose weight is 0.5; Yang et al. give none.
    """

    weight: float = penalty(0.5, "Weight of the alignment of gradients.")
    copies: int = noise_copies(2)
    name: ClassVar[str] = "gal"
    grouping: ClassVar[Grouping] = "together"

    def loss(self, members: Members, batch: Batch, noise: TrainingNoise, generator: torch.Generator) -> LossTerms:
        """All members on the same noise; a vanishing gradient counts as cosine 0."""
        noisy, labels = batch.under(noise.draw(batch, self.copies, generator)), batch.labels(self.copies)
        losses, gradients, right = [], [], []
        with Branches(noisy) as branches:
            for member in members:
                with branches.next():
                    scores, each, gradient = differentiated(member, noisy, labels, loss_of_rows)
                    losses.append(each.mean())
                    right.append(share_right(scores, labels))
                branches.leave(gradient, losses[-1], right[-1])
                gradients.append(gradient)
        cosines = torch.stack([cosine(gradients[i], gradients[j]) for i, j in combinations(range(len(members)), 2)])
        terms = {
            "cross_entropy": torch.stack(losses).sum(),
            "alignment": self.weight * torch.logsumexp(cosines, 0).mean(),
        }
        return LossTerms(terms, torch.stack(right).mean())


def loss_of_rows(scores: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy (B,)."""
    return cross_entropy(scores, labels, reduction="none")


def cosine(a: Tensor, b: Tensor) -> Tensor:
    """Cosine (B,) of the angle between (B, *shape) and (B, *shape); 0 where either vanishes."""
    product = safe_norm(a) * safe_norm(b)
    there = product > 1e-20
    return torch.where(there, (a * b).flatten(1).sum(1) / torch.where(there, product, 1.0), 0.0)


@final
@dataclass(frozen=True)
class Drt(Objective):
    """sum_i L_std(i) + rho1 * sum_{i != j} ||g_i + g_j||_2 + rho2 * sum_{i != j} (c_i + c_j) per noisy input.

    g_i = grad_x (f_i^{y0} - f_i^{yi2}), c_i = f_i^{yi2} - f_i^{y0}, f_i the softmax of member i and yi2 its
    runner-up; ordered pairs of which both members are right on that noisy input (``paper_sum``: summed over
    pairs, averaged over all rows). ``mean``, of a public derivative of the authors' code: rho1 times the mean over
    valid pairs, rho2 times the mean of c over every row that a member has right; it has ``squared`` norms, too. rho
    compares only within one setting.
    form ``summed`` (eq. 54-55): ||sum_i g_i|| and sum_i c_i on rows where all members are right.
    base: L_std is the cross-entropy at x + e (gaussian), or at x'_i + e with each member's own attack
    (smoothadv); regularise_at: g, c and what is right are those at x + e (the paper), or at x'_i + e (the derivative).
    one_by_one (appendix E, for many members): members are trained one after the other, and pairs are those of the new
    member with the ``earlier`` ones, which stay as they are; the first is trained by its base alone.
    """

    base: NoiseAugmentation | SmoothAdv = field(
        default_factory=NoiseAugmentation, metadata={"bases": (NoiseAugmentation, SmoothAdv)}
    )
    rho1: float = penalty(0.5, "Weight of gradient diversity.")
    rho2: float = penalty(2.0, "Weight of confidence margins.")
    reduction: Literal["paper_sum", "mean"] = setting("paper_sum", "How pairs are added up.")
    form: Literal["pairwise", "summed"] = setting("pairwise", "Pairs of members, or all of them at once.")
    squared: bool = setting(False, "Squared norms of gradients.")
    regularise_at: Literal["noisy", "attacked"] = setting("noisy", "Which inputs of smoothadv have its terms, too.")
    one_by_one: bool = setting(False, "Members one after the other, each beside the earlier ones.")
    earlier: tuple[nn.Module, ...] = field(default=(), repr=False)
    name: ClassVar[str] = "drt"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.regularise_at == "attacked" and not isinstance(self.base, SmoothAdv):
            rule = "needs a base that attacks its inputs"
            raise ArgumentError("regularise_at", rule, f"attacked over {self.base.name}", "Use the base smoothadv.")

    @property
    def copies(self) -> int:  # type: ignore[override]
        """As many as the base objective's."""
        return self.base.copies

    @property
    def grouping(self) -> Grouping:  # type: ignore[override]
        """All members at once, or one by one."""
        return "in turn" if self.one_by_one or self.earlier else "together"

    def with_networks(self, classifier: nn.Module | None, earlier: Members) -> Objective:
        """Beside the members that are trained already."""
        return replace(self, earlier=tuple(earlier)) if self.one_by_one else self

    def loss(self, members: Members, batch: Batch, noise: TrainingNoise, generator: torch.Generator) -> LossTerms:
        """All members on the same noise, the earlier ones first."""
        draws = noise.draw(batch, self.copies, generator)
        labels, noisy = batch.labels(self.copies), batch.under(draws)
        standard, gradients, margins, right = [], [], [], []
        for member in map(logits_of, self.earlier):
            where = self._attacked(member, batch, draws, noise, noisy) if self.regularise_at == "attacked" else noisy
            margin, gradient, good = _fixed_margin(member, where, labels)
            margins.append(margin)
            gradients.append(gradient)
            right.append(good)
        with Branches(noisy) as branches:
            for member in members:
                with branches.next():
                    attacked = self._attacked(member, batch, draws, noise, noisy)
                    where = attacked if self.regularise_at == "attacked" else noisy
                    scores, margin, gradient = self._differentiated(member, where, labels)
                    standard.append(cross_entropy(scores if where is attacked else member(attacked), labels))
                    right.append(scores.detach().argmax(1) == labels)
                branches.leave(margin, gradient, standard[-1], right[-1])
                margins.append(margin)
                gradients.append(gradient)
        first, zero = len(right) == 1, noisy.new_zeros(())  # of those trained one by one: it has no pair
        terms = {
            "cross_entropy": torch.stack(standard).sum(),
            "diversity": zero if first or not self.rho1 else self.rho1 * self._diversity(gradients, right),
            "margin": zero if first else self.rho2 * self._margin(margins, right),
        }
        return LossTerms(terms, torch.stack(right[len(self.earlier) :]).float().mean())

    def _differentiated(self, member: nn.Module, noisy: Tensor, labels: Tensor) -> Differentiated:
        if self.rho1:
            return differentiated(member, noisy, labels, margin_over_runner_up)
        scores = member(noisy)
        return Differentiated(scores, margin_over_runner_up(scores, labels), noisy)

    def _attacked(self, member: nn.Module, batch: Batch, draws: Tensor, noise: TrainingNoise, noisy: Tensor) -> Tensor:
        """Where the base's loss is taken: at the noisy inputs, or at those of the member's own attack."""
        if isinstance(self.base, SmoothAdv):
            return rows(self.base.attacked(member, batch, draws, noise.attack), draws)
        return noisy

    def _pairs(self, count: int) -> list[tuple[int, int]]:
        """Pairs of so many members in which at least one is trained."""
        return [pair for pair in combinations(range(count), 2) if pair[1] >= len(self.earlier)]

    def _diversity(self, gradients: Sequence[Tensor], right: Sequence[Tensor]) -> Tensor:
        """The gradient-diversity loss, without rho1."""

        def size(gradient: Tensor) -> Tensor:
            return gradient.flatten(1).square().sum(1) if self.squared else safe_norm(gradient)

        if self.form == "summed":
            return self._reduce([size(torch.stack(list(gradients)).sum(0))], [torch.stack(list(right)).all(0)])
        pairs = self._pairs(len(gradients))
        return self._reduce(
            [size(gradients[i] + gradients[j]) for i, j in pairs], [right[i] & right[j] for i, j in pairs]
        )

    def _margin(self, margins: Sequence[Tensor], right: Sequence[Tensor]) -> Tensor:
        """The confidence-margin loss, without rho2."""
        if self.reduction == "mean":
            trained = slice(len(self.earlier), None)
            return masked_mean(-torch.stack(list(margins[trained])), torch.stack(list(right[trained])))
        if self.form == "summed":
            return self._reduce([-torch.stack(list(margins)).sum(0)], [torch.stack(list(right)).all(0)])
        pairs = self._pairs(len(margins))
        return self._reduce([-(margins[i] + margins[j]) for i, j in pairs], [right[i] & right[j] for i, j in pairs])

    def _reduce(self, values: Sequence[Tensor], valid: Sequence[Tensor]) -> Tensor:
        """Values (rows,) of every pair: each unordered pair stands for two ordered ones in ``paper_sum``."""
        every, allowed = torch.stack(list(values)), torch.stack(list(valid))
        if self.reduction == "mean":
            return masked_mean(every, allowed)
        ordered = 2 if self.form == "pairwise" else 1
        return ordered * torch.where(allowed, every, 0.0).sum() / every.shape[-1]


def margin_over_runner_up(scores: Tensor, y: Tensor) -> Tensor:
    """f^{y0} - f^{y2} (rows,): softmax of the label minus that of the best other class."""
    shares, label = torch.softmax(scores.float(), -1), y.unsqueeze(1)
    runner_up = scores.detach().scatter(1, label, -torch.inf).argmax(1, keepdim=True)
    return (shares.gather(1, label) - shares.gather(1, runner_up)).squeeze(1)


def _fixed_margin(member: nn.Module, noisy: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Margin (rows,), its gradient in the input and whether the row is right, of a member that is not trained."""
    noisy = noisy.detach().requires_grad_()
    scores = member(noisy)
    margin = margin_over_runner_up(scores, labels)
    gradient = torch.autograd.grad(margin.sum(), noisy)[0]
    return margin.detach(), gradient, scores.detach().argmax(1) == labels
