"""The database of jobs: every batch with its inputs, and what became of each, in SQLite."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, final

from ringfence.errors import StoreError
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
UNDONE = "answer IS NULL AND failed IS NULL"

Row = tuple[str, int, str | None, str | None]
"""Of what became of an input: its job, its place, the answer in JSON, or why there is none."""


@final
class JobBase:
    """The tables of one server, in a folder of its own; any thread may ask, one at a time."""

    def __init__(self, folder: Path) -> None:
        self.lock = threading.RLock()
        with ExitStack() as opened:
            opened.enter_context(locked(folder, named="jobs"))
            self.connection = opened.enter_context(_database(folder / FILE))
            self._open = opened.pop_all()

    def close(self) -> None:
        """Let another server have the folder."""
        with self.lock:
            self._open.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All of the block, or nothing of it."""
        with self.lock:
            self.connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self.connection.execute("COMMIT")
            except BaseException:
                if self.connection.in_transaction:  # a full disk may have ended it already
                    self.connection.execute("ROLLBACK")
                raise

    def add(self, row: tuple[Any, ...], items: Iterable[tuple[str, int, bytes]], kept: int) -> None:
        """A job (id, owner, model, config, asked, created, inputs) and its inputs; of finished ones so many stay."""
        with self.transaction():
            self.connection.execute(
                "INSERT INTO jobs(id, number, owner, model, config, asked, created, inputs) "
                "VALUES(?, (SELECT COALESCE(MAX(number), 0) + 1 FROM jobs), ?, ?, ?, ?, ?, ?)",
                row,
            )
            self.connection.executemany("INSERT INTO items(job, place, input) VALUES(?, ?, ?)", items)
            old = "SELECT id FROM jobs WHERE done = inputs ORDER BY number DESC LIMIT -1 OFFSET ?"
            forgotten = self.connection.execute(old, (kept,)).fetchall()
            self.connection.executemany("DELETE FROM items WHERE job = ?", forgotten)
            self.connection.executemany("DELETE FROM jobs WHERE id = ?", forgotten)

    def state(self, job: str, owner: str) -> tuple[Any, dict[int, str]]:
        """(model, asked, created, inputs, done) of a job, None where this owner has none of that id, and why some of
        its inputs failed, by their places."""
        query = "SELECT model, asked, created, inputs, done FROM jobs WHERE id = ? AND owner = ?"
        failed = "SELECT place, failed FROM items WHERE job = ? AND failed IS NOT NULL"
        with self.lock:
            return self.connection.execute(query, (job, owner)).fetchone(), dict(self._all(failed, job))

    def answers(self, job: str, start: int = 0, most: int = -1) -> list[str | None]:
        """Answers from that place on as they are stored, in JSON: objects of thousands of them would take seconds."""
        query = "SELECT answer FROM items WHERE job = ? AND place >= ? ORDER BY place LIMIT ?"
        return [answer for (answer,) in self._all(query, job, start, most)]

    @property
    def waiting(self) -> int:
        """Inputs without an answer."""
        return int(self._all(f"SELECT COUNT(*) FROM items WHERE {UNDONE}")[0][0])

    def undone(self) -> list[tuple[str, int, str]]:
        """Job, place and model of all of these."""
        return self._all(f"SELECT job, place, model FROM items JOIN jobs ON id = job WHERE {UNDONE}")

    def oldest(self, model: str, most: int) -> list[Any]:
        """(id, place, model, config, asked, input) of the oldest of a model's."""
        return self._all(
            "SELECT id, place, model, config, asked, input FROM items JOIN jobs ON id = job "
            f"WHERE {UNDONE} AND model = ? ORDER BY number, place LIMIT ?",
            model,
            most,
        )

    def write(self, rows: Sequence[Row]) -> set[str]:
        """Keep answers and failures, all at once, where there are none yet; the jobs that have all of theirs."""
        ended: set[str] = set()
        with self.transaction():
            for job, place, answer, failed in rows:
                changed = self.connection.execute(
                    f"UPDATE items SET answer = ?, failed = ?, input = NULL WHERE job = ? AND place = ? AND {UNDONE}",
                    (answer, failed, job, place),
                ).rowcount
                self.connection.execute("UPDATE jobs SET done = done + ? WHERE id = ?", (changed, job))
                ((over,),) = self._all("SELECT done = inputs FROM jobs WHERE id = ?", job)
                ended |= {job} if over else set()
        return ended

    def _all(self, query: str, *given: object) -> list[Any]:
        with self.lock:
            return self.connection.execute(query, given).fetchall()


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
        raise StoreError(path, rule, error, remedy) from error
