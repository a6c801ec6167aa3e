"""What public logs say, for ``published.json``: certified accuracies, and those that fewer draws would have given.

    python reproduce/public_logs.py LOG [LOG ...] --sigma X [--skip N] [--radii A,B] [--draws N]

Logs are Cohen-style, of 100,000 draws at alpha .001; several are trainings of one kind, whose means and standard
deviation are printed. --skip N takes every Nth image. With --draws the same networks are reckoned with so many draws:
of each image the rate of its class is rebuilt from the radius, and expectations over binomial counts are exact.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
from scipy.special import ndtri
from scipy.stats import binom

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "benchmarks"))

from bench_sample_complexity import ALPHA, rebuilt_p_a  # noqa: E402

from ringfence.stats import clopper_pearson_lower  # noqa: E402
from ringfence.store.logs import CohenLog, read_cohen  # noqa: E402
from ringfence.types import FloatArray  # noqa: E402


def as_logged(log: CohenLog, radii: Sequence[float]) -> tuple[float, list[float]]:
    """Average certified radius, and the share of images right with each radius, in percent."""
    right = log.correct
    shares = [100 * float(np.mean(right & (log.radius >= radius))) for radius in radii]
    return float(np.mean(np.where(right, log.radius, 0.0))), shares


def with_draws(log: CohenLog, sigma: float, n: int, radii: Sequence[float]) -> tuple[float, list[float]]:
    """The same, expected of n draws each; images that were not right certify nothing."""
    certified = radius_by_count(n, sigma)
    rates, times = np.unique(rebuilt_p_a(log, sigma)[log.correct], return_counts=True)
    average, shares = 0.0, np.zeros(len(radii))
    for rate, many in zip(rates, times, strict=True):
        chances = binom.pmf(np.arange(n + 1), n, rate)
        average += many * float(chances @ np.maximum(certified, 0.0))
        shares += many * np.array([chances[certified >= radius].sum() for radius in radii])
    return average / len(log.radius), [float(100 * one / len(log.radius)) for one in shares]


def radius_by_count(n: int, sigma: float) -> FloatArray:
    """Cohen et al.'s radius by the count of the class (n + 1,); -1 where nothing is certified."""
    low = clopper_pearson_lower(np.arange(n + 1), n, ALPHA)
    return np.where(low > 0.5, sigma * ndtri(np.maximum(low, 0.5)), -1.0)


def told(found: Sequence[tuple[float, list[float]]], radii: Sequence[float]) -> dict[str, Any]:
    """Means over logs, rounded as pages show them."""
    averages = [one for one, _ in found]
    spread = {"acr_spread": round(stdev(averages), 3)} if len(found) > 1 else {}
    shares = {f"{radius:g}": round(mean(one[i] for _, one in found), 1) for i, radius in enumerate(radii)}
    return {"acr": round(mean(averages), 3), **spread, "certified_accuracy": shares}


def every(log: CohenLog, skip: int) -> CohenLog:
    """The rows of every so many images."""
    kept = log.idx % skip == 0
    columns = {name: getattr(log, name)[kept] for name in ("idx", "label", "predict", "radius", "seconds")}
    return replace(log, **columns)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print what the logs say as one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("logs", nargs="+", type=Path)
    parser.add_argument("--sigma", type=float, required=True)
    parser.add_argument("--skip", type=int, default=1)
    parser.add_argument("--radii", default="0,0.25,0.5,0.75")
    parser.add_argument("--draws", type=int)
    options = parser.parse_args(arguments)
    radii = [float(one) for one in options.radii.split(",")]
    logs = [every(read_cohen(path), options.skip) for path in options.logs]
    said: dict[str, Any] = {"images": len(logs[0].radius), **told([as_logged(log, radii) for log in logs], radii)}
    if options.draws:
        fewer = [with_draws(log, options.sigma, options.draws, radii) for log in logs]
        said["reckoned"] = {"n": options.draws, **told(fewer, radii)}
    print(json.dumps(said))


if __name__ == "__main__":
    main()
