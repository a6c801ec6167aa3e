"""Training whole runs: members one after the other, side by side in a process each, or as branches of one step.

Small networks leave most of a device idle. However they are trained, each member ends with the same weights.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from multiprocessing.queues import Queue
from pathlib import Path
from queue import Empty
from typing import TYPE_CHECKING, Any

import torch

from ringfence.classifiers.architectures import ARCHITECTURES, DENOISERS
from ringfence.errors import ArgumentError, RingfenceError
from ringfence.sampling import pick_device
from ringfence.store.atomic import locked
from ringfence.training.checkpoints import Status
from ringfence.training.loop import train_together
from ringfence.training.run import TrainingRun

if TYPE_CHECKING:
    from ringfence.engines.ray import Ray

Report = Callable[[int, Status], None]
"""Takes a training's number (that of its member; 0 for members trained together) and how far it is."""
Message = tuple[int, Status | None, RingfenceError | str | None]
"""(number, how far it is, None), or (number, None, what went wrong); (number, None, None): done."""


def run_training(
    run: TrainingRun,
    parallel: int = 1,
    on_status: Report = lambda training, status: None,
    engine: Ray | None = None,
) -> list[Path]:
    """Train every member into the run's folder, so many at a time; the exported files. Called again, it goes on.

    engine: members that do not wait for each other are tasks of a cluster, whose machines share the folder.
    """
    if parallel < 1:
        raise ArgumentError("parallel", "must be at least 1", parallel, "Use 1.")
    alone = run.job.objective.grouping == "alone"
    if alone and parallel > 1 and run.devices > 1:
        raise ArgumentError("parallel", "goes with one device", f"{run.devices} devices", "Choose one of the two.")
    at_once = parallel if alone and (parallel == 1 or shares_graph(run)) else 1
    with locked(run.out, unlocked=True):
        run.keep_settings()
        if engine is not None:
            _on_ray(run, engine, on_status)
        elif alone and min(parallel, len(run.job.members)) > at_once:
            _in_processes(run, parallel, on_status)
        for first in range(0, len(run.job.trainings), at_once):
            chosen = [(run, training) for training in run.job.trainings[first : first + at_once]]
            _train(chosen, lambda _, training, status: on_status(training, status))
    return run.files


def run_together(
    runs: Sequence[TrainingRun],
    on_status: Callable[[TrainingRun, int, Status], None] = lambda run, training, status: None,
) -> list[list[Path]]:
    """Runs that have nothing to do with each other at the same time in this process; the exported files of each.

    They share data, labels, device, batch and precision, and may differ in all else: objective, networks, members,
    noise, epochs, how far they are. On CUDA with ``graph`` their steps overlap. Finished trainings are left alone;
    members that are trained in turn wait for those before them. Each ends with the weights of ``run_training``.
    """
    with ExitStack() as held:
        for run in runs:
            held.enter_context(locked(run.out, unlocked=True))
            run.keep_settings()
        left = [(run, training) for run in runs for training in run.job.trainings if not run.done(training)]
        while left:
            _train([one for one in left if one[0].ready(one[1])], on_status)
            left = [one for one in left if not one[0].done(one[1])]
    return [run.files for run in runs]


def _train(chosen: Sequence[tuple[TrainingRun, int]], on_status: Callable[[TrainingRun, int, Status], None]) -> None:
    """Trainings (run, number) on the same data, step by step at the same time; finished ones are left alone."""
    chosen = [(run, training) for run, training in chosen if not run.done(training)]
    if not chosen:
        return
    first = chosen[0][0]
    if len({run.sharing for run, _ in chosen}) > 1:
        names = ", ".join(str(run.out) for run, _ in chosen)
        raise ArgumentError("trainings", "must share their data and device", names, "Train them apart.")
    whole, classifier = first.labelled_data(), first.classifier()
    data, held_out = whole.split(first.job.holdout)
    trained = train_together(
        [run.alone(training, whole, classifier) for run, training in chosen],
        [run.fresh(training, whole) for run, training in chosen],
        data,
        [run.folder(training) for run, training in chosen],
        held_out=held_out,
        device=first.device,
        devices=first.devices,
        tensorboard=first.tensorboard,
        on_status=lambda place, status: on_status(*chosen[place], status),
    )
    for (run, training), modules in zip(chosen, trained, strict=True):
        run.export(training, modules)


def shares_graph(run: TrainingRun) -> bool:
    """Whether members are branches of one recorded step in this process, which overlap; processes would take turns.

    Only our own networks: layers that draw random numbers would share one generator.
    """
    ours = all(arch in ARCHITECTURES or arch in DENOISERS for arch in run.job.members)
    return ours and run.job.graph and pick_device(run.device).type == "cuda"


def _on_ray(run: TrainingRun, engine: Ray, on_status: Report) -> None:
    """A task for each training, after those it needs; one whose machine dies goes on elsewhere from its checkpoint."""
    sent = replace(run, out=run.out.resolve())
    while waiting := [training for training in run.job.trainings if not run.done(training)]:
        ready = [training for training in waiting if run.ready(training)]
        failure = engine.each(partial(_work, sent), ready, on_status)
        if failure is None and not any(map(run.done, ready)):  # it was trained, where nobody looks: once is enough
            failure = f"what its tasks wrote is not in {sent.out}, a folder that all machines must share"
        if failure is not None:
            raise ArgumentError("engine", "every member must be trained", failure, "Run it again to go on.")


def _in_processes(run: TrainingRun, parallel: int, on_status: Report) -> None:
    """A process for each training, so many at a time; the first failure ends all of them."""
    spawn = multiprocessing.get_context("spawn")  # CUDA does not survive a fork
    messages: Queue[Message] = spawn.Queue()
    waiting, running = list(run.job.trainings), dict[int, Any]()
    failure: RingfenceError | str | None = None
    try:
        while running or (waiting and failure is None):
            while waiting and len(running) < parallel and failure is None:
                training = waiting.pop(0)
                running[training] = spawn.Process(target=_work, args=(run, training, messages), daemon=True)
                running[training].start()
            try:
                training, status, problem = messages.get(timeout=1.0)
            except Empty:
                training = next((one for one, process in running.items() if process.exitcode not in (None, 0)), -1)
                if training < 0:
                    continue
                status, problem = None, f"its process ended with code {running[training].exitcode}"
            if status is not None:
                on_status(training, status)
            else:
                running.pop(training).join()
                failure = failure or problem
    finally:
        for process in running.values():
            process.terminate()
            process.join()
    if isinstance(failure, RingfenceError):
        raise failure
    if failure is not None:
        raise ArgumentError("parallel", "every member must be trained", failure, "Run it again to go on.")


def _work(run: TrainingRun, training: int, messages: Any) -> None:
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to all of a terminal: the first process ends the others
    try:
        _train([(run, training)], lambda _, number, status: messages.put((number, status, None)))
        messages.put((training, None, None))
    except RingfenceError as error:
        messages.put((training, None, f"{error}"))
    except (Exception, SystemExit) as error:
        messages.put((training, None, f"{type(error).__name__}: {error}"))
