"""The engine: draws of many inputs in full batches, read out and counted on the device, memory flat in n."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from torch import Tensor, nn

from ringfence.classifiers import Scored
from ringfence.noise import Noise
from ringfence.sampling.forward import Forward, ForwardPlan
from ringfence.sampling.packing import Packer, Request, Segment
from ringfence.sampling.probe import out_of_memory, smaller
from ringfence.sampling.readout import Readout
from ringfence.sampling.seeds import CHUNK
from ringfence.sampling.supply import Prepared, Supply
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
class Engine:
    """Feeds requests of admitted inputs to one classifier. One engine, one thread.

    ``admit`` puts an input into a free slot, ``submit`` asks for draws of it, ``step`` runs one batch and
    returns what is complete, ``release`` frees the slot. A tally holds exactly the draws asked for.
    """

    def __init__(
        self,
        classifier: nn.Module,
        noise: Noise,
        readouts: Sequence[Readout],
        num_classes: int,
        plan: ForwardPlan,
        device: torch.device,
        shape: tuple[int, ...],
        seed: int = 0,
        on_new_plan: Callable[[ForwardPlan], None] | None = None,
    ) -> None:
        self._classifier, self._readouts = classifier, tuple(readouts)
        self._num_classes, self._device = num_classes, device
        self.shape = shape
        self._on_new_plan = on_new_plan
        self._packer = Packer()
        self._landing: deque[_Landing] = deque()
        self._supply = Supply(noise, seed, shape, device)
        self._ahead: Prepared | None = None
        self._begin(plan)
        # Enough slots that two queued and two travelling batches of single chunks never starve the next.
        slots = 4 + (IN_FLIGHT + 3) * -(-plan.batch // CHUNK)
        self._free = list(range(slots))[::-1]
        self._clean = torch.zeros(slots + 1, *shape, device=device)  # the last slot takes padding rows
        probe = self._checked_probe()
        self._rows_each = 1 if any(readout.joint for readout in self._readouts) else probe.scores.shape[1]
        self.lanes = self._rows_each * max(readout.fan_out for readout in self._readouts)
        self._widths = {r.name: r.width(num_classes, probe.scores.shape[1]) for r in self._readouts}
        self.forwards_per_draw = probe.work if isinstance(probe.work, int) else None
        if self.forwards_per_draw is None:
            self._widths[FORWARDS] = 1  # rows differ in work, so it is counted beside the readouts
        self._counts = {
            name: torch.zeros(slots + 1, self._rows_each, width, dtype=torch.int64, device=device)
            for name, width in self._widths.items()
        }
        if self._places is not _places:  # compiled now, not during the first batch; nobody reads the padding slot
            self._count(probe, torch.full((len(probe.scores),), slots, device=device))
        self._ids = np.full(slots, -1, np.int64)
        self._asked = np.zeros(slots, np.int64)
        self.seconds = np.zeros(slots)
        self.drawn = 0

    @property
    def plan(self) -> ForwardPlan:
        """The forward shape now in use."""
        return self._forward.plan

    @property
    def hungry(self) -> bool:
        """Whether another input should be admitted: fewer than two full batches are queued."""
        return bool(self._free) and self._packer.pending < 2 * self.plan.batch

    @property
    def slots(self) -> int:
        """How many inputs can be in work at once."""
        return len(self._ids)

    def admit(self, input_id: int, lifted: Tensor) -> int:
        """Place an input of the engine's shape; returns its slot."""
        slot = self._free.pop()
        self._clean[slot] = lifted.to(self._device, torch.float32)
        self._ids[slot] = input_id
        self.seconds[slot] = 0.0
        return slot

    def submit(self, slot: int, stage: int, start: int, draws: int) -> None:
        """Ask for draws [start, start+draws) of a stage of the input in this slot."""
        self._packer.add(Request(slot, int(self._ids[slot]), stage, start, draws))
        self._asked[slot] = draws

    def release(self, slot: int) -> None:
        """Free a slot whose input is decided."""
        self._ids[slot] = -1
        self._free.append(slot)

    def step(self) -> Finished | None:
        """Run one batch; the requests that are complete by now, or None when nothing is queued or travelling."""
        begin = time.perf_counter()
        segments: list[Segment] = []
        if self._packer.pending or self._ahead:
            segments = self._run_batch()
        elif not self._landing:
            return None
        landed: list[_Landing] = []
        while self._landing and self._may_land(wait=not segments):
            landed.append(self._landing.popleft())
        self._share_time(segments, time.perf_counter() - begin)
        return self._finished(landed)

    # One batch ------------------------------------------------------------------------------------------

    def _run_batch(self) -> list[Segment]:
        prepared, self._ahead = self._ahead or self._prepare(), None
        # Only full batches ahead of time: padding is work thrown away.
        if self._supply.ahead and self._packer.pending >= self.plan.batch:
            self._ahead = self._prepare()
        try:
            answer = self._forward(prepared.wait())
        except RuntimeError as error:
            if not out_of_memory(error):
                raise
            self._back_off(prepared.segments)
            return []
        self._count(answer, prepared.rows)
        finished = [segment.slot for segment in prepared.segments if segment.last]
        if finished:
            self._send(finished)
        self.drawn += sum(segment.rows for segment in prepared.segments)
        return prepared.segments

    def _prepare(self) -> Prepared:
        return self._supply.prepare(self._packer.take(self.plan.batch), self._forward, self._clean)

    @torch.inference_mode()
    def _count(self, answer: Scored, rows: Tensor) -> None:
        """Scatter-add every readout's cells: counts[slot, lane, cell] += 1."""
        each = self._rows_each
        for readout in self._readouts:
            counts = self._counts[readout.name]
            flat = self._places(readout, answer.scores, rows, each, counts.shape[2])
            counts.view(-1).scatter_add_(0, flat, torch.ones_like(flat))
        if isinstance(answer.work, Tensor):
            row = _lane_rows(rows, each)
            work = answer.work.view(len(rows), -1)
            work = work if work.shape[1] == each else work.amax(1, keepdim=True).expand(-1, each)
            self._counts[FORWARDS].view(-1).scatter_add_(0, row.flatten(), work.flatten().to(torch.int64))

    # Counts to the host ------------------------------------------------------------------------------------

    def _send(self, finished: list[int]) -> None:
        """Start copying the finished slots' counts to the host and zero them for the next request."""
        index = torch.tensor(finished)
        cuda = self._device.type == "cuda"
        index = index.pin_memory().to(self._device, non_blocking=True) if cuda else index
        sent: dict[str, Tensor] = {}
        for name, counts in self._counts.items():
            chosen = counts.index_select(0, index)
            counts.index_fill_(0, index, 0)
            if cuda:
                host = torch.empty(chosen.shape, dtype=chosen.dtype, pin_memory=True)
                chosen = host.copy_(chosen, non_blocking=True)
            sent[name] = chosen
        arrived = torch.cuda.Event() if cuda else None  # type: ignore[no-untyped-call]
        if arrived:
            arrived.record(torch.cuda.current_stream(self._device))
        self._landing.append(_Landing(finished, [int(self._asked[s]) for s in finished], sent, arrived))

    def _may_land(self, wait: bool) -> bool:
        arrived = self._landing[0].arrived
        if arrived is None or arrived.query():  # type: ignore[no-untyped-call]
            return True
        if wait or len(self._landing) > IN_FLIGHT:
            arrived.synchronize()
            return True
        return False

    def _finished(self, landed: list[_Landing]) -> Finished:
        slots = np.array([slot for landing in landed for slot in landing.slots], np.int64)
        draws = np.array([draws for landing in landed for draws in landing.draws], np.int64)
        counts: dict[str, IntArray] = {}
        for name, width in self._widths.items():
            parts = [landing.counts[name].numpy().reshape(-1, width) for landing in landed]
            counts[name] = np.concatenate(parts) if parts else np.zeros((0, width), np.int64)
        cells = {name: cells for one in self._readouts for name, cells in one.unfold(counts[one.name]).items()}
        if FORWARDS in counts:
            cells[FORWARDS] = np.repeat(counts[FORWARDS], self.lanes // self._rows_each, 0)
        return Finished(slots, Tally(cells, np.repeat(draws, self.lanes)))

    # Housekeeping ------------------------------------------------------------------------------------------

    def _begin(self, plan: ForwardPlan) -> None:
        self._forward = Forward(self._classifier, plan, self._device, self._num_classes)
        fused = plan.compile and self._device.type == "cuda"  # a dozen small kernels become one or two
        self._places = torch.compile(_places, dynamic=False) if fused else _places

    def _checked_probe(self) -> Scored:
        """Check the classifier at the run's shape, or at the largest one that fits into memory."""
        while True:
            try:
                return self._forward.check(self._supply.probe(self._forward))
            except RuntimeError as error:
                if not out_of_memory(error):
                    raise
            self._back_off([])

    def _back_off(self, segments: list[Segment]) -> None:
        """Out of memory: requeue what was taken, in order, and go on with half the batch."""
        if self._ahead:
            self._packer.put_back(self._ahead.segments)
            self._ahead = None
        self._packer.put_back(segments)
        if self._device.type == "cuda":
            torch.cuda.empty_cache()
        self._begin(smaller(self.plan))
        if self._on_new_plan:
            self._on_new_plan(self.plan)

    def _share_time(self, segments: list[Segment], seconds: float) -> None:
        """Every input pays for its share of the batch."""
        total = sum(segment.rows for segment in segments)
        for segment in segments:
            self.seconds[segment.slot] += seconds * segment.rows / total


def _lane_rows(rows: Tensor, each: int) -> Tensor:
    """Rows (B,) of slots -> rows (B, lanes, 1) of counts, lanes fastest."""
    return (rows.unsqueeze(1) * each + torch.arange(each, device=rows.device)).unsqueeze(2)


def _places(readout: Readout, scores: Tensor, rows: Tensor, each: int, width: int) -> Tensor:
    """Where in the flat counts (slots, lanes, width) each draw adds one: (B * lanes * m,)."""
    return (_lane_rows(rows, each) * width + readout.cells(scores)).flatten()
