"""Every procedure, small, and draws that each of them can read."""

from __future__ import annotations

import numpy as np

from ringfence.procedures import (
    AcesCertify,
    AcesPredict,
    AcesSequential,
    Anytime,
    EnsembleAfterSmoothing,
    Fixed,
    Multinomial,
    Predict,
    Procedure,
    Sequential,
    Softmax,
    Staged,
    TwoSided,
)
from ringfence.types import BINS, SCORE_EDGES, FloatArray, IntArray, Tally

CASES: dict[str, Procedure] = {
    "fixed": Fixed(n0=20, n=400),
    "two-sided": TwoSided(n0=20, n=400),
    "multinomial": Multinomial(n=400),
    "softmax": Softmax(n0=20, n=400, bound="hoeffding"),
    "predict": Predict(n=100),
    "staged": Staged(0.2, n0=20, stages=(100, 400, 2000)),
    "sequential": Sequential(0.2, n0=20, n=3000),
    "sequential, grid": Sequential(0.1, n0=20, n=3000, look=50, larger=(0.15, 0.2, 0.3, 0.4)),
    "anytime": Anytime(n0=20, n=3000),
    "anytime, grid": Anytime(n0=20, n=3000, radii=(0.05, 0.1, 0.2, 0.3, 0.4)),
    "after-smoothing": EnsembleAfterSmoothing(n0=20, n=400),
    "aces": AcesCertify(n0=20, n=400),
    "aces, two-sided": AcesCertify(n0=20, n=400, lower_share=0.5),
    "aces-predict": AcesPredict(n=100),
    "aces-sequential": AcesSequential(0.2, n0=20, n=3000),
}


def tally(procedure: Procedure, p: FloatArray, wanted: IntArray, rng: np.random.Generator) -> Tally:
    """What the procedure reads of draws that say class 0 with probability p (rows,), else one of two others."""
    shares = np.stack([p, 0.8 * (1 - p), 0.2 * (1 - p)], 1)
    votes, others = rng.multinomial(wanted, shares), rng.multinomial(wanted, shares)
    return seen(procedure, votes, others, rng.binomial(wanted, np.sqrt(p)), shares)


def steady_tally(procedure: Procedure, p: FloatArray, start: IntArray, wanted: IntArray) -> Tally:
    """The same without chance: of the first m draws of a stream the share p, rounded, whoever asks in what portions."""
    shares = np.stack([p, 0.8 * (1 - p), 0.2 * (1 - p)], 1)
    upto = [np.round(np.cumsum(shares, 1)[:, :2] * at[:, None]).astype(np.int64) for at in (start, start + wanted)]
    first, both = (upto[1] - upto[0]).T
    votes = np.stack([first, both - first, wanted - both], 1)
    picks = np.round(np.sqrt(p) * (start + wanted)) - np.round(np.sqrt(p) * start)
    return seen(procedure, votes, votes, picks.astype(np.int64), shares)


def seen(procedure: Procedure, votes: IntArray, others: IntArray, picks: IntArray, shares: FloatArray) -> Tally:
    """Votes (rows, 3) of a classifier and of a second member, draws that selected it, or scores as the shares say."""
    wanted, votes, others = votes.sum(1), np.pad(votes, ((0, 0), (0, 1))), np.pad(others, ((0, 0), (0, 1)))
    (needed,) = procedure.needs
    if needed == "selection":
        return Tally({"votes": votes, "bits": np.stack([wanted - picks, picks, 0 * picks], 1)}, wanted)
    if needed == "member_votes":
        return Tally({"member_votes": np.concatenate([votes, others], 1)}, wanted)
    if needed == "scores":
        cells = np.zeros((len(votes), 3 * BINS + 1), np.int64)
        bins = np.searchsorted(SCORE_EDGES[1:-1], shares, side="right") + np.arange(3) * BINS
        np.put_along_axis(cells, bins, np.broadcast_to(wanted[:, None], bins.shape), axis=1)
        return Tally({"scores": cells}, wanted)
    return Tally({"votes": votes}, wanted)
