"""Failure rates of the multinomial and softmax procedures by simulation, into results/simplex/failure_rates.json.

python reproduce/cullen2022-simplex/failure_rates.py [--scale 0.1]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from scipy.special import ndtri
from scipy.stats import beta

from ringfence.mechanisms import neyman_pearson
from ringfence.procedures import Given, Multinomial, Procedure, Softmax, claims
from ringfence.types import ABSTAIN, BINS, SCORE_EDGES, FloatArray, IntArray, Tally

RESULTS = Path(__file__).resolve().parents[2] / "results" / "simplex"
ALPHA, SIGMA = 0.05, 1.0


@dataclass(frozen=True)
class Rate:
    """False claims of a procedure at its worst among the cases tried."""

    procedure: str
    classes: int
    n: int
    sound: bool
    case: str
    runs: int
    failures: int

    @property
    def rate(self) -> float:
        """Share of runs that claim something false."""
        return self.failures / self.runs

    @property
    def interval(self) -> tuple[float, float]:
        """99% Clopper-Pearson interval."""
        low = beta.ppf(0.005, self.failures, self.runs - self.failures + 1) if self.failures else 0.0
        return float(low), float(beta.ppf(0.995, self.failures + 1, self.runs - self.failures))


def vote_cases(classes: int) -> dict[str, FloatArray]:
    """Class probabilities at which a wrong class or too large a radius is most easily claimed."""
    cases = {}
    for top in (0.5, 0.45, 0.7, 0.9, 0.98):
        second = min(top, 1 - top) - 1e-9
        rest = np.full(classes - 2, (1 - top - second) / (classes - 2))
        cases[f"{top:g} and {second:.3g}"] = np.array([top, second, *rest])
        shared = np.full(classes - 1, (1 - top) / (classes - 1))
        cases[f"{top:g}, the rest shared"] = np.array([top, *shared])
    level = np.full(classes, 1 / classes)
    level[0] += 1e-9
    cases["all alike"] = level / level.sum()
    return cases


def vote_procedures(n: int) -> dict[str, Procedure]:
    """Multinomial in every form; the last one is what the one-sided form's correction prevents."""
    return {
        "multinomial, two-sided": Multinomial(ALPHA, n, "two-sided"),
        "multinomial, one-sided at alpha/2": Multinomial(ALPHA, n, "one-sided"),
        "multinomial, paper": Multinomial(ALPHA, n, "paper"),
        "one-sided at alpha, same draws": Multinomial(2 * ALPHA, n, "one-sided"),
    }


def is_false(prediction: IntArray, radius: FloatArray, means: FloatArray) -> int:
    """How many claims do not hold for a classifier with these probabilities or mean scores (K,)."""
    truth = np.array([SIGMA / 2 * (ndtri(means[c]) - ndtri(np.delete(means, c).max())) for c in range(len(means))])
    claimed = (prediction != ABSTAIN) & (radius > 0)
    return int((claimed & (radius > truth[prediction])).sum())


def claimed_radius(
    procedure: Procedure, cells: dict[str, IntArray], classes: int, draws: int
) -> tuple[IntArray, FloatArray]:
    """Predictions and radii (rows,) after one request of so many draws with these counts."""
    rows = len(next(iter(cells.values())))
    given = Given(classes, SIGMA, neyman_pearson)
    state = procedure.update(procedure.start(rows, given), Tally(cells, np.full(rows, draws)), given)
    prediction, radius, _ = claims(procedure.conclude(state, given), given)
    return prediction, radius


def vote_rates(classes: int, n: int, runs: int) -> Iterator[Rate]:
    """Each form at its worst case."""
    worst: dict[str, Rate] = {}
    for case, p in vote_cases(classes).items():
        rng = np.random.default_rng([classes, n])
        failed = dict.fromkeys(vote_procedures(n), 0)
        for first in range(0, runs, chunk := max(2_000_000 // classes, 1)):
            votes = rng.multinomial(n, p, size=min(chunk, runs - first))
            cells = {"votes": np.pad(votes, ((0, 0), (0, 1)))}
            for name, test in vote_procedures(n).items():
                failed[name] += is_false(*claimed_radius(test, cells, classes, n), p)
        for name, test in vote_procedures(n).items():
            sound = test.sound and not name.startswith("one-sided at")
            found = Rate(name, classes, n, sound, case, runs, failed[name])
            if name not in worst or found.failures > worst[name].failures:
                worst[name] = found
    yield from worst.values()


def score_cases(classes: int) -> dict[str, tuple[FloatArray, FloatArray]]:
    """Score vectors (kinds, K) that draws return, and how often (kinds,): votes in disguise and softer ones."""
    one, two, rest = np.eye(classes)[0], np.eye(classes)[1], np.full(classes, 1 / classes)
    return {
        "one class or the other": (np.stack([one, two]), np.array([0.5 + 1e-9, 0.5 - 1e-9])),
        "rare collapse": (np.stack([0.95 * one + 0.05 * rest, two]), np.array([0.97, 0.03])),
        "nearly tied means": (
            np.stack([0.6 * one + 0.4 * two, 0.4 * one + 0.6 * two]),
            np.array([0.5 + 1e-9, 0.5 - 1e-9]),
        ),
        "rare triumph": (np.stack([0.3 * one + 0.7 * rest, one]), np.array([0.9, 0.1])),
    }


def score_rates(classes: int, n: int, runs: dict[str, int]) -> Iterator[Rate]:
    """Softmax with each bound at its worst case; runs says how often each is simulated."""
    tests: dict[str, Procedure] = {
        f"softmax, {bound}": Softmax(ALPHA, 20, n, bound)
        for bound in ("betting", "bernstein", "hoeffding")  # type: ignore[arg-type]
    }
    tests["softmax, paper (hoeffding)"] = Softmax(ALPHA, 20, n, "hoeffding", "paper")
    for name, test in tests.items():
        worst: Rate | None = None
        for case, (scores, weights) in score_cases(classes).items():
            rng, failed, done = np.random.default_rng([classes, n]), 0, 0
            given = Given(classes, SIGMA, neyman_pearson)
            while done < runs[name]:
                rows = min(max(20_000 // classes, 10), runs[name] - done)
                state = test.start(rows, given)
                while (wanted := test.request(state)).any():
                    state = test.update(
                        state, Tally({"scores": draw_scores(rng, scores, weights, wanted)}, wanted), given
                    )
                prediction, radius, _ = claims(test.conclude(state, given), given)
                failed, done = failed + is_false(prediction, radius, weights @ scores), done + rows
            found = Rate(name, classes, n, test.sound, case, done, failed)
            worst = found if worst is None or found.rate > worst.rate else worst
        assert worst is not None
        yield worst


def draw_scores(rng: np.random.Generator, scores: FloatArray, weights: FloatArray, draws: IntArray) -> IntArray:
    """Cells (rows, K * BINS + 1) of so many draws per row."""
    classes = scores.shape[1]
    bins = np.searchsorted(SCORE_EDGES[1:-1], scores, side="right") + np.arange(classes) * BINS
    kinds = rng.multinomial(draws, weights)
    cells = np.zeros((len(draws), classes * BINS + 1), np.int64)
    for kind in range(len(weights)):
        np.add.at(cells, (slice(None), bins[kind]), kinds[:, kind, None])
    return cells


def study_rates(scale: float) -> None:
    """All of them, for K = 3, 10 and 1000."""
    found: list[Rate] = []
    for classes, runs in ((3, 200_000), (10, 200_000), (1000, 10_000)):
        for n in (100, 1000):
            found += vote_rates(classes, n, int(runs * scale))
    many = {3: (2_000, 20_000), 10: (1_000, 10_000), 1000: (20, 200)}
    for classes, (slow, fast) in many.items():
        times = {"softmax, betting": slow, "softmax, bernstein": fast}
        times |= {"softmax, hoeffding": fast, "softmax, paper (hoeffding)": fast}
        found += score_rates(classes, 200, {name: max(int(count * scale), 10) for name, count in times.items()})
    rows = [{**asdict(one), "rate": one.rate, "interval_99": one.interval} for one in found]
    RESULTS.mkdir(parents=True, exist_ok=True)
    content = {"alpha": ALPHA, "mechanism": "neyman_pearson", "rates": rows}
    (RESULTS / "failure_rates.json").write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0, help="of the numbers of simulated runs")
    study_rates(parser.parse_args().scale)
