"""Objective: what training minimises. The outer call checks, ``loss`` is the formula."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any, ClassVar, final

import torch
from torch import Tensor, nn

from ringfence.classifiers import LOGITS, as_logits, kinds_of
from ringfence.errors import ArgumentError, DataError
from ringfence.training.noise import TrainingNoise

Members = Sequence[nn.Module]


@final
@dataclass(frozen=True)
class LossTerms:
    """Named parts of a loss, each a 0-dimensional tensor, and the share of noisy inputs that were right.

    A reward is a part with a negative value: ``total`` is the plain sum.
    """

    terms: Mapping[str, Tensor]
    right: Tensor

    @property
    def total(self) -> Tensor:
        """What is minimised."""
        parts = list(self.terms.values())
        return torch.stack(parts).sum()


class Objective(ABC):
    """A training objective with its hyper-parameters; frozen, so that a plan can be stored and compared.

    joint: whether members must be trained together; soft: whether it learns from soft labels too.
    """

    name: ClassVar[str]
    joint: ClassVar[bool] = False
    soft: ClassVar[bool] = False
    copies: int
    """Noise draws per input and step, m."""

    @final
    def __call__(
        self,
        members: Members,
        x: Tensor,
        y: Tensor,
        noise: TrainingNoise,
        generator: torch.Generator,
        soft: Tensor | None = None,
    ) -> LossTerms:
        """Loss of the members on a batch x (B, *shape) in [0, 1] with labels y (B,) int64, soft ones (B, K) too."""
        if not members:
            raise ArgumentError("members", "needs at least one network", "none", "Train at least one member.")
        if self.joint and len(members) < 2:
            rule = f"{self.name} trains at least two members together"
            raise ArgumentError("members", rule, len(members), "Use --members 3, or the objective gaussian.")
        if y.shape != x.shape[:1] or y.dtype != torch.int64:
            received = f"{tuple(y.shape)} {y.dtype} for inputs {tuple(x.shape)}"
            raise DataError("y", "needs one int64 label per input", received, "Give labels of shape (B,).")
        if not x.device == y.device == torch.device(generator.device):
            received = f"x on {x.device}, y on {y.device}, generator on {generator.device}"
            raise ArgumentError("device", "inputs, labels and generator share one device", received, "Move them.")
        if self.soft and (soft is None or soft.shape[:1] != y.shape):
            received = "none" if soft is None else f"shape {tuple(soft.shape)}"
            rule = f"{self.name} needs one row of class shares per input"
            raise DataError("soft", rule, received, "Name the network that gives them: --classifier.")
        return self.loss([logits_of(member) for member in members], x, y, noise, generator, soft)

    @abstractmethod
    def loss(
        self,
        members: Members,
        x: Tensor,
        y: Tensor,
        noise: TrainingNoise,
        generator: torch.Generator,
        soft: Tensor | None = None,
    ) -> LossTerms:
        """The formula."""

    def at(self, epoch: int) -> Objective:
        """What is minimised in an epoch: itself, unless that changes with time."""
        return self

    def weights(self, epoch: int, before: Tensor | None, right: Callable[[int], Tensor]) -> Tensor | None:
        """Weights (N,) with which the inputs of an epoch are drawn, with replacement; None: each of them once.

        before: those of the epoch before. right(n): share (N,) of n noisy copies of every training input that the
        network, as it is when the epoch begins, answers rightly.
        """
        return None

    def settings(self) -> dict[str, Any]:
        """Name and hyper-parameters as plain values."""
        own = {one.name: getattr(self, one.name) for one in fields(self)}  # type: ignore[arg-type]
        plain = {key: value.settings() if isinstance(value, Objective) else value for key, value in own.items()}
        return {"name": self.name, **{key: value for key, value in plain.items() if not isinstance(value, nn.Module)}}


class SingleObjective(Objective):
    """An objective of one network: several members give the sum over members, each with its own gradient."""

    @final
    def loss(
        self,
        members: Members,
        x: Tensor,
        y: Tensor,
        noise: TrainingNoise,
        generator: torch.Generator,
        soft: Tensor | None = None,
    ) -> LossTerms:
        """Sum over the members; the terms of equal name are added."""
        return summed([self.loss_of(member, x, y, noise, generator) for member in members])

    @abstractmethod
    def loss_of(
        self, member: nn.Module, x: Tensor, y: Tensor, noise: TrainingNoise, generator: torch.Generator
    ) -> LossTerms:
        """The formula for one network."""


def summed(found: Sequence[LossTerms]) -> LossTerms:
    """The losses of several networks as one: terms of equal name are added, shares of right answers averaged."""
    terms = {name: torch.stack([one.terms[name] for one in found]).sum() for name in found[0].terms}
    return LossTerms(terms, torch.stack([one.right for one in found]).mean())


@final
class _Logarithms(nn.Module):
    """A network that gives probabilities, as one that gives logits: their logarithms have them as softmax."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        """(B, *shape) -> (B, K)."""
        return as_logits(self.inner(x), kinds_of(self.inner))


def logits_of(member: nn.Module) -> nn.Module:
    """What every formula of a loss expects: the member itself, unless its scores are probabilities."""
    return member if kinds_of(member) == LOGITS else _Logarithms(member)


def repeated(y: Tensor, copies: int) -> Tensor:
    """Labels (B,) of m copies, copies outermost: (m*B,)."""
    return y.repeat(copies)


def rows(x: Tensor, noise: Tensor) -> Tensor:
    """x (B, *shape) under noise (m, B, *shape) as one batch (m*B, *shape), copies outermost."""
    return (x + noise).flatten(0, 1)


def share_right(scores: Tensor, y: Tensor) -> Tensor:
    """Share of rows whose highest score is the label's; no gradient."""
    return (scores.detach().argmax(-1) == y).float().mean()


def entropy(log_probabilities: Tensor) -> Tensor:
    """-sum p log p over the last axis, from logarithms; 0 log 0 = 0."""
    return -(log_probabilities.exp() * log_probabilities).sum(-1)


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Mean of values where mask holds; 0 with zero gradient where it holds nowhere."""
    return torch.where(mask, values, 0.0).sum() / mask.sum().clamp_min(1)


def safe_norm(x: Tensor) -> Tensor:
    """l2 norm over all but the first axis: (B, *shape) -> (B,), with gradient 0 (not NaN) at 0."""
    squares = x.flatten(1).square().sum(1)
    positive = squares > 0
    return torch.where(positive, torch.where(positive, squares, 1.0).sqrt(), 0.0)


@contextmanager
def evaluating(module: nn.Module) -> Iterator[Callable[[Tensor], Tensor]]:
    """The module in evaluation mode with frozen parameters, as an attack sees it; restored afterwards."""
    trained = module.training
    parameters = [one for one in module.parameters() if one.requires_grad]
    module.eval().requires_grad_(False)
    try:
        yield module
    finally:
        module.train(trained)
        for parameter in parameters:
            parameter.requires_grad_(True)


def eager(member: nn.Module) -> nn.Module:
    """The network behind a compiled one, for objectives that differentiate gradients: compiled code cannot."""
    inner = getattr(member, "_orig_mod", member)
    assert isinstance(inner, nn.Module)
    return inner


def check_weight(name: str, value: float) -> None:
    """Weights of penalty terms are finite and not negative."""
    if not 0 <= value < float("inf"):
        raise ArgumentError(name, "must be at least 0", value, "0 switches the term off.")


def check_copies(copies: int, least: int = 1) -> None:
    """m noise copies per input."""
    if copies < least:
        raise ArgumentError("copies", f"must be at least {least}", copies, "The papers use 2 (MACER 16).")
