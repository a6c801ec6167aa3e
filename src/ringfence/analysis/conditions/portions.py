"""lam1, lam2 and the moments of the label's scores, estimated from members' scores under noise (paper 001, D.5.3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import ArrayLike

from ringfence.analysis.conditions.comparison import threshold
from ringfence.analysis.conditions.forms import check_probability, checked_weights
from ringfence.errors import ArgumentError
from ringfence.types import FloatArray


@final
@dataclass(frozen=True, eq=False)
class ConfidencePortions:
    """Per draw (draws,): the share of what the label leaves that the largest wrong class takes.

    weighted: in the weighted mean of the scores; max_margin: the largest over members; single: (draws, members).
    label: the label's scores (draws, members).
    """

    single: FloatArray
    weighted: FloatArray
    max_margin: FloatArray
    label: FloatArray

    def lams(self, p: float) -> tuple[float, float]:
        """(lam1, lam2): the smallest that hold on a share 1-p of the draws (definitions 9 and 10)."""
        check_probability("p", p)
        first, second = np.quantile([self.weighted, self.max_margin], 1 - p, axis=1, method="higher")
        return float(first), float(second)

    @property
    def transferability(self) -> float:
        """lam1 / lam2 with the mean shares in their place, the paper's proxy."""
        return float(self.weighted.mean() / self.max_margin.mean())


def confidence_portions(scores: ArrayLike, label: int, weights: ArrayLike | None = None) -> ConfidencePortions:
    """Shares of wrong classes from softmax scores (draws, members, K) at one input; equal weights if none are given."""
    values = np.asarray(scores, np.float64)
    if values.ndim != 3 or not 0 <= label < values.shape[2] or values.shape[2] < 2:
        rule = "must be (draws, members, K) with the label among the K classes"
        raise ArgumentError("scores", rule, f"{values.shape}, label {label}", "Pass softmax scores.")
    share = checked_weights(np.ones(values.shape[1]) if weights is None else weights, values.shape[1])
    wrong = np.delete(values, label, axis=2)
    single = _largest_share(wrong)
    mixed = _largest_share(np.einsum("n,dnk->dk", share, wrong))
    return ConfidencePortions(single, mixed, single.max(1), values[:, :, label])


def comparison_statistic(portions: ConfidencePortions) -> float:
    """X = lam1/lam2 - T(s0 / (sqrt(N) sf)), equation 48: positive values speak for max-margin; nan if T is undefined.

    mu, s0: mean over members of the label score's mean and deviation; sf: deviation of its minimum over members.
    """
    label = portions.label
    mean, deviation, minimum = label.mean(), label.std(0).mean(), label.min(1).std()
    lam2 = float(portions.max_margin.mean())
    if not (lam2 / (1 + lam2) < mean < 1 and minimum > 0 and deviation > 0):
        return float("nan")
    ratio = deviation / (np.sqrt(label.shape[1]) * minimum)
    return portions.transferability - threshold(float(ratio), float(mean), lam2)


def _largest_share(wrong: FloatArray) -> FloatArray:
    """Largest over sum of the wrong classes' scores (..., K-1); 0 where the label leaves nothing."""
    total = wrong.sum(-1)
    return np.asarray(np.divide(wrong.max(-1), total, out=np.zeros_like(total), where=total > 0))
