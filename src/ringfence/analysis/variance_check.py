"""The variance model at real inputs, beside what fresh draws and a certification measure there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from torch import nn

from ringfence.analysis.variance import collect_logits, estimate, measured_variance_ratio, variance_ratio
from ringfence.data import Input
from ringfence.errors import ArgumentError, check_word
from ringfence.noise import Gaussian, noise_with
from ringfence.progress import Counted, followed
from ringfence.record import Record
from ringfence.types import FloatArray

COMPARED = {
    "variance_ratio": "variance ratio",
    "margin_variance_ratio": "by margins",
    "success": "success",
    "radius": "radius",
}
"""What is compared; (1+zeta(k-1))/k twice, with the model's zeta_p and with the correlation of the margins alone."""

Certified = Mapping[int, tuple[int, float]]
"""Ensemble size -> draws that voted for the answer, and its radius."""


@final
@dataclass(frozen=True)
class VarianceCheck:
    """How predictions for soft votes of the first k members are made and compared.

    sizes: the k; draws: estimate the model, and as many measure its variance ratio; n, alpha: of the certification that
    is compared; centre: ``noisy`` models logits around their mean under noise, ``clean`` as published.
    """

    sizes: tuple[int, ...]
    sigma: float
    draws: int = 1000
    n: int = 1000
    alpha: float = 0.001
    centre: str = "noisy"
    seed: int = 0
    noise: str = Gaussian.name

    def __post_init__(self) -> None:
        if self.draws < 2:
            raise ArgumentError("draws", "must be at least 2", self.draws, "A thousand give a stable model.")
        check_word("centre", self.centre, ("noisy", "clean"), "noisy is the default.")

    def compare(
        self, members: Sequence[nn.Module], inputs: Counted[Input], certified: Mapping[int, Certified]
    ) -> dict[str, Any]:
        """Means over inputs, predicted and measured, for every size; certified: as ``certified_sizes`` gives it."""
        rows = [self.of_input(members, item, certified[item.id]) for item in followed(inputs, "estimating")]
        table = np.array([row for row, _ in rows])  # (inputs, sizes, 8)
        entries = []
        for place, size in enumerate(self.sizes):
            entry: dict[str, Any] = {"k": size}
            for at, name in enumerate(COMPARED):
                entry[name] = paired(table[:, place, 2 * at], table[:, place, 2 * at + 1])
            entries.append(entry)
        return {"inputs": len(rows), "zeta_p": float(np.mean([zeta for _, zeta in rows])), "sizes": entries}

    def of_input(self, members: Sequence[nn.Module], item: Input, certified: Certified) -> tuple[FloatArray, float]:
        """(sizes, 8): everything compared, each predicted and measured; and zeta_p."""
        noise = noise_with(self.noise, self.sigma)
        logits, clean = collect_logits(members, item.x, noise, 2 * self.draws, self.seed, item.id)
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
            predicted = model.radius_distribution(size, self.n, self.alpha, noise.law, vote).mean
            success = model.success_probability(size, vote)[0]
            by_margins = variance_ratio(size, zeta_margins)
            table[place] = (
                *(model.variance_ratio(size), ratio, by_margins, ratio),
                *(success, hits / self.n, predicted, radius),
            )
        return table, model.zeta_p


def certified_sizes(records: Iterable[Record], size_of: Mapping[str, int]) -> dict[int, Certified]:
    """Input id -> size -> (draws for the answer, radius); records of fixed-n runs, size_of: a lane's ensemble size."""
    found: dict[int, dict[int, tuple[int, float]]] = {}
    for record in records:
        select, counted = (stage.cells["votes"] for stage in record.stages)
        hits = int(counted[select[:-1].argmax()])
        found.setdefault(record.input_id, {})[size_of[record.lane]] = hits, record.radius
    return dict(found)


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
