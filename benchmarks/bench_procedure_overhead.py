"""(4) What the statistics cost per batch of 8,192 draws over 82 inputs: procedures alone, and with inputs in flight."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
import torch
from common import Bar, Grid, Report, arguments, finish, interleaved

import ringfence as rf
from ringfence.data import Input
from ringfence.in_flight import InFlight
from ringfence.mechanisms import neyman_pearson
from ringfence.procedures import Given, Procedure
from ringfence.sampling import Finished
from ringfence.types import IntArray, Tally

ROWS, CLASSES, SIGMA = 82, 10, 0.5
GIVEN = Given(CLASSES, SIGMA, neyman_pearson)
PROCEDURES: dict[str, Procedure] = {
    "sequential": rf.Sequential(radius=0.5),
    "staged": rf.Staged(radius=0.5),
    "anytime": rf.Anytime(),
    "fixed": rf.Fixed(),
    "two-sided": rf.TwoSided(),
}
LIMIT_MS = 0.3


def drawn_votes(draws: IntArray, chance: np.ndarray[Any, Any], rng: np.random.Generator) -> Tally:
    """What an engine would count: each row's class 0 with its chance, the rest spread over the others."""
    rest = np.repeat((1 - chance)[:, None] / (CLASSES - 1), CLASSES - 1, axis=1)
    votes = rng.multinomial(draws, np.concatenate([chance[:, None], rest], axis=1))
    return Tally({"votes": np.concatenate([votes, np.zeros((len(draws), 1), np.int64)], axis=1)}, draws)


def chances(count: int, rng: np.random.Generator) -> np.ndarray[Any, Any]:
    """Inputs of every kind: hopeless, near the boundary p0 = Phi(1) = .84, and easy."""
    return rng.uniform(0.3, 1.0, count)


def procedure_milliseconds(procedure: Procedure, batches: int) -> float:
    """Median time of update and request on 82 rows at mixed looks; decided rows are replaced by fresh ones."""
    rng = np.random.default_rng(0)
    state, chance = procedure.start(ROWS, GIVEN), chances(ROWS, rng)
    times: list[float] = []
    for _ in range(batches):
        tally = drawn_votes(procedure.request(state), chance, rng)
        begin = time.perf_counter()
        state = procedure.update(state, tally, GIVEN)
        wanted = procedure.request(state)
        times.append(time.perf_counter() - begin)
        done = wanted == 0
        if done.any():
            state[done] = procedure.start(int(done.sum()), GIVEN)
            chance[done] = chances(int(done.sum()), rng)
    return 1000 * median(times)


@dataclass(frozen=True)
class _Asked:
    slot: int
    draws: int


class CountingEngine:
    """Stands in for the engine: answers every request at once with votes drawn from known chances."""

    def __init__(self, slots: int, rng: np.random.Generator) -> None:
        self.lanes, self.slots, self.shape, self.forwards_per_draw = 1, slots, (1,), 1
        self.seconds = np.zeros(slots)
        self.free = list(range(slots))
        self._rng, self._chance = rng, np.zeros(slots)
        self._queue: list[_Asked] = []

    def admit(self, input_id: int, lifted: torch.Tensor) -> int:
        """A slot with a fresh chance."""
        slot = self.free.pop()
        self._chance[slot] = chances(1, self._rng)[0]
        return slot

    def submit(self, slot: int, stage: int, start: int, draws: int) -> None:
        """Remember what is asked."""
        self._queue.append(_Asked(slot, draws))

    def release(self, slot: int) -> None:
        """The slot may be used again."""
        self.free.append(slot)

    def step(self) -> Finished:
        """Everything asked for."""
        slots = np.array([asked.slot for asked in self._queue], np.int64)
        draws = np.array([asked.draws for asked in self._queue], np.int64)
        self._queue = []
        return Finished(slots, drawn_votes(draws, self._chance[slots], self._rng))


def in_flight_milliseconds(procedure: Procedure, batches: int) -> float:
    """Median time of InFlight.settle on 82 complete requests, and of opening new inputs for the decided ones."""
    engine = CountingEngine(ROWS, np.random.default_rng(0))
    flight = InFlight(engine, procedure, GIVEN, (), rf.Identity())  # type: ignore[arg-type]
    x, opened, times = torch.zeros(1), 0, []
    while engine.free:
        flight.open(Input(opened, x, 0, ""))
        opened += 1
    for _ in range(batches):
        finished = engine.step()
        begin = time.perf_counter()
        for _records in flight.settle(finished):
            pass
        while engine.free:
            flight.open(Input(opened, x, 0, ""))
            opened += 1
        times.append(time.perf_counter() - begin)
    return 1000 * median(times)


def main() -> int:
    options = arguments(__doc__ or "")
    batches = 10 if options.quick else 300
    tasks: dict[str, Any] = {}
    for name, procedure in PROCEDURES.items():
        tasks[name] = lambda procedure=procedure: procedure_milliseconds(procedure, batches)
        tasks[f"{name}, in flight"] = lambda procedure=procedure: in_flight_milliseconds(procedure, batches)
    milliseconds = interleaved(tasks, options.repetitions)
    rows = [
        [name, f"{median(milliseconds[name]):.3f}", f"{median(milliseconds[f'{name}, in flight']):.3f}"]
        for name in PROCEDURES
    ]
    grid = Grid(
        f"Milliseconds per batch, {ROWS} inputs with one finished request each",
        ["procedure", "update + request", "with book-keeping"],
        rows,
    )
    bars = [
        Bar(f"{name}: update + request", "at most", LIMIT_MS, median(milliseconds[name]), "ms") for name in PROCEDURES
    ]
    settings = {"rows": ROWS, "batches": batches, "procedures": {k: p.settings() for k, p in PROCEDURES.items()}}
    notes = [
        "Only sequential and anytime finish so many requests in 8,192 draws; the others' requests are larger and rarer."
    ]
    return finish(Report("procedure_overhead", settings, [grid], bars, {"milliseconds": milliseconds}, notes), options)


if __name__ == "__main__":
    sys.exit(main())
