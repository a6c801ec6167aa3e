"""Laws that mechanisms, procedures and noises keep, for those of your own: each returns quietly or says what is broken.

They find mistakes, and prove nothing: the proof is yours. Failures by chance have probability below 1e-6 each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
from scipy.stats import binom, kstwobign

from ringfence.errors import ArgumentError
from ringfence.mechanisms import Mechanism, default_mechanism
from ringfence.procedures import Given, Procedure, claims
from ringfence.stats import NoiseLaw, as_law
from ringfence.types import ABSTAIN, BoolArray, FloatArray, IntArray, Tally

if TYPE_CHECKING:
    from ringfence.noise import Noise

CHANCE: Final = 1e-7
CASES: Final = ((0.5 - 1e-9, 0.5 + 1e-9), (0.45, 0.44, 0.11), (0.9, 0.07, 0.03), (0.2, 0.18, *([0.0775] * 8)))
"""Probabilities of classes that procedures are tried on: nearly tied, close, clear, many."""
MOST_STEPS: Final = 200
"""Requests after which a procedure is taken as it stands."""


def check_mechanism(mechanism: Mechanism, noise: NoiseLaw | Noise | float) -> None:
    """Never beyond the truth of parallel half-spaces, whose distance is known in every norm; never NaN; monotone.

    The first class lies left of one hyperplane, the second right of another, both across one coordinate: shifted by r
    they have probability F(a - r) and 1 - F(b - r), so that no sound radius is larger than where they tie.
    noise: one that it is proved for, its law, or the sigma of Gaussian noise.
    """
    _made(mechanism, Mechanism)
    law = as_law(noise if isinstance(noise, NoiseLaw | float | int) else noise.law)
    a, b = np.meshgrid(np.linspace(-3, 6, 181) * law.scale, np.linspace(-3, 8, 221) * law.scale)
    a, b = a[a <= b], b[a <= b]
    heard = (1.0 - law.cdf(b) > 1e-6) & (law.cdf(a) < 1 - 1e-6)  # beyond, differences from 1 have few digits left
    a, b = a[heard], b[heard]
    p_a, p_b = law.cdf(a), 1.0 - law.cdf(b)
    radius = mechanism(p_a, p_b, law)
    _keep("must never be NaN", ~np.isnan(radius), mechanism)
    certified = np.where(np.isfinite(radius), radius, 1e9)
    holds = (radius == 0) | (law.cdf(a - certified) >= 1.0 - law.cdf(b - certified) - 1e-12)
    worst = int(np.argmax(np.where(holds, -np.inf, certified - (a + b) / 2)))  # by symmetry they tie half way
    told = f"p_a {p_a[worst]:.4g}, p_b {p_b[worst]:.4g}: {radius[worst]:.4g}, where {(a + b)[worst] / 2:.4g} is true"
    _keep(f"must not exceed the distance of half-spaces under {law}", holds, mechanism, f", the worst at {told}")
    p, q = np.linspace(0.5, 1 - 1e-9, 400), np.linspace(0, 0.5, 400)
    _keep("must not fall as p_a rises", np.diff(mechanism(p, 1 - p, law)) >= -1e-12, mechanism)
    _keep("must not rise as p_b does", np.diff(mechanism(0.5, q, law)) <= 1e-12, mechanism)


def check_procedure(
    test: Procedure, cases: Sequence[Sequence[float]] = CASES, runs: int = 50_000, noise: NoiseLaw | float = 0.5
) -> None:
    """False at most at rate alpha, on inputs with known probabilities of classes; for procedures that read votes.

    Use an alpha near 0.02 and few draws: what fails once in a thousand is not seen here. A procedure for a known radius
    is also tried just short of it. noise: its law, or the sigma of Gaussian noise; the tight mechanism for it decides.
    """
    _made(test, Procedure)
    proof = default_mechanism(as_law(noise).family)
    short = [] if test.target is None else [float(proof.probability_for(test.target, noise)) - 1e-9]
    for seed, p in enumerate([*cases, *((one, 1 - one) for one in short)]):
        prediction, radius = simulate(test, np.array(p), runs, seed, noise)
        wrong = int(false_claims(prediction, radius, np.array(p), noise).sum())
        if wrong > (most := int(binom.isf(CHANCE, runs, test.alpha))):
            rule = f"must make false claims at rate {test.alpha:g} at most: {most} of {runs}"
            raise ArgumentError(test.name, rule, f"{wrong} at {tuple(p)}", "Pay for every look and choice from alpha.")


def check_noise(noise: Noise) -> None:
    """A key gives the same draws again and another gives others; they have the law, coordinate by coordinate."""
    import torch

    from ringfence.noise import Noise

    _made(noise, Noise)
    first, again, other = (torch.empty(50, 4000) for _ in range(3))
    noise.fill(first, 1)
    noise.fill(again, 1)
    noise.fill(other, 2)
    _keep("must depend on the key alone", np.array(torch.equal(first, again)), noise)
    _keep("must differ for another key", np.array(float((first != other).float().mean()) > 0.9), noise)
    drawn = np.sort(first.double().numpy().ravel())
    distance = np.abs(noise.law.cdf(drawn) - (np.arange(len(drawn)) + 0.5) / len(drawn)).max()
    alike = np.array(distance * np.sqrt(len(drawn)) < kstwobign.isf(CHANCE) + 0.01)
    _keep(f"must be {noise.law}", alike, noise, f", draws of standard deviation {drawn.std():.4g}")
    ranks = noise.law.cdf(first.double().numpy()) - 0.5
    pairs = (
        (ranks[:, 1:], ranks[:, :-1]),
        (ranks[1:], ranks[:-1]),
        (ranks, noise.law.cdf(other.double().numpy()) - 0.5),
    )
    for left, right in pairs:
        together = abs((left * right).sum()) * 12 / np.sqrt(left.size)
        _keep("must be independent from coordinate to coordinate and key to key", np.array(together < 5.5), noise)


def simulate(
    test: Procedure, p: FloatArray, runs: int, seed: int, noise: NoiseLaw | float = 0.5
) -> tuple[IntArray, FloatArray]:
    """Predictions and radii (runs,) of independent inputs whose draws vote with probabilities p (K,)."""
    rng = np.random.default_rng(seed)
    law = as_law(noise)
    given = Given(len(p), law, default_mechanism(law.family))
    state = test.start(runs, given)
    for _ in range(MOST_STEPS):
        wanted = test.request(state)
        live = wanted > 0
        if not live.any():
            break
        votes = rng.multinomial(wanted[live], p)
        cells = {"votes": np.concatenate([votes, np.zeros((len(votes), 1), np.int64)], axis=1)}
        state[live] = test.update(state[live], Tally(cells, wanted[live]), given)
    prediction, radius, _ = claims(test.conclude(state, given), given)
    return prediction, radius


def true_radius(p: FloatArray, noise: NoiseLaw | float = 0.5) -> FloatArray:
    """For each class (K,) the radius that a classifier with probabilities p really has in the worst case, which is that
    of half-spaces across one coordinate."""
    at = as_law(noise).quantile(p)
    return np.array([(at[c] - np.delete(at, c).max()) / 2 for c in range(len(p))])


def false_claims(prediction: IntArray, radius: FloatArray, p: FloatArray, noise: NoiseLaw | float = 0.5) -> BoolArray:
    """Where something is claimed that does not hold: a class that is not the top one, or too large a radius."""
    claimed = prediction != ABSTAIN
    truth = np.where(claimed, true_radius(p, noise)[prediction], 0.0)
    return np.asarray(claimed & ((truth < 0) | (radius > truth)))


def _made(part: object, kind: type) -> None:
    if not isinstance(part, kind):
        raise ArgumentError(kind.__name__.lower(), f"must be a {kind.__name__}", repr(part), "Give one, not its class.")


def _keep(rule: str, holds: BoolArray, part: object, worst: str = "") -> None:
    if not holds.all():
        broken = f"{np.size(holds) - np.count_nonzero(holds)} of {np.size(holds)} cases{worst}"
        raise ArgumentError(str(getattr(part, "name", part)), rule, broken, "Mend it.")
