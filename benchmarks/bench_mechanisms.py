"""A million points of the simplex by every mechanism: comparing certificates costs no more than a few seconds."""

from __future__ import annotations

import sys
from collections.abc import Callable
from statistics import median

import numpy as np
from common import Bar, Grid, Report, arguments, finish, interleaved

from ringfence.mechanisms import Mechanism, mechanisms_named
from ringfence.types import FloatArray

LIMIT_S = 10.0


def simplex_points(count: int) -> tuple[FloatArray, FloatArray]:
    """Uniform on the region p_a > p_b > 0, p_a + p_b <= 1, a tenth of it crowded near (1, 0) as real inputs are."""
    rng = np.random.default_rng(0)
    shares = np.sort(rng.dirichlet(np.ones(3), count), axis=1)
    p_a, p_b = shares[:, 2], shares[:, 1]
    crowded = count // 10
    p_b[:crowded] = 10.0 ** rng.uniform(-7, -1, crowded)
    p_a[:crowded] = 1 - p_b[:crowded] * rng.uniform(1, 3, crowded)
    return p_a, p_b


def radii(mechanism: Mechanism, p_a: FloatArray, p_b: FloatArray) -> Callable[[], None]:
    """One call on all points."""

    def compute() -> None:
        radius = mechanism(p_a, p_b, 0.5)
        assert np.isfinite(radius).all()

    return compute


def main() -> int:
    options = arguments(__doc__ or "")
    count = 20_000 if options.quick else 1_000_000
    p_a, p_b = simplex_points(count)
    rounds = min(options.repetitions, 3)
    seconds = interleaved({one.name: radii(one, p_a, p_b) for one in mechanisms_named("all")}, rounds)
    total = [sum(round_) for round_ in zip(*seconds.values(), strict=True)]
    rows = [[name, f"{median(times):.3f}", f"{count / median(times):,.0f}"] for name, times in seconds.items()]
    grid = Grid(f"{count:,} points per mechanism", ("mechanism", "seconds", "points per second"), rows)
    limit = None if options.quick else median(total)
    bar = Bar("a million points by all mechanisms", "at most", LIMIT_S, limit, "s")
    settings = {"points": count, "rounds": rounds, "threads": 1}
    return finish(Report("mechanisms", settings, [grid], [bar], {"seconds": seconds, "total": total}), options)


if __name__ == "__main__":
    sys.exit(main())
