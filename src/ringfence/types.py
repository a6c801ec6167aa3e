"""The few shared names: array aliases, ABSTAIN, and Tally, the only thing sampling hands to statistics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

ABSTAIN = -1
"""The prediction of an input for which nothing is claimed."""

FORWARDS = "forwards"
"""The cell that sums network forwards, for classifiers whose rows differ in them."""

BINS = 1024
"""Bins of a score histogram: part of what a stored tally means."""

SCORE_EDGES: FloatArray = (np.sin(np.pi / 2 * np.arange(BINS + 1) / BINS) ** 2).astype(np.float32).astype(np.float64)
"""Edges (BINS+1,) of the bins, 0 to 1, each exactly a float32 so that the device compares with the same numbers.

sin^2(pi t / 2) makes a bin's width proportional to sqrt(p(1-p)), the spread of a mean: equal bins would cost
0.001 of probability everywhere, which is most of the radius where p is near 1.
"""


@dataclass(frozen=True)
class Tally:
    """Counts of what happened, one row per (input, lane).

    cells: name -> int64 array of shape (rows, cells of that name);
    draws: int64 array (rows,), how many noise draws each row has seen.
    Tallies add exactly, in any order: merging, resuming and streaming need nothing else.
    """

    cells: Mapping[str, IntArray]
    draws: IntArray

    def __add__(self, other: Tally) -> Tally:
        """Counts of both; the two must name the same cells."""
        if self.cells.keys() != other.cells.keys():
            raise ValueError(f"tallies name different cells: {sorted(self.cells)} and {sorted(other.cells)}")
        return Tally({name: self.cells[name] + other.cells[name] for name in self.cells}, self.draws + other.draws)

    def __getitem__(self, rows: BoolArray | IntArray | slice) -> Tally:
        """The chosen rows."""
        return Tally({name: counts[rows] for name, counts in self.cells.items()}, self.draws[rows])

    def __len__(self) -> int:
        return len(self.draws)

    @property
    def votes(self) -> IntArray:
        """Class votes (rows, K): the last cell of ``votes``, the invalid scores, is left out."""
        return self.cells["votes"][:, :-1]

    @property
    def score_histograms(self) -> tuple[IntArray, IntArray]:
        """Softmax histograms (rows, K, BINS) and invalid draws (rows,), from the cells of ``scores``."""
        cells = self.cells["scores"]
        histograms = cells[:, :-1].reshape(len(cells), -1, BINS)
        return histograms, cells[:, -1] // histograms.shape[1]
