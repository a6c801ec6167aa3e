"""The counts of a record, reduced to what a reader looks at: the classes with most votes per stream of draws."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from ringfence.record import Record, StageTally
from ringfence.types import ABSTAIN, BINS, SCORE_EDGES, FloatArray, IntArray

MOST_CLASSES = 6
_MIDDLES: FloatArray = (SCORE_EDGES[1:] + SCORE_EDGES[:-1]) / 2
_SMALL = 4
"""Other cells up to this many are kept as they are (ACES's two bits)."""


@final
@dataclass(frozen=True)
class Stream:
    """One stream of draws: stage 0 chose the class, later ones estimate it.

    classes and weights: the largest, in decreasing order; weights are votes, or sums of softmax scores where
    scored. share is the weight of the record's class (of the largest one where it abstained) over draws.
    """

    stage: int
    requests: int
    draws: int
    classes: tuple[int, ...]
    weights: tuple[float, ...]
    invalid: int
    scored: bool
    share: float
    other: tuple[tuple[str, tuple[int, ...]], ...] = ()


def streams_of(record: Record) -> tuple[Stream, ...]:
    """The record's streams, in the order of their stage; empty for an imported record."""
    stages = sorted({entry.stage for entry in record.stages})
    return tuple(_stream(record, [entry for entry in record.stages if entry.stage == stage]) for stage in stages)


def _stream(record: Record, entries: list[StageTally]) -> Stream:
    draws = sum(entry.draws for entry in entries)
    sums: dict[str, IntArray] = {}
    for entry in entries:
        for name, cells in entry.cells.items():
            sums[name] = sums[name] + cells if name in sums else np.asarray(cells, np.int64)
    scored = "scores" in sums and "votes" not in sums
    weights, invalid = _scores(sums["scores"]) if scored else _votes(sums.get("votes"))
    order = np.argsort(-weights, kind="stable")[:MOST_CLASSES]
    kept = order[weights[order] > 0]
    chosen = record.prediction if record.prediction != ABSTAIN else int(order[0]) if len(order) else ABSTAIN
    known = 0 <= chosen < len(weights) and draws > 0
    small = [(name, cells) for name, cells in sums.items() if name not in ("votes", "scores") and len(cells) <= _SMALL]
    return Stream(
        stage=entries[0].stage,
        requests=len(entries),
        draws=draws,
        classes=tuple(int(one) for one in kept),
        weights=tuple(float(weights[one]) for one in kept),
        invalid=invalid,
        scored=scored,
        share=float(weights[chosen] / draws) if known else float("nan"),
        other=tuple((name, tuple(int(cell) for cell in cells)) for name, cells in small),
    )


def _votes(cells: IntArray | None) -> tuple[FloatArray, int]:
    """Votes per class (K,) and invalid draws; the last cell counts those."""
    if cells is None or not len(cells):
        return np.zeros(0), 0
    return cells[:-1].astype(np.float64), int(cells[-1])


def _scores(cells: IntArray) -> tuple[FloatArray, int]:
    """Sums of scores per class (K,) from the histograms' middles, and invalid draws."""
    histograms = cells[:-1].reshape(-1, BINS)
    sums: FloatArray = histograms @ _MIDDLES
    return sums, int(cells[-1]) // max(len(histograms), 1)
