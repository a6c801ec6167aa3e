"""Remembered: a few rows are asked again now and then, because only a network that does not change can be certified."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from ringfence.errors import ClassifierError
from ringfence.sampling.agreement import Tolerance
from ringfence.sampling.packing import PADDING

LEAST_BATCHES = 8
"""Between two times: comparing takes a few small kernels, which would be felt in every batch."""
ROWS_FOR_ONE = 200
"""Draws for every row that is asked again: half a percent at most."""


@dataclass(frozen=True)
class _Told:
    """On its way from the device: whether the rows asked in a batch had other scores than before."""

    batch: int
    changed: Tensor
    arrived: torch.cuda.Event | None


@final
class Remembered:
    """Rows of the run's inputs with noise and the scores they got; ``confirmed`` is the last batch known to be sound.

    They stand where a batch is filled up. What was counted in a batch may be used once rows asked in that batch or in
    a later one had their old scores.
    """

    def __init__(self, rows: Tensor, scores: Tensor, within: Tolerance) -> None:
        count = min(PADDING, len(rows))
        self.rows, self._scores, self._within = rows[:count].clone(), scores[:count].clone(), within
        self.confirmed = 0
        self._told: deque[_Told] = deque()
        self._since = 0

    def due(self, batch: int, now: bool = False) -> int:
        """How many rows the next batch, of so many, should leave for this: 0 unless it is time, or is to be now."""
        self._since += 1
        affordable = max(1, batch * LEAST_BATCHES // ROWS_FOR_ONE)  # of small batches few rows, but as often
        room = min(len(self.rows), batch if now else affordable)
        if not now and self._since < max(LEAST_BATCHES, -(-ROWS_FOR_ONE * room // batch)):
            return 0
        self._since = 0
        return room

    def note(self, scores: Tensor, batch: int) -> None:
        """Take the scores (n, lanes, K) that the first n rows got in a batch; nothing waits for the device."""
        changed = self._within.off(scores, self._scores[: len(scores)]).any()
        arrived = None
        if changed.is_cuda:
            changed = torch.empty((), dtype=torch.bool, pin_memory=True).copy_(changed, non_blocking=True)
            arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]
            arrived.record(torch.cuda.current_stream(scores.device))
        self._told.append(_Told(batch, changed, arrived))

    def listen(self, wait: bool = False) -> None:
        """Take in what has arrived, or wait for all of it; a network that changed ends the run."""
        while self._told:
            told = self._told[0]
            if told.arrived is not None:
                if wait:
                    told.arrived.synchronize()
                elif not told.arrived.query():  # type: ignore[no-untyped-call]
                    return
            self._told.popleft()
            if bool(told.changed):
                raise ClassifierError(
                    "classifier",
                    "must stay the same while it is certified",
                    "rows that were asked again had other scores than before",
                    "Records since it was last seen unchanged are dropped. Find what changes the model (weights that "
                    "are still trained, state kept between calls) and run again with the same seed.",
                )
            self.confirmed = told.batch
