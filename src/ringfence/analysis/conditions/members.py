"""The conditions at given inputs of given members: are their votes robust there, do the members differ?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any, final

import numpy as np
from torch import nn

from ringfence.analysis.conditions.verdicts import Verdict, max_margin_verdict, smoothed_smoothness, weighted_verdict
from ringfence.analysis.member_scores import score_gradients
from ringfence.data import Input
from ringfence.errors import ArgumentError, DataError
from ringfence.progress import Counted, followed
from ringfence.types import FloatArray


@final
@dataclass(frozen=True)
class Judged:
    """One input: verdicts on the vote by mean softmax and by largest margin, whether all smoothed members are right,
    and the largest cosine of two members' gradients (small where members differ)."""

    input_id: int
    softmax: Verdict
    max_margin: Verdict
    all_right: bool
    cosine: float


def judge(
    members: Sequence[nn.Module],
    inputs: Counted[Input],
    *,
    sigma: float,
    radius: float,
    draws: int = 100,
    seed: int = 0,
) -> list[Judged]:
    """Verdicts of theorems 1, 3 and 4 of Yang et al. 2022 on the smoothed members at every labelled input.

    Scores and gradients are means over so many draws, so a verdict is a diagnostic, never a certificate. Max-margin is
    never called not robust: that needs to know each member's top two classes in the whole ball.
    """
    if len(members) < 2:
        raise ArgumentError("members", "needs at least two members to compare", len(members), "Name more.")
    beta = smoothed_smoothness(sigma)
    found = []
    for item in followed(inputs, "judging"):
        if item.label is None:
            raise DataError("inputs", "need labels", f"input {item.id} without one", "Add labels.")
        at = score_gradients(members, item.x, item.label, sigma=sigma, draws=draws, seed=seed, input_id=item.id)
        both = at.differences, at.gradients
        found.append(
            Judged(
                item.id,
                weighted_verdict(*both, np.ones(len(members)), radius, beta),
                max_margin_verdict(*both, radius, beta),
                bool((at.differences > 0).all()),
                largest_cosine(at.gradients),
            )
        )
    return found


def largest_cosine(gradients: FloatArray) -> float:
    """Largest cosine over pairs of members and classes; gradients (members, classes-1, d)."""
    lengths = np.linalg.norm(gradients, axis=-1, keepdims=True)
    units = np.divide(gradients, lengths, out=np.zeros_like(gradients), where=lengths > 0)
    return float(max((units[i] * units[j]).sum(-1).max() for i, j in combinations(range(len(units)), 2)))


def summary(judged: Sequence[Judged]) -> dict[str, Any]:
    """Inputs, how often each verdict was given, share with all members right, mean cosine; and every input."""
    if not judged:
        raise DataError("inputs", "needs at least one input", "none", "Choose other inputs.")
    return {
        "inputs": len(judged),
        "softmax": dict(Counter(one.softmax for one in judged)),
        "max_margin": dict(Counter(one.max_margin for one in judged)),
        "all_right": float(np.mean([one.all_right for one in judged])),
        "cosine": float(np.mean([one.cosine for one in judged])),
        "each": [asdict(one) for one in judged],
    }
