"""Why ensembles enlarge radii: a Gaussian model of the vote's margins under noise, and the radii it predicts.

Horvath et al. 2022 (ensembles), section 5 and appendix B. ``collect_logits`` gives what ``estimate`` needs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from typing import final

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri
from scipy.stats import binom, qmc

from ringfence.analysis.member_scores import collect_logits
from ringfence.errors import ArgumentError
from ringfence.mechanisms import one_sided_for
from ringfence.stats import NoiseLaw, as_law, clopper_pearson_lower
from ringfence.types import FloatArray

__all__ = [
    "MarginModel",
    "RadiusDistribution",
    "certified_radii",
    "collect_logits",
    "estimate",
    "expected_radius",
    "measured_variance_ratio",
    "positive_orthant",
    "radius_distribution",
    "variance_ratio",
]

_SCRAMBLES = 8
_SMALLEST = 1e-300
_RIDGE = 1e-12
"""Added to the covariance, relative to its largest variance: estimated covariances may be singular."""


@final
@dataclass(frozen=True, eq=False)
class RadiusDistribution:
    """radii ascending (m,), the first 0 for abstention; probabilities (m,), their sum 1."""

    radii: FloatArray
    probabilities: FloatArray

    @property
    def mean(self) -> float:
        """Expected radius, abstention counted as 0."""
        return float(self.radii @ self.probabilities)

    @property
    def abstention(self) -> float:
        """P(no radius is certified)."""
        return float(self.probabilities[0])


def certified_radii(n: int, alpha: float, noise: NoiseLaw | float) -> FloatArray:
    """Radius for n1 = 0..n successes (n+1,): Q(L(n1, n, alpha)), 0 where L <= 1/2; rounded down.

    noise: its law, Q the quantile function; a plain number is the sigma of Gaussian noise, sigma PhiInv.
    """
    law = as_law(noise)
    return _unit_radii(n, alpha, law.family) * law.scale


@lru_cache(maxsize=32)
def _unit_radii(n: int, alpha: float, family: str) -> FloatArray:
    """The radii at sigma = 1; read-only because they are shared."""
    # Half the draws or fewer never certify, so only the upper half is inverted.
    first = n // 2 + 1
    lower = clopper_pearson_lower(np.arange(first, n + 1), n, alpha)
    radii = np.zeros(n + 1)
    radii[first:] = one_sided_for(family)(lower, 1.0 - lower, NoiseLaw(family, 1.0))
    radii.flags.writeable = False
    return radii


def radius_distribution(p: ArrayLike, n: int, alpha: float, noise: NoiseLaw | float) -> RadiusDistribution:
    """P(R = Q(L(n1, n, alpha))) = Binom(n1; n, p), averaged over the success probabilities p (any shape).

    The class is taken as already chosen, rightly; all counts that certify nothing are one outcome, radius 0.
    """
    successes = np.atleast_1d(np.asarray(p, np.float64)).ravel()
    radii, counts = certified_radii(n, alpha, noise), np.arange(n + 1)
    mass = np.zeros(n + 1)
    for success in successes:
        mass += binom.pmf(counts, n, success) / len(successes)
    certified = radii > 0
    return RadiusDistribution(np.append(0.0, radii[certified]), np.append(mass[~certified].sum(), mass[certified]))


def expected_radius(p: ArrayLike, n: int, alpha: float, noise: NoiseLaw | float) -> FloatArray:
    """Mean radius CERTIFY reports at success probability p (any shape) with n draws, abstention counted as 0."""
    successes = np.asarray(p, np.float64)
    means = [radius_distribution(success, n, alpha, noise).mean for success in successes.ravel()]
    return np.array(means).reshape(successes.shape)


def positive_orthant(
    mean: FloatArray, covariance: FloatArray, points: int = 4096, seed: int = 0
) -> tuple[float, float]:
    """(p, error): P(Z > 0 in all coordinates) for Z ~ N(mean (m,), covariance (m, m)), and three standard errors of p.

    Genz's transformation to the unit cube, averaged over independently scrambled Sobol sequences of ``points``
    (a power of two); their spread gives the error. One coordinate is exact: p = Phi(mean/sd), error 0.
    """
    scale = float(covariance.diagonal().max(initial=0.0))
    if scale == 0.0:
        return float((mean > 0).all()), 0.0
    if len(mean) == 1:
        return float(ndtr(mean[0] / np.sqrt(covariance[0, 0]))), 0.0
    # The hardest coordinate first: the later factors then vary little.
    order = np.argsort(mean / np.sqrt(covariance.diagonal() + _RIDGE * scale))
    limit = mean[order]
    ridged = covariance + _RIDGE * scale * np.eye(len(mean))
    root = np.linalg.cholesky(ridged[np.ix_(order, order)]).astype(np.float64)
    seeds = np.random.SeedSequence(seed).spawn(_SCRAMBLES)
    cubes = (qmc.Sobol(len(mean) - 1, rng=np.random.default_rng(child)).random(points) for child in seeds)
    estimates = [_genz(limit, root, cube) for cube in cubes]
    return float(np.mean(estimates)), float(3 * np.std(estimates, ddof=1) / np.sqrt(_SCRAMBLES))


def _genz(limit: FloatArray, root: FloatArray, cube: FloatArray) -> float:
    """Mean over cube (points, m-1) of the product of the conditional probabilities P(X_i < limit_i | X_1..X_{i-1})."""
    shifted = np.broadcast_to(limit, (len(cube), len(limit))).copy()
    product = np.ones(len(cube))
    for i in range(len(limit)):
        factor = ndtr(shifted[:, i] / root[i, i])
        product *= factor
        if i + 1 < len(limit):
            normal = ndtri(np.clip(cube[:, i] * factor, _SMALLEST, 1 - 1e-16))
            shifted[:, i + 1 :] -= np.outer(normal, root[i + 1 :, i])
    return float(product.mean())


def variance_ratio(k: int, zeta: float) -> float:
    """Variance of the mean of k equally correlated members over that of one: (1 + zeta (k-1)) / k -> zeta."""
    if k < 1:
        raise ArgumentError("k", "must be at least 1", k, "Give the number of members.")
    return (1 + zeta * (k - 1)) / k


@final
@dataclass(frozen=True, eq=False)
class MarginModel:
    """A member's logits: y = y_c + y_p, independent; y_c ~ N(c, Sigma_c) over training, y_p ~ N(0, Sigma_p) over noise.

    Two members have covariances zeta_c Sigma_c and zeta_p Sigma_p.
    mean: c (K,); clean_covariance: Sigma_c (K, K); noise_covariance: Sigma_p (K, K); top: the majority class.
    """

    mean: FloatArray
    clean_covariance: FloatArray
    noise_covariance: FloatArray
    zeta_p: float
    top: int
    zeta_c: float = 0.0

    @property
    def margin_matrix(self) -> FloatArray:
        """A (K-1, K): z = A y are the margins of the top class over the others, in class order."""
        matrix = -np.delete(np.eye(len(self.mean)), self.top, axis=0)
        matrix[:, self.top] = 1.0
        return matrix

    @property
    def margin_mean(self) -> FloatArray:
        """E z = A c (K-1,), the same for every k."""
        return np.asarray(self.margin_matrix @ self.mean)

    @property
    def runner_up(self) -> int:
        """Position in the margins of the class closest to the top one."""
        return int(self.margin_mean.argmin())

    def variance_ratio(self, k: int) -> float:
        """sigma_p^2(k) / sigma_p^2(1) = (1 + zeta_p (k-1)) / k, for every margin alike."""
        return variance_ratio(k, self.zeta_p)

    def margin_covariance(self, k: int) -> FloatArray:
        """Covariance of the k-ensemble's margins (K-1, K-1) over training and noise.

        A [ (1+zeta_p(k-1))/k Sigma_p + (1+zeta_c(k-1))/k Sigma_c ] A^T = D Sigma* D^T of appendix B, without the
        (kK, kK) matrix Sigma*.
        """
        clean = variance_ratio(k, self.zeta_c) * self._margins(self.clean_covariance)
        return self.noise_margin_covariance(k) + clean

    def noise_margin_covariance(self, k: int) -> FloatArray:
        """Covariance of the margins (K-1, K-1) over noise alone: what one fixed ensemble shows."""
        return self.variance_ratio(k) * self._margins(self.noise_covariance)

    def success_probability(self, k: int, clean: ArrayLike | None = None) -> tuple[float, float]:
        """(p_1, error): P(all margins of the k-ensemble are positive), equation 3, and an error estimate.

        clean: the vote's own clean logits (K,) for one fixed ensemble, whose margins then vary by noise alone;
        without it the probability is over training too.
        """
        if clean is None:
            return positive_orthant(self.margin_mean, self.margin_covariance(k))
        margins = self.margin_matrix @ np.asarray(clean, np.float64)
        return positive_orthant(margins, self.noise_margin_covariance(k))

    def radius_distribution(
        self, k: int, n: int, alpha: float, noise: NoiseLaw | float, clean: ArrayLike | None = None
    ) -> RadiusDistribution:
        """Radii CERTIFY reports with n draws and their probabilities, Binom(n1; n, p_1): equation 4.

        clean: clean logits of fixed votes (K,) or (ensembles, K). A fixed ensemble keeps its clean logits during all
        n draws, so each row has its own p_1 and the binomials are averaged; ``sample_clean`` draws such rows.
        Without it, the printed form: one binomial with p_1 over training and noise, which is narrower.
        """
        if clean is None:
            return radius_distribution(self.success_probability(k)[0], n, alpha, noise)
        rows = np.atleast_2d(np.asarray(clean, np.float64))
        return radius_distribution([self.success_probability(k, row)[0] for row in rows], n, alpha, noise)

    def sample_clean(self, k: int, count: int, seed: int) -> FloatArray:
        """Clean logits (count, K) of random k-ensembles: N(c, (1+zeta_c(k-1))/k Sigma_c)."""
        covariance = variance_ratio(k, self.zeta_c) * self.clean_covariance
        return np.random.default_rng(seed).multivariate_normal(self.mean, covariance, count, method="eigh")

    def _margins(self, covariance: FloatArray) -> FloatArray:
        return np.asarray(self.margin_matrix @ covariance @ self.margin_matrix.T)


def estimate(logits: ArrayLike, clean: ArrayLike, zeta_c: float = 0.0, top: int | None = None) -> MarginModel:
    """The model at one input, from logits (members, draws, K) under SHARED noise and clean logits (members, K).

    c and Sigma_c: mean and covariance over the members' clean logits; Sigma_p: mean over members of the covariance of
    perturbed minus clean, centred per member; zeta_p: median over pairs of members and pairs of classes of the
    between-member over the within-member covariance. zeta_c cannot be estimated from one input: members that share
    training effects differ less than they vary, so the covariance seen is (1 - zeta_c) Sigma_c and is divided by
    1 - zeta_c. top: the majority class, the largest entry of c if not given. Networks whose mean logits move under
    noise are modelled better around that mean: pass ``logits.mean(1)`` as clean.
    """
    noisy, still = np.asarray(logits, np.float64), np.asarray(clean, np.float64)
    _check(noisy, still)
    if not -1 <= zeta_c < 1:
        raise ArgumentError("zeta_c", "must lie in [-1, 1)", zeta_c, "0 means independently trained members.")
    perturbation = noisy - still[:, None]
    perturbation = perturbation - perturbation.mean(1, keepdims=True)
    members, draws, _ = noisy.shape
    within = np.einsum("mda,mdb->mab", perturbation, perturbation) / (draws - 1)
    pairs = combinations(range(members), 2)
    between = np.stack([perturbation[i].T @ perturbation[j] / (draws - 1) for i, j in pairs])
    mean = still.mean(0)
    return MarginModel(
        mean=mean,
        clean_covariance=np.cov(still, rowvar=False) / (1 - zeta_c),
        noise_covariance=within.mean(0),
        zeta_p=_median_ratio(between, within.mean(0)),
        top=int(mean.argmax()) if top is None else top,
        zeta_c=zeta_c,
    )


def measured_variance_ratio(logits: ArrayLike, k: int, top: int) -> FloatArray:
    """Per margin (K-1,): variance over draws of the vote of k members, over the mean variance of one member.

    logits (members, draws, K) under shared noise; the votes are the k neighbours of every member in cyclic order.
    What ``MarginModel.variance_ratio`` predicts.
    """
    noisy = np.asarray(logits, np.float64)
    if not 1 <= k <= len(noisy):
        raise ArgumentError("k", f"must lie between 1 and the {len(noisy)} members", k, "Ask for fewer members.")
    margins = noisy[:, :, [top]] - np.delete(noisy, top, axis=2)
    votes = np.mean([np.roll(margins, -shift, axis=0) for shift in range(k)], axis=0)
    return np.asarray(votes.var(1).mean(0) / margins.var(1).mean(0))


def _median_ratio(between: FloatArray, within: FloatArray) -> float:
    """Median of between (pairs, K, K) over within (K, K), entries without any variance left out."""
    used = within != 0
    if not used.any():
        raise ArgumentError("logits", "must vary under noise", "constant logits", "Check the members and sigma.")
    return float(np.median(between[:, used] / within[used]))


def _check(logits: FloatArray, clean: FloatArray) -> None:
    if logits.ndim != 3 or clean.shape != (logits.shape[0], logits.shape[2]):
        rule = "must have shapes (members, draws, K) and (members, K)"
        received = f"{logits.shape} and {clean.shape}"
        raise ArgumentError("logits, clean", rule, received, "Use collect_logits to get both.")
    if logits.shape[0] < 2 or logits.shape[1] < 2 or logits.shape[2] < 2:
        rule = "must hold at least two members, two draws and two classes"
        raise ArgumentError("logits", rule, logits.shape, "The model compares members under many draws.")
    if not (np.isfinite(logits).all() and np.isfinite(clean).all()):
        raise ArgumentError("logits", "must be finite", "NaN or infinite scores", "Leave out the invalid draws.")
