"""Members whose smoothed scores, gradients and robustness are known: three classes cut by two parallel lines."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr
from scipy.stats import norm

from ringfence.types import BoolArray, FloatArray, IntArray


@dataclass(frozen=True)
class Slabs:
    """Class 0, 1, 2 below, between and above two cuts along a direction of the plane; noise of deviation 1.

    directions (members, 2); cuts (members, 2), ascending.
    """

    directions: FloatArray
    cuts: FloatArray

    @classmethod
    def random(cls, rng: np.random.Generator, members: int) -> Slabs:
        angles = rng.uniform(0, 2 * np.pi, members)
        cuts = np.sort(rng.normal(0, 1.5, (members, 2)), axis=1)
        return cls(np.stack([np.cos(angles), np.sin(angles)], 1), cuts)

    def scores(self, points: FloatArray) -> FloatArray:
        """Smoothed scores (points, members, 3) at points (points, 2)."""
        place = points @ self.directions.T
        below, above = ndtr(self.cuts[:, 0] - place), ndtr(place - self.cuts[:, 1])
        return np.stack([below, 1 - below - above, above], -1)

    def gradients(self) -> FloatArray:
        """Gradients of the scores at the origin (members, 3, 2)."""
        below, above = -norm.pdf(self.cuts[:, 0]), norm.pdf(self.cuts[:, 1])
        slope = np.stack([below, -below - above, above], -1)
        return slope[:, :, None] * self.directions[:, None]

    def at_origin(self, label: int) -> tuple[FloatArray, FloatArray]:
        """Differences (members, 2) and gradients (members, 2, 2) of the label against the other classes."""
        scores, slopes = self.scores(np.zeros((1, 2)))[0], self.gradients()
        others = [k for k in range(3) if k != label]
        return scores[:, [label]] - scores[:, others], slopes[:, [label]] - slopes[:, others]


def ball(radius: float, angles: int = 180, rings: int = 12) -> FloatArray:
    """Points (angles * rings, 2) that fill the ball, its border included."""
    angle, length = np.meshgrid(
        np.linspace(0, 2 * np.pi, angles, endpoint=False), np.linspace(0, radius, rings + 1)[1:]
    )
    return np.stack([length * np.cos(angle), length * np.sin(angle)], -1).reshape(-1, 2)


def weighted_prediction(scores: FloatArray, weights: FloatArray) -> IntArray:
    """The weighted ensemble's class from scores (points, members, K)."""
    return np.einsum("pmk,m->pk", scores, weights).argmax(1)


def max_margin_prediction(scores: FloatArray) -> IntArray:
    """The class of the member with the largest gap between its top two, by the definition; ties to the lowest index."""
    ordered = np.sort(scores, axis=-1)
    chosen = (ordered[..., -1] - ordered[..., -2]).argmax(1)
    return scores[np.arange(len(scores)), chosen].argmax(-1)


def among_top_two(scores: FloatArray, label: int) -> BoolArray:
    """(points, members): at most one class beats the label."""
    return (scores > scores[..., [label]]).sum(-1) <= 1
