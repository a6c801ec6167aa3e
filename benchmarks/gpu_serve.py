"""Certificates a second over HTTP, beside those of the same requests without it, with a fused ResNet on a GPU.

    python benchmarks/gpu_serve.py [--depth 110] [--clients 512] [--seconds 15] [--draws 400,850,1850]

One process serves, others ask on loopback, one request after the other each. All ask about a radius that so many draws
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
from pathlib import Path
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
from ringfence.serve.limits import Limits, Question
from ringfence.serve.schemas import Answer
from ringfence.serve.served import LOOK, N0, Served
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


def serve(options: argparse.Namespace) -> None:
    """The server's process: tells what it does without HTTP, then where it listens, and serves until it is ended."""
    import uvicorn

    from ringfence.serve.app import create_app
    from ringfence.serve.service import own_process

    model, plan = favouring(options.depth), plan_of("fused", options)
    data = [Input(k, x / 255, None, "") for k, x in enumerate(pictures(8, 2))]
    value = rf.Certification(
        model, data, noise=rf.Gaussian(SIGMA), procedure=rf.Fixed(), precision=plan.precision, classes=CLASSES
    )
    limits = Limits(together=options.clients, waiting=options.clients, per_minute=10**9, seconds=60, usual_seconds=60)
    execution = rf.Execution(options.device, plan=plan)
    with Served(value, bytes(32), limits=limits, execution=execution) as served:
        for draws in options.draws:
            question = Question(ALPHA, radius_for(draws)[0], 60.0)
            found = {"draws": draws, "served": [], "certify": []}
            for _ in range(options.repetitions):
                found["served"].append(without_http(served, question, options))
                found["certify"].append(in_process(model, served.test(question), options))
            print(json.dumps(found), flush=True)
        app = create_app([served], limits=limits)
        own_process()
        config = uvicorn.Config(app, port=options.port, log_config=None, access_log=False, timeout_keep_alive=60)
        threading.Timer(2.0, lambda: print(json.dumps({"listens": options.port}), flush=True)).start()
        uvicorn.Server(config).run()


def ask(options: argparse.Namespace) -> None:
    """A process of clients: prints how many answers came in the window, and some of them."""
    bodies, kept, refused = [], list[Any](), [0]
    for x in pictures(256, options.seed):
        Image.fromarray(x.permute(1, 2, 0).numpy()).save(file := io.BytesIO(), "PNG")
        bodies.append(file.getvalue())
    print("ready", flush=True)
    window = Window(float(input()), options.seconds)

    async def client(number: int) -> None:
        await asyncio.sleep(options.warm / 2 * random.random())  # not all at once
        reader, writer = await asyncio.open_connection("127.0.0.1", options.port)
        path, going = f"/v1/certify?radius={options.radius}&alpha={ALPHA}&seconds=60", True
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

    async def clients() -> None:
        await asyncio.gather(*(client(k * 7919) for k in range(options.clients // ASKERS)))

    asyncio.run(clients())
    print(json.dumps({"count": window.count, "refused": refused[0], "kept": kept}))


def busy(process: int) -> dict[str, float]:
    """Seconds that each thread of a process has worked."""
    found = {}
    for path in Path(f"/proc/{process}/task").iterdir():
        told = (path / "stat").read_text().rpartition(")")[2].split()
        found[path.name] = (int(told[11]) + int(told[12])) / os.sysconf("SC_CLK_TCK")
    return found


def figure(name: str, options: argparse.Namespace) -> float:
    """A figure of the server's own."""
    with urlopen(f"http://127.0.0.1:{options.port}/metrics", timeout=60) as reply:
        lines = reply.read().decode().splitlines()
    return next(float(line.split()[-1]) for line in lines if line.startswith(f"ringfence_{name}_total"))


def over_http(radius: float, server: int, options: argparse.Namespace) -> dict[str, Any]:
    """All processes of clients at once; server: its process, of which is told how busy threads were."""
    words, pipe = ["--role", "ask", "--radius", repr(radius)], subprocess.PIPE
    askers = [
        subprocess.Popen([*again(options), *words, "--seed", str(k)], stdin=pipe, stdout=pipe, text=True)
        for k in range(10, 10 + ASKERS)
    ]
    for one in askers:
        assert one.stdout is not None
        while one.stdout.readline().strip() not in ("ready", ""):
            pass
    begin, before, batches = time.time(), busy(server), figure("batches", options)
    told = [one.communicate(f"{begin + options.warm}\n", timeout=300)[0] for one in askers]
    after, took = busy(server), time.time() - begin
    batches = figure("batches", options) - batches
    worked = {k: round((after[k] - before.get(k, 0.0)) / took, 3) for k in after}
    loop = worked.pop(str(server))  # the main thread, whose number is the process's
    told = [json.loads(one.splitlines()[-1]) for one in told]
    kept = [answer for one in told for answer in one["kept"]]
    return {
        "rate": sum(one["count"] for one in told) / options.seconds,
        "refused": sum(one["refused"] for one in told),
        "batches": round(batches / took, 1),
        "loop_busy": loop,
        "others_busy": sorted(worked.values(), reverse=True)[:3],
        "draws": median(one["draws"] for one in kept),
        "checked": len(kept),
        "wrong": sum(bool(Answer.model_validate(one).wrong()) for one in kept),
    }


def again(options: argparse.Namespace) -> list[str]:
    """This script with the same settings, for another process."""
    names = ("device", "depth", "batch", "clients", "seconds", "warm", "port", "repetitions")
    words = [word for name in names for word in (f"--{name}", str(getattr(options, name)))]
    return [sys.executable, __file__, *words, "--draws", ",".join(map(str, options.draws))]


def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    server = subprocess.Popen([*again(options), "--role", "serve"], stdout=subprocess.PIPE, text=True)
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
        for row in rows:
            row["radius"] = radius_for(row["draws"])[0]
            row["http"] = [over_http(row["radius"], server.pid, options) for _ in range(options.repetitions)]
            print(json.dumps(row["http"]), flush=True)
    finally:
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
    parser.add_argument("--radius", type=float, help=argparse.SUPPRESS)
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
        shares.append(100 * http / certify)
        taken = f"{row['http'][0]['draws']:.0f}"
        table.append(
            [f"{row['radius']:.3f}", taken, f"{certify:.0f}", f"{served:.0f}", f"{http:.0f}", f"{shares[-1]:.0f}"]
        )
    columns = ["radius", "draws each", "certify()", "server without HTTP", "over HTTP", "HTTP %"]
    grid = Grid(f"Certificates a second at a known radius, ResNet-{options.depth}", columns, table)
    wrong = sum(one["wrong"] for row in rows for one in row["http"])
    bars = [
        Bar(f"over HTTP, of certify(), at {table[-1][1]} draws each", "at least", 100 * LEAST, shares[-1], "%"),
        Bar("answers that do not follow from their counts", "at most", 0.0, float(wrong)),
    ]
    gpu = torch.cuda.get_device_name() if options.device == "cuda" else "none"
    names = ("depth", "batch", "clients", "seconds")
    settings = {**{name: getattr(options, name) for name in names}, "gpu": gpu, "cpus": os.cpu_count()}
    return finish(Report("gpu_serve", settings, [grid], bars, {"rows": rows}), options)


if __name__ == "__main__":
    sys.exit(main())
