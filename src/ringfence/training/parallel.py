"""Independent members side by side: small networks leave most of a device idle."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable
from multiprocessing.queues import Queue
from pathlib import Path
from queue import Empty
from typing import Any

import torch

from ringfence.classifiers.architectures import ARCHITECTURES, DENOISERS
from ringfence.errors import ArgumentError, RingfenceError
from ringfence.sampling import pick_device
from ringfence.store.lock import locked
from ringfence.training.checkpoints import freeze_settings
from ringfence.training.course import Status
from ringfence.training.job import TrainJob
from ringfence.training.running import run_job, run_member, run_together

Message = tuple[int, Status | None, RingfenceError | str | None]
"""(member, how far it is, None), or (member, None, what went wrong); (member, None, None): done."""


def run_parallel(
    job: TrainJob, together: int, on_status: Callable[[int, Status], None] = lambda member, status: None
) -> list[Path]:
    """Train the members of a job, so many at a time; equal to one after the other, weight for weight on one device."""
    with locked(job.out, unlocked=True):
        return _run_parallel(job, together, on_status)


def _run_parallel(job: TrainJob, together: int, on_status: Callable[[int, Status], None]) -> list[Path]:
    if together < 1:
        raise ArgumentError("--parallel", "must be at least 1", together, "Use 1.")
    if job.joint or together == 1 or job.members == 1:
        return run_job(job, on_status)
    if job.devices > 1:
        raise ArgumentError("--parallel", "goes with one device", f"--devices {job.devices}", "Choose one of the two.")
    if shares_graph(job):
        for first in range(0, job.members, together):
            chosen = [(job, i) for i in job.trainings[first : first + together]]
            run_together(chosen, lambda _, member, status: on_status(member, status))
        return [job.final(i) for i in range(job.members)]
    freeze_settings(job.out, job.described())
    spawn = multiprocessing.get_context("spawn")  # CUDA does not survive a fork
    messages: Queue[Message] = spawn.Queue()
    waiting, running = list(range(job.members)), dict[int, Any]()
    failure: RingfenceError | str | None = None
    try:
        while waiting or running:
            while waiting and len(running) < together and failure is None:
                member = waiting.pop(0)
                running[member] = spawn.Process(target=_work, args=(job, member, messages), daemon=True)
                running[member].start()
            if failure is not None and not running:
                break
            try:
                member, status, problem = messages.get(timeout=1.0)
            except Empty:
                member = next((one for one, process in running.items() if process.exitcode not in (None, 0)), -1)
                if member < 0:
                    continue
                status, problem = None, f"its process ended with code {running[member].exitcode}"
            if status is not None:
                on_status(member, status)
            else:
                running.pop(member).join()
                failure = failure or problem
                waiting = [] if failure else waiting
    finally:
        for process in running.values():
            process.terminate()
            process.join()
    if isinstance(failure, RingfenceError):
        raise failure
    if failure is not None:
        raise ArgumentError("--parallel", "every member must be trained", failure, "Run the command again to go on.")
    return [job.final(i) for i in range(job.members)]


def shares_graph(job: TrainJob) -> bool:
    """Whether members are branches of one recorded step in this process, which overlap; processes would take turns.

    Only our own networks: layers that draw random numbers would share one generator.
    """
    ours = job.arch in ARCHITECTURES or job.arch in DENOISERS
    return ours and bool(job.options.get("graph")) and pick_device(job.device).type == "cuda"


def _work(job: TrainJob, member: int, messages: Queue[Message]) -> None:
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to all of a terminal: the first process ends the others
    try:
        run_member(job, member, lambda number, status: messages.put((number, status, None)))
        messages.put((member, None, None))
    except RingfenceError as error:
        messages.put((member, None, f"{error}"))
    except (Exception, SystemExit) as error:
        messages.put((member, None, f"{type(error).__name__}: {error}"))
