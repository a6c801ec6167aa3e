"""Jobs: batches that wait in SQLite until they are answered, also across a restart.

An input is answered at most once: its answer is written only where there is none, and only one process works on a
folder. What a kill interrupts is drawn again, from the same draws.
"""

from __future__ import annotations

import json
import logging
import sqlite3
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar, final

import numpy as np
import torch
from pydantic import TypeAdapter
from torch import Tensor

from ringfence.errors import RingfenceError
from ringfence.record import Record
from ringfence.serve.asked import Asked, Bounds
from ringfence.serve.channel import gathered
from ringfence.serve.job_base import JobBase, Row
from ringfence.serve.limits import Busy, Damaged, Gone, Limits, Question
from ringfence.serve.model import Model
from ringfence.serve.schemas import Answer, JobState
from ringfence.serve.served import BACKGROUND

RETRY = 1.0
"""Seconds until what the disk did not take is tried again."""
log = logging.getLogger("ringfence.serve")
T = TypeVar("T")
QUESTION = TypeAdapter(Question)

Event = tuple[str, int, Bounds | str]
"""Its name (bounds, answer, failed, done, stopped), the place of the input, and the bounds or why it failed. An answer
is not in it: it is on the disk, and listeners that read slowly would hold all of them in memory."""
Answered = tuple[str, int, Callable[[], Answer]]
"""A job, the place of an input, and what makes its answer."""


@final
class Jobs:
    """The queue of one server, in a folder of its own; base: what is kept of it there."""

    def __init__(self, folder: Path, models: Mapping[str, Model], limits: Limits) -> None:
        self._models, self._limits = models, limits
        self.base, self._listening = JobBase(folder), threading.Lock()
        self._listeners: dict[str, list[Callable[[Event], None]]] = {}
        self._in_hand: dict[tuple[str, int], str] = {}  # of the thread alone
        self._answers: SimpleQueue[list[Answered] | None] = SimpleQueue()  # none of them: look for more; None: the end
        self._halted, self._stopping = False, threading.Event()
        self._thread = threading.Thread(target=self._feed, name="jobs", daemon=True)
        self._thread.start()

    def halt(self) -> None:
        """The server stops: whoever listens need not keep it waiting."""
        self._halted = True
        self._tell_all()

    def close(self) -> None:
        """Begin nothing more; what models have answered is kept. Call it once their threads have ended."""
        self._stopping.set()
        self._answers.put(None)
        self._thread.join()
        self.base.close()

    # Asking

    def submit(self, model: str, inputs: Tensor, question: Question, owner: str) -> str:
        """Keep a batch (N, *shape) and answer it later; returns the job's id once it is on the disk."""
        served, job = self._models[model], uuid.uuid4().hex
        served.test(question)  # refuses what cannot be answered
        with self.base.lock:
            self._refuse_too_many(len(inputs))
            asked = json.dumps(vars(question))
            row = (job, owner, model, served.config_hash, asked, datetime.now(UTC).isoformat(), len(inputs))
            items = [(job, place, x.numpy().astype("<f4").tobytes()) for place, x in enumerate(inputs)]
            try:
                self.base.add(row, items, self._limits.kept_jobs)
            except sqlite3.Error as error:  # as of a full disk
                log.warning(json.dumps({"error": "jobs", "why": str(error)}))
                raise Gone("could not be kept", "a disk that takes no more", "Ask again later.") from error
        self._answers.put([])
        return job

    def _refuse_too_many(self, more: int) -> None:
        waiting = self.base.waiting
        if waiting + more > self._limits.job_inputs:
            rule = f"waits where {waiting} inputs of jobs do, of at most {self._limits.job_inputs}"
            raise Busy(rule, f"{more} more", 60.0)

    def state(self, job: str, owner: str) -> JobState | None:
        """How far a job is, without its answers; None where this owner has none of that id."""
        found, failed = self.base.state(job, owner)
        if found is None:
            return None
        model, asked, created, inputs, done = found
        broken = self._models[model].broken if model in self._models else None
        with _as_it_was_kept(job):
            return JobState(
                id=job,
                model=model,
                asked=QUESTION.validate_json(asked),
                state="done" if done == inputs else "waiting",
                inputs=inputs,
                answered=done - len(failed),
                created=created,
                failed=failed,
                stopped=None if done == inputs else broken or ("a server that stops" if self._halted else None),
            )

    @contextmanager
    def heard_by(self, listener: Callable[[Event], None], job: str) -> Iterator[None]:
        """Have a listener hear what happens to a job in this block."""
        with self._listening:
            self._listeners.setdefault(job, []).append(listener)
        try:
            yield
        finally:
            with self._listening:
                self._listeners[job].remove(listener)
                if not self._listeners[job]:
                    del self._listeners[job]

    # Answering

    def _feed(self) -> None:
        """Keep what was answered, and give models as many inputs as they work on at once, oldest first, until closed.

        All that reads or writes the database for a model is done here: its thread, which others wait for too, leaves
        its answers in a queue and never waits for the disk.
        """
        self._finish(self._patiently(self._orphans) or [])
        answers: list[list[Answered] | None] = []
        while None not in answers:
            for row in self._patiently(self._next) or ():
                self._begin(*row)
            answers = gathered(self._answers)
            self._finish([_row(*one) for some in answers for one in some or ()])

    def _orphans(self) -> list[Row]:
        """Inputs of models that this server does not have: nobody would ever answer them."""
        told, rows = "the server was started anew without the model", self.base.undone()
        return [(job, place, None, f"{told} {model}") for job, place, model in rows if model not in self._models]

    def _next(self) -> list[Any]:
        """Inputs that nobody works on, of models that have room."""
        rows: list[Any] = []
        for name in self._models:
            room = 2 * BACKGROUND - sum(one == name for one in self._in_hand.values())
            oldest = self.base.oldest(name, room + len(self._in_hand)) if room > 0 else []
            new = [row for row in oldest if (row[0], row[1]) not in self._in_hand][:room]
            self._in_hand |= {(row[0], row[1]): name for row in new}
            rows += new
        return rows

    def _begin(self, job: str, place: int, model: str, config: str, asked: str, content: bytes) -> None:
        served = self._models[model]
        if config != served.config_hash:
            self._finish([(job, place, None, "the model is another one since the server was started anew")])
            return

        def watch(bounds: Bounds) -> None:
            self._tell(job, ("bounds", place, bounds))

        try:
            x = torch.from_numpy(np.frombuffer(content, "<f4").reshape(served.shape).copy())
            with _as_it_was_kept(job):
                question = QUESTION.validate_json(asked)
            one = served.ask(x, question, watch=watch, background=True)
        except Gone:
            self._tell_all()
        except RingfenceError as error:
            self._finish([(job, place, None, str(error))])
        except Exception:  # as of a file that was changed: all other jobs wait for this thread
            self._finish([_own_error(job, place)])
        else:
            one.answer.add_done_callback(lambda future: self._answered(job, place, served, one, future))

    def _answered(self, job: str, place: int, served: Model, asked: Asked, future: Future[Record]) -> None:
        if asked.timing.left or isinstance(future.exception(), Gone):  # the server stops, or its model broke
            self._tell_all()  # and it stays in hand, unanswered: whoever starts anew takes it up
            return
        self._answers.put([(job, place, lambda: Answer.of(served, asked, future.result()))])

    def _finish(self, rows: Sequence[Row]) -> None:
        """Keep answers and failures, and then tell of them."""
        ended = self._patiently(partial(self.base.write, rows))
        if ended is None:
            return  # not on the disk: whoever starts anew takes them up
        for job, place, answer, failed in rows:
            self._in_hand.pop((job, place), None)
            self._tell(job, ("failed", place, failed or "") if answer is None else ("answer", place, ""))
        for job in ended:
            self._tell(job, ("done", 0, ""))

    def _patiently(self, work: Callable[[], T]) -> T | None:
        """What it gives, once it can: disks fill up, other programs lock files. None where the server stops first."""
        while True:
            try:
                return work()
            except sqlite3.Error as error:
                log.warning(json.dumps({"error": "jobs", "why": str(error)}))
            if self._stopping.wait(RETRY):
                return None

    def _tell(self, job: str, event: Event) -> None:
        with self._listening:
            listeners = list(self._listeners.get(job, ()))
        for listener in listeners:
            listener(event)

    def _tell_all(self) -> None:
        """Jobs may have stopped, also those of which nothing is in hand; whoever listens asks for the state."""
        with self._listening:
            jobs = list(self._listeners)
        for job in jobs:
            self._tell(job, ("stopped", 0, ""))


def _row(job: str, place: int, make: Callable[[], Answer]) -> Row:
    """The answer; an error of the server's is that of one input, as it is of one request: all jobs wait for this."""
    try:
        return job, place, make().model_dump_json(), None
    except Exception:
        return _own_error(job, place)


def _own_error(job: str, place: int) -> Row:
    log.exception(json.dumps({"job": job, "place": place, "error": "internal"}))
    return job, place, None, "the server met an error of its own; tell the operator"


@contextmanager
def _as_it_was_kept(job: str) -> Iterator[None]:
    """Rows are written as they are read: one that cannot be was changed by somebody else, and the owner hears so."""
    try:
        yield
    except (TypeError, ValueError) as error:
        log.warning(json.dumps({"job": job, "error": "its row was changed"}))
        rule, remedy = "must be as it was kept", "Send its inputs again as another job, and tell the operator."
        raise Damaged("job", rule, "one that was changed on the server's disk", remedy) from error
