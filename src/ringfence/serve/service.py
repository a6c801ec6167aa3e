"""What the routes of the server work with: models by name, jobs, the key that signs, figures for Prometheus."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, final

import uvicorn
from fastapi import FastAPI
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from ringfence.errors import ArgumentError
from ringfence.record import Record
from ringfence.serve.asked import Asked
from ringfence.serve.certificates import Certificate, SigningKey
from ringfence.serve.jobs import Jobs
from ringfence.serve.limits import Limits, NotFound
from ringfence.serve.model import Model
from ringfence.serve.schemas import Answer

MOST_HEAD = 2**16
"""Bytes of a request beside its body."""
HEAD_SECONDS = 10.0
"""In which a connection must have sent the head of a request, and what is left of a body that was answered before."""
KEEP_ALIVE = 60
"""Seconds in which a connection that was answered must begin its next request."""
log = logging.getLogger("ringfence.serve")


@final
class _Protocol(HttpToolsProtocol):
    """As uvicorn has it, where heads may be endless and come for ever, and bodies too once they are refused: each byte
    of a head takes twenty of memory, and nobody has shown a token yet."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect_head()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._timer.cancel()
        self._expect_head()

    def _expect_head(self) -> None:
        self._beside, self._timer = 0, self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def on_headers_complete(self) -> None:
        self._timer.cancel()
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.cycle.response_complete and self._timer.cancelled():  # no request is in work, and no head on its way
            # Uvicorn's own timer, of a silence, is undone by any byte, and not set again before the next answer.
            seconds = HEAD_SECONDS if self.cycle.more_body else KEEP_ALIVE
            self._timer = self.loop.call_later(seconds, self.transport.close)

    def on_body(self, body: bytes) -> None:
        self._beside -= len(body)
        super().on_body(body)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._beside += len(data)
        if self._beside > MOST_HEAD and not self.transport.is_closing():
            self.send_400_response(f"A request has at most {MOST_HEAD} bytes beside its body.")

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
        super().connection_lost(exc)


@final
class _Server(uvicorn.Server):
    """Says that it is ready once it answers and hears signals by itself; tells its application that it stops before it
    waits for requests: listeners to jobs would never end."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._ready()

    async def shutdown(self, sockets: Any = None) -> None:
        if self.server_state.tasks:
            left = f"{self.config.timeout_graceful_shutdown} s to end: {len(self.server_state.tasks)}"
            log.info("stopping; requests in work have %s (Ctrl-C ends them now)", left)
        self.config.app.state.stopping()  # type: ignore[union-attr]
        await super().shutdown(sockets)


def http_server(app: FastAPI, drain: int, ready: Callable[[], None] = lambda: None) -> uvicorn.Server:
    """As the command has it; drain: seconds that requests have to end; ready: called once it answers."""
    return _Server(
        uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,  # whoever is near may write them, and would be another client whenever he likes
            timeout_graceful_shutdown=drain,
            timeout_keep_alive=KEEP_ALIVE,
            http=_Protocol,
            ws="none",
        ),
        ready,
    )


@final
class Service:
    """Begins with jobs at once, and ends with the server: then models answer what they took, and nothing is in work."""

    def __init__(
        self, models: Sequence[Model], limits: Limits, jobs: Path | None = None, key: SigningKey | None = None
    ) -> None:
        self.models = {one.name: one for one in models}
        self.limits, self.key = limits, key
        # At once, not when the server starts: a folder that another one has is refused before anything is served.
        self.jobs = None if jobs is None else Jobs(jobs, self.models, limits)
        self.registry = CollectorRegistry()
        self.registry.register(self)

    @asynccontextmanager
    async def running(self, app: FastAPI) -> AsyncIterator[None]:
        """While the server is; models end before jobs, which keep the last of their answers."""
        yield
        await asyncio.gather(*(asyncio.to_thread(one.close) for one in self.models.values()))
        if self.jobs is not None:
            await asyncio.to_thread(self.jobs.close)

    def stopping(self) -> None:
        """Requests end by themselves; who listens to a job would wait for what nobody will do."""
        if self.jobs is not None:
            self.jobs.halt()

    def model(self, name: str | None) -> Model:
        """The model of that name, the first where none is named."""
        if name is not None and name not in self.models:
            raise NotFound("model", f"must be one of {', '.join(self.models)}", name[:80], "See /v1/model.")
        return next(iter(self.models.values())) if name is None else self.models[name]

    def reply(self, served: Model, asked: Asked, signed: bool, record: Record) -> Answer | Certificate:
        """The answer, signed where that was asked for."""
        answer = Answer.of(served, asked, record)
        return self.key.certificate(answer, served.shape) if signed and self.key else answer

    def check_signed(self, signed: bool) -> None:
        """Refuse before anything is drawn."""
        if signed and self.key is None:
            raise ArgumentError("signed", "needs a key on this server", "none", "Ask without, or start it with --key.")

    def collect(self) -> Iterable[Any]:
        """Figures of the models, for Prometheus."""
        figures: list[tuple[Any, str, str, Callable[[Model], float]]] = [
            (CounterMetricFamily, "ringfence_draws", "Noisy copies classified.", lambda one: one.load.draws),
            (CounterMetricFamily, "ringfence_batches", "Forwards of the network.", lambda one: one.load.batches),
            (GaugeMetricFamily, "ringfence_in_work", "Requests that are drawn for.", lambda one: one.load.in_work),
            (GaugeMetricFamily, "ringfence_waiting", "Requests that wait in line.", lambda one: one.load.waiting),
            (GaugeMetricFamily, "ringfence_ready", "1 while the model answers.", lambda one: float(not one.broken)),
        ]
        for kind, name, about, value in figures:
            family = kind(name, about, labels=["model"])
            for served in self.models.values():
                family.add_metric([served.name], value(served))
            yield family
        waiting = GaugeMetricFamily("ringfence_job_inputs_waiting", "Inputs of jobs without an answer.")
        waiting.add_metric([], self.jobs.base.waiting if self.jobs else 0)
        yield waiting
