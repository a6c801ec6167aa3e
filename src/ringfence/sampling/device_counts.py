"""Counts: what every draw adds one to, kept on the device, and their way to the host without waiting."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from ringfence.classifiers import Scored
from ringfence.noise.checked import checked_kernel
from ringfence.sampling.draws import PADDING
from ringfence.sampling.preparing import compiled
from ringfence.sampling.readout import Readout, Votes
from ringfence.types import FORWARDS, IntArray, Tally

IN_FLIGHT = 2
"""Batches whose counts may still be on their way to the host while the next ones run."""


@dataclass(frozen=True)
class Finished:
    """Requests that are complete: slots (rows,) and their tally with rows = slots x lanes, lanes fastest."""

    slots: IntArray
    tally: Tally


@dataclass
class _Landing:
    """Counts travelling from the device to the host."""

    slots: list[int]
    draws: list[int]
    counts: dict[str, Tensor]
    arrived: torch.cuda.Event | None


@final
class DeviceCounts:
    """Cells (slots + PADDING, lanes, width) of every readout; the last slots take padding rows and are never read.

    probe: scores and work of a batch, which say how many lanes there are and whether rows differ in work.
    """

    def __init__(
        self, readouts: Sequence[Readout], num_classes: int, probe: Scored, slots: int, device: torch.device, fuse: bool
    ) -> None:
        self._readouts, self._device = tuple(readouts), device
        self._rows_each = 1 if any(readout.joint for readout in readouts) else probe.scores.shape[1]
        self.lanes = self._rows_each * max(readout.fan_out for readout in readouts)
        self._widths = {r.name: r.width(num_classes, probe.scores.shape[1]) for r in readouts}
        self.forwards_per_draw = probe.work if isinstance(probe.work, int) else None
        if self.forwards_per_draw is None:
            self._widths[FORWARDS] = 1  # rows differ in work, so it is counted beside the readouts
        self._cells = {
            name: torch.zeros(slots + PADDING, self._rows_each, width, dtype=torch.int64, device=device)
            for name, width in self._widths.items()
        }
        self._each = {r.name: r.cells(probe.scores[:1]).shape[2] for r in readouts}  # cells that a draw adds one to
        self._landing: deque[_Landing] = deque()
        self._nothing = self._finished([])
        self._kernel: Any = checked_kernel("ringfence.sampling.vote_kernel", device)
        self._places: Any = _places
        if fuse and not all(self._by_kernel(readout, probe.scores) for readout in readouts):
            self._places = compiled(_places)  # a dozen small kernels become two
        if fuse:  # compiled now, not during the first batch
            self.add(probe, torch.full((len(probe.scores),), slots, device=device))

    @property
    def travelling(self) -> bool:
        """Whether anything is on its way to the host."""
        return bool(self._landing)

    @torch.inference_mode()
    def add(self, answer: Scored, rows: Tensor) -> None:
        """Scatter-add every readout's cells: cells[slot, lane, cell] += 1, for the slot (B,) of every row."""
        each = self._rows_each
        for readout in self._readouts:
            cells = self._cells[readout.name]
            if self._by_kernel(readout, answer.scores):
                self._kernel.add_votes(cells, answer.scores, rows)
                continue
            flat = self._places(readout, answer.scores, rows, each, cells.shape[2])
            cells.view(-1).scatter_add_(0, flat, torch.ones_like(flat))
        if isinstance(answer.work, Tensor):
            row = _lane_rows(rows, each)
            work = answer.work.view(len(rows), -1)
            work = work if work.shape[1] == each else work.amax(1, keepdim=True).expand(-1, each)
            self._cells[FORWARDS].view(-1).scatter_add_(0, row.flatten(), work.flatten().to(torch.int64))

    def _by_kernel(self, readout: Readout, scores: Tensor) -> bool:
        """Whether our kernel counts this readout: votes, a row of cells for every lane."""
        return self._kernel is not None and isinstance(readout, Votes) and scores.shape[1] == self._rows_each

    def send(self, slots: list[int], draws: list[int]) -> None:
        """Start copying the counts of finished requests to the host and zero them for the next."""
        index = torch.tensor(slots)
        cuda = self._device.type == "cuda"
        index = index.pin_memory().to(self._device, non_blocking=True) if cuda else index
        sent: dict[str, Tensor] = {}
        for name, cells in self._cells.items():
            chosen = cells.index_select(0, index)
            cells.index_fill_(0, index, 0)
            if cuda:
                host = torch.empty(chosen.shape, dtype=chosen.dtype, pin_memory=True)
                chosen = host.copy_(chosen, non_blocking=True)
            sent[name] = chosen
        arrived = torch.cuda.Event() if cuda else None  # type: ignore[no-untyped-call]
        if arrived:
            arrived.record(torch.cuda.current_stream(self._device))
        self._landing.append(_Landing(slots, draws, sent, arrived))

    def landed(self, wait: bool) -> Finished:
        """What has arrived; wait for all of it, or only for what lets too much be under way."""
        landed: list[_Landing] = []
        while self._landing and self._may_land(wait):
            landed.append(self._landing.popleft())
        return self._finished(landed) if landed else self._nothing

    def _finished(self, landed: list[_Landing]) -> Finished:
        """A count of too few or too many draws, whatever lost them, would be a wrong certificate: it ends the run."""
        slots = np.array([slot for landing in landed for slot in landing.slots], np.int64)
        draws = np.array([draws for landing in landed for draws in landing.draws], np.int64)
        counts: dict[str, IntArray] = {}
        for name, width in self._widths.items():
            parts = [landing.counts[name].numpy().reshape(-1, width) for landing in landed]
            counts[name] = np.concatenate(parts) if parts else np.zeros((0, width), np.int64)
        for name, times in self._each.items():
            if not np.array_equal(counts[name].sum(1), np.repeat(times * draws, self._rows_each)):
                raise RuntimeError(f"slots {slots.tolist()} hold other numbers of draws than {draws.tolist()}: {name}")
        cells = {name: cells for one in self._readouts for name, cells in one.unfold(counts[one.name]).items()}
        if FORWARDS in counts:
            cells[FORWARDS] = np.repeat(counts[FORWARDS], self.lanes // self._rows_each, 0)
        return Finished(slots, Tally(cells, np.repeat(draws, self.lanes)))

    def _may_land(self, wait: bool) -> bool:
        arrived = self._landing[0].arrived
        if arrived is None or arrived.query():  # type: ignore[no-untyped-call]
            return True
        if wait or len(self._landing) > IN_FLIGHT:
            arrived.synchronize()
            return True
        return False


def _lane_rows(rows: Tensor, each: int) -> Tensor:
    """Rows (B,) of slots -> rows (B, lanes, 1) of cells, lanes fastest."""
    cells = rows.unsqueeze(1)
    return (cells if each == 1 else cells * each + torch.arange(each, device=rows.device)).unsqueeze(2)


def _places(readout: Readout, scores: Tensor, rows: Tensor, each: int, width: int) -> Tensor:
    """Where in the flat cells (slots, lanes, width) each draw adds one: (B * lanes * m,)."""
    return (_lane_rows(rows, each) * width + readout.cells(scores)).flatten()
