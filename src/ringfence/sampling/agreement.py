"""Agreement: whether scores are those of a reference, up to what rounding explains."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

RELATIVE = 1e-3
"""Of a score's distance from the top score, and of the typical gap between the top two."""
OF_ITS_SIZE = 1e-6
"""Of a score and of the top one: eight units in the last place of float32, in which a common offset is rounded too."""
USUAL = 0.9
"""Share of rows whose rounding is called usual: more in the others may be jumps."""
TIMES_ROUNDING = 4.0
"""Usual rounding times this is excused: the largest of many rows, between two results that both were rounded. Never
more than the typical gap, whatever was measured."""
EXCUSED = 0.01
"""Rows that may be off where a form is compared: a vote jumps where a member is within rounding of a tie."""
EXCUSED_IN_HALF = 0.02
"""The same in half precision, and with it three times the share of rows in which rounding alone was seen to jump."""
MOST_EXCUSED = 0.25
"""However often it jumped."""


@final
@dataclass(frozen=True)
class Tolerance:
    """How far scores (B, lanes, K) of one classifier may lie apart, learnt from a reference on a few rows.

    Scores are compared as distances from their row's top score: an offset that all classes share decides nothing, and
    must hide nothing. A score far below the top may be off by more than one that competes. Lanes whose classes are all
    equal (a selector's value) are compared as they are.
    level (lanes, 1): which lanes those are; typical (lanes, 1): the mean gap between the top two; rounding (lanes, 1):
    measured, 0 in float32; excused: share of rows that may be off where two forms are compared.
    """

    level: Tensor
    typical: Tensor
    rounding: Tensor
    excused: float

    def off(self, found: Tensor, wanted: Tensor) -> Tensor:
        """Rows (B,) that differ by more than rounding, in any lane; valid in one and invalid in the other does."""
        both = _valid(found) & _valid(wanted)
        ours, theirs = self._distances(found), self._distances(wanted)
        sizes = wanted.abs() + wanted.amax(-1, keepdim=True).abs()
        allowed = RELATIVE * (self.typical + theirs.abs() * ~self.level) + OF_ITS_SIZE * sizes + self.rounding
        apart = ~((ours - theirs).abs() <= allowed).all(-1)
        return ((apart & both) | (_valid(found) != _valid(wanted))).any(1)

    def _distances(self, scores: Tensor) -> Tensor:
        return torch.where(self.level, scores, scores - scores.amax(-1, keepdim=True))


def tolerance(exact: Tensor, rounded: Tensor | None = None) -> Tolerance:
    """From float32 scores (B, lanes, K) of the plain network and, for a run in half precision, its scores in that."""
    valid = _valid(exact).unsqueeze(-1)
    top = exact.topk(min(2, exact.shape[-1]), -1).values
    gap = top[..., :1] - top[..., -1:]
    level = ((exact.amax(-1, keepdim=True) == exact.amin(-1, keepdim=True)) | ~valid).all(0)
    flat = exact[..., :1]
    middle = _mean(flat, valid)
    typical = torch.where(level, _mean((flat - middle).abs(), valid), _mean(gap, valid))
    none = torch.zeros_like(typical)
    if rounded is None:
        return Tolerance(level, typical, none, EXCUSED)
    loose = Tolerance(level, typical, none, 1.0)
    errors = (loose._distances(rounded) - loose._distances(exact)).abs().amax(-1, keepdim=True)
    errors = errors.masked_fill(~(valid & _valid(rounded).unsqueeze(-1)), torch.nan)
    usual = errors.nanquantile(USUAL, 0).nan_to_num(0.0)
    rounding = torch.minimum(TIMES_ROUNDING * usual, typical)
    jumps = float(Tolerance(level, typical, rounding, 1.0).off(rounded, exact).float().mean())
    return Tolerance(level, typical, rounding, min(MOST_EXCUSED, EXCUSED_IN_HALF + 3 * jumps))


def _valid(scores: Tensor) -> Tensor:
    """(B, lanes): finite in every class."""
    return torch.isfinite(scores).all(-1)


def _mean(values: Tensor, valid: Tensor) -> Tensor:
    """Mean over the valid rows, (lanes, 1)."""
    return torch.where(valid, values, 0.0).sum(0) / valid.sum(0).clamp(min=1)
