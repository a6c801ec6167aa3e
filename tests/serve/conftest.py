"""The embedded network under service, and digits to ask about."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from torch import Tensor

import ringfence as rf
from ringfence.sampling import ForwardPlan

pytest.importorskip("fastapi", reason="needs the serve extra")

SECRET = bytes(range(32))


@pytest.fixture(scope="session")
def digits() -> list[Tensor]:
    return [item.x for item in rf.load_dataset("default", limit=24)]


@pytest.fixture(scope="session")
def serve() -> Iterator[Callable[..., Any]]:
    """Serve a certification, the embedded default where none is named; closed at the end.

    Requests that name no budget have one that no machine needs: what is asked about, not the pace, ends them.
    """
    from ringfence.serve.limits import Limits
    from ringfence.serve.served import Served

    opened = []

    def make(value: rf.Certification | None = None, plan: ForwardPlan | None = None, **limits: Any) -> Served:
        value = value or rf.Certification("default", noise=rf.Gaussian(0.5), procedure=rf.Fixed(n=1000))
        execution = rf.Execution(device="cpu", plan=plan or ForwardPlan(100))
        limits = {"seconds": 600.0, "usual_seconds": 600.0, **limits}
        opened.append(Served(value, SECRET, limits=Limits(**limits), execution=execution))
        return opened[-1]

    yield make
    for one in opened:
        one.limits = replace(one.limits, drain=0.1)  # what no test has waited for, nobody waits for
        one.close()


@pytest.fixture(scope="session")
def listen() -> Iterator[Callable[[Any], str]]:
    """Put an application on a port of this machine; its address."""
    import uvicorn

    servers: list[tuple[Any, threading.Thread]] = []

    def start(app: Any) -> str:
        # A stream that nobody reads any more would hold it up for a minute, at the very end.
        server = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None, timeout_graceful_shutdown=1))
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        servers.append((server, thread))
        while not server.started:
            time.sleep(0.01)
        return f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"

    yield start
    for server, _ in servers:
        server.should_exit = True
    for _, thread in servers:
        thread.join(60)


@pytest.fixture(scope="session")
def served(serve: Callable[..., Any]) -> Any:
    return serve(draws=2000)
