"""The server as a process: killed, stopped, overrun, left in the middle of a word."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch
from torch import Tensor

from ringfence.serve.client import AnswerError, Client
from ringfence.serve.schemas import Answer
from ringfence.serve.served import BACKGROUND, N0

Start = Callable[..., Any]
pytestmark = pytest.mark.slow


class Process:
    """A server and where it is."""

    def __init__(self, folder: Path, *words: str, early: int | None = None) -> None:
        (folder / "job.yaml").write_text("classifier: default\nnoise: {sigma: 0.5}\nprocedure: {name: fixed}\n")
        command = [sys.executable, "-m", "ringfence", "serve", "digits=job.yaml", "--port", "0", "--batch", "100"]
        often = (
            () if any("per_minute" in one for one in words) else ("--limit", "per_minute=1000000")
        )  # whoever waits asks how far it is
        command += ["--device", "cpu", *often]
        self.folder, self.lines = folder, list[str]()
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        how: dict[str, Any] = {"stderr": subprocess.PIPE, "text": True, "env": environment}
        # What runs in the background of a shell ignores Ctrl-C, and so would the server.
        hear = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
        self.running = subprocess.Popen([*command, *words], cwd=folder, preexec_fn=hear, **how)
        if early is not None:
            while not (workers := self.workers()):
                assert self.running.poll() is None
                time.sleep(0.005)
            os.kill(workers[0], early)
        assert self.running.stderr is not None
        for line in self.running.stderr:
            self.lines.append(line)
            if found := re.search(r"http://[^/]+", line):
                self.url = found[0]
                break
        else:
            raise AssertionError("".join(self.lines))
        self.reader = threading.Thread(target=lambda: self.lines.extend(self.running.stderr or ()), daemon=True)
        self.reader.start()

    def workers(self) -> list[int]:
        """Processes of its models."""
        number = self.running.pid
        children = [int(one) for one in Path(f"/proc/{number}/task/{number}/children").read_text().split()]
        return [one for one in children if alive(one) and "spawn_main" in Path(f"/proc/{one}/cmdline").read_text()]

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.running.send_signal(number)
        code = self.running.wait(300)  # requests, models and their process may each take their own time
        self.reader.join(60)
        return code


class Stream:
    """Somebody who listens to a job."""

    def __init__(self, url: str, job: str) -> None:
        self.lines, begun = list[str](), threading.Event()

        def listen() -> None:
            with httpx.stream("GET", f"{url}/v1/jobs/{job}/events", timeout=120) as reply:
                for line in reply.iter_lines():
                    self.lines.append(line)
                    begun.set()

        self._thread = threading.Thread(target=listen, daemon=True)
        self._thread.start()
        assert begun.wait(60)

    def error(self) -> str:
        """What it ended with."""
        self._thread.join(120)
        assert self.lines[-3] == "event: error", self.lines[-3:]
        return self.lines[-2]


def figures(server: Process) -> str:
    """Of its metrics."""
    return httpx.get(f"{server.url}/metrics", timeout=60).text


def alive(process: int) -> bool:
    """Whether it is there, and not only its name."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[Process] = []

    def make(*words: str, **how: Any) -> Process:
        started.append(Process(tmp_path, *words, **how))
        return started[-1]

    yield make
    for one in started:
        if one.running.poll() is None:
            one.stop(signal.SIGKILL)
        assert one.running.stderr is not None
        one.running.stderr.close()


def npy(x: Tensor) -> bytes:
    file = io.BytesIO()
    np.save(file, x.numpy())
    return file.getvalue()


def test_a_job_survives_a_kill_and_nothing_is_done_twice(start: Start, digits: list[Tensor], tmp_path: Path) -> None:
    server = start("--jobs", "jobs", "--limit", "draws=500", "--apart")
    digits = digits[:10]
    base = sqlite3.connect(tmp_path / "jobs" / "jobs.sqlite", timeout=60)
    # However fast it is, the kill finds some answered and the others in work.
    base.execute("CREATE TRIGGER later BEFORE UPDATE ON items WHEN new.place > 3 BEGIN SELECT RAISE(IGNORE); END")
    with Client(server.url) as client:
        job = client.submit(torch.stack(digits))
        while (before := client.job(job)).answered < 4:
            time.sleep(0.02)
    server.stop(signal.SIGKILL)
    base.execute("DROP TRIGGER later")
    base.execute("CREATE TABLE written(job TEXT, place INTEGER)")
    base.execute(
        "CREATE TRIGGER twice AFTER UPDATE OF answer ON items BEGIN INSERT INTO written VALUES(new.job, new.place); END"
    )
    base.commit()
    known = [row[0] for row in base.execute("SELECT place FROM items WHERE answer IS NOT NULL")]
    assert known == [0, 1, 2, 3]
    base.close()
    again = start("--jobs", "jobs", "--limit", "draws=500", "--apart")
    with Client(again.url) as client:
        answers = client.wait(job, every=0.05)
    assert again.stop() == 143
    assert len(answers) == len(digits)
    assert all(answer is not None and answer.wrong(x) == [] for answer, x in zip(answers, digits, strict=True))
    for early, late in zip(before.answers, answers, strict=True):
        assert early in (None, late), "what was answered stays as it was"
    base = sqlite3.connect(tmp_path / "jobs" / "jobs.sqlite")
    written = [row[0] for row in base.execute("SELECT place FROM written")]
    assert sorted([*known, *written]) == list(range(len(digits))), "each once, before or after"
    assert base.execute("SELECT done, inputs FROM jobs").fetchall() == [(len(digits), len(digits))]
    base.close()


def test_nobody_is_another_client_by_saying_so(start: Start) -> None:
    """Addresses in headers are written by whoever asks: they would give him a new allowance, and the jobs of others."""
    url, claims = start("--limit", "per_minute=1").url, [{"X-Forwarded-For": f"10.0.0.{one}"} for one in range(3)]
    asked = [httpx.get(f"{url}/v1/model", headers=told, timeout=60).status_code for told in claims]
    assert asked == [200, 429, 429]


@pytest.mark.parametrize("where", ["--apart", "--together"])
def test_sigterm_lets_requests_end_and_leaves_jobs(
    start: Start, digits: list[Tensor], tmp_path: Path, where: str
) -> None:
    server = start("--jobs", "jobs", "--limit", "draws=10_000_000", "--limit", "drain=600", where)
    workers = server.workers()
    assert len(workers) == (where == "--apart")
    replies: list[Answer] = []
    with Client(server.url) as client:
        job = client.submit(torch.stack(digits[:3]))
        begun, stream = threading.Event(), Stream(server.url, job)

        def ask() -> None:
            while not begun.is_set():  # who has no time for a first look, as on a busy machine, comes again
                with suppress(AnswerError):
                    for name, told in client.events(digits[0], seconds=2.0):
                        if told["draws"] > N0:  # who only knows which class it may be can still be sent away
                            begun.set()
                        replies.extend([Answer.model_validate(told)] if name == "answer" else [])

        asking = threading.Thread(target=ask)
        asking.start()
        assert begun.wait(300)
        for one in workers:
            os.kill(one, signal.SIGTERM)  # as systems do that stop all processes of a service
        assert server.stop() == 143
        asking.join(120)
    assert not any(map(alive, workers))
    assert "a server that stops" in stream.error(), "whoever listens does not keep it"
    assert replies[0].wrong(digits[0]) == []
    assert server.lines[0] == "loading digits\n", "a terminal that says nothing for long seems to hang"
    assert any("Ctrl-C stops it" in line for line in server.lines)
    assert any("in work have 600 s to end" in line for line in server.lines)
    assert not any("Traceback" in line for line in server.lines), "".join(server.lines)
    with closing(sqlite3.connect(tmp_path / "jobs" / "jobs.sqlite")) as base:
        (kept,) = base.execute("SELECT COUNT(*) FROM items WHERE answer IS NULL AND failed IS NULL").fetchone()
    assert kept == 3, "what was stopped in the middle is no answer"


def test_who_is_in_work_when_the_time_to_stop_is_over_hears_so(start: Start, digits: list[Tensor]) -> None:
    server = start("--limit", "draws=100_000_000", "--limit", "seconds=600", "--limit", "drain=1")
    with Client(server.url, patience=0.0, timeout=120) as client, ThreadPoolExecutor(1) as pool:
        asking = pool.submit(client.certify, digits[0], seconds=600.0)
        while 'ringfence_in_work{model="digits"} 1.0' not in figures(server):
            assert not asking.done()
            time.sleep(0.02)
        assert server.stop() == 143
        assert "time to stop was over" in str(asking.exception(120))
    assert not any("Traceback" in line for line in server.lines), "".join(server.lines)


def test_each_process_ends_with_the_other(start: Start, digits: list[Tensor]) -> None:
    server = start("--jobs", "jobs", "--limit", "draws=100_000_000", "--limit", "seconds=600", "--apart")
    (worker,) = server.workers()
    with Client(server.url, patience=0.0, timeout=600) as client, ThreadPoolExecutor(1) as pool:
        stream = Stream(server.url, client.submit(torch.stack(digits[:20])))
        asking = pool.submit(client.certify, digits[0], seconds=600.0)
        while f'ringfence_in_work{{model="digits"}} {BACKGROUND + 1}.0' not in figures(server):
            assert not asking.done()
            time.sleep(0.02)
        os.kill(worker, signal.SIGKILL)
        assert isinstance(asking.exception(120), AnswerError)
    assert "a process that has ended" in stream.error()
    assert server.running.wait(120) == 2
    server.reader.join(120)
    assert any("must work in their process" in line and "code -9" in line for line in server.lines), server.lines
    assert not any("Traceback" in line for line in server.lines), "".join(server.lines)
    again = start("--apart")
    (worker,) = again.workers()
    again.stop(signal.SIGKILL)
    until = time.monotonic() + 120
    while alive(worker) and time.monotonic() < until:
        time.sleep(0.02)
    assert not alive(worker)
    assert any("the process that reads requests has ended" in line for line in again.lines), again.lines


def test_ctrl_c_of_a_terminal_ends_both_processes(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RINGFENCE_TOKENS", token := "a token of some length")
    server = start("--apart", early=signal.SIGINT)
    (worker,) = server.workers()
    assert token not in Path(f"/proc/{worker}/environ").read_text(), "which stays where requests are read"
    os.kill(worker, signal.SIGINT)
    assert server.stop(signal.SIGINT) == 130
    assert not alive(worker)
    assert not any("Traceback" in line for line in server.lines), "".join(server.lines)


def test_clients_that_go_away_leave_the_others_alone(start: Start, digits: list[Tensor]) -> None:
    server = start("--limit", "draws=10_000_000", "--limit", "seconds=600", "--limit", "usual_seconds=600", "--apart")
    host, port = server.url.removeprefix("http://").split(":")
    content = npy(digits[0])
    head = f"POST /v1/certify?seconds=600 HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/x-npy\r\n"
    whole = f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content
    for cut in (5, len(head) // 2, len(head) + 30, len(whole) - 10, len(whole), len(whole)):
        with socket.create_connection((host, int(port))) as line:
            line.sendall(whole[:cut])
            time.sleep(0.05)
    with Client(server.url, timeout=600) as client:
        answer = client.predict(digits[0])
    assert answer.wrong(digits[0]) == []
    while 'ringfence_in_work{model="digits"} 0.0' not in (told := figures(server)):
        time.sleep(0.02)
    assert 'ringfence_waiting{model="digits"} 0.0' in told
    assert 'status="500"' not in told
    server.stop()
    logged = [json.loads(line) for line in server.lines if line.startswith("{")]
    assert sum(one["status"] == 499 for one in logged) >= 2, "those that had asked and left"
    assert not any("Traceback" in line for line in server.lines)


def test_under_overload_some_are_sent_away_and_the_others_keep_their_time(start: Start, digits: list[Tensor]) -> None:
    server = start("--limit", "waiting=2", "--limit", "together=4", "--limit", "draws=10_000_000")
    seen: list[Any] = []
    together = threading.Barrier(len(digits))

    def ask(client: Client, x: Tensor) -> None:
        together.wait(120)
        try:
            seen.append(client.certify(x, seconds=10.0))
        except AnswerError as error:
            seen.append(error)

    with ExitStack() as opened, ThreadPoolExecutor(len(digits)) as pool:
        # Made before: it takes long, and those who come one after another overrun nobody.
        clients = [opened.enter_context(Client(server.url, patience=0.0, timeout=120)) for _ in digits]
        list(pool.map(ask, clients, digits))
    answers = [one for one in seen if isinstance(one, Answer)]
    refused = [str(one) for one in seen if isinstance(one, AnswerError)]
    assert len(seen) == len(digits)
    assert answers
    assert refused
    assert all("Come again in" in one or "had no time" in one for one in refused), refused
    assert all(one.stopped == "deadline" and not one.wrong() for one in answers)


def test_memory_stays_where_it_was_under_twice_the_load(start: Start, digits: list[Tensor]) -> None:
    """The short form of the soak in benchmarks/bench_serve.py: rounds of requests, many of them sent away."""
    words = ["waiting=2", "together=4", "draws=500"]
    server = start("--apart", *(word for one in words for word in ("--limit", one)))
    bodies, statuses = [npy(x) for x in digits], list[int]()

    def ask(client: httpx.Client, place: int) -> None:
        enough, how = statuses.count(200) + 20, {"headers": {"Content-Type": "application/x-npy"}, "timeout": 120}
        while statuses.count(200) < enough:
            statuses.append(client.post("/v1/certify", content=bodies[place], **how).status_code)

    def memory() -> int:
        numbers = [server.running.pid, *server.workers()]
        return sum(int(Path(f"/proc/{one}/statm").read_text().split()[1]) for one in numbers)

    seen = []
    with httpx.Client(base_url=server.url) as client, ThreadPoolExecutor(24) as pool:
        for _ in range(5):
            list(pool.map(partial(ask, client), range(24)))
            seen.append(memory())
    assert set(statuses) == {200, 429} or set(statuses) == {200, 429, 503}
    assert seen[-1] <= 1.05 * seen[1]
