"""(2) How many draws a decision at a known radius costs, exactly, on p_A rebuilt from Cohen's published logs."""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
from common import LOGS, Bar, Grid, Report, arguments, finish
from scipy.special import bdtr, ndtr, xlogy

from ringfence.mechanisms import one_sided
from ringfence.stats import clopper_pearson_lower, clopper_pearson_upper, group_sequential_design
from ringfence.store.logs import CohenLog, read_cohen
from ringfence.types import ABSTAIN, FloatArray

ALPHA, FIXED, N0 = 1e-3, 100_000, 100
COLUMNS = [(0.25, 0.25), (0.25, 0.5), (0.25, 0.75), (0.5, 0.5), (0.5, 1.0), (0.5, 1.5)]
Expectation = Callable[[float, FloatArray], FloatArray]
"""(p0, true p (rows,)) -> mean draws (rows,)."""


def rebuilt_p_a(log: CohenLog, sigma: float, n: int = 100_000, alpha: float = 1e-3) -> FloatArray:
    """p_A of each row (rows,): the least k/n whose bound L(k, n, alpha) reaches the logged radius.

    Saturated rows get 1 - 1/(2n); abstentions, which say only that the bound stayed below 1/2, are spread
    evenly over (.3, .5). Estimates to draw from, never bounds to certify with.
    """
    bounds = clopper_pearson_lower(np.arange(n + 1), n, alpha)
    rates = np.minimum(np.searchsorted(bounds, ndtr(log.radius / sigma)) / n, 1 - 0.5 / n)
    abstained = log.predict == ABSTAIN
    count = int(np.count_nonzero(abstained))
    rates[abstained] = 0.3 + 0.2 * (np.arange(count) + 0.5) / max(count, 1)
    return np.asarray(rates, np.float64)


def staged(stages: tuple[int, ...], beta: float = 1e-4) -> Expectation:
    """CERTIFYADP, every stage's fresh draws counted: sum_i n_i P(stage i is reached), from binomial tails."""

    def expected(p0: float, p: FloatArray) -> FloatArray:
        reached, draws = np.ones_like(p), np.zeros_like(p)
        for n in stages:
            draws += n * reached
            counts = np.arange(n + 1)
            certify_from = np.searchsorted(clopper_pearson_lower(counts, n, ALPHA / len(stages)), p0)
            give_up_to = np.searchsorted(clopper_pearson_upper(counts, n, beta / (len(stages) - 1)), p0) - 1
            reached = reached * np.maximum(at_most(certify_from - 1, n, p) - at_most(give_up_to, n, p), 0)
        return draws

    return expected


def at_most(k: int, n: int, p: FloatArray) -> FloatArray:
    """P(Bin(n, p) <= k)."""
    return np.zeros_like(p) if k < 0 else np.asarray(bdtr(k, n, p))


def sequential(beta: float) -> Expectation:
    """The group-sequential design with its default looks."""

    def expected(p0: float, p: FloatArray) -> FloatArray:
        design = group_sequential_design(p0, ALPHA, beta)
        return np.array([design.expected_draws(float(one)) for one in p])

    return expected


def wald_oracle(p0: float, p: FloatArray) -> FloatArray:
    """Wald's mean sample size of the likelihood-ratio test between p0 and the true p, which it knows beforehand.

    Above p0 it certifies with error ALPHA and misses with 1e-4, below p0 the other way round; never more draws
    than the fixed procedure's.
    """
    beta = 1e-4
    divergence = xlogy(p, p / p0) + xlogy(1 - p, (1 - p) / (1 - p0))
    wrong, missed = np.where(p > p0, ALPHA, beta), np.where(p > p0, beta, ALPHA)
    evidence = (1 - missed) * np.log((1 - missed) / wrong) + missed * np.log(missed / (1 - wrong))
    with np.errstate(divide="ignore"):
        return np.minimum(evidence / divergence, FIXED)


METHODS: dict[str, Expectation] = {
    "staged {1k,10k,125k}, beta 1e-4": staged((1000, 10_000, 125_000)),
    "staged {100,1k,5k,25k,130k}, beta 1e-4": staged((100, 1000, 5000, 25_000, 130_000)),
    "group-sequential, beta 1e-4": sequential(1e-4),
    "group-sequential, beta 1e-3 (default)": sequential(1e-3),
    "Wald oracle (knows p), beta 1e-4": wald_oracle,
}


def main() -> int:
    options = arguments(__doc__ or "")
    columns = COLUMNS[:1] if options.quick else COLUMNS
    mean_draws: dict[str, list[float]] = {name: [] for name in METHODS}
    for sigma, radius in columns:
        log = read_cohen(LOGS / f"cifar10_noise_{sigma:.2f}_sigma_{sigma:.2f}")
        rates, repeats = np.unique(rebuilt_p_a(log, sigma), return_counts=True)
        p0 = float(one_sided.probability_for(np.array([radius]), sigma)[0])
        for name, expected in METHODS.items():
            mean_draws[name].append(float(np.average(expected(p0, rates), weights=repeats)))
    reduction = {name: [FIXED / draws for draws in each] for name, each in mean_draws.items()}
    rows = [
        [name, *(f"{FIXED / draws:.1f} / {FIXED / (draws + N0):.1f}" for draws in each)]
        for name, each in mean_draws.items()
    ]
    grid = Grid(
        "SampleRF = 100,000 / mean draws, without / with the n0 = 100 selection draws",
        ["", *(f"sigma={sigma:g} r={radius:g}" for sigma, radius in columns)],
        rows,
    )
    ours = reduction["group-sequential, beta 1e-4"][0]
    theirs = reduction["staged {1k,10k,125k}, beta 1e-4"][0]
    oracle = reduction["Wald oracle (knows p), beta 1e-4"][0]
    bars = [
        Bar("group-sequential over staged {1k,10k,125k}, sigma .25, r .25", "at least", 2.5, ours / theirs),
        Bar("Wald oracle over group-sequential, sigma .25, r .25", "at most", 1.25, oracle / ours),
    ]
    settings = {"alpha": ALPHA, "n0": N0, "fixed_n": FIXED, "columns": columns}
    notes = ["Expectations are computed, not simulated: repetitions would repeat the same numbers."]
    return finish(Report("sample_complexity", settings, [grid], bars, {"mean_draws": mean_draws}, notes), options)


if __name__ == "__main__":
    sys.exit(main())
