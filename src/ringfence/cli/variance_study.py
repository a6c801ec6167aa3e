"""Paper 000's model at real inputs, beside what fresh draws and a certification measure there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import nn

from ringfence.analysis.variance import collect_logits, estimate, measured_variance_ratio, variance_ratio
from ringfence.certification import certify
from ringfence.classifiers import Lanes
from ringfence.data import Dataset, Input
from ringfence.driver import Execution
from ringfence.mechanisms import one_sided
from ringfence.noise import Gaussian
from ringfence.procedures import Fixed
from ringfence.types import FloatArray

COMPARED = {
    "variance_ratio": "variance ratio",
    "margin_variance_ratio": "by margins",
    "success": "success",
    "radius": "radius",
}
"""What is compared; (1+zeta(k-1))/k twice, with the model's zeta_p and with the correlation of the margins alone."""


@dataclass(frozen=True)
class Study:
    """Members on inputs: the model from some draws, its variance ratio from others, radii from a certification."""

    members: list[nn.Module]
    dataset: Dataset
    sigma: float
    sizes: tuple[int, ...]
    draws: int
    n: int
    alpha: float
    centre: str
    seed: int
    device: str

    def compare(self) -> dict[str, Any]:
        """Means over inputs, predicted and measured, for every size."""
        certified = self.certify()
        rows = [self.of_input(item, certified[item.id]) for item in self.dataset]
        table = np.array([row for row, _ in rows])  # (inputs, sizes, 8)
        entries = []
        for place, size in enumerate(self.sizes):
            entry: dict[str, Any] = {"k": size}
            for at, name in enumerate(COMPARED):
                entry[name] = paired(table[:, place, 2 * at], table[:, place, 2 * at + 1])
            entries.append(entry)
        return {"inputs": len(rows), "zeta_p": float(np.mean([zeta for _, zeta in rows])), "sizes": entries}

    def of_input(self, item: Input, certified: dict[int, tuple[int, float]]) -> tuple[FloatArray, float]:
        """(sizes, 8): everything compared, each predicted and measured; and zeta_p."""

        logits, clean = collect_logits(self.members, item.x, self.sigma, 2 * self.draws, self.seed, item.id)
        known, fresh = logits[:, : self.draws], logits[:, self.draws :]
        still = known.mean(1) if self.centre == "noisy" else clean
        model = estimate(known, still)
        # The model has one zeta for all logits; this one is the correlation of the margins themselves, from pairs.
        zeta_margins = 2 * float(np.median(measured_variance_ratio(known, 2, model.top))) - 1
        table = np.zeros((len(self.sizes), 2 * len(COMPARED)))
        for place, size in enumerate(self.sizes):
            vote = still[:size].mean(0)
            hits, radius = certified[size]
            ratio = float(np.median(measured_variance_ratio(fresh, size, model.top)))
            table[place] = (
                model.variance_ratio(size),
                ratio,
                variance_ratio(size, zeta_margins),
                ratio,
                model.success_probability(size, vote)[0],
                hits / self.n,
                model.radius_distribution(size, self.n, self.alpha, self.sigma, vote).mean,
                radius,
            )
        return table, model.zeta_p

    def certify(self) -> dict[int, dict[int, tuple[int, float]]]:
        """input id -> size -> (draws that voted for the answer, radius): CERTIFY on every prefix, in one pass."""

        ensemble = Lanes(self.members, ("soft",), prefixes=True)
        found: dict[int, dict[int, tuple[int, float]]] = {}
        for record in certify(
            ensemble,
            self.dataset,
            noise=Gaussian(self.sigma),
            procedure=Fixed(self.alpha, n=self.n),
            mechanism=one_sided,
            lanes=ensemble.names,
            seed=self.seed,
            execution=Execution(self.device),
        ):
            select, estimate = (stage.cells["votes"] for stage in record.stages)
            hits = int(estimate[select[:-1].argmax()])
            found.setdefault(record.input_id, {})[int(record.lane.rpartition("-")[2])] = hits, record.radius
        return found


def paired(predicted: FloatArray, measured: FloatArray) -> dict[str, float]:
    """Means over inputs, and the mean difference with its standard error."""
    gap = measured - predicted
    error = float(gap.std(ddof=1) / np.sqrt(len(gap))) if len(gap) > 1 else 0.0
    return {
        "predicted": float(predicted.mean()),
        "measured": float(measured.mean()),
        "difference": float(gap.mean()),
        "error": error,
    }
