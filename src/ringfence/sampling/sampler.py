"""Sampler: draws of many inputs in full batches, read out and counted on the device, memory flat in n."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from threading import Lock
from typing import final

import numpy as np
import torch
from torch import Tensor, nn

from ringfence.classifiers.base import APART, Scored
from ringfence.errors import ClassifierError
from ringfence.noise import Noise
from ringfence.sampling.check import Checked, checked_forward
from ringfence.sampling.device_counts import IN_FLIGHT, DeviceCounts, Finished
from ringfence.sampling.draws import CHUNK, Packer, Segment
from ringfence.sampling.forward import Forward
from ringfence.sampling.plan import ForwardPlan, out_of_memory, smaller
from ringfence.sampling.readout import Readout
from ringfence.sampling.remembered import FIRST, Remembered
from ringfence.sampling.supply import Prepared, Supply

MANY = 10 * CHUNK
"""Rows of a batch on a CPU, beyond which one with rows that are asked again ends where a chunk does: else each later
batch would cut two, which are drawn by themselves."""


@final
class Sampler:
    """Feeds requests of admitted inputs to one classifier. One sampler, one thread.

    ``admit`` puts an input into a free slot, ``submit`` asks for draws of it, ``step`` runs one batch and
    returns what is complete, ``release`` frees the slot. A tally holds exactly the draws asked for.
    What was counted up to batch ``confirmed`` of ``batches`` is known to come from a classifier that has not changed;
    ``confirm`` finds out about the rest.
    samples: inputs of the run (*shape), noisy copies of which the classifier is checked on. keep: the plan is one that
    certificates were made with, so that no other form will do. slots: for at least so many inputs at once.
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
        samples: Sequence[Tensor] = (),
        keep: bool = False,
        slots: int = 0,
    ) -> None:
        self._classifier, self._num_classes, self._device = classifier, num_classes, device
        self.shape = shape
        self._on_new_plan = on_new_plan
        self._packer = Packer()
        # Enough slots that two queued and two travelling batches of single chunks never starve the next.
        slots = max(slots, 4 + (IN_FLIGHT + 3) * -(-plan.batch // CHUNK))
        self._free = list(range(slots))[::-1]
        self._supply = Supply(noise, seed, shape, device, slots)
        self._ahead: Prepared | None = None
        self._looking = Lock()
        self._samples = list(samples) or [torch.full(shape, 0.5, dtype=torch.float32)]
        checked = self._checked(plan, keep)
        self._use(checked.forward)
        rows, scores = checked.first(FIRST)
        if not len(rows):
            rule, remedy = "must answer some noisy inputs with finite, repeatable scores", "Use fp32, or another model."
            raise ClassifierError("classifier", rule, "none among those asked before the run", remedy)
        self._remembered = Remembered(rows, scores, checked.tolerance, keeps=not checked.jumped)
        self._supply.fill_up_with(self._remembered.rows)
        fuse = self.plan.compiles_on(device)
        self._counts = DeviceCounts(readouts, num_classes, checked.answer, slots, device, fuse)
        self.lanes, self.forwards_per_draw = self._counts.lanes, self._counts.forwards_per_draw
        self._ids = np.full(slots, -1, np.int64)
        self._asked = np.zeros(slots, np.int64)
        self.seconds = np.zeros(slots)
        self.drawn = self.batches = 0

    @property
    def confirmed(self) -> int:
        """The last batch in or after which remembered rows had their old scores."""
        return self._remembered.confirmed

    @property
    def plan(self) -> ForwardPlan:
        """The forward shape now in use."""
        return self._forward.plan

    @property
    def pending(self) -> int:
        """Draws that are queued."""
        return self._packer.pending

    @property
    def ahead(self) -> int:
        """Batches that may be under way while the next ones are queued; none where a step waits for its batch."""
        return IN_FLIGHT + 1 if self._supply.ahead else 0

    @property
    def hungry(self) -> bool:
        """Whether another input should be admitted: fewer than two full batches are queued."""
        return bool(self._free) and self.pending < 2 * self.plan.batch

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
        self._packer.add(Segment(slot, int(self._ids[slot]), stage, start, draws))
        self._asked[slot] = draws

    def release(self, slot: int) -> None:
        """Free a slot whose input is decided."""
        self._ids[slot] = -1
        self._free.append(slot)

    def step(self, ask: bool = False) -> Finished | None:
        """Run one batch; the requests that are complete by now, or None when nothing is queued or travelling.

        ask: the remembered rows too, although it is not their time: somebody waits for what is to be confirmed.
        """
        begin = time.perf_counter()
        segments: list[Segment] = []
        if self._packer.pending or self._ahead:
            segments = self._next_batch(ask)
        elif not self._counts.travelling:
            return None
        finished = self._counts.landed(wait=not segments)
        self._remembered.listen()
        self._share_time(segments, time.perf_counter() - begin)
        return finished

    def confirm(self) -> None:
        """Ask the remembered rows again, by themselves, unless they were in the last batch; wait for the answer."""
        self._remembered.listen(wait=True)
        while self.confirmed < self.batches:
            if not self._remembered.catch_up(self.batches):
                self._next_batch(ask=True)  # what is drawn already goes first: a request's last draws end it
            self._remembered.listen(wait=True)

    def noisy(self, rows: int) -> Tensor:
        """Noisy copies (rows, *shape) of the samples, of draws that no certificate uses."""
        return self._supply.probe(self._samples, rows)

    def time_of_batch(self) -> float:
        """Seconds that a batch takes; of draws that no certificate uses, and only while there are no others."""
        slot, took = self.admit(-1, self._samples[0]), 0.0
        for start in (0, self.plan.batch):  # the first one only warms
            begin = time.perf_counter()
            self.submit(slot, -1, start, self.plan.batch)
            while self.step() is not None:
                pass
            took = time.perf_counter() - begin
        self.release(slot)
        return took

    # One batch ------------------------------------------------------------------------------------------

    def _next_batch(self, ask: bool) -> list[Segment]:
        """Draw a batch, or take the one that was drawn ahead, ask the network, and count; no memory: half as many."""
        taken: list[Segment] = []
        try:
            prepared, self._ahead = self._ahead or self._prepare(ask), None
            taken = prepared.segments
            if not self._waits:
                self._look_ahead()
            answer = self._forward(prepared.wait())
            self._look_ahead()  # where a K-consensus was not asked, or asks no others
        except RuntimeError as error:
            if not out_of_memory(error):
                raise
            self._back_off(taken)
            return []
        self._count(answer, prepared)  # which ends the run if it fails: who knows what was counted by then
        return taken

    def _look_ahead(self) -> None:
        """Start drawing the batch after this one. Only full ones ahead of time: padding is work thrown away."""
        with self._looking:  # a network may ask its parts in threads, and what a second one took would be lost
            if self._supply.ahead and self._ahead is None and self._packer.pending >= self.plan.batch:
                self._ahead = self._prepare()

    def _count(self, answer: Scored, prepared: Prepared) -> None:
        self.batches += 1
        self._remembered.note(answer.scores, prepared.drawn, prepared.filling, self.batches)
        self._counts.add(answer, prepared.rows)
        self._supply.used()
        finished = [segment.slot for segment in prepared.segments if segment.last]
        if finished:
            self._counts.send(finished, [int(self._asked[slot]) for slot in finished])
        self.drawn += prepared.drawn

    def _prepare(self, now: bool = False) -> Prepared:
        filling = self._remembered.next(self.plan.batch, now)
        room = self.plan.batch - filling.asked
        if filling.asked and room > MANY and not self._supply.ahead:
            room -= room % CHUNK
        segments = self._packer.take(room)
        try:
            return self._supply.prepare(segments, self._forward, filling)
        except BaseException:  # out of memory, say: in smaller batches they are still to be drawn
            self._packer.put_back(segments)
            raise

    # Housekeeping ------------------------------------------------------------------------------------------

    def _checked(self, plan: ForwardPlan, keep: bool) -> Checked:
        """The classifier in a form that computes it, at the run's shape or the largest one that fits into memory."""
        while True:
            try:
                return checked_forward(self._classifier, plan, self._device, self._num_classes, self.noisy, keep)
            except RuntimeError as error:
                if not out_of_memory(error):
                    raise
            plan = self._shrunk(plan)

    def _use(self, forward: Forward) -> None:
        """Run batches by it from now on; one that waits for the device has the next batch drawn meanwhile."""
        self._forward = forward
        self._waits = self._supply.ahead and forward.meanwhile(self._look_ahead)

    def _back_off(self, segments: list[Segment]) -> None:
        """Out of memory: requeue what was taken, in order, and go on with half the batch."""
        if self._ahead:
            self._packer.put_back(self._ahead.segments)
            self._ahead = None
        self._packer.put_back(segments)
        self._remembered.forget_later()
        before = self._forward
        self._use(self._checked(self._shrunk(self.plan), keep=True).forward)
        if self._forward.lanes != before.lanes:
            received = f"{before.lanes}, then {self._forward.lanes}"
            raise ClassifierError("classifier", "must return as many lanes in every batch", received, "Fix the number.")

    def _shrunk(self, plan: ForwardPlan) -> ForwardPlan:
        """Half the batch, after running out of memory, announced as the plan now in use."""
        if self._device.type == "cuda":
            torch.cuda.empty_cache()
        plan = smaller(plan)
        if self._on_new_plan:
            self._on_new_plan(plan)
        return plan

    def _share_time(self, segments: list[Segment], seconds: float) -> None:
        """Every input pays for its share of the batch."""
        total = sum(segment.rows for segment in segments)
        for segment in segments:
            self.seconds[segment.slot] += seconds * segment.rows / total


# A K-consensus calls it between what is compiled.
APART.append((Sampler, "_look_ahead", True))
