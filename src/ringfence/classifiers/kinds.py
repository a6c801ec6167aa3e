"""Two kinds of scores: logits, and probabilities. Whatever needs probabilities asks for them here, and only here.

A network gives logits; some votes (softmax, hard, max-margin) give probabilities already. Either way the class is the
highest score, but softmax of what is a probability already is another, much flatter function.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

import torch
from torch import Tensor

from ringfence.errors import ArgumentError

Kind = Literal["logits", "probabilities"]
Kinds = tuple[Kind, ...]
"""One kind for all scores (..., K), or one for each lane or member of scores (..., lanes, K)."""

LOGITS: Kinds = ("logits",)
PROBABILITIES: Kinds = ("probabilities",)


def probabilities(scores: Tensor, kinds: Kinds = LOGITS) -> Tensor:
    """Scores (..., K) or (..., lanes, K) as probabilities of at least float32, which sum to at most 1.

    Softmax of logits. Probabilities are left alone, except that a sum above 1 is divided out: the max over patches and
    a hard vote's tie-breaks exceed it. NaN where a score of the row is not finite, or a probability is negative.
    """
    return _by_kind(scores, kinds, _SHARES)


def log_probabilities(scores: Tensor, kinds: Kinds = LOGITS) -> Tensor:
    """Logarithms of ``probabilities``, finite where those are 0."""
    return _by_kind(scores, kinds, _LOG_SHARES)


def as_logits(scores: Tensor, kinds: Kinds) -> Tensor:
    """For formulas that take a softmax themselves: logits as they are, of probabilities the logarithms."""
    return scores if set(kinds) == set(LOGITS) else log_probabilities(scores, kinds)


def common_kind(kinds: Kinds, doing: str) -> Kinds:
    """The one kind of scores that are added up; adding logits to probabilities would mean nothing."""
    if len(set(kinds)) > 1:
        rule = f"{doing} adds up scores of one kind"
        received = ", ".join(f"member {place}: {kind}" for place, kind in enumerate(kinds, 1))
        remedy = "Use the softmax vote, or members that all give logits or all give probabilities."
        raise ArgumentError("members", rule, received, remedy)
    return kinds[:1]


def _by_kind(scores: Tensor, kinds: Kinds, convert: Mapping[Kind, Callable[[Tensor], Tensor]]) -> Tensor:
    precise = scores.to(torch.promote_types(scores.dtype, torch.float32))
    if len(set(kinds)) == 1:
        return convert[kinds[0]](precise)
    if scores.dim() < 2 or len(kinds) != scores.shape[-2]:
        rule, received = f"{len(kinds)} kinds are for as many lanes", f"scores of shape {tuple(scores.shape)}"
        raise ArgumentError("kinds", rule, received, "Name one kind, or one per lane.")
    return torch.stack([convert[kind](one) for kind, one in zip(kinds, precise.unbind(-2), strict=True)], -2)


def _softmax(logits: Tensor) -> Tensor:
    return logits.softmax(-1).masked_fill(~torch.isfinite(logits).all(-1, keepdim=True), torch.nan)


def _log_softmax(logits: Tensor) -> Tensor:
    return logits.log_softmax(-1).masked_fill(~torch.isfinite(logits).all(-1, keepdim=True), torch.nan)


def _distribution(shares: Tensor) -> Tensor:
    valid = (torch.isfinite(shares) & (shares >= 0)).all(-1, keepdim=True)
    return (shares / shares.sum(-1, keepdim=True).clamp_min(1.0)).masked_fill(~valid, torch.nan)


def _log_distribution(shares: Tensor) -> Tensor:
    found = _distribution(shares)
    return found.clamp_min(torch.finfo(found.dtype).tiny).log()


_SHARES: Mapping[Kind, Callable[[Tensor], Tensor]] = {"logits": _softmax, "probabilities": _distribution}
_LOG_SHARES: Mapping[Kind, Callable[[Tensor], Tensor]] = {"logits": _log_softmax, "probabilities": _log_distribution}
