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
