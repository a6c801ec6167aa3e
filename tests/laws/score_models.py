"""Models of members' scores that several tests simulate."""

from __future__ import annotations

import numpy as np

from ringfence.analysis.variance import MarginModel
from ringfence.types import FloatArray


def covariance(seed: int, classes: int) -> FloatArray:
    root = np.random.default_rng(seed).normal(size=(classes, classes + 2))
    return root @ root.T / classes


def margin_model() -> MarginModel:
    """Five classes, the second on top."""
    mean = np.array([0.3, 2.0, 1.1, -0.5, 0.8])
    return MarginModel(mean, covariance(1, 5), covariance(2, 5), zeta_p=0.7, top=1, zeta_c=0.2)


def worst_scores(label: FloatArray, lam: float, p: float, rng: np.random.Generator, classes: int = 8) -> FloatArray:
    """Scores (draws, members, classes) for label scores: class 1 takes lam of the rest, with chance p all of it."""
    rest = 1 - label
    share = np.where(rng.random((len(label), 1)) < p, 1.0, lam)
    others = np.repeat((rest * (1 - share) / (classes - 2))[..., None], classes - 2, axis=-1)
    return np.concatenate([label[..., None], (rest * share)[..., None], others], -1)
