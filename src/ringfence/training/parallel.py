"""Independent members side by side: small networks leave most of a device idle."""

from __future__ import annotations

import multiprocessing
import queue
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, final

import torch

from ringfence.classifiers.architectures import ARCHITECTURES, DENOISERS
from ringfence.errors import ArgumentError, RingfenceError
from ringfence.sampling import pick_device
from ringfence.training.checkpoints import freeze_settings
from ringfence.training.data_on_device import DeviceData
from ringfence.training.job import TrainJob, load_job_data, run_job, run_member
from ringfence.training.loop import Status

Message = tuple[int, Status | None, str | None]
"""(member, how far it is, None), or (member, None, what went wrong); (member, None, None): done."""


def run_parallel(
    job: TrainJob, together: int, on_status: Callable[[int, Status], None] = lambda member, status: None
) -> list[Path]:
    """Train the members of a job, so many at a time; equal to one after the other, weight for weight on one device."""
    if together < 1:
        raise ArgumentError("--parallel", "must be at least 1", together, "Use 1.")
    if job.joint or together == 1 or job.members == 1:
        return run_job(job, on_status)
    if job.devices > 1:
        raise ArgumentError("--parallel", "goes with one device", f"--devices {job.devices}", "Choose one of the two.")
    freeze_settings(job.out, job.described())
    spawn = multiprocessing.get_context("spawn")  # CUDA does not survive a fork
    threads = in_threads(job)
    messages: Any = queue.Queue() if threads else spawn.Queue()
    whole = load_job_data(job).to(pick_device(job.device)) if threads else None
    waiting, running = list(range(job.members)), dict[int, Any]()
    failure: str | None = None
    try:
        while waiting or running:
            while waiting and len(running) < together and failure is None:
                member = waiting.pop(0)
                given = (job, member, messages)
                if whole is not None:
                    running[member] = Thread(*given, whole)
                else:
                    running[member] = spawn.Process(target=_work, args=given, daemon=True)
                running[member].start()
            if failure is not None and not running:
                break
            try:
                member, status, problem = messages.get(timeout=1.0)
            except queue.Empty:
                member = next((one for one, worker in running.items() if worker.exitcode not in (None, 0)), -1)
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
        for worker in running.values():
            worker.terminate()
        for worker in running.values():
            worker.join()
    if failure is not None:
        raise ArgumentError("--parallel", "every member must be trained", failure, "Run the command again to go on.")
    return [job.final(i) for i in range(job.members)]


def in_threads(job: TrainJob) -> bool:
    """Whether members share this process: their recorded steps then really overlap on a CUDA device.

    Kernels of several processes take turns there. Only our own networks: layers that draw random numbers
    would draw them from one generator.
    """
    ours = job.arch in ARCHITECTURES or job.arch in DENOISERS
    return ours and bool(job.options.get("graph")) and pick_device(job.device).type == "cuda"


@final
class Thread(threading.Thread):
    """One member's training in this process, on a CUDA stream of its own; asked to end, it does at its next report."""

    exitcode: int | None = None

    def __init__(self, job: TrainJob, member: int, messages: queue.Queue[Message], whole: DeviceData) -> None:
        super().__init__(daemon=True)
        self._job, self._member, self._messages, self._whole = job, member, messages, whole
        self._asked = threading.Event()

    def run(self) -> None:
        """Train."""
        device = pick_device(self._job.device)
        stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]
        with torch.cuda.stream(stream):
            _train(self._job, self._member, self._messages, self._asked.is_set, self._whole)

    def terminate(self) -> None:
        """Ask it to end."""
        self._asked.set()


def _work(job: TrainJob, member: int, messages: Any) -> None:
    torch.set_num_threads(1)
    _train(job, member, messages, lambda: False)


def _train(
    job: TrainJob, member: int, messages: Any, asked_to_end: Callable[[], bool], whole: DeviceData | None = None
) -> None:
    def report(number: int, status: Status) -> None:
        if asked_to_end():
            raise KeyboardInterrupt
        messages.put((number, status, None))

    try:
        run_member(job, member, report, whole)
        messages.put((member, None, None))
    except RingfenceError as error:
        messages.put((member, None, f"{error}"))
    except KeyboardInterrupt:
        messages.put((member, None, "interrupted"))
    except Exception as error:
        messages.put((member, None, f"{type(error).__name__}: {error}"))
