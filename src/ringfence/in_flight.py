"""InFlight: the inputs now in work, what their draws brought, and the records they become."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Protocol, final

import numpy as np
from torch import Tensor

from ringfence.data import Input
from ringfence.errors import DataError
from ringfence.lift import Lift
from ringfence.mechanisms import Mechanism
from ringfence.procedures import Given, Procedure, State, claims
from ringfence.record import Record, StageTally
from ringfence.sampling import Finished
from ringfence.types import FORWARDS, BoolArray, FloatArray, IntArray


class DrawRequests(Protocol):
    """What draws are asked of: a Sampler, or whoever stands before one."""

    shape: tuple[int, ...]
    lanes: int
    forwards_per_draw: int | None
    seconds: FloatArray

    @property
    def slots(self) -> int:
        """How many inputs can be in work at once."""

    def admit(self, input_id: int, lifted: Tensor) -> int:
        """Place an input; returns its slot."""

    def submit(self, slot: int, stage: int, start: int, draws: int) -> None:
        """Ask for draws [start, start+draws) of a stage of the input in this slot."""

    def release(self, slot: int) -> None:
        """Free a slot whose input is decided."""


@final
class InFlight:
    """Between sampler and procedure: slots x lanes rows of procedure state, updated as arrays.

    late: whether an input has no time for so many draws more; asked at every look of a procedure with ``seconds``,
    whose share of the work is counted where nothing else is said.
    """

    def __init__(
        self,
        sampler: DrawRequests,
        procedure: Procedure,
        given: Given,
        also: Sequence[Mechanism],
        lift: Lift,
        lanes: Sequence[str] = (),
        seed: int = 0,
        config_hash: str = "",
        late: Callable[[Input, int], bool] | None = None,
    ) -> None:
        self._late = late
        self._sampler, self._procedure, self._given, self._lift = sampler, procedure, given, lift
        self._also, self._seed, self._config_hash = tuple(also), seed, config_hash
        self._lanes = tuple(lanes) or (("main",) if sampler.lanes == 1 else tuple(map(str, range(sampler.lanes))))
        self._fresh = procedure.start(sampler.lanes, given)
        self._first = procedure.request(self._fresh)
        self._state = np.zeros((sampler.slots, sampler.lanes), self._fresh.dtype)
        self._asked = np.zeros((sampler.slots, sampler.lanes), np.int64)
        self._inputs: dict[int, Input] = {}
        self._facts: dict[int, Mapping[str, int]] = {}
        self._history: dict[int, list[list[StageTally]]] = {}
        self._spent = dict(procedure.spent)

    def open(self, item: Input, facts: Mapping[str, int] | None = None) -> int:
        """Begin with an input, of which the procedure may know facts before any noise; returns its slot."""
        lifted = self._lift.at(item.x, item.id)
        if tuple(lifted.shape) != self._sampler.shape:
            rule = f"all inputs of a run have one shape, {self._sampler.shape}"
            raise DataError(f"input {item.id}", rule, tuple(lifted.shape), "Resize the data or run the shapes apart.")
        slot = self._sampler.admit(item.id, lifted)
        facts = {name: value for name, value in (facts or {}).items() if name in self._procedure.knows}
        self._inputs[slot], self._facts[slot] = item, facts
        self._history[slot] = [[] for _ in self._lanes]
        if facts:
            self._state[slot] = self._start(facts)
            self._ask(np.array([slot]))
        else:  # every such input begins alike: no need to ask the procedure each time
            self._state[slot] = self._fresh
            self._asked[slot] = self._first
            self._sampler.submit(slot, int(self._fresh["stage"][0]), 0, int(self._first.max()))
        return slot

    def _start(self, facts: Mapping[str, int]) -> State:
        """Fresh state (lanes,) for an input of which something is known."""
        lanes = self._sampler.lanes
        known = {name: np.full(lanes, value, np.int64) for name, value in facts.items()}
        return self._procedure.start(lanes, replace(self._given, facts=known))

    def settle(self, finished: Finished) -> Iterator[tuple[Input, list[Record]]]:
        """Take in complete requests, ask for more where needed, and yield the decided inputs with their records."""
        slots = finished.slots
        if not len(slots):
            return
        asked = self._asked[slots]
        live = asked.ravel() > 0
        state = self._state[slots].reshape(-1)
        self._remember(slots, finished)
        state[live] = self._procedure.update(state[live], finished.tally[live], self._given)
        self._state[slots] = state.reshape(len(slots), -1)
        decided = slots[~self._ask(slots)]
        if len(decided):
            yield from self._conclude(decided)

    def stop(self, slots: Sequence[int]) -> Iterator[tuple[Input, list[Record]]]:
        """End with inputs as they were when last looked at, whatever is still on its way for them."""
        yield from self._conclude(np.array(slots, np.int64))

    def _ask(self, slots: IntArray) -> BoolArray:
        """Submit what the procedure wants; True where an input goes on. Lanes of one input share their draws."""
        state = self._state[slots]
        wanted = self._procedure.request(state.reshape(-1)).reshape(state.shape)
        if self._procedure.seconds is not None:
            looked = (state["stage"].max(1) > 0) & (state["drawn"].max(1) > 0)
            wanted[looked & self._out_of_time(slots, wanted)] = 0
        self._asked[slots] = wanted
        draws = wanted.max(1)
        if ((wanted > 0) & (wanted != draws[:, None])).any():
            # A lane that got more draws than it asked for would have looked at a moment it did not choose.
            raise RuntimeError(f"lanes of one input asked for different draws: {wanted.tolist()}")
        lane, rows = wanted.argmax(1), np.arange(len(slots))
        stage, start = state["stage"][rows, lane], state["drawn"][rows, lane]
        # Lists first: reading a structured array cell by cell would cost more than the statistics.
        for request in zip(slots.tolist(), stage.tolist(), start.tolist(), draws.tolist(), strict=True):
            if request[3]:
                self._sampler.submit(*request)
        return np.asarray(draws > 0)

    def _out_of_time(self, slots: IntArray, wanted: IntArray) -> BoolArray:
        if self._late is None:
            return np.asarray(self._sampler.seconds[slots] >= (self._procedure.seconds or np.inf))
        asked = zip(slots.tolist(), wanted.max(1).tolist(), strict=True)
        return np.array([self._late(self._inputs[slot], draws) for slot, draws in asked], np.bool_)

    def so_far(self, slots: Sequence[int]) -> list[tuple[Input, int, float, float]]:
        """Inputs in work with the class, the radius and p_a that their draws prove by now, in their first lane."""
        decisions = self._procedure.conclude(self._state[list(slots), 0], self._given)
        prediction, radius, _ = claims(decisions, self._given)
        rows = zip(slots, prediction.tolist(), radius.tolist(), decisions.p_a.tolist(), strict=True)
        return [(self._inputs[slot], top, size, p_a) for slot, top, size, p_a in rows]

    def _remember(self, slots: IntArray, finished: Finished) -> None:
        """Keep the raw counts of every request: they are what a record is verified from."""
        rows = zip(
            (history for slot in slots for history in self._history[slot]),
            self._asked[slots].ravel().tolist(),
            self._state["stage"][slots].ravel().tolist(),
            self._state["drawn"][slots].ravel().tolist(),
            finished.tally.draws.tolist(),
            strict=True,
        )
        for row, (history, asked, stage, start, draws) in enumerate(rows):
            if asked:
                cells = {name: counts[row] for name, counts in finished.tally.cells.items()}
                history.append(StageTally(stage, start, draws, cells))

    def _conclude(self, slots: IntArray) -> Iterator[tuple[Input, list[Record]]]:
        decisions = self._procedure.conclude(self._state[slots].reshape(-1), self._given)
        prediction, radius, radii = claims(decisions, self._given, self._also)
        row = 0
        for slot in slots:
            item, history, facts = self._inputs.pop(slot), self._history.pop(slot), self._facts.pop(slot)
            seconds = float(self._sampler.seconds[slot])
            records: list[Record] = []
            for lane, stages in zip(self._lanes, history, strict=True):
                draws = sum(stage.draws for stage in stages)
                each = self._sampler.forwards_per_draw
                forwards = draws * each if each else sum(int(stage.cells[FORWARDS][0]) for stage in stages)
                records.append(
                    Record(
                        input_id=item.id,
                        lane=lane,
                        label=item.label,
                        prediction=int(prediction[row]),
                        radius=float(radius[row]),
                        p_a=float(decisions.p_a[row]),
                        p_b=float(decisions.p_b[row]),
                        alpha=self._procedure.alpha,
                        procedure=self._procedure.name,
                        sound=self._procedure.sound and self._lift.sound,
                        seed=self._seed,
                        draws=draws,
                        forwards=forwards,
                        seconds=seconds / len(self._lanes),
                        target=self._procedure.target,
                        lift_norm=self._given.norm_bound,
                        radii={name: float(values[row]) for name, values in radii.items()},
                        spent=self._spent,
                        stages=tuple(stages),
                        config_hash=self._config_hash,
                        facts=facts,
                        norm=self._given.mechanism.norm,
                    )
                )
                row += 1
            self._sampler.release(int(slot))
            yield item, records
