"""Class probabilities behind published certification logs, for planning and for comparing sample sizes."""

from __future__ import annotations

import numpy as np
from scipy.special import ndtr

from ringfence.stats import clopper_pearson_lower
from ringfence.store.cohen import CohenLog
from ringfence.types import ABSTAIN, FloatArray


def rebuilt_p_a(log: CohenLog, sigma: float, n: int = 100_000, alpha: float = 1e-3) -> FloatArray:
    """p_A of each row (rows,): the least k/n whose bound L(k, n, alpha) reaches the logged radius (METHODS 9).

    Saturated rows get 1 - 1/(2n); abstentions, which say only that the bound stayed below 1/2, are spread
    evenly over (.3, .5). Estimates to draw from, never bounds to certify with.
    """
    bounds = clopper_pearson_lower(np.arange(n + 1), n, alpha)
    rates = np.minimum(np.searchsorted(bounds, ndtr(log.radius / sigma)) / n, 1 - 0.5 / n)
    abstained = log.predict == ABSTAIN
    count = int(np.count_nonzero(abstained))
    rates[abstained] = 0.3 + 0.2 * (np.arange(count) + 0.5) / max(count, 1)
    return np.asarray(rates, np.float64)
