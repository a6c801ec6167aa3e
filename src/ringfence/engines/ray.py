"""Ray: workers on all GPUs of a machine or a cluster. The records are those of this process."""

from __future__ import annotations

import os
import re
import signal
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, final

import torch

from ringfence.data import Input
from ringfence.engines.crew import Crew, Manager, Message
from ringfence.engines.worker import Parcel, Report, Worker
from ringfence.errors import ArgumentError, package
from ringfence.extending import PLUGINS, load_plugins
from ringfence.record import Record
from ringfence.settings import check_settings, setting
from ringfence.work import ENGINES, Engine, Work

if TYPE_CHECKING:
    from ray import ObjectRef
    from ray.actor import ActorHandle

REPORT_PATIENCE = 1.0
"""Seconds a worker waits for news before it says that there are none: so it is known to live."""

MOST = 100_000
"""Workers and GPUs at most: beyond what a machine can count Ray ends in errors of its own."""


@final
@dataclass(frozen=True)
class Ray(Engine):
    """Actors on a Ray cluster, or on this machine where none is named."""

    name: ClassVar[str] = "ray"

    address: str | None = setting(None, "HOST:PORT of a running cluster, or auto for the one of this machine.")
    workers: int | None = setting(None, "Workers: one per GPU, or per core without GPUs.", low=1, high=MOST)
    gpus_per_worker: float | None = setting(None, "A worker's share of a GPU.", low=0, high=MOST)
    gpus: int | None = setting(None, "GPUs of this machine, on a Ray that is started for them.", low=1, high=MOST)
    patience: float = setting(600.0, "Seconds without a batch after which a worker is replaced.", low=0)

    def __post_init__(self) -> None:
        check_settings(self)
        if self.gpus is not None and self.address is not None:
            raise ArgumentError("gpus", "is for a Ray that is started here", f"address {self.address}", "Use workers.")

    def records(self, work: Work) -> Iterator[Record]:
        """As they are decided, wherever that is."""
        inputs = iter(work.inputs)
        first = next(inputs, None)
        if first is None:
            return  # nothing is left to do: no cluster is asked for
        if self.gpus is not None and (there := torch.cuda.device_count()) < self.gpus:
            rest = "workers without one compute on the CPU"
            work.execution.on_remark(f"{self.gpus} GPUs were asked for, and this machine shows {there}: {rest}")
        with self.connected(), _Actors(Parcel.of(self._with_share_of_draws(work), first), self) as crew:
            yield from Manager(crew, chain([first], inputs), work.execution, self.patience).records()

    def _with_share_of_draws(self, work: Work) -> Work:
        """The work with the draws that a worker without a GPU has to expect: whether compiling pays is up to those."""
        draws = work.execution.draws if self._share else work.execution.draws // self.room
        return replace(work, execution=replace(work.execution, draws=draws))

    @contextmanager
    def connected(self) -> Iterator[Any]:
        """Ray itself: the cluster that this process is part of already, or one for the time of the block."""
        ray = _ray()
        if ray.is_initialized():
            yield ray
            return
        _start(ray, self.address, self.gpus)
        try:
            yield ray
        finally:
            ray.shutdown()

    def each(self, work: Callable[[int, Any], None], items: Sequence[int], on_news: Callable[[int, Any], None]) -> Any:
        """``work(item, queue)`` in a task for each item; the first problem, or None.

        The queue takes (item, news, None), and (item, None, problem) at the end. A task whose machine dies is begun
        again elsewhere: it must go on where it stopped, in a folder that all machines share.
        """
        with self.connected() as ray:
            from ray.util.queue import Empty, Queue

            task = ray.remote(max_retries=3, **self.options)(_task)
            news = Queue(actor_options={"num_cpus": 0})
            waiting, running, problem = list(items), dict[Any, int](), None
            while running or (waiting and problem is None):
                while waiting and problem is None and len(running) < self.room:
                    item = waiting.pop(0)
                    running[task.remote(str(Path.cwd()), work, item, news)] = item
                for reference in ray.wait(list(running), timeout=0)[0]:
                    running.pop(reference)
                    try:
                        ray.get(reference)
                    except ray.exceptions.RayError as error:
                        problem = problem or reason_of(error)
                with suppress(Empty):
                    while True:
                        item, told, wrong = news.get(timeout=0.5)
                        problem = problem or wrong
                        if told is not None:
                            on_news(item, told)
            news.shutdown()
            return problem

    @property
    def options(self) -> dict[str, Any]:
        """What Ray is told of every worker: its share of the machine, and what it must find in its environment."""
        known = {name: os.environ[name] for name in (PLUGINS, "PYTHONPATH") if name in os.environ}
        # A worker with a GPU asks for no core: machines with more GPUs than cores would leave some idle.
        resources = {"num_gpus": share, "num_cpus": 0} if (share := self._share) else {"num_cpus": 1}
        return {"runtime_env": {"env_vars": known}, **resources}

    @property
    def room(self) -> int:
        """Workers: what was asked for, or as many as the cluster has room for now."""
        if self.workers is not None:
            return self.workers
        there, share = _ray().cluster_resources(), self._share
        return max(1, int(there.get("GPU", 0) / share) if share else int(there.get("CPU", 1)))

    @property
    def _share(self) -> float:
        if self.gpus_per_worker is not None:
            return self.gpus_per_worker
        return 1.0 if _ray().cluster_resources().get("GPU", 0) else 0.0


def _ray() -> Any:
    return package("ray", "engine", "Install it: pip install 'ringfence[ray]'.")


def _start(ray: Any, address: str | None, gpus: int | None) -> None:
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # spares us a warning about workers without GPUs
    os.environ.setdefault("RAY_worker_niceness", "0")  # Ray's own 15 would put them behind everything else here
    stop = signal.getsignal(signal.SIGTERM)
    here = {} if address is not None else {"include_dashboard": False, "num_gpus": gpus or torch.cuda.device_count()}
    try:
        if address is not None and (place := re.fullmatch(r"([^/:]+):(\d{1,5})", address)):
            # Ray itself would try for minutes.
            socket.create_connection((place[1], int(place[2])), timeout=10).close()
        ray.init(address=address or "local", log_to_driver=False, logging_level="error", **here)
    except (OSError, OverflowError, ValueError, RuntimeError) as error:
        if address is None:
            rule, remedy = "must start on this machine", "Try `ray start --head`, or use the engine local."
            raise ArgumentError("engine", f"Ray {rule}", str(error), remedy) from error
        remedy = "Start one with `ray start --head`, or leave out `address`."
        raise ArgumentError("address", "must be a Ray cluster that answers", f"{address}: {error}", remedy) from error
    if callable(stop) and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, stop)  # Ray put its own there, which exits as if the user's code had


@final
@dataclass
class _Actors(Crew):
    """Workers as Ray actors."""

    parcel: Parcel
    settings: Ray
    _names: Iterator[int] = field(default_factory=count)
    _actors: dict[str, ActorHandle[Any]] = field(default_factory=dict)
    _asked: dict[ObjectRef[Any], str] = field(default_factory=dict)

    def __enter__(self) -> _Actors:
        self._sent = _ray().put(self.parcel)
        return self

    def __exit__(self, *_: object) -> None:
        for worker in list(self._actors):
            self.dismiss(worker)

    def hire(self) -> str:
        """An actor with a GPU or a core of its own."""
        name = f"{next(self._names)}"
        actor = _ray().remote(max_concurrency=4, max_restarts=0, **self.settings.options)(_Actor)
        self._actors[name] = actor.remote(self._sent)
        self._asked[self._actors[name].ready.remote()] = name
        return name

    def begin(self, worker: str, plan: dict[str, Any] | None, items: list[Input], last: bool) -> None:
        """Also asks for the first report, once it has begun: an actor's calls may overtake each other."""
        actor = self._actors[worker]
        begun: ObjectRef[Any] = actor.begin.remote(plan, items, last)
        self._asked[actor.report.remote(REPORT_PATIENCE, begun)] = worker

    def feed(self, worker: str, items: list[Input], last: bool) -> None:
        """By value: inputs need not lie on the other machine."""
        self._actors[worker].feed.remote(items, last)

    def messages(self, patience: float) -> Iterable[Message]:
        """Reports that are there."""
        ray = _ray()
        if not self._asked:
            return
        there, _ = ray.wait(list(self._asked), num_returns=1, timeout=patience)
        if there:
            there, _ = ray.wait(list(self._asked), num_returns=len(self._asked), timeout=0)
        for reference in there:
            worker = self._asked.pop(reference)
            try:
                report: Report | None = ray.get(reference)
            except ray.exceptions.RayError as error:
                self._actors.pop(worker, None)
                yield Message(worker, death=reason_of(error))
                continue
            if report is not None and report.ended is None and worker in self._actors:
                self._asked[self._actors[worker].report.remote(REPORT_PATIENCE)] = worker
            yield Message(worker, report)

    def dismiss(self, worker: str) -> None:
        """Killed: it may hang."""
        if (actor := self._actors.pop(worker, None)) is not None:
            _ray().kill(actor)
        self._asked = {reference: name for reference, name in self._asked.items() if name != worker}

    def wanted(self) -> int:
        """Workers may come and go."""
        return self.settings.room


class _Actor:
    """A Worker inside an actor: the methods that Ray calls."""

    def __init__(self, parcel: Parcel) -> None:
        load_plugins()
        self._worker = Worker(parcel)

    def ready(self) -> None:
        """Answers once the model is loaded."""

    def begin(self, plan: dict[str, Any] | None, items: list[Input], last: bool) -> None:
        self._worker.begin(plan, items, last)

    def feed(self, items: list[Input], last: bool) -> None:
        self._worker.feed(items, last)

    def report(self, patience: float, begun: None = None) -> Report:
        return self._worker.report(patience)


def _task(folder: str, work: Callable[[int, Any], None], item: int, news: Any) -> None:
    """One item, in the driver's folder where there is such a one."""
    load_plugins()
    if Path(folder).is_dir():
        os.chdir(folder)
    work(item, news)


def reason_of(error: BaseException) -> str:
    """The last line of what Ray says: the reason itself, without what it might have come from."""
    cause = getattr(error, "cause", None) or error
    lines = [line.strip() for line in str(cause).splitlines() if line.strip()]
    told = re.sub(r"^ringfence\.errors\.\w+: | Some common causes include: .*", "", lines[-1]) if lines else ""
    return told or type(error).__name__


ENGINES.setdefault(Ray.name, Ray())
