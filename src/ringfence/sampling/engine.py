"""The engine: draws of many inputs in full batches, read out and counted on the device, memory flat in n."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import final

import numpy as np
import torch
from torch import Tensor, nn

from ringfence.classifiers import Scored
from ringfence.noise import Noise
from ringfence.sampling.counts import IN_FLIGHT, Counts, Finished
from ringfence.sampling.forward import Forward, ForwardPlan
from ringfence.sampling.packing import Packer, Request, Segment
from ringfence.sampling.probe import out_of_memory, smaller
from ringfence.sampling.readout import Readout
from ringfence.sampling.seeds import CHUNK
from ringfence.sampling.supply import Prepared, Supply


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
        self._classifier, self._num_classes, self._device = classifier, num_classes, device
        self.shape = shape
        self._on_new_plan = on_new_plan
        self._packer = Packer()
        # Enough slots that two queued and two travelling batches of single chunks never starve the next.
        slots = 4 + (IN_FLIGHT + 3) * -(-plan.batch // CHUNK)
        self._free = list(range(slots))[::-1]
        self._supply = Supply(noise, seed, shape, device, slots)
        self._ahead: Prepared | None = None
        self._begin(plan)
        probe = self._checked_probe()
        fuse = plan.compile and device.type == "cuda"
        self._counts = Counts(readouts, num_classes, probe, slots, device, fuse)
        self.lanes, self.forwards_per_draw = self._counts.lanes, self._counts.forwards_per_draw
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
        self._supply.admit(slot, lifted)
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
        elif not self._counts.travelling:
            return None
        finished = self._counts.landed(wait=not segments)
        self._share_time(segments, time.perf_counter() - begin)
        return finished

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
        self._counts.add(answer, prepared.rows)
        self._supply.used()
        finished = [segment.slot for segment in prepared.segments if segment.last]
        if finished:
            self._counts.send(finished, [int(self._asked[slot]) for slot in finished])
        self.drawn += sum(segment.rows for segment in prepared.segments)
        return prepared.segments

    def _prepare(self) -> Prepared:
        return self._supply.prepare(self._packer.take(self.plan.batch), self._forward)

    # Housekeeping ------------------------------------------------------------------------------------------

    def _begin(self, plan: ForwardPlan) -> None:
        self._forward = Forward(self._classifier, plan, self._device, self._num_classes)

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
