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
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar, final

import numpy as np
import torch
from pydantic import TypeAdapter
from torch import Tensor

from ringfence.errors import RingfenceError, StoreError
from ringfence.record import Record
from ringfence.serve.channel import gathered
from ringfence.serve.limits import Busy, Damaged, Gone, Limits, Question
from ringfence.serve.model import Model
from ringfence.serve.schemas import Answer, JobState
from ringfence.serve.served import BACKGROUND
from ringfence.serve.sharing import Asked, Bounds
from ringfence.store.atomic import locked

TABLES = """
CREATE TABLE IF NOT EXISTS jobs(id TEXT PRIMARY KEY, number INTEGER, owner TEXT, model TEXT, config TEXT, asked TEXT,
  created TEXT, inputs INTEGER, done INTEGER DEFAULT 0);
CREATE TABLE IF NOT EXISTS items(job TEXT, place INTEGER, input BLOB, answer TEXT, failed TEXT,
  PRIMARY KEY(job, place));
CREATE INDEX IF NOT EXISTS undone ON items(job, place) WHERE answer IS NULL AND failed IS NULL;
"""
COLUMNS = "id, number, owner, model, config, asked, created, inputs, done, job, place, input, answer, failed"
FILE = "jobs.sqlite"
RETRY = 1.0
"""Seconds until what the disk did not take is tried again."""
log = logging.getLogger("ringfence.serve")
T = TypeVar("T")
QUESTION = TypeAdapter(Question)
UNDONE = "answer IS NULL AND failed IS NULL"

Event = tuple[str, int, Bounds | str]
"""Its name (bounds, answer, failed, done, stopped), the place of the input, and the bounds or why it failed. An answer
is not in it: it is on the disk, and listeners that read slowly would hold all of them in memory."""
Answered = tuple[str, int, Callable[[], Answer]]
"""A job, the place of an input, and what makes its answer."""
Row = tuple[str, int, str | None, str | None]
"""Of what became of an input: its job, its place, the answer in JSON, or why there is none."""


@final
class Jobs:
    """The queue of one server, in a folder of its own."""

    def __init__(self, folder: Path, models: Mapping[str, Model], limits: Limits) -> None:
        self._models, self._limits = models, limits
        self._lock, self._listening = threading.RLock(), threading.Lock()  # of the database; of the listeners
        with ExitStack() as opened:
            opened.enter_context(locked(folder, named="jobs"))
            self._base = opened.enter_context(_database(folder / FILE))
            self._open = opened.pop_all()
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
        with self._lock:
            self._open.close()

    # Asking

    def submit(self, model: str, inputs: Tensor, question: Question, owner: str) -> str:
        """Keep a batch (N, *shape) and answer it later; returns the job's id once it is on the disk."""
        served, job = self._models[model], uuid.uuid4().hex
        served.test(question)  # refuses what cannot be answered
        with self._lock:
            self._refuse_too_many(len(inputs))
            asked = json.dumps(vars(question))
            row = (job, owner, model, served.config_hash, asked, datetime.now(UTC).isoformat(), len(inputs))
            items = [(job, place, x.numpy().astype("<f4").tobytes()) for place, x in enumerate(inputs)]
            try:
                self._keep(row, items)
            except sqlite3.Error as error:  # as of a full disk
                log.warning("%s", json.dumps({"error": "jobs", "why": str(error)}))
                raise Gone("could not be kept", "a disk that takes no more", "Ask again later.") from error
        self._answers.put([])
        return job

    def _keep(self, row: tuple[Any, ...], items: Sequence[tuple[Any, ...]]) -> None:
        with self._transaction():
            self._base.execute(
                "INSERT INTO jobs(id, number, owner, model, config, asked, created, inputs) "
                "VALUES(?, (SELECT COALESCE(MAX(number), 0) + 1 FROM jobs), ?, ?, ?, ?, ?, ?)",
                row,
            )
            self._base.executemany("INSERT INTO items(job, place, input) VALUES(?, ?, ?)", items)
            self._forget()

    def _refuse_too_many(self, more: int) -> None:
        waiting = self.waiting
        if waiting + more > self._limits.job_inputs:
            rule = f"waits where {waiting} inputs of jobs do, of at most {self._limits.job_inputs}"
            raise Busy(rule, f"{more} more", 60.0)

    def _forget(self) -> None:
        """Drop the oldest finished jobs beyond those that are kept."""
        old = "SELECT id FROM jobs WHERE done = inputs ORDER BY number DESC LIMIT -1 OFFSET ?"
        ids = [row[0] for row in self._base.execute(old, (self._limits.kept_jobs,))]
        self._base.executemany("DELETE FROM items WHERE job = ?", [(one,) for one in ids])
        self._base.executemany("DELETE FROM jobs WHERE id = ?", [(one,) for one in ids])

    def state(self, job: str, owner: str) -> JobState | None:
        """How far a job is, without its answers; None where this owner has none of that id."""
        with self._lock:
            found = self._base.execute(
                "SELECT model, asked, created, inputs, done FROM jobs WHERE id = ? AND owner = ?", (job, owner)
            ).fetchone()
            failed = dict(
                self._base.execute("SELECT place, failed FROM items WHERE job = ? AND failed IS NOT NULL", (job,))
            )
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
                stopped=None if done == inputs else "a server that stops" if self._halted else broken,
            )

    def answers(self, job: str, start: int = 0, most: int = -1) -> list[str | None]:
        """Answers from that place on as they are stored, in JSON: objects of thousands of them would take seconds."""
        query = "SELECT answer FROM items WHERE job = ? AND place >= ? ORDER BY place LIMIT ?"
        with self._lock:
            return [row[0] for row in self._base.execute(query, (job, start, most))]

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

    @property
    def waiting(self) -> int:
        """Inputs without an answer."""
        with self._lock:
            return int(self._base.execute(f"SELECT COUNT(*) FROM items WHERE {UNDONE}").fetchone()[0])

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
        query = f"SELECT job, place, model FROM items JOIN jobs ON id = job WHERE {UNDONE}"
        with self._lock:
            rows = self._base.execute(query).fetchall()
        told = "the server was started anew without the model"
        return [(job, place, None, f"{told} {model}") for job, place, model in rows if model not in self._models]

    def _next(self) -> list[Any]:
        """Inputs that nobody works on, of models that have room."""
        rows: list[Any] = []
        with self._lock:
            for name in self._models:
                room = 2 * BACKGROUND - sum(one == name for one in self._in_hand.values())
                query = (
                    "SELECT id, place, model, config, asked, input FROM items JOIN jobs ON id = job "
                    f"WHERE {UNDONE} AND model = ? ORDER BY number, place LIMIT ?"
                )
                limit = room + len(self._in_hand)
                for row in self._base.execute(query, (name, limit)).fetchall() if room > 0 else ():
                    if (row[0], row[1]) not in self._in_hand and room > 0:
                        rows.append(row)
                        self._in_hand[row[0], row[1]] = name
                        room -= 1
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
        ended = self._patiently(partial(self._write, rows))
        if ended is None:
            return  # not on the disk: whoever starts anew takes them up
        for job, place, answer, failed in rows:
            self._in_hand.pop((job, place), None)
            self._tell(job, ("failed", place, failed or "") if answer is None else ("answer", place, ""))
        for job in ended:
            self._tell(job, ("done", 0, ""))

    def _write(self, rows: Sequence[Row]) -> set[str]:
        """Keep answers and failures, all at once, where there are none yet; the jobs that have all of theirs."""
        ended: set[str] = set()
        with self._lock, self._transaction():
            for job, place, answer, failed in rows:
                changed = self._base.execute(
                    f"UPDATE items SET answer = ?, failed = ?, input = NULL WHERE job = ? AND place = ? AND {UNDONE}",
                    (answer, failed, job, place),
                ).rowcount
                self._base.execute("UPDATE jobs SET done = done + ? WHERE id = ?", (changed, job))
                (over,) = self._base.execute("SELECT done = inputs FROM jobs WHERE id = ?", (job,)).fetchone()
                ended |= {job} if over else set()
        return ended

    def _patiently(self, work: Callable[[], T]) -> T | None:
        """What it gives, once it can: disks fill up, other programs lock files. None where the server stops first."""
        while True:
            try:
                return work()
            except sqlite3.Error as error:
                log.warning("%s", json.dumps({"error": "jobs", "why": str(error)}))
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

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._base.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._base.execute("COMMIT")
        except BaseException:
            if self._base.in_transaction:  # a full disk may have ended it already
                self._base.execute("ROLLBACK")
            raise


def _row(job: str, place: int, make: Callable[[], Answer]) -> Row:
    """The answer; an error of the server's is that of one input, as it is of one request: all jobs wait for this."""
    try:
        return job, place, make().model_dump_json(), None
    except Exception:
        return _own_error(job, place)


def _own_error(job: str, place: int) -> Row:
    log.exception("%s", json.dumps({"job": job, "place": place, "error": "internal"}))
    return job, place, None, "the server met an error of its own; tell the operator"


@contextmanager
def _as_it_was_kept(job: str) -> Iterator[None]:
    """Rows are written as they are read: one that cannot be was changed by somebody else, and the owner hears so."""
    try:
        yield
    except (TypeError, ValueError) as error:
        log.warning("%s", json.dumps({"job": job, "error": "its row was changed"}))
        rule, remedy = "must be as it was kept", "Send its inputs again as another job, and tell the operator."
        raise Damaged("job", rule, "one that was changed on the server's disk", remedy) from error


@contextmanager
def _database(path: Path) -> Iterator[sqlite3.Connection]:
    """The tables of a file, which is made where there is none."""
    try:
        with closing(sqlite3.connect(path, check_same_thread=False, isolation_level=None)) as base:
            base.executescript(f"PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; {TABLES}")
            base.execute(f"SELECT {COLUMNS} FROM jobs, items LIMIT 0")
            if (found := base.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
                raise sqlite3.DatabaseError(found.splitlines()[-1])
            yield base
    except sqlite3.Error as error:
        rule, remedy = "must be a queue of jobs that this server may write", "Restore it, or choose another folder."
        raise StoreError(str(path), rule, error, remedy) from error
