"""P(every coordinate of a Gaussian vector is positive), with an error estimate."""

from __future__ import annotations

import numpy as np
from scipy.special import ndtr, ndtri
from scipy.stats import qmc

from ringfence.types import FloatArray

_SCRAMBLES = 8
_SMALLEST = 1e-300
_RIDGE = 1e-12
"""Added to the covariance, relative to its largest variance: estimated covariances may be singular."""


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
