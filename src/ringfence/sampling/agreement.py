"""Agreement: whether scores are those of a reference, up to what rounding explains."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, final

import torch
from torch import Tensor

RELATIVE = 1e-3
"""Of a score's distance from the top score, and of its row's gap between the top two, at most the typical one."""
OF_ITS_SIZE = 1e-6
"""Of a score and of the top one: eight units in the last place of float32, in which a common offset is rounded too."""
FOUR_UNITS = 4 * 2.0**-23
"""Of the top score, in float32: what one form may move it by where only the order of its rows is another."""
OF_SMALL_GAPS = 1e-4
"""Of the gap that a tenth of the rows stay below: a row near a tie is rounded like any other, and its gap cannot tell
how much. A tenth, so that one quiet input among eight loud ones is seen. Never more than RELATIVE of the distance of
the row's third score from the top: where all scores lie close together, a row is quiet, not near a tie."""
SMALL = 0.1
OUTLYING = 10.0
"""Times the median: gaps above count as this in the typical gap, so that a few loud rows hide nothing."""
USUAL = 0.9
"""Share of rows whose rounding is called usual: more in the others may be jumps."""
TIMES_ROUNDING = 4.0
"""Usual rounding times this is excused: the largest of many rows, between two results that both were rounded. Never
more than the typical gap, whatever was measured."""
OF_ITS_SIZE_IN_HALF = 2.0**-4
"""Of a score and of the top one, in half precision: so much of a row's rounding is excused beyond the middle row's."""
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
    must hide nothing. A score far below the top may be off by more than one that competes. Every row is judged by its
    own gap between the top two: what is loud in one row excuses nothing in another. And where the gap is more than
    rounding explains, the class must be the same. Lanes whose classes are all equal (a selector's value) are compared
    as they are.
    level (lanes, 1): which lanes those are; typical (lanes, 1): the usual gap; small (lanes, 1): of the gaps near a
    tie; rounding, middle (lanes, 1): measured on most rows and on the middle one, 0 in float32; excused: share of rows
    that may be off where two forms are compared; resolved: of the top score, a gap within which the class may change.
    """

    level: Tensor
    typical: Tensor
    small: Tensor
    rounding: Tensor
    middle: Tensor
    excused: float
    resolved: float = 2 * OF_ITS_SIZE

    @property
    def alone(self) -> Tolerance:
        """For one form with itself, its rows in other company: in float32 no row may be off."""
        exact = not bool(self.rounding.any())
        return replace(self, excused=0.0, resolved=FOUR_UNITS) if exact else self

    def to(self, device: torch.device) -> Tolerance:
        """The same there."""
        moved: dict[str, Any] = {
            name: value.to(device) for name, value in vars(self).items() if isinstance(value, Tensor)
        }
        return replace(self, **moved)

    def off(self, found: Tensor, wanted: Tensor) -> Tensor:
        """Rows (B,) that differ by more than rounding, in any lane; valid in one and invalid in the other does."""
        if torch.equal(found, wanted):
            return found.new_zeros(len(found), dtype=torch.bool)
        both = _valid(found) & _valid(wanted)
        ours, theirs = self._distances(found), self._distances(wanted)
        gap, top, small = _gap(wanted), wanted.amax(-1, keepdim=True), self._small(wanted)
        sizes = wanted.abs() + top.abs()
        # The more a row is rounded than the middle one, the larger its scores must be.
        rounding = torch.minimum(self.rounding, torch.maximum(self.middle, OF_ITS_SIZE_IN_HALF * sizes))
        scale = torch.where(self.level, self.typical, torch.minimum(gap, self.typical) + theirs.abs())
        apart = ~((ours - theirs).abs() <= RELATIVE * scale + OF_ITS_SIZE * sizes + small + rounding).all(-1)
        chosen = wanted.argmax(-1, keepdim=True)
        other = found.gather(-1, chosen) < found.amax(-1, keepdim=True)
        explained = self.resolved * top.abs() + small + rounding.gather(-1, chosen)
        apart |= (other & (gap > explained) & ~self.level).squeeze(-1)
        return ((apart & both) | (_valid(found) != _valid(wanted))).any(1)

    def _small(self, scores: Tensor) -> Tensor:
        """What is excused near a tie, (B, lanes, 1); two classes have no third that could tell a quiet row."""
        if scores.shape[-1] < 3:
            return self.small
        top = scores.topk(3, -1).values
        return torch.minimum(self.small, RELATIVE * (top[..., :1] - top[..., 2:]))

    def _distances(self, scores: Tensor) -> Tensor:
        return torch.where(self.level, scores, scores - scores.amax(-1, keepdim=True))


def tolerance(exact: Tensor, rounded: Tensor | None = None) -> Tolerance:
    """From float32 scores (B, lanes, K) of the plain network and, for a run in half precision, its scores in that."""
    valid = _valid(exact).unsqueeze(-1)
    gap = _gap(exact)
    level = ((exact.amax(-1, keepdim=True) == exact.amin(-1, keepdim=True)) | ~valid).all(0)
    flat = exact[..., :1]
    spread = _mean((flat - _mean(flat, valid)).abs(), valid)
    usual_gap = _mean(torch.minimum(gap, OUTLYING * _share(gap, valid, 0.5)), valid)
    typical = torch.where(level, spread, usual_gap)
    small = torch.where(level, 0.0, OF_SMALL_GAPS * _share(gap, valid, SMALL))
    none = torch.zeros_like(typical)
    if rounded is None:
        return Tolerance(level, typical, small, none, none, EXCUSED)
    loose = Tolerance(level, typical, small, none, none, 1.0)
    errors = (loose._distances(rounded) - loose._distances(exact)).abs().amax(-1, keepdim=True)
    both = valid & _valid(rounded).unsqueeze(-1)
    most, middle = (
        torch.minimum(TIMES_ROUNDING * _share(errors, both, share), torch.where(level, spread, _mean(gap, valid)))
        for share in (USUAL, 0.5)
    )
    jumps = float(replace(loose, rounding=most, middle=middle).off(rounded, exact).float().mean())
    excused = min(MOST_EXCUSED, EXCUSED_IN_HALF + 3 * jumps)
    return Tolerance(level, typical, small, most, middle, excused)


def _valid(scores: Tensor) -> Tensor:
    """(B, lanes): finite in every class."""
    return torch.isfinite(scores).all(-1)


def _gap(scores: Tensor) -> Tensor:
    """Between the top two (B, lanes, 1)."""
    top = scores.topk(2, -1).values
    return top[..., :1] - top[..., 1:]


def _mean(values: Tensor, valid: Tensor) -> Tensor:
    """Mean over the valid rows, (lanes, 1)."""
    return torch.where(valid, values, 0.0).sum(0) / valid.sum(0).clamp(min=1)


def _share(values: Tensor, valid: Tensor, share: float) -> Tensor:
    """What so many of the valid rows stay below, (lanes, 1); 0 where there are none."""
    return values.masked_fill(~valid, torch.nan).nanquantile(share, 0).nan_to_num(0.0)
