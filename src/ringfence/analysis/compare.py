"""Paired comparison of certificates, input by input: as in Cullen et al. 2022, tables 1 and 2, figures 6, 7."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, final

import numpy as np

from ringfence.analysis.bounds import RunBounds
from ringfence.errors import AlphaError, ArgumentError
from ringfence.mechanisms import MECHANISMS, Mechanism
from ringfence.printable import cell
from ringfence.stats import AlphaLedger
from ringfence.types import FloatArray, IntArray

ABOVE = 0.05
GAINS = (0.0, 10.0, 25.0, 50.0, 100.0)
_EQUAL = 1e-6
"""Radii that differ by less than this share are called equal."""


@final
@dataclass(frozen=True)
class Radii:
    """Radii (inputs,) of one contestant on the inputs with these ids."""

    name: str
    ids: IntArray
    radius: FloatArray
    sound: bool = True

    @classmethod
    def of(cls, run: RunBounds, mechanism: Mechanism | None = None) -> Radii:
        """The run's own radii, or those by the mechanism from the same bounds."""
        if mechanism is None:
            return cls(run.path, run.ids, run.main_radius, run.sound)
        return cls(f"{run.path}: {mechanism.name}", run.ids, run.radius(mechanism), run.sound)


@final
@dataclass(frozen=True)
class Comparison:
    """How one contestant does against another on their common inputs.

    Gains are radii of name minus radii of against; percentages are taken where the latter is positive, and where it
    is 0 and the former is not the gain exceeds every percentage. statistic and p_value: Wilcoxon's signed-rank test,
    two-sided, zeros ranked as Pratt does. gaining: x -> share of inputs that gain more than x percent. All inputs
    count, right or wrong: the comparison is between certificates, not between classifiers.
    """

    name: str
    against: str
    inputs: int
    dropped: int
    won: float
    lost: float
    equal: float
    median_gain: float
    median_gain_percent: float | None
    mean_gain: float
    mean_gain_percent: float | None
    median_radius: float
    median_radius_against: float
    above: float
    above_against: float
    statistic: float
    p_value: float
    gaining: dict[float, float]
    sound: bool

    def row(self) -> dict[str, Any]:
        """One flat row, for CSV and JSON."""
        flat = asdict(self)
        flat |= {f"gaining_more_than_{x:g}_percent": share for x, share in flat.pop("gaining").items()}
        return flat


def compare(ours: Radii, theirs: Radii, above: float = ABOVE, gains: Sequence[float] = GAINS) -> Comparison:
    """Pair two contestants on common input ids; what only one of them has is dropped and counted."""
    common, left, right = np.intersect1d(ours.ids, theirs.ids, assume_unique=True, return_indices=True)
    if not len(common):
        received = f"{len(ours.ids)} and {len(theirs.ids)} inputs without a common id"
        rule = "runs must share inputs to be paired"
        raise ArgumentError(f"{ours.name}, {theirs.name}", rule, received, "Certify the same data.")
    mine, other = ours.radius[left], theirs.radius[right]
    gain = mine - other
    near = _EQUAL * np.maximum(mine, other)
    gain = np.where(np.abs(gain) <= near, 0.0, gain)
    started = other > 0
    percent = 100 * gain[started] / other[started]
    relative = np.where(started, 100 * gain / np.where(started, other, 1.0), np.where(gain > 0, np.inf, 0.0))
    statistic, p_value = _wilcoxon(gain)
    return Comparison(
        name=ours.name,
        against=theirs.name,
        inputs=len(common),
        dropped=len(ours.ids) + len(theirs.ids) - 2 * len(common),
        won=float(np.mean(gain > 0)),
        lost=float(np.mean(gain < 0)),
        equal=float(np.mean(gain == 0)),
        median_gain=float(np.median(gain)),
        median_gain_percent=float(np.median(percent)) if percent.size else None,
        mean_gain=float(np.mean(gain)),
        mean_gain_percent=float(np.mean(percent)) if percent.size else None,
        median_radius=float(np.median(mine)),
        median_radius_against=float(np.median(other)),
        above=float(np.mean(mine > above)),
        above_against=float(np.mean(other > above)),
        statistic=statistic,
        p_value=p_value,
        gaining={float(x): float(np.mean(relative > x)) for x in gains},
        sound=ours.sound and theirs.sound,
    )


def _wilcoxon(gain: FloatArray) -> tuple[float, float]:
    from scipy.stats import wilcoxon

    if not gain.any():  # nothing to rank: no evidence of a difference
        return 0.0, 1.0
    found = wilcoxon(gain, zero_method="pratt")
    return float(found.statistic), float(found.pvalue)


@final
@dataclass(frozen=True)
class MechanismSummary:
    """A mechanism on a run: median radius, share above the threshold, share of inputs where it is the largest.

    largest compares the mechanisms other than neyman_pearson, which no other ever exceeds; its own share says where
    it is strictly above all of them. Inputs on which nothing is certified count for none.
    """

    mechanism: str
    median_radius: float
    above: float
    largest: float


@final
@dataclass(frozen=True)
class RunSummary:
    """A run beside others: a row of table 1, and a point of figure 6 (share above and seconds against n).

    top_1 is None where there are no counts or no labels.
    """

    path: str
    procedure: str
    sigma: float
    n: int | None
    alpha: float
    inputs: int
    top_1: float | None
    seconds: float
    sound: bool
    mechanisms: tuple[MechanismSummary, ...]


def summarise(run: RunBounds, mechanisms: Sequence[Mechanism] | None = None, above: float = ABOVE) -> RunSummary:
    """The run with every mechanism its bounds allow; an imported log has only its own."""
    chosen = list(mechanisms or MECHANISMS.values()) if run.has_counts else [MECHANISMS["one_sided"]]
    radii = {one.name: run.radius(one) for one in chosen}
    others = [radius for name, radius in radii.items() if name != "neyman_pearson"] or list(radii.values())
    best = np.max(np.stack(others), axis=0)
    shares = {
        name: np.mean(radius > best * (1 + _EQUAL))
        if name == "neyman_pearson" and len(radii) > 1
        else np.mean((radius > 0) & (radius >= best * (1 - _EQUAL)))
        for name, radius in radii.items()
    }
    rows = tuple(
        MechanismSummary(name, float(np.median(radius)), float(np.mean(radius > above)), float(shares[name]))
        for name, radius in radii.items()
    )
    alpha = run.records[0].alpha
    return RunSummary(
        run.path,
        run.config.procedure,
        run.sigma,
        run.n,
        alpha,
        len(run),
        run.top_1,
        run.seconds,
        run.sound,
        rows,
    )


def best_of_runs(runs: Sequence[RunBounds], alpha: float) -> Radii:
    """The larger radius of several runs, input by input, if alpha pays for every one of them.

    Runs bound the probabilities by different splits of alpha, or from different draws, so that the larger one is
    right only where all are: the choice fails with up to the sum of their alphas (METHODS, section 1). Mechanisms on
    the same bounds need no such thing: use best-of:a+b there.
    """
    if len({run.classifier for run in runs}) > 1:
        rule = "the best of several runs must be about one smoothed classifier"
        received = "runs with different models, sigmas or readouts"
        raise ArgumentError("--best", rule, received, "Compare them without --best.")
    ledger = AlphaLedger(alpha)
    for run in runs:
        paid = run.records[0].alpha
        if paid > ledger.left * (1 + 1e-12):
            total = sum(one.records[0].alpha for one in runs)
            rule = (
                f"choosing the better run per input after seeing the counts fails with up to {total:g}, the sum of "
                f"the runs' alphas, because they split alpha differently or used other draws"
            )
            remedy = f"Pass --alpha {total:g}, or certify each run with its own share of {alpha:g}."
            raise AlphaError("--best", rule, f"alpha {alpha:g}", remedy)
        ledger.take(run.path, paid)
    common = runs[0].ids
    for run in runs[1:]:
        common = np.intersect1d(common, run.ids)
    radii = [run.main_radius[np.isin(run.ids, common)] for run in runs]
    name = f"best of {len(runs)} runs (alpha {alpha:g})"
    return Radii(name, common, np.max(np.stack(radii), axis=0), all(run.sound for run in runs))


def as_csv(rows: Sequence[Comparison]) -> str:
    """One line per comparison, full precision."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0].row()), lineterminator="\n")
    writer.writeheader()
    writer.writerows([{name: cell(value) for name, value in row.row().items()} for row in rows])
    return text.getvalue()
