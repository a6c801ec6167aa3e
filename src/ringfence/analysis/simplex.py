"""Which certificate is best where: radii over the simplex of probabilities (Cullen et al. 2022, figures 2, 3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, final

import numpy as np

from ringfence.analysis.bounds import RunBounds
from ringfence.analysis.compare import gains_of, is_largest
from ringfence.errors import ArgumentError, check_word
from ringfence.mechanisms import BestOf, Mechanism, mechanism
from ringfence.progress import followed
from ringfence.types import BoolArray, FloatArray, IntArray

Statistic = Literal["ratio", "difference"]

AT_ONCE = 1000
"""Points that a mechanism is asked for together: enough for arrays, few enough to tell how far it is."""


def members(one: Mechanism) -> tuple[Mechanism, ...]:
    """The mechanisms a set is made of; a single one is a set of itself."""
    return one.members if isinstance(one, BestOf) else (one,)


@final
@dataclass(frozen=True)
class SimplexMap:
    """Two contestants over all (E0, E1) with E0 > E1 > 0 and E0 + E1 <= 1, on a square grid.

    e0 (columns,) and e1 (rows,) are the axes; inside (rows, columns) says which points belong to the region. Every
    radius is an array (rows, columns), 0 outside. E1 = 0 is left out: no bound from finitely many draws says so.
    """

    left: str
    right: str
    statistic: Statistic
    sigma: float
    step: float
    e0: FloatArray
    e1: FloatArray
    inside: BoolArray
    left_radius: FloatArray
    right_radius: FloatArray
    members: dict[str, FloatArray]
    """Radii of every single mechanism of both sets."""

    @property
    def value(self) -> FloatArray:
        """left / right or left - right (rows, columns); not a number outside, and where neither certifies."""
        some = self.inside & ((self.left_radius > 0) | (self.right_radius > 0))
        with np.errstate(divide="ignore", invalid="ignore"):
            if self.statistic == "ratio":
                return np.where(some, self.left_radius / self.right_radius, np.nan)
        return np.where(self.inside, self.left_radius - self.right_radius, np.nan)

    def largest(self, name: str) -> BoolArray:
        """Where (rows, columns) this mechanism is the largest of all members, alone or with others."""
        top = np.max(np.stack(list(self.members.values())), axis=0)
        return self.inside & is_largest(self.members[name], top)

    def summary(self) -> dict[str, Any]:
        """Shares of the region that each contestant wins, and the ratio left / right where both certify."""
        left, right = self.left_radius[self.inside], self.right_radius[self.inside]
        both = (left > 0) & (right > 0)
        ratios, gain = left[both] / right[both], gains_of(left, right)
        return {
            "left": self.left,
            "right": self.right,
            "sigma": self.sigma,
            "step": self.step,
            "points": int(self.inside.sum()),
            "left_wins": float(np.mean(gain > 0)),
            "right_wins": float(np.mean(gain < 0)),
            "equal": float(np.mean(gain == 0)),
            "only_left_certifies": float(np.mean((left > 0) & (right == 0))),
            "only_right_certifies": float(np.mean((right > 0) & (left == 0))),
            "ratio": _spread(ratios),
            "difference": _spread(gain),
            "largest": {name: float(self.largest(name)[self.inside].mean()) for name in self.members},
        }


def simplex_map(
    left: str, right: str, statistic: Statistic = "ratio", sigma: float = 1.0, step: float = 0.005
) -> SimplexMap:
    """Compare two mechanisms or sets on the grid k * step of the simplex."""
    check_word("statistic", statistic, ("ratio", "difference"), "Use ratio.")
    if not 0.0005 <= step <= 0.1:
        raise ArgumentError("step", "must lie between 0.0005 and 0.1", step, "The usual value is 0.005.")
    first, second = mechanism(left, "left"), mechanism(right, "right")
    axis: FloatArray = np.arange(1, round(1 / step) + 1, dtype=np.float64) * step
    e0, e1 = axis[axis <= 1], axis[axis < 0.5 + step / 2]
    inside = (e0[None, :] > e1[:, None] + 1e-12) & (e0[None, :] + e1[:, None] <= 1 + 1e-12)
    top, other = (grid[inside] for grid in np.broadcast_arrays(e0[None, :], e1[:, None]))
    singles = {one.spelled: one for one in (*members(first), *members(second))}
    radii: dict[str, FloatArray] = {}
    pieces = [slice(start, start + AT_ONCE) for start in range(0, len(top), AT_ONCE)]
    for name, single in followed(list(singles.items()), "comparing mechanisms"):
        radii[name] = np.zeros(inside.shape)
        rest = np.minimum(other, 1 - top)
        parts = [single(top[part], rest[part], sigma) for part in followed(pieces, name)]
        radii[name][inside] = np.concatenate(parts)
    ours, theirs = (np.max([radii[one.spelled] for one in members(side)], axis=0) for side in (first, second))
    ours_name, theirs_name = ("+".join(one.spelled for one in members(side)) for side in (first, second))
    return SimplexMap(ours_name, theirs_name, statistic, sigma, step, e0, e1, inside, ours, theirs, radii)


@final
@dataclass(frozen=True)
class SimplexPoints:
    """A run's inputs on the simplex, arrays (inputs,).

    bound_0, bound_1: the bounds p_a and p_b; mean_0, mean_1: the empirical means; left and right: radii by the two
    contestants; best: name of the largest single mechanism, ``none`` where nothing is certified.
    """

    path: str
    ids: IntArray
    label: IntArray
    bound_0: FloatArray
    bound_1: FloatArray
    mean_0: FloatArray
    mean_1: FloatArray
    left: FloatArray
    right: FloatArray
    best: list[str]

    def summary(self) -> dict[str, Any]:
        """How many inputs lie where."""
        gain = gains_of(self.left, self.right)
        return {
            "run": self.path,
            "inputs": len(self.ids),
            "left_wins": int((gain > 0).sum()),
            "right_wins": int((gain < 0).sum()),
            "neither_certifies": int(((self.left <= 0) & (self.right <= 0)).sum()),
            "largest": {name: self.best.count(name) for name in sorted(set(self.best))},
        }


def simplex_points(run: RunBounds, left: str, right: str) -> SimplexPoints:
    """Where the run's inputs lie, with their radii by both contestants."""
    run.need_counts("to be placed on the simplex")
    first, second = mechanism(left, "left"), mechanism(right, "right")
    every = followed((*members(first), *members(second)), "placing inputs")
    singles = {one.spelled: run.radius(one) for one in every}
    ours, theirs = (np.max([singles[one.spelled] for one in members(side)], axis=0) for side in (first, second))
    names, table = list(singles), np.stack(list(singles.values()))
    best = [names[k] if some else "none" for k, some in zip(table.argmax(0), table.max(0) > 0, strict=True)]
    mean_0, mean_1, _ = run.means
    at = (run.ids, run.columns.label, run.columns.p_a, run.columns.p_b)
    return SimplexPoints(run.path, *at, mean_0, mean_1, ours, theirs, best)


def _spread(values: FloatArray) -> dict[str, float] | None:
    if not values.size:
        return None
    return {"median": float(np.median(values)), "min": float(values.min()), "max": float(values.max())}
