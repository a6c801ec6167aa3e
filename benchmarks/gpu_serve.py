"""Certificates a second over HTTP, beside those of the same requests without it, with a fused ResNet on a GPU.

    python benchmarks/gpu_serve.py [--depth 110] [--clients 512] [--seconds 15] [--draws 400,850,1850]

One process reads requests and one has the model, as in ``ringfence serve`` on a GPU (--together: one does both); others
ask on loopback, one request after the other each. All ask about a radius that so many draws
prove, because all of them agree: weights are random, and one class was made the favourite. The trained ResNet-110s
under results/cifar10 take 1,845 to 6,649 draws in the mean to decide a known radius.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import os
import random
import subprocess
import sys
import threading
import time
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from socket import create_server
from statistics import median
from typing import Any
from urllib.request import urlopen

import numpy as np
import torch
from common import Bar, Grid, Report, finish, options_parser
from gpu_rates import CLASSES, SHAPE, SIGMA, network, plan_of
from PIL import Image
from torch import Tensor, nn

import ringfence as rf
from ringfence.data import Input
from ringfence.mechanisms import default_mechanism
from ringfence.procedures import Given
from ringfence.serve.apart import in_own_process
from ringfence.serve.app import create_app
from ringfence.serve.host import tune_process
from ringfence.serve.limits import Limits, Question
from ringfence.serve.schemas import Answer
from ringfence.serve.served import LOOK, N0, Served
from ringfence.serve.service import http_server
from ringfence.signals import stopped_cleanly
from ringfence.stats import look_schedule

ALPHA, LEAST = 0.001, 0.8
ASKERS = 4
"""Processes of clients: one alone would wait for itself."""


def favouring(depth: int) -> nn.Module:
    """A random network that puts everything into class 3."""
    found = network(depth)
    *_, last = (part for part in found.modules() if isinstance(part, nn.Linear))
    with torch.no_grad():
        last.weight.mul_(0.01)
        last.bias.zero_()
        last.bias[3] = 1.0
    return found


def radius_for(draws: int) -> tuple[float, int]:
    """What the server's look next to so many draws proves if they all agree, and how many draws that takes."""
    looks = look_schedule(Limits().draws, LOOK, rf.Anytime().ratio)
    n = int(looks[np.abs(looks + N0 - draws).argmin()])
    given = Given(CLASSES, rf.Gaussian(SIGMA).law.over(int(np.prod(SHAPE))), default_mechanism("gaussian"), 1.0)
    return 0.999 * rf.Anytime(alpha=ALPHA, n0=N0, n=n, look=LOOK).best_case(given), N0 + n


def pictures(count: int, seed: int = 0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(0, 256, SHAPE, generator=generator, dtype=torch.uint8) for _ in range(count)]


class Window:
    """How often something was done between two moments, by the wall clock that processes share."""

    def __init__(self, begin: float, seconds: float) -> None:
        self.begin, self.end, self.count = begin, begin + seconds, 0

    def done(self) -> bool:
        """Something was; False when there is no need to go on."""
        now = time.time()
        self.count += self.begin <= now < self.end
        return now < self.end


def in_process(model: nn.Module, test: Any, options: argparse.Namespace) -> float:
    """Certificates a second of ``rf.certify`` with what the server asks, without its tail, in which little is left."""
    window = Window(time.time() + 1e9, options.seconds)

    def started(_: Any) -> None:
        window.begin = time.time() + options.warm
        window.end = window.begin + options.seconds

    inputs = pictures(4096, 1)
    items = (Input(k, inputs[k % len(inputs)] / 255, None, "") for k in range(10**9))
    execution = rf.Execution(options.device, plan=plan_of("fused", options), on_plan=started, check=False)
    how = {"num_classes": CLASSES, "precision": plan_of("fused", options).precision, "execution": execution}
    for _ in rf.certify(model, items, noise=rf.Gaussian(SIGMA), procedure=test, **how):
        if not window.done():
            break
    return window.count / options.seconds


def without_http(served: Served, question: Question, options: argparse.Namespace) -> float:
    """Certificates a second of the server's own loop: as many requests in work, asked again as they are answered."""
    window = Window(time.time() + options.warm, options.seconds)
    inputs, lock, over = pictures(4096, 1), threading.Lock(), threading.Event()
    left = [0, options.clients]

    def again(_: Any = None) -> None:
        with lock:
            left[0] += 1
            if not window.done():
                left[1] -= 1
                over.set() if left[1] == 0 else None
                return
        served.ask(inputs[left[0] % len(inputs)] / 255, question).answer.add_done_callback(again)

    for _ in range(options.clients):
        again()
    over.wait(60)
    return window.count / options.seconds


def models(options: argparse.Namespace) -> list[Served]:
    """Called in the process where the model works: tells what it does there without HTTP."""
    model, plan = favouring(options.depth), plan_of("fused", options)
    data = [Input(k, x / 255, None, "") for k, x in enumerate(pictures(8, 2))]
    value = rf.Certification(
        model, data, noise=rf.Gaussian(SIGMA), procedure=rf.Fixed(), precision=plan.precision, classes=CLASSES
    )
    limits = Limits(together=options.clients, waiting=options.clients, per_minute=10**9, seconds=60, usual_seconds=60)
    served = Served(value, bytes(32), limits=limits, execution=rf.Execution(options.device, plan=plan))
    for draws in options.draws:
        question = Question(ALPHA, radius_for(draws)[0], 60.0)
        found = {"draws": draws, "served": [], "certify": []}
        for _ in range(options.repetitions):
            found["served"].append(without_http(served, question, options))
            found["certify"].append(in_process(model, served.test(question), options))
        print(json.dumps(found), flush=True)
    return [served]


def serve(options: argparse.Namespace) -> None:
    """The server: tells what it does without HTTP, then where it listens, and serves until it is ended."""
    make = partial(models, options)
    with stopped_cleanly(), nullcontext() if options.together else in_own_process(make) as process:
        found = make() if process is None else process.models
        server = http_server(create_app(found, limits=found[0].limits), 30)
        listening = create_server(("127.0.0.1", options.port))
        tune_process()
        threading.Timer(1.0, lambda: print(json.dumps({"listens": options.port}), flush=True)).start()
        server.run(sockets=[listening])


def ask(options: argparse.Namespace) -> None:
    """A process of clients: told when and for which radius, it prints how many answers came in the window, and some."""
    bodies = []
    for x in pictures(256, options.seed):
        Image.fromarray(x.permute(1, 2, 0).numpy()).save(file := io.BytesIO(), "PNG")
        bodies.append(file.getvalue())
    print("ready", flush=True)
    for line in sys.stdin:
        begin, radius = line.split()
        window = Window(float(begin), options.seconds)
        print(json.dumps(asyncio.run(asked(radius, window, bodies, options))), flush=True)


async def asked(radius: str, window: Window, bodies: list[bytes], options: argparse.Namespace) -> dict[str, Any]:
    """Clients of one process, each with a connection that it asks on, one request after the other."""
    kept, refused = list[Any](), [0]

    async def client(number: int) -> None:
        await asyncio.sleep(options.warm / 2 * random.random())  # not all at once
        reader, writer = await asyncio.open_connection("127.0.0.1", options.port)
        path, going = f"/v1/certify?radius={radius}&alpha={ALPHA}&seconds=60", True
        while going:
            number += 1
            body = bodies[number % len(bodies)]
            head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: image/png\r\nContent-Length: {len(body)}"
            writer.write(head.encode() + b"\r\n\r\n" + body)
            reply = (await reader.readuntil(b"\r\n\r\n")).lower()
            content = await reader.readexactly(int(reply.partition(b"content-length:")[2].split(b"\r\n")[0]))
            answered = reply.startswith(b"http/1.1 200")
            refused[0] += not answered
            going = window.done() if answered else time.time() < window.end
            if answered and len(kept) < 20:
                kept.append(json.loads(content))
        writer.close()

    await asyncio.gather(*(client(k * 7919) for k in range(options.clients // ASKERS)))
    return {"count": window.count, "refused": refused[0], "kept": kept}


def askers(options: argparse.Namespace) -> list[subprocess.Popen[str]]:
    """All processes of clients, begun while the server loads."""
    pipe, words = subprocess.PIPE, [*again(options), "--role", "ask", "--seed"]
    return [subprocess.Popen([*words, str(k)], stdin=pipe, stdout=pipe, text=True) for k in range(10, 10 + ASKERS)]


def busy(process: int) -> dict[str, float]:
    """Seconds that each thread of a process and of those it began has worked, as PROCESS/THREAD."""
    found = {}
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    for path in (path for one in (process, *children) for path in Path(f"/proc/{one}/task").iterdir()):
        told = (path / "stat").read_text().rpartition(")")[2].split()
        found[f"{path.parent.parent.name}/{path.name}"] = (int(told[11]) + int(told[12])) / os.sysconf("SC_CLK_TCK")
    return found


def figures(options: argparse.Namespace) -> dict[str, float]:
    """The server's own, of its one model."""
    with urlopen(f"http://127.0.0.1:{options.port}/metrics", timeout=60) as reply:
        lines = [line.partition("{model=") for line in reply.read().decode().splitlines()]
    return {name.removeprefix("ringfence_"): float(rest.split()[-1]) for name, _, rest in lines if rest}


def over_http(radius: float, server: int, clients: list[Any], options: argparse.Namespace) -> dict[str, Any]:
    """All processes of clients at once; server: its process, of which is told how busy threads were."""
    begin = time.time() + options.warm
    for one in clients:
        print(begin, repr(radius), file=one.stdin, flush=True)
    time.sleep(options.warm)
    before, seen, moments = busy(server), [figures(options)], [time.time()]
    while time.time() < begin + 0.9 * options.seconds:  # after the end fewer and fewer ask
        time.sleep(options.seconds / 10)
        seen.append(figures(options))
        moments.append(time.time())
    after, took = busy(server), moments[-1] - moments[0]
    told = [json.loads(one.stdout.readline()) for one in clients]
    worked = {k: round((after[k] - before.get(k, 0.0)) / took, 3) for k in after}
    loop = worked.pop(f"{server}/{server}")  # the main thread, whose number is the process's
    kept = [answer for one in told for answer in one["kept"]]
    batches, draws = (seen[-1][name] - seen[0][name] for name in ("batches_total", "draws_total"))
    return {
        "rate": sum(one["count"] for one in told) / options.seconds,
        "refused": sum(one["refused"] for one in told),
        "batches": round(batches / took, 1),
        "fill": round(draws / max(1, batches * options.batch), 3),
        "in_work": median(one["in_work"] for one in seen),
        "waiting": median(one["waiting"] for one in seen),
        "loop_busy": loop,
        "others_busy": dict(sorted(worked.items(), key=lambda one: -one[1])[:5]),
        "draws": median(one["draws"] for one in kept),
        "checked": len(kept),
        "wrong": sum(bool(Answer.model_validate(one).wrong()) for one in kept),
    }


def again(options: argparse.Namespace) -> list[str]:
    """This script with the same settings, for another process."""
    names = ("device", "depth", "batch", "clients", "seconds", "warm", "port", "repetitions")
    together = ["--together"] if options.together else []
    words = [word for name in names for word in (f"--{name}", str(getattr(options, name)))]
    return [sys.executable, __file__, *words, "--draws", ",".join(map(str, options.draws)), *together]


def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    server = subprocess.Popen([*again(options), "--role", "serve"], stdout=subprocess.PIPE, text=True)
    clients = askers(options)
    assert server.stdout is not None
    rows: list[dict[str, Any]] = []
    try:
        for line in server.stdout:
            told = json.loads(line) if line.startswith("{") else {}
            if "draws" in told:
                rows.append(told)
                print(line, end="", flush=True)
            if "listens" in told:
                break
        else:
            raise SystemExit(f"the server ended with {server.wait()}")
        for one in clients:
            while one.stdout is not None and one.stdout.readline().strip() not in ("ready", ""):
                pass
        for row in rows:
            row["radius"], row["http"] = radius_for(row["draws"])[0], []
            for _ in range(options.repetitions):
                row["http"].append(over_http(row["radius"], server.pid, clients, options))
                print(json.dumps({"draws": row["draws"], "http": row["http"][-1]}), flush=True)
    finally:
        for one in clients:
            one.kill()
        server.terminate()
        server.wait(60)
    return rows


def main() -> int:
    parser = options_parser(__doc__ or "")
    parser.add_argument("--role", default="all", choices=["all", "serve", "ask"], help=argparse.SUPPRESS)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--depth", type=int, default=110)
    parser.add_argument("--batch", type=int, default=8192)
    parser.add_argument("--clients", type=int, default=512)
    parser.add_argument("--seconds", type=float, default=10.0, help="length of each measurement")
    parser.add_argument("--warm", type=float, default=2.0)
    parser.add_argument("--draws", default="400,850,1850", help="that a certificate takes")
    parser.add_argument("--port", type=int, default=8765)
    parser.add_argument("--together", action="store_true", help="one process has the model and reads requests")
    parser.add_argument("--seed", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.quick:
        options.device, options.depth, options.batch, options.clients, options.draws = "cpu", 8, 100, 8, "100"
        options.seconds, options.warm, options.repetitions = 2.0, 0.5, 1
    options.draws = [int(one) for one in options.draws.split(",")]
    if options.role != "all":
        (serve if options.role == "serve" else ask)(options)
        return 0
    rows = measure(options)
    table, shares = [], []
    for row in rows:
        http, served, certify = (
            median(one["rate"] for one in row["http"]),
            median(row["served"]),
            median(row["certify"]),
        )
        shares.append(100 * http / max(certify, 1e-9))
        taken = f"{row['http'][0]['draws']:.0f}"
        table.append(
            [f"{row['radius']:.3f}", taken, f"{certify:.0f}", f"{served:.0f}", f"{http:.0f}", f"{shares[-1]:.0f}"]
        )
    columns = ["radius", "draws each", "certify()", "server without HTTP", "over HTTP", "HTTP %"]
    grid = Grid(f"Certificates a second at a known radius, ResNet-{options.depth}", columns, table)
    wrong = sum(one["wrong"] for row in rows for one in row["http"])
    most = options.draws.index(max(options.draws))
    bars = [
        Bar(f"over HTTP, of certify(), at {table[most][1]} draws each", "at least", 100 * LEAST, shares[most], "%"),
        Bar("answers that do not follow from their counts", "at most", 0.0, float(wrong)),
    ]
    gpu = torch.cuda.get_device_name() if options.device == "cuda" else "none"
    names = ("depth", "batch", "clients", "seconds", "together")
    settings = {**{name: getattr(options, name) for name in names}, "gpu": gpu, "cpus": os.cpu_count()}
    return finish(Report("gpu_serve", settings, [grid], bars, {"rows": rows}), options)


if __name__ == "__main__":
    sys.exit(main())
