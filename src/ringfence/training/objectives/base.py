"""Objective: what training minimises. The outer call checks, ``loss`` is the formula.

An objective is a frozen dataclass that declares itself: fields made by ``setting`` are its settings; a field ``base``
with ``bases`` in its metadata holds the objective that it is built upon, one of those; other fields are networks that
it is given to work with. Class attributes and methods say which members it trains and what it needs.
"""

from __future__ import annotations

import shlex
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import Field, dataclass, fields
from typing import Any, ClassVar, Literal, final

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from ringfence.classifiers import LOGITS, as_logits, kinds_of
from ringfence.classifiers.fused.gradient import FusedGradients
from ringfence.errors import ArgumentError, DataError
from ringfence.settings import check_settings, plain_settings, setting
from ringfence.training.data import Batch, DeviceData, TrainingNoise
from ringfence.types import IntArray

Members = Sequence[nn.Module]
Grouping = Literal["alone", "together", "in turn"]
"""Members are trained each by itself; all in one training; or one after the other, each knowing those before it."""


def noise_copies(default: int) -> Any:
    """The setting that every objective has."""
    return setting(default, "Noise draws per input and step, m.", low=1, remedy="Most sources use 2 (MACER 16).")


def penalty(default: float, help: str) -> Any:
    """The weight of a term: at least 0."""
    return setting(default, help, low=0, remedy="0 switches the term off.")


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
        return torch.stack(list(self.terms.values())).sum()


@final
@dataclass(frozen=True)
class Questions:
    """What is asked of a fixed classifier before the training: its answers to so many noisy copies of every input.

    every_class: whether it must have exactly the data's classes, not only their labels.
    """

    sigma: float
    draws: int
    every_class: bool = False


class Objective(ABC):
    """A training objective with its settings; frozen, so that a job can be stored and compared.

    classifier_for: what it needs a fixed classifier for (empty: it needs none). judged: whether its networks answer
    with classes, so that held-out inputs tell how good they are.
    """

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]
    name: ClassVar[str]
    classifier_for: ClassVar[str] = ""
    judged: ClassVar[bool] = True
    noises: ClassVar[tuple[str, ...]] = ()
    """Families of noise that its formula is about; none: any."""
    grouping: ClassVar[Grouping] = "alone"
    """How members are trained; a property where settings decide."""
    copies: int
    """Noise draws per input and step, m."""

    def __post_init__(self) -> None:
        check_settings(self)

    @final
    def __call__(self, members: Members, batch: Batch, noise: TrainingNoise, generator: torch.Generator) -> LossTerms:
        """Loss of the members on a batch."""
        x, y, soft = batch.x, batch.y, batch.soft
        if not members:
            raise ArgumentError("members", "needs at least one network", "none", "Train at least one member.")
        if self.grouping == "together" and len(members) < 2:
            raise ArgumentError("members", f"{self.name} trains at least two members together", len(members), "Use 3.")
        if y.shape != x.shape[:1] or y.dtype != torch.int64:
            received = f"{tuple(y.shape)} {y.dtype} for inputs {tuple(x.shape)}"
            raise DataError("y", "needs one int64 label per input", received, "Give labels of shape (B,).")
        if not x.device == y.device == torch.device(generator.device):
            received = f"x on {x.device}, y on {y.device}, generator on {generator.device}"
            raise ArgumentError("device", "inputs, labels and generator share one device", received, "Move them.")
        if soft is not None and soft.shape[:1] != y.shape:
            rule = "needs one row of class shares per input"
            raise DataError("soft", rule, f"shape {tuple(soft.shape)}", "Give soft labels of shape (B, K).")
        return self.loss([logits_of(member) for member in members], batch, noise, generator)

    @abstractmethod
    def loss(self, members: Members, batch: Batch, noise: TrainingNoise, generator: torch.Generator) -> LossTerms:
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

    def questions(self, sigma: float) -> Questions | None:
        """What the fixed classifier is asked about every training input; None: nothing."""
        return None

    def labelled(self, data: DeviceData, votes: IntArray) -> DeviceData:
        """The data with the labels that the answers give: votes (N, K) of the fixed classifier."""
        return data

    def about_labels(self, data: DeviceData) -> str:
        """A sentence about the labels it made, for the user; empty: there is nothing to say."""
        return ""

    def with_networks(self, classifier: nn.Module | None, earlier: Members) -> Objective:
        """Itself, knowing the fixed classifier and the trained members before this one, if it uses them."""
        return self

    def certified_with(self, models: Sequence[str], classifier: str, sigma: float) -> str:
        """The command that uses what was trained, as far as it is known; several members as one vote."""
        tree = models[0] if len(models) == 1 else f"soft({', '.join(models)})"
        return f"certify --model {shlex.quote(tree)} --sigma {sigma:g}"

    def settings(self) -> dict[str, Any]:
        """Name and settings as plain values; the base's as a dictionary of its own, first."""
        inner = {one.name: getattr(self, one.name).settings() for one in fields(self) if "bases" in one.metadata}
        return {"name": self.name, **inner, **plain_settings(self)}


class SingleObjective(Objective):
    """An objective of one network: several members give the sum over members, each with its own gradient."""

    @final
    def loss(self, members: Members, batch: Batch, noise: TrainingNoise, generator: torch.Generator) -> LossTerms:
        """Sum over the members; terms of equal name are added, shares of right answers averaged."""
        found = [self.loss_of(member, batch, noise, generator) for member in members]
        terms = {name: torch.stack([one.terms[name] for one in found]).sum() for name in found[0].terms}
        return LossTerms(terms, torch.stack([one.right for one in found]).mean())

    @abstractmethod
    def loss_of(self, member: nn.Module, batch: Batch, noise: TrainingNoise, generator: torch.Generator) -> LossTerms:
        """The formula for one network."""


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


def plain_loss(scores: Tensor, labels: Tensor, **more: Tensor) -> LossTerms:
    """Cross-entropy of scores (rows, K) at labels (rows,), and further terms."""
    return LossTerms({"cross_entropy": cross_entropy(scores, labels), **more}, share_right(scores, labels))


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


def wide(values: Tensor, like: Tensor) -> Tensor:
    """(B,) -> (B, 1, ..., 1), as many axes as ``like`` has."""
    return values.view(-1, *[1] * (like.dim() - 1))


@final
class Attackable(nn.Module):
    """A member, and the kernels by which attacks take its gradients in images."""

    def __init__(self, member: nn.Module, gradients: FusedGradients) -> None:
        super().__init__()
        self.member, self.gradients = member, gradients

    def forward(self, x: Tensor) -> Tensor:
        """As the member."""
        scores: Tensor = self.member(x)
        return scores


@contextmanager
def evaluating(module: nn.Module) -> Iterator[Callable[[Tensor], Tensor]]:
    """The module in evaluation mode with frozen parameters, as an attack sees it; restored afterwards."""
    if isinstance(module, Attackable):
        yield module.gradients.now()
        return
    trained = module.training
    parameters = [one for one in module.parameters() if one.requires_grad]
    module.eval().requires_grad_(False)
    try:
        yield module
    finally:
        module.train(trained)
        for parameter in parameters:
            parameter.requires_grad_(True)


def as_trained(member: nn.Module) -> nn.Module:
    """What runs in training, compiled or not."""
    return member.member if isinstance(member, Attackable) else member


def eager(member: nn.Module) -> nn.Module:
    """The network behind a compiled one, for objectives that differentiate gradients: compiled code cannot."""
    inner = getattr(as_trained(member), "_orig_mod", as_trained(member))
    assert isinstance(inner, nn.Module)
    return inner
