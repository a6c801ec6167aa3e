"""Paired comparison of certificates, input by input, as Cullen et al. (2022) tabulate it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, final

import numpy as np

from ringfence.analysis.bounds import RunBounds
from ringfence.analysis.columns import csv_text
from ringfence.digests import apart
from ringfence.errors import AlphaError, ArgumentError
from ringfence.mechanisms import Mechanism, default_mechanism, mechanism, mechanisms_named, one_sided, one_sided_for
from ringfence.stats import AlphaLedger
from ringfence.stats.norms import refuse_mixed
from ringfence.store import RunConfig
from ringfence.store.exchange import IMPORTED
from ringfence.types import BoolArray, FloatArray, IntArray

ABOVE = 0.05
GAINS = (0.0, 10.0, 25.0, 50.0, 100.0)
_EQUAL = 1e-6
"""Radii that differ by less than this share of the larger one are called equal."""


@final
@dataclass(frozen=True)
class Radii:
    """Radii (inputs,) of one contestant on the inputs with these ids.

    config: of the run, None where there is none; reading: which lane of it, by which readout, in which precision;
    norm: of the radii; label: of the inputs, -1 where it is unknown; earned: a run's own radii, 0 where the answer
    is not the label and NaN where there is none.
    """

    name: str
    ids: IntArray
    radius: FloatArray
    sound: bool = True
    config: RunConfig | None = None
    reading: Mapping[str, object] = field(default_factory=dict)
    norm: str = "l2"
    label: IntArray | None = None
    earned: FloatArray | None = None

    @classmethod
    def of(cls, run: RunBounds, mechanism: Mechanism | None = None) -> Radii:
        """The run's own radii, or those by the mechanism from the same bounds."""
        rows = run.columns
        about = (run.sound, run.config, run.reading, run.norm, rows.label)
        if mechanism is not None:
            return cls(f"{run.path}: {mechanism.name}", run.ids, run.radius(mechanism), *about)
        earned = np.where(rows.labelled, np.where(rows.correct, rows.radius, 0.0), np.nan)
        return cls(run.path, run.ids, rows.radius, *about, earned)


@final
@dataclass(frozen=True)
class Comparison:
    """How one contestant does against another on their common inputs.

    Gains are radii of name minus radii of against; percentages are taken where the latter is positive, and where it
    is 0 and the former is not the gain exceeds every percentage. statistic and p_value: W+ of Wilcoxon's signed-rank
    test, the ranks of the gains added up, zeros ranked as Pratt does; p one-sided, small where name gains.
    gaining: x -> share of inputs that gain more than x percent. differing: lane, readout and precision where they
    do, and every setting in which the two smoothed classifiers do. All inputs count, right or wrong: the
    comparison is between certificates, not between classifiers. Those compare by acr, where wrong and withheld answers
    are 0, and by the two-sided 95% interval of its gain over other inputs (the normal limit, paired); None where radii
    are not the runs' own or fewer than two inputs have labels.
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
    differing: tuple[str, ...] = ()
    acr: float | None = None
    acr_against: float | None = None
    acr_gain_low: float | None = None
    acr_gain_high: float | None = None

    def row(self) -> dict[str, Any]:
        """One flat row, for CSV and JSON."""
        flat = asdict(self)
        flat["differing"] = "; ".join(self.differing)
        flat |= {f"gaining_more_than_{x:g}_percent": share for x, share in flat.pop("gaining").items()}
        return flat


def compare(ours: Radii, theirs: Radii, above: float = ABOVE, gains: Sequence[float] = GAINS) -> Comparison:
    """Pair two contestants on common input ids; what only one of them has is dropped and counted."""
    check_data(ours, theirs)
    refuse_mixed({ours.name: ours.norm, theirs.name: theirs.norm})
    common, left, right = np.intersect1d(ours.ids, theirs.ids, assume_unique=True, return_indices=True)
    if not len(common):
        received = f"{len(ours.ids)} and {len(theirs.ids)} inputs without a common id"
        rule = "runs must share inputs to be paired"
        raise ArgumentError(f"{ours.name}, {theirs.name}", rule, received, "Certify the same data.")
    _refuse_other_labels(ours, theirs, left, right)
    mine, other = ours.radius[left], theirs.radius[right]
    gain = gains_of(mine, other)
    started = other > 0
    relative = np.where(started, 100 * gain / np.where(started, other, 1.0), np.where(gain > 0, np.inf, 0.0))
    percent = relative[started]
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
        differing=_told_apart(ours, theirs),
        **_average_radii(ours, theirs, left, right),
    )


def gains_of(ours: FloatArray, theirs: FloatArray) -> FloatArray:
    """ours - theirs, 0 where the radii are called equal."""
    gain = ours - theirs
    return np.where(np.abs(gain) <= _EQUAL * np.maximum(ours, theirs), 0.0, gain)


def is_largest(radius: FloatArray, best: FloatArray) -> BoolArray:
    """Where a radius is the best one, alone or with others, and not 0."""
    return np.asarray((radius > 0) & (radius >= best * (1 - _EQUAL)))


def _average_radii(ours: Radii, theirs: Radii, left: IntArray, right: IntArray) -> dict[str, float]:
    """Both average certified radii on the common inputs that have labels, and the interval of their difference."""
    if ours.earned is None or theirs.earned is None:
        return {}
    mine, other = ours.earned[left], theirs.earned[right]
    judged = ~np.isnan(mine + other)
    if judged.sum() < 2:
        return {}
    gain = (mine - other)[judged]
    middle, error = gain.mean(), 1.96 * gain.std(ddof=1) / np.sqrt(len(gain))
    ends = {"acr_gain_low": float(middle - error), "acr_gain_high": float(middle + error)}
    return {"acr": float(mine[judged].mean()), "acr_against": float(other[judged].mean()), **ends}


def check_data(ours: Radii, theirs: Radii) -> None:
    """Refuse pairs of inputs that are not the same ones; a run whose data has no digest is taken at its word."""
    one, other = (None if each.config is None else each.config.data.digest for each in (ours, theirs))
    refuse_other_data([(ours.name, one), (theirs.name, other)], "paired")


def refuse_other_data(digests: Sequence[tuple[str, str | None]], done: str) -> None:
    """Refuse results, by name, whose data are known to be others than the first's."""
    known = [(name, digest) for name, digest in digests if digest is not None]
    for name, digest in known[1:]:
        if changed := apart(known[0][1], digest):
            rule, remedy = f"runs must be of the same data to be {done}", "Certify the same data."
            raise ArgumentError(f"{known[0][0]}, {name}", rule, f"other {changed}", remedy)


def _refuse_other_labels(ours: Radii, theirs: Radii, left: IntArray, right: IntArray) -> None:
    """Refuse inputs of one id and two labels, which are two inputs: logs have no digest of their data."""
    if ours.label is None or theirs.label is None:
        return
    one, other = ours.label[left], theirs.label[right]
    differ = np.flatnonzero((one != other) & (one >= 0) & (other >= 0))
    if len(differ):
        received = f"{len(differ)} of {len(left)} inputs with other labels, the first of id {ours.ids[left[differ[0]]]}"
        rule = "runs must be of the same data to be paired"
        raise ArgumentError(f"{ours.name}, {theirs.name}", rule, received, "Certify the same data.")


def _told_apart(ours: Radii, theirs: Radii) -> tuple[str, ...]:
    """What there is to tell of two classifiers; of a log nothing but its sigma is known."""
    configs = [one.config for one in (ours, theirs) if one.config is not None]
    if any(one.procedure.name == IMPORTED for one in configs):
        sigmas = [one.noise.sigma for one in configs]
        return () if len(set(sigmas)) < 2 else (f"noise.sigma: {sigmas[0]!r} and {sigmas[1]!r}",)
    return differing(ours, theirs)


def differing(ours: Radii, theirs: Radii) -> tuple[str, ...]:
    """In what two smoothed classifiers differ, and the precision they ran in."""
    names = {**ours.reading, **theirs.reading}
    read = [name for name in names if ours.reading.get(name) != theirs.reading.get(name)]
    return (*read, *(ours.config.same_classifier(theirs.config) if ours.config and theirs.config else ()))


def _wilcoxon(gain: FloatArray) -> tuple[float, float]:
    from scipy.stats import wilcoxon

    if not gain.any():  # nothing to rank: no evidence of a difference
        return 0.0, 1.0
    found = wilcoxon(gain, zero_method="pratt", alternative="greater")
    return float(found.statistic), float(found.pvalue)


@final
@dataclass(frozen=True)
class MechanismSummary:
    """A mechanism on a run: median radius, share above the threshold, share of inputs where it is the largest.

    largest compares the mechanisms other than Neyman-Pearson's, which no other ever exceeds; its share says where
    it is strictly above all of them. Inputs on which nothing is certified count for none, and one on which several are
    equal counts for each of them in part: together they are the share that is certified.
    """

    mechanism: str
    median_radius: float
    above: float
    largest: float


@final
@dataclass(frozen=True)
class RunSummary:
    """A run beside others: its settings, its top-1 accuracy, and every mechanism on it.

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


def radii_of(run: RunBounds, mechanisms: Sequence[Mechanism] | None = None) -> dict[str, FloatArray]:
    """Radii (inputs,) by every mechanism that the run's bounds allow."""
    if not run.has_mechanisms:
        return {"its own": run.columns.radius}
    every = mechanisms or mechanisms_named("all", run.config.noise.family)
    chosen = every if run.has_counts else [one_sided]  # logs of others are about Gaussian noise
    return {one.name: run.radius(one) for one in chosen}


def summarise(run: RunBounds, mechanisms: Sequence[Mechanism] | None = None, above: float = ABOVE) -> RunSummary:
    """The run with every mechanism its bounds allow; an imported log, or a proof without one, has only its own."""
    radii, tight = radii_of(run, mechanisms), default_mechanism(run.config.noise.family).name
    others = [radius for name, radius in radii.items() if name != tight] or list(radii.values())
    best = np.max(np.stack(others), axis=0)
    equal = np.maximum(sum(is_largest(radius, best).astype(np.int64) for radius in others), 1)
    shares = {
        name: np.mean(radius > best * (1 + _EQUAL))
        if name == tight and len(radii) > 1
        else np.mean(is_largest(radius, best) / equal)
        for name, radius in radii.items()
    }
    rows = tuple(
        MechanismSummary(name, float(np.median(radius)), float(np.mean(radius > above)), float(shares[name]))
        for name, radius in radii.items()
    )
    alpha = run.records[0].alpha
    return RunSummary(
        run.path,
        run.config.procedure.name,
        run.sigma,
        run.n,
        alpha,
        len(run),
        run.top_1,
        float(run.columns.seconds.mean()),
        run.sound,
        rows,
    )


def certified_shares(run: RunBounds, steps: int) -> tuple[float, list[list[float]]]:
    """A radius R near the run's largest, and per mechanism the shares of inputs above 0, R/steps, 2R/steps, ..."""
    radii = list(radii_of(run).values())
    reach = max((float(one[np.isfinite(one)].max(initial=0.0)) for one in radii), default=0.0)
    return reach, [[float(np.mean(one > reach * step / steps)) for step in range(steps)] for one in radii]


def comparisons(
    runs: Sequence[RunBounds],
    mechanisms: tuple[str, str] | None = None,
    by: str | None = None,
    best: bool = False,
    alpha: float | None = None,
    above: float = ABOVE,
    gains: Sequence[float] = GAINS,
) -> list[Comparison]:
    """Mechanism A against B in every run; else runs against the first one, by this mechanism or their own; else the
    mechanisms of a single run. best: also the best of all runs, which may spend alpha (None: the largest of theirs).
    """
    if not 0 <= above < np.inf:
        raise ArgumentError("above", "must be finite and not negative", above, f"The usual value is {ABOVE:g}.")
    if not np.isfinite(gains).all():
        raise ArgumentError("gains", "must be finite", list(gains), "Give percentages such as 0,10,25.")
    if mechanisms and by:
        raise ArgumentError("by", "excludes `mechanism`", by, "Use `mechanism` within runs, `by` across them.")
    if by and len(runs) == 1:
        raise ArgumentError("by", "needs several runs", "one run", "Use `mechanism` within a run.")
    if mechanisms:
        first, second = (mechanism(name) for name in mechanisms)
        pairs = [(Radii.of(run, first), Radii.of(run, second)) for run in runs]
    elif len(runs) == 1:
        runs[0].need_counts("to compare mechanisms")
        runs[0].need_mechanisms()
        family = runs[0].config.noise.family
        plain = one_sided_for(family)
        rest = [one for one in mechanisms_named("all", family) if one is not plain] or [plain]
        pairs = [(Radii.of(runs[0], one), Radii.of(runs[0], plain)) for one in rest]
    else:
        radii = [Radii.of(run, mechanism(by, "by") if by else None) for run in runs]
        pairs = [(one, radii[0]) for one in radii[1:]]
    if best:
        if len(runs) < 2:
            remedy = "On one run's bounds `mechanism` best-of:a+b B is free."
            raise ArgumentError("best", "needs several runs", "one run", remedy)
        budget = alpha if alpha is not None else max(run.records[0].alpha for run in runs)
        pairs.append((best_of_runs(runs, budget), Radii.of(runs[0])))
    return [compare(ours, theirs, above, gains) for ours, theirs in pairs]


def best_of_runs(runs: Sequence[RunBounds], alpha: float) -> Radii:
    """The larger radius of several runs, input by input, if alpha pays for every one of them.

    Runs bound the probabilities by different splits of alpha, or from different draws, so that the larger one is
    right only where all are: the choice fails with up to the sum of their alphas. Mechanisms on the same bounds need
    no such thing: use best-of:a+b there. The same network in another precision is another classifier.
    """
    first, *others = contestants = [Radii.of(run) for run in runs]
    for other in others:
        check_data(first, other)
        if different := differing(first, other):
            rule = "the best of several runs must be about one smoothed classifier"
            received = f"runs that differ in {'; '.join(different)}"
            raise ArgumentError("best", rule, received, "Compare them without `best`.")
    ledger = AlphaLedger(alpha)
    for run in runs:
        paid = run.records[0].alpha
        if paid > ledger.left * (1 + 1e-12):
            total = sum(one.records[0].alpha for one in runs)
            rule = (
                f"choosing the better run per input after seeing the counts fails with up to {total:g}, the sum of "
                f"the runs' alphas, because they split alpha differently or used other draws"
            )
            remedy = f"Pass `alpha` {total:g}, or certify each run with its own share of {alpha:g}."
            raise AlphaError("best", rule, f"alpha {alpha:g}", remedy)
        ledger.take(run.path, paid)
    common = runs[0].ids
    for run in runs[1:]:
        common = np.intersect1d(common, run.ids)
    radii = [run.columns.radius[np.isin(run.ids, common)] for run in runs]
    name = f"best of {len(runs)} runs (alpha {alpha:g})"
    sound = all(one.sound for one in contestants)
    return Radii(name, common, np.max(np.stack(radii), axis=0), sound, first.config, first.reading, first.norm)


def as_csv(rows: Sequence[Comparison]) -> str:
    """One line per comparison, full precision."""
    return csv_text(list(rows[0].row()), [row.row() for row in rows])
