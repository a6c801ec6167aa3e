"""Which vote is better for given members: bounds on P(right class under noise) from moments of the label's scores.

Yang et al. 2022, appendices D.2 to D.5. All assume label scores that are independent and identically distributed over
members, symmetric about their mean; members that see the same noise are not independent, so these bounds explain trends
and certify nothing. lam, p: with probability 1-p no wrong class has more than lam times what the label leaves
(definitions 8 to 10).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, final

import numpy as np
from numpy.typing import ArrayLike

from ringfence.analysis.conditions import checked_weights
from ringfence.errors import ArgumentError
from ringfence.types import FloatArray

Preference = Literal["weighted", "max_margin", "undecided"]
"""The ensemble whose bound is larger for ALL weights; undecided: it depends on the weights."""


def check_probability(name: str, value: float) -> None:
    """Refuse what is no probability."""
    if not 0 <= value <= 1:
        raise ArgumentError(name, "must lie in [0, 1]", value, "Give a probability.")


def portion(lam: float) -> float:
    """Lam = lam / (1 + lam): the label wins once its score exceeds this."""
    if not 0 < lam <= 1:
        raise ArgumentError("lam", "must lie in (0, 1]", lam, "It is a share of what the label leaves.")
    return lam / (1 + lam)


def weight_concentration(weights: ArrayLike) -> float:
    """dw = ||w||_2^2 / ||w||_1^2: 1/N for equal weights, 1 for a single member."""
    values = checked_weights(weights)
    return float((values**2).sum() / values.sum() ** 2)


def single_bound(mean: float, deviation: float, lam: float, p: float) -> float:
    """1 - p - s0^2 / (2 (mu - Lam)^2) for one model, proposition D.1; 0 where that is negative or mu <= Lam."""
    return _chebyshev(mean, deviation**2, lam, p)


def weighted_bound(mean: float, deviation: float, lam: float, p: float, weights: ArrayLike) -> float:
    """1 - p - dw s0^2 / (2 (mu - Lam1)^2), theorem 6."""
    return _chebyshev(mean, weight_concentration(weights) * deviation**2, lam, p)


def weighted_hoeffding_bound(mean: float, lam: float, p: float, weights: ArrayLike) -> float:
    """1 - p - exp(-2 (mu - Lam1)^2 / dw) for scores in [0, 1]: better for many members, needs no symmetry."""
    check_probability("p", p)
    gap = mean - portion(lam)
    return max(0.0, 1 - p - float(np.exp(-2 * gap**2 / weight_concentration(weights)))) if gap > 0 else 0.0


def max_margin_bound(mean: float, minimum_deviation: float, lam: float, p: float) -> float:
    """1 - p - sf^2 / (2 (mu - Lam2)^2), theorem 7; sf^2 = Var(min_i of the label's scores)."""
    return _chebyshev(mean, minimum_deviation**2, lam, p)


def _chebyshev(mean: float, variance: float, lam: float, p: float) -> float:
    """1 - p - variance / (2 gap^2): lemma D.1, Chebyshev for one side of a symmetric variable."""
    check_probability("p", p)
    gap = mean - portion(lam)
    return max(0.0, 1 - p - variance / (2 * gap**2)) if gap > 0 else 0.0


def threshold(ratio: float, mean: float, lam2: float) -> float:
    """T(q) = (1/lam2) (1 / (q (mu - Lam2) + 1 - mu) - 1), lemma D.4: lam1/lam2 < T(q) iff (mu-Lam2)/(mu-Lam1) < 1/q.

    Decreasing in q, 1 at q = 1; 0 or less says that no lam1 is below it.
    """
    gap = mean - portion(lam2)
    if not (0 < mean < 1 and gap > 0 and ratio > 0):
        rule = "must satisfy lam2/(1+lam2) < mean < 1 and ratio > 0"
        raise ArgumentError("mean, lam2, ratio", rule, (mean, lam2, ratio), "Below that no bound says anything.")
    return (1 / (ratio * gap + 1 - mean) - 1) / lam2


def preferred_ensemble(
    lam1: float, lam2: float, mean: float, deviation: float, minimum_deviation: float, members: int
) -> Preference:
    """Corollary 5: weighted if lam1/lam2 < T(s0/sf), max-margin if lam1/lam2 > T(s0 / (sqrt(N) sf)).

    For equal weights nothing is undecided: there the second threshold decides both ways.
    """
    q = deviation / minimum_deviation
    if lam1 / lam2 < threshold(q, mean, lam2):
        return "weighted"
    return "max_margin" if lam1 / lam2 > threshold(q / np.sqrt(members), mean, lam2) else "undecided"


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
