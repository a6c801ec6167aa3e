"""The deployment that the page on serving shows, on a Ray of this machine."""

from __future__ import annotations

import gc
import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

import ringfence as rf
from ringfence.serve.client import AnswerError, Client
from ringfence.serve.schemas import Answer

PAGE = Path(__file__).resolve().parents[2] / "docs" / "serving.md"
TOKEN = "a token of many letters"
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # Ray's own warnings


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    for name in ("PROXY_READY_CHECK", "PROXY_HEALTH_CHECK", "HAPROXY_STARTUP"):  # busy machines are slow
        monkeypatch.setenv(f"RAY_SERVE_{name}_TIMEOUT_S", "120")
    ray = pytest.importorskip("ray")
    serve = pytest.importorskip("ray.serve", reason="needs ray[serve]", exc_type=ImportError)
    environment = {"env_vars": {"PYTHONPATH": os.pathsep.join(sys.path)}}
    how: dict[str, Any] = {"include_dashboard": False, "log_to_driver": False, "logging_level": "error"}
    ray.init("local", num_cpus=2, runtime_env=environment, **how)
    port = free_port()
    serve.start(http_options={"host": "127.0.0.1", "port": port})
    yield port
    serve.shutdown()
    ray.shutdown()
    gc.collect()  # what it warns of when its processes are forgotten, here where that is ignored


def free_port() -> int:
    """One that no other process is given for a connection of its own until the proxy has it."""
    given = Path("/proc/sys/net/ipv4/ip_local_port_range")
    first = int(given.read_text().split()[0]) if given.exists() else 0
    for port in (*range(first - 1 - os.getpid() % 5000, 20_000, -1), 0):  # Ray's own are below these
        with suppress(OSError), socket.create_server(("127.0.0.1", port)) as line:
            return int(line.getsockname()[1])
    raise AssertionError("no port is free")


def test_replicas_of_the_example_answer_alike(port: int, tmp_path: Path, digits: list[Tensor]) -> None:
    value = rf.Certification("default", noise=rf.Gaussian(0.5), procedure=rf.Fixed(n=100))
    value.run(tmp_path / "digits", rf.Execution(device="cpu"))
    (tmp_path / "tokens").write_text(TOKEN)
    example = PAGE.read_text().partition("With Ray Serve")[2].partition("```py\n")[2].partition("```")[0]
    assert example.count("/srv/ringfence") == 1
    assert example.count('{"num_gpus": 1}') == 1
    example = example.replace("/srv/ringfence", str(tmp_path)).replace('{"num_gpus": 1}', '{"num_cpus": 0.5}')
    exec(compile(example, str(PAGE), "exec"), {"__name__": "example"})
    answers = [answered(port, digits[0]) for _ in range(8)]  # a client has one connection, and with it one replica
    most = max((one.stages for one in answers), key=len)
    assert all(one.stages == most[: len(one.stages)] for one in answers), "the same draws, whoever answers"
    assert all(one.wrong(digits[0]) == [] for one in answers)


def answered(port: int, x: Tensor) -> Answer:
    """An answer; who is sent away for want of time, as on a busy machine, comes again."""
    for _ in range(300):
        with Client(f"http://127.0.0.1:{port}", token=TOKEN, timeout=120) as client:
            try:
                return client.certify(x, radius=0.25, seconds=10.0)
            except AnswerError as error:
                if error.argument != "request":
                    raise
        time.sleep(1)
    raise AssertionError("no replica had any time")
