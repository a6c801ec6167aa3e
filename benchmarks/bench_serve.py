"""(15) The server on loopback with the embedded network: latency, requests a second, batching, and a soak.

--soak SECONDS: how long it stands twice the load it can serve (600 in full, a few with --quick).
"""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from http.client import HTTPConnection
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import numpy as np
from common import Bar, Grid, Report, finish, options_parser

import ringfence as rf
from ringfence.serve.limits import Limits, Question
from ringfence.serve.schemas import Answer
from ringfence.serve.served import Served

BATCH, BUDGET = 256, 4.0
CROWD = 256
"""Clients under overload: more than may work and wait together."""
LEAST_GAIN, MOST_GROWTH = 3.0, 1.05
JOB = "classifier: default\nnoise: {sigma: 0.5}\nprocedure: {name: fixed}\n"


class Server:
    """``ringfence serve`` in a process of its own."""

    def __init__(self, folder: Path) -> None:
        (folder / "job.yaml").write_text(JOB)
        command = [sys.executable, "-m", "ringfence", "serve", "job.yaml", "--port", "0", "--batch", str(BATCH)]
        limits = ["per_minute=100000000", "waiting=64", f"usual_seconds={BUDGET}"]
        words = [word for one in limits for word in ("--limit", one)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen([*command, *words], cwd=folder, stderr=subprocess.PIPE, env=environment)
        assert self.process.stderr is not None
        while not (found := re.search(rb"http://[^/]+", self.process.stderr.readline())):
            assert self.process.poll() is None, "the server did not start"
        self.url = found[0].decode()
        self.milliseconds: list[float] = []
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        """Keep the times of answers that the log tells: clients on the same cores wait for themselves too."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            told = json.loads(line) if line.startswith(b"{") else {}
            if told.get("status") == 200:
                self.milliseconds.append(told["ms"])

    def memory(self) -> float:
        """MB that are resident, of all its processes."""
        number = str(self.process.pid)
        children = Path(f"/proc/{number}/task/{number}/children").read_text().split()
        pages = sum(int(Path(f"/proc/{one}/statm").read_text().split()[1]) for one in (number, *children))
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6

    def stop(self) -> None:
        """End it."""
        self.process.terminate()
        self.process.wait(60)


class Load:
    """So many clients that ask for so many seconds, each one request after the other; pace: seconds between two."""

    def __init__(self, url: str, bodies: list[bytes], clients: int, seconds: float, pace: float = 0.0) -> None:
        self.latencies, self.answers, self.refused = list[float](), list[dict[str, Any]](), 0
        self._bodies, self._pace, self._host = bodies, pace, url.removeprefix("http://")
        self._until = time.monotonic() + seconds
        threads = [threading.Thread(target=self._ask, args=(number,)) for number in range(clients)]
        begin = time.monotonic()
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        self.rate = len(self.latencies) / (time.monotonic() - begin)

    def _ask(self, number: int) -> None:
        # A connection for each: pools that threads share close sockets which others still read.
        line = HTTPConnection(self._host, timeout=120)
        while (begin := time.monotonic()) < self._until or len(self.latencies) < 2:  # however slow the machine is
            number += 7
            body = self._bodies[number % len(self._bodies)]
            line.request("POST", "/v1/predict", body, {"Content-Type": "application/x-npy"})
            reply = line.getresponse()
            told = json.loads(reply.read())
            if reply.status == 200:
                self.latencies.append(time.monotonic() - begin)
                self.answers.append(told)
            else:
                assert reply.status in (429, 503), told
                self.refused += 1
            time.sleep(max(0.0, self._pace - (time.monotonic() - begin)))
        line.close()

    def percentiles(self) -> tuple[float, float]:
        """p50 and p99, in milliseconds."""
        return 1000 * median(self.latencies), 1000 * quantiles(self.latencies, n=100)[98]


def batching(inputs: list[Any], repetitions: int) -> tuple[list[float], list[float]]:
    """Requests a second without HTTP, all at once and one at a time, by the same server in turn."""
    value = rf.Certification("default", noise=rf.Gaussian(0.5), procedure=rf.Fixed())
    limits = Limits(waiting=len(inputs), seconds=600, usual_seconds=600)
    together, alone = [], []
    with Served(value, bytes(32), limits=limits, execution=rf.Execution(device="cpu", batch=BATCH)) as served:
        question = Question(0.001, 0.0, 600.0)
        for _ in range(repetitions):
            begin = time.perf_counter()
            for one in [served.ask(x, question) for x in inputs]:
                one.answer.result()
            together.append(len(inputs) / (time.perf_counter() - begin))
            begin, some = time.perf_counter(), inputs[: max(1, len(inputs) // 4)]
            for x in some:
                served.ask(x, question).answer.result()
            alone.append(len(some) / (time.perf_counter() - begin))
    return together, alone


def soak(server: Server, bodies: list[bytes], capacity: float, seconds: float) -> dict[str, float]:
    """Twice the load it can serve; memory after a tenth of the time (a minute of ten) and at the end."""
    seen: list[float] = []
    server.milliseconds.clear()
    timer = threading.Timer(seconds / 10, lambda: seen.append(server.memory()))
    timer.start()
    load = Load(server.url, bodies, CROWD, seconds, pace=CROWD / (2 * capacity))
    timer.join()
    while len(server.milliseconds) < len(load.latencies):  # what the log has not told yet
        time.sleep(0.01)
    return {
        "early_mb": seen[0],
        "late_mb": server.memory(),
        "answered": len(load.latencies),
        "refused": load.refused,
        "p99_ms": quantiles(server.milliseconds, n=100)[98],
    }


def main() -> int:
    parser = options_parser(__doc__ or "")
    parser.add_argument("--soak", type=float, default=None)
    options = parser.parse_args()
    seconds, count = (1.0, 16) if options.quick else (15.0, 128)
    length = options.soak if options.soak is not None else 3.0 if options.quick else 600.0
    inputs = [item.x for item in rf.load_dataset("default", limit=count)]
    bodies = []
    for x in inputs:
        np.save(file := io.BytesIO(), x.numpy())
        bodies.append(file.getvalue())
    together, alone = batching(inputs, options.repetitions)
    rows, answers, rate, raw = [], list[dict[str, Any]](), 1.0, dict[str, Any]()
    with tempfile.TemporaryDirectory() as folder:
        server = Server(Path(folder))
        try:
            Load(server.url, bodies, 4, 1.0)  # warm
            for clients in (1, 8, 64):
                load = Load(server.url, bodies, clients, seconds)
                p50, p99 = load.percentiles()
                rows.append([str(clients), f"{p50:.0f}", f"{p99:.0f}", f"{load.rate:.1f}", str(load.refused)])
                raw[f"{clients} clients"] = {"p50_ms": p50, "p99_ms": p99, "rate": load.rate, "refused": load.refused}
                answers += load.answers[:200]
                rate = load.rate
            raw["soak"] = soak(server, bodies, rate, length)
        finally:
            server.stop()
    wrong = sum(bool(Answer.model_validate(one).wrong()) for one in answers)
    gain = median(a / b for a, b in zip(together, alone, strict=True))
    growth = raw["soak"]["late_mb"] / raw["soak"]["early_mb"]
    grids = [
        Grid(
            f"POST /v1/predict on loopback, LeNet on one CPU thread, {BATCH} rows a forward",
            ["clients", "p50 ms", "p99 ms", "answers/s", "sent away"],
            rows,
        ),
        Grid(
            "Requests a second without HTTP",
            ["", "requests/s"],
            [["all at once", f"{median(together):.1f}"], ["one at a time", f"{median(alone):.1f}"]],
        ),
        Grid(
            f"{length:.0f} s under twice the load it can serve",
            ["", "value"],
            [[name.replace("_", " "), f"{value:.0f}"] for name, value in raw["soak"].items()],
        ),
    ]
    bars = [
        Bar("requests in flight share batches: over one at a time", "at least", LEAST_GAIN, gain, "times"),
        Bar("memory at the end of the soak, over that early on", "at most", MOST_GROWTH, growth, "times"),
        Bar(
            "p99 of answers in the soak, over their budget",
            "at most",
            1.1,
            raw["soak"]["p99_ms"] / 1000 / BUDGET,
            "times",
        ),
        Bar(f"answers that do not follow from their counts, of {len(answers)}", "at most", 0.0, float(wrong)),
    ]
    notes = [
        "One request at a time pays for whole forwards that it fills by a fifth; a smaller shape would serve it better."
    ]
    measured = {"together": together, "alone": alone, **raw}
    settings = {
        "batch": BATCH,
        "budget": BUDGET,
        "crowd": CROWD,
        "inputs": count,
        "seconds": seconds,
        "soak": length,
        "job": json.dumps(JOB),
    }
    return finish(Report("serve", settings, grids, bars, measured, notes), options)


if __name__ == "__main__":
    sys.exit(main())
