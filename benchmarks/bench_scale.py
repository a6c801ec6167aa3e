"""(12) Work that is handed out: 1,000 simulated workers, what the driver takes in, and what Ray costs.

The simulation runs the dispatcher of the library in simulated time: inputs take the draws that they took in
committed runs, one with a fixed number and one of the sequential test; workers differ in speed, some are stragglers,
and all of them die now and then.
"""

from __future__ import annotations

import heapq
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import torch
from common import Bar, Grid, Report, finish, interleaved, median_ratio, options_parser
from cost_model import draws_of, imagenet_rate

import ringfence as rf
from ringfence.data import Input
from ringfence.engines.crew import Crew, Manager, Message
from ringfence.engines.dispatch import Dispatch
from ringfence.engines.worker import HUNGRY_BELOW
from ringfence.engines.worker import Report as Told
from ringfence.record import Record, StageTally
from ringfence.store import RecordWriter, RunFolder

SERVICE = {"gaussian-resnet110-0.5": 1, "gaussian-resnet110-0.5-sequential-r1.0": 4}
"""Committed runs whose draws per input are the service times; and how many times 50,000 inputs are done."""
DEATHS = {"never": 1e9, "every 10 h": 10.0, "every hour": 1.0, "every 6 min": 0.1}
"""Hours after which a worker dies, on average."""
RATE = imagenet_rate()
"""Draws a second of a worker of speed 1: ResNet-50 on an H200, as cost_model.py estimates it."""
X = torch.zeros(1)


@dataclass(order=True)
class Hand:
    """A simulated worker: when it is done with what it does, and how fast it is."""

    at: float
    name: str
    speed: float = field(compare=False)
    queue: list[Input] = field(default_factory=list, compare=False)
    doing: Input | None = field(default=None, compare=False)
    begun: float = field(default=0.0, compare=False)


def simulated(draws: Sequence[int], inputs: int, workers: int, hours: float, seed: int) -> dict[str, float]:
    """Utilisation, lost work, and the last answer over the ideal; hours: a worker's mean time to death."""
    chance = random.Random(seed)
    works = [draws[chance.randrange(len(draws))] / RATE for _ in range(inputs)]
    dispatch = Dispatch((Input(i, X, None, "") for i in range(inputs)), workers)
    names = iter(range(10**9))

    def hired(at: float) -> Hand:
        speed = chance.lognormvariate(0, 0.15) / (4 if chance.random() < 0.02 else 1)
        return Hand(at, str(next(names)), speed)

    crew = [hired(0.0) for _ in range(workers)]
    speeds = sum(one.speed for one in crew)
    heapq.heapify(crew)
    busy, lost, last, deaths = 0.0, 0.0, 0.0, 0
    while not dispatch.finished:
        hand = heapq.heappop(crew)
        now = hand.at
        if hand.doing is not None:
            span = now - hand.begun
            busy += span
            first = dispatch.answer(hand.name, hand.doing.id)
            last, lost, hand.doing = (now if first else last), lost + (0 if first else span), None
        if len(hand.queue) < HUNGRY_BELOW:
            hand.queue += dispatch.group(hand.name)
        if not hand.queue and (single := dispatch.suspect(hand.name) or dispatch.spare(hand.name)) is not None:
            hand.queue = [single]
        if not hand.queue:
            hand.at = now + 1.0  # free: it is asked again soon
            heapq.heappush(crew, hand)
            continue
        hand.doing, hand.begun = hand.queue.pop(0), now
        span = works[hand.doing.id] / hand.speed
        until_death = chance.expovariate(1 / (3600 * hours))
        if until_death < span:
            lost += until_death
            deaths += 1
            busy += until_death
            dispatch.lost(hand.name, "died")
            heapq.heappush(crew, hired(now + until_death + 60))  # a new one starts within a minute
            continue
        hand.at = now + span
        heapq.heappush(crew, hand)
    ideal = sum(works) / speeds
    return {
        "hours": last / 3600,
        "last over ideal": last / ideal,
        "utilisation": busy / (last * workers),
        "lost": lost / busy,
        "deaths": deaths,
    }


class Flood(Crew):
    """So many workers, each with records ready whenever it is asked."""

    def __init__(self, workers: int, record: Record) -> None:
        self._workers, self._record, self._held = workers, record, dict[str, list[Input]]()
        self._new: list[str] = []

    def hire(self) -> str:
        """Free at once."""
        name = str(len(self._held))
        self._held[name] = []
        self._new.append(name)
        return name

    def begin(self, worker: str, plan: dict[str, Any] | None, items: list[Input], last: bool) -> None:
        """Answered when it is asked."""
        self._held[worker] = list(items)

    def feed(self, worker: str, items: list[Input], last: bool) -> None:
        """More of them."""
        self._held[worker] += items

    def messages(self, patience: float) -> Iterable[Message]:
        """An answer for every input sent."""
        for name in self._new:
            yield Message(name)
        self._new = []
        for name, items in self._held.items():
            if items:
                answers = [[_answer(self._record, one.id)] for one in items]
                self._held[name] = []
                yield Message(name, Told(answers, 0, 0, PLAN, hungry=True, ended=None))

    def dismiss(self, worker: str) -> None:
        """Forgotten."""
        self._held.pop(worker)

    def wanted(self) -> int:
        """All of them, always."""
        return self._workers


PLAN = {"batch": 1, "precision": "fp32"}


def _answer(record: Record, input_id: int) -> Record:
    return Record(**{**vars(record), "input_id": input_id})


def taken_in(records: int) -> float:
    """Records a second from 200 workers into a run folder."""
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 10))
    points = torch.rand(4, 4)
    noise, test = rf.Gaussian(0.5), rf.Fixed(n0=10, n=100)
    value = rf.Certification(net, points, noise=noise, procedure=test, lanes=("main",))
    one = next(iter(value.stream(rf.Execution("cpu", batch=10))))
    tally = tuple(StageTally(s.stage, s.start, s.draws, s.cells) for s in one.stages)
    with tempfile.TemporaryDirectory() as folder:
        run = RunFolder.create_or_resume(Path(folder) / "run", value.config())
        inputs: Iterator[Input] = (Input(i, X, None, "") for i in range(records))
        begin = time.perf_counter()
        with RecordWriter(run) as writer:
            answer = Record(**{**vars(one), "stages": tally, "config_hash": run.config.digest})
            manager = Manager(Flood(200, answer), inputs, rf.Execution(), 600)
            for record in manager.records():
                writer.add([record])
        return records / (time.perf_counter() - begin)


def certified(engine: Any, inputs: int, n: int) -> float:
    """Seconds of sampling, from the first plan to the last record."""
    started: list[float] = []
    value = rf.Certification(
        "default", rf.Data("default", limit=inputs), noise=rf.Gaussian(0.5), procedure=rf.Fixed(n=n)
    )
    execution = rf.Execution("cpu", batch=400, engine=engine, on_plan=lambda plan: started.append(time.perf_counter()))
    assert len(list(value.stream(execution))) == inputs
    return time.perf_counter() - started[0]


def on_ray(options: Any) -> dict[str, list[float]]:
    """In-process, one actor, two actors, one thread each."""
    import ray

    from ringfence.engines.ray import Ray

    torch.set_num_threads(1)
    os.environ |= {"RAY_worker_niceness": "0"}  # as the engine does where it starts Ray
    ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error")
    inputs, n = (4, 200) if options.quick else (120, 10_000)  # about a minute in one process
    try:
        tasks = {
            "this process": lambda: certified("local", inputs, n),
            "one actor": lambda: certified(Ray(workers=1), inputs, n),
            "two actors": lambda: certified(Ray(workers=2), inputs, n),
        }
        return interleaved(tasks, options.repetitions)
    finally:
        ray.shutdown()


def main() -> int:
    parser = options_parser(__doc__ or "")
    parser.add_argument("--without-ray", action="store_true", help="where others use the machine: times mean nothing")
    options = parser.parse_args()
    inputs, workers = (2_000, 50) if options.quick else (50_000, 1_000)
    found = {
        (run, often): simulated(draws_of(run), inputs * times, workers, hours, seed=0)
        for run, times in SERVICE.items()
        for often, hours in DEATHS.items()
    }
    flood = [taken_in(500 if options.quick else 20_000) for _ in range(1 if options.quick else 3)]
    seconds = {} if options.without_ray else on_ray(options)
    at = {name: median(values) for name, values in seconds.items()}
    rows = [
        [
            f"{'sequential' if 'sequential' in run else 'fixed'}, {inputs * SERVICE[run]:,}",
            often,
            f"{60 * one['hours']:.1f}",
            f"{one['deaths']:,}",
            f"{100 * one['utilisation']:.1f}",
            f"{100 * one['lost']:.2f}",
            f"{one['last over ideal']:.3f}",
        ]
        for (run, often), one in found.items()
    ]
    title = f"{workers:,} simulated workers of {RATE:,.0f} draws/s"
    columns = [
        "procedure, inputs",
        "a worker dies",
        "minutes",
        "deaths",
        "utilisation %",
        "work lost or done twice %",
        "last answer over ideal",
    ]
    grids = [
        Grid(title, columns, rows),
        Grid("Records from 200 workers into a run folder", ["", "records/s"], [["driver", f"{median(flood):,.0f}"]]),
    ]
    if at:
        lenet = [[name, f"{value:.2f}"] for name, value in at.items()]
        grids.append(Grid("Embedded LeNet on the CPU", ["engine", "s"], lenet))
    one, two, here = (seconds.get(name) for name in ("one actor", "two actors", "this process"))
    bars = [
        Bar("the driver takes in from 200 workers", "at least", 2_000, median(flood), "records/s"),
        Bar("one actor over this process", "at most", 1.03, median_ratio(one, here) if one and here else None),
        Bar("two actors over one, in speed", "at least", 1.7, median_ratio(one, two) if one and two else None),
    ]
    settings = {"inputs": inputs, "workers": workers, "rate": RATE, "service": list(SERVICE)}
    simulations = {f"{run}, {often}": one for (run, often), one in found.items()}
    measured = {"simulated": simulations, "records_per_second": flood, **seconds}
    notes = [
        f"Draws of each input as in the committed runs {' and '.join(SERVICE)}.",
        "Ratios are those within a round: where other programs use the cores too, two actors have less than two.",
    ]
    return finish(Report("scale", settings, grids, bars, measured, notes), options)


if __name__ == "__main__":
    sys.exit(main())
