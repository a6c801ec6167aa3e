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
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch
from torch import Tensor

from ringfence.serve.client import AnswerError, Client
from ringfence.serve.schemas import Answer

Start = Callable[..., Any]
pytestmark = pytest.mark.slow


class Process:
    """A server and where it is."""

    def __init__(self, folder: Path, *words: str) -> None:
        (folder / "job.yaml").write_text("classifier: default\nnoise: {sigma: 0.5}\nprocedure: {name: fixed}\n")
        command = [sys.executable, "-m", "ringfence", "serve", "digits=job.yaml", "--port", "0", "--batch", "100"]
        self.folder, self.lines = folder, list[str]()
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        self.running = subprocess.Popen(
            [*command, "--device", "cpu", *words], cwd=folder, stderr=subprocess.PIPE, text=True, env=environment
        )
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

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.running.send_signal(number)
        code = self.running.wait(60)
        self.reader.join(60)
        return code


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[Process] = []

    def make(*words: str) -> Process:
        started.append(Process(tmp_path, *words))
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
    server = start("--jobs", "jobs", "--limit", "draws=3000")
    digits = digits[:10]
    with Client(server.url) as client:
        job = client.submit(torch.stack(digits))
        while client.job(job).answered < 3:
            time.sleep(0.02)
        before = client.job(job)
    assert before.state == "waiting"
    server.stop(signal.SIGKILL)
    base = sqlite3.connect(tmp_path / "jobs" / "jobs.sqlite")
    base.execute("CREATE TABLE written(job TEXT, place INTEGER)")
    base.execute(
        "CREATE TRIGGER twice AFTER UPDATE OF answer ON items BEGIN INSERT INTO written VALUES(new.job, new.place); END"
    )
    base.commit()
    known = {row[0] for row in base.execute("SELECT place FROM items WHERE answer IS NOT NULL")}
    base.close()
    again = start("--jobs", "jobs", "--limit", "draws=3000")
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
    url = start("--limit", "per_minute=1").url
    asked = [httpx.get(f"{url}/v1/model", headers={"X-Forwarded-For": f"10.0.0.{one}"}).status_code for one in range(3)]
    assert asked == [200, 429, 429]


def test_sigterm_lets_requests_end_and_leaves_jobs(start: Start, digits: list[Tensor]) -> None:
    server = start("--jobs", "jobs", "--limit", "draws=10_000_000")
    replies: list[Answer] = []
    with Client(server.url) as client:
        job = client.submit(torch.stack(digits[:3]))
        begun = threading.Event()

        def ask() -> None:
            for name, told in client.events(digits[0], seconds=2.0):
                begun.set()
                replies.extend([Answer.model_validate(told)] if name == "answer" else [])

        asking = threading.Thread(target=ask)
        asking.start()
        assert begun.wait(60)
        assert server.stop() == 143
        asking.join(60)
    assert replies[0].wrong(digits[0]) == []
    assert not any("Traceback" in line for line in server.lines), "".join(server.lines)
    again = start("--jobs", "jobs", "--limit", "draws=3000")
    with Client(again.url) as client:
        assert client.job(job).answered == 0, "what was stopped in the middle is no answer"


def test_clients_that_go_away_leave_the_others_alone(start: Start, digits: list[Tensor]) -> None:
    server = start("--limit", "draws=10_000_000")
    host, port = server.url.removeprefix("http://").split(":")
    content = npy(digits[0])
    head = f"POST /v1/certify?seconds=10 HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/x-npy\r\n"
    whole = f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content
    for cut in (5, len(head) // 2, len(head) + 30, len(whole) - 10, len(whole), len(whole)):
        with socket.create_connection((host, int(port))) as line:
            line.sendall(whole[:cut])
            time.sleep(0.05)
    with Client(server.url) as client:
        answer = client.predict(digits[0])
    assert answer.wrong(digits[0]) == []
    while 'ringfence_waiting{model="digits"} 0.0' not in (figures := httpx.get(f"{server.url}/metrics").text):
        time.sleep(0.02)
    assert 'status="500"' not in figures
    server.stop()
    logged = [json.loads(line) for line in server.lines if line.startswith("{")]
    assert sum(one["status"] == 499 for one in logged) >= 2, "those that had asked and left"
    assert not any("Traceback" in line for line in server.lines)


def test_under_overload_some_are_sent_away_and_the_others_keep_their_time(start: Start, digits: list[Tensor]) -> None:
    server = start("--limit", "waiting=2", "--limit", "together=4", "--limit", "draws=10_000_000")
    seen: list[Any] = []

    def ask(x: Tensor) -> None:
        with Client(server.url, patience=0.0, timeout=120) as client:
            try:
                seen.append(client.certify(x, seconds=1.5))
            except AnswerError as error:
                seen.append(error)

    threads = [threading.Thread(target=ask, args=(x,)) for x in digits]
    for one in threads:
        one.start()
    for one in threads:
        one.join(120)
    answers = [one for one in seen if isinstance(one, Answer)]
    refused = [str(one) for one in seen if isinstance(one, AnswerError)]
    assert len(seen) == len(digits)
    assert answers
    assert refused
    assert all("Come again in" in one or "had no time" in one for one in refused), refused
    assert all(one.stopped == "deadline" and not one.wrong() for one in answers)


def test_memory_stays_where_it_was_under_twice_the_load(start: Start, digits: list[Tensor]) -> None:
    """The short form of the soak in benchmarks/bench_serve.py: rounds of requests, many of them sent away."""
    words = ["waiting=2", "together=4", "per_minute=1000000"]
    server = start(*(word for one in words for word in ("--limit", one)))
    bodies, statuses = [npy(x) for x in digits], list[int]()

    def ask(client: httpx.Client, place: int) -> None:
        content = bodies[place % len(bodies)]
        reply = client.post("/v1/predict", content=content, headers={"Content-Type": "application/x-npy"}, timeout=120)
        statuses.append(reply.status_code)

    def memory() -> int:
        return int(Path(f"/proc/{server.running.pid}/statm").read_text().split()[1])

    seen = []
    with httpx.Client(base_url=server.url) as client, ThreadPoolExecutor(24) as pool:
        for _ in range(5):
            list(pool.map(lambda place: ask(client, place), range(200)))
            seen.append(memory())
    assert set(statuses) <= {200, 429, 503}
    assert statuses.count(200) > 100
    assert statuses.count(429) > 10
    assert seen[-1] <= 1.05 * seen[1]
