"""What several formulas share: right answers, entropies, norms with a gradient everywhere, networks under attack."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from ringfence.training.objectives.base import LossTerms


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
