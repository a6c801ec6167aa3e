"""Routes for one input: a question to a model, its answer, or a stream of bounds that grow up to it."""

from __future__ import annotations

import asyncio
import json
import time
from asyncio import Queue
from collections.abc import AsyncIterator, Callable
from functools import partial
from importlib.resources import files
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from ringfence.errors import RingfenceError
from ringfence.record import Record
from ringfence.serve.asked import Asked, Bounds
from ringfence.serve.certificates import Certificate
from ringfence.serve.guards import body_of, refusal
from ringfence.serve.inputs import JSON, largest, read_input
from ringfence.serve.limits import Gone, Question
from ringfence.serve.routes import (
    ERRORS,
    STREAM,
    CertifyParameters,
    PredictParameters,
    body,
    bounds_event,
    described,
    event,
    read_parameters,
)
from ringfence.serve.schemas import Answer
from ringfence.serve.service import Service
from ringfence.serve.wakeup import from_threads

SMALL = 2**16
"""Bytes that are decoded sooner than a thread would begin with them."""
OVERDUE = 10.0
"""Seconds after the budget of a request when no answer is expected any more: its model hangs."""


def _answers() -> dict[int | str, dict[str, Any]]:
    """What a request is answered with: an example that was drawn, and that verifies."""
    example = json.loads((files("ringfence.serve") / "page" / "example.json").read_bytes())
    return {200: {"content": {"application/json": {"example": example}, STREAM: {"schema": {"type": "string"}}}}}


def questions(service: Service) -> APIRouter:
    """Asking about one input, and waiting for it."""
    routes = APIRouter(prefix="/v1", responses=ERRORS)

    async def answered(request: Request, wanted: PredictParameters, radius: float | None) -> Any:
        served, signed = service.model(wanted.model), wanted.signed
        question = Question.within(served.limits, wanted.alpha, radius, wanted.seconds)
        service.check_signed(signed)
        content, kind = await body_of(request, service.limits, largest(served.shape))
        came = request.state.came
        served.check_room(question, came)  # before anything is decoded
        parts = (content, kind, served.shape, served.config.noise.sigma)
        x = read_input(*parts) if len(content) < SMALL else await run_in_threadpool(read_input, *parts)
        streamed, (heard, put) = STREAM in request.headers.get("accept", ""), from_threads()
        asked = served.ask(x, question, watch=put if streamed else None, came=came)
        asked.answer.add_done_callback(put)
        reply = partial(service.reply, served, asked, signed)
        first = await _first(request, asked, heard)
        if isinstance(first, Bounds):
            return StreamingResponse(_events(asked, first, heard, reply), media_type=STREAM)
        record = asked.answer.result()  # of a stream, too: refused before anything was drawn
        if streamed:
            return Response(event("answer", reply(record).model_dump_json()), media_type=STREAM)
        served.pace.reply.saw(time.monotonic() - asked.timing.ended)
        # Itself, not for the framework to check and to encode once more.
        return Response(reply(record).model_dump_json(), media_type=JSON)

    def about_an_input(path: str, kind: type[PredictParameters]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        extra = body("input") | described(kind)
        return routes.post(path, response_model=Answer | Certificate, responses=_answers(), openapi_extra=extra)

    @about_an_input("/certify", CertifyParameters)
    async def certify(request: Request) -> Any:
        """The class and the radius within which it cannot change; Accept: text/event-stream also shows it grow."""
        asked = read_parameters(request, CertifyParameters)
        return await answered(request, asked, asked.radius)

    @about_an_input("/predict", PredictParameters)
    async def predict(request: Request) -> Any:
        """The class alone: certify with the radius 0, which takes the fewest draws."""
        return await answered(request, read_parameters(request, PredictParameters), 0.0)

    return routes


async def _next(asked: Asked, heard: Queue[Any]) -> Any:
    """What a request waits for; its model hears where nobody does any longer."""
    try:
        async with asyncio.timeout(asked.deadline - time.monotonic() + OVERDUE):
            return await heard.get()
    except BaseException as error:  # also where the server stops
        asked.leave()
        if isinstance(error, TimeoutError):
            rule, remedy = "had no answer when its time was over", "Ask again, or elsewhere."
            raise Gone(rule, f"{asked.question.seconds} s", remedy) from error
        raise


async def _first(request: Request, asked: Asked, heard: Queue[Any]) -> Any:
    """What is heard first; whoever goes away before leaves its request at the next look."""

    async def disconnected() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        heard.put_nowait(None)

    gone = asyncio.ensure_future(disconnected())
    try:
        if (first := await _next(asked, heard)) is None:
            asked.leave()
            raise ClientDisconnect
        return first
    finally:
        gone.cancel()


async def _events(
    asked: Asked, first: Bounds, heard: Queue[Any], reply: Callable[[Record], Answer | Certificate]
) -> AsyncIterator[str]:
    """Bounds as they grow, then the answer; reply: what is told of a record."""
    one: Any = first
    try:
        while isinstance(one, Bounds):
            yield bounds_event(one)
            one = await _next(asked, heard)
        if one is not None:  # or whoever asked went away just when the first bounds came
            yield event("answer", reply(asked.answer.result()).model_dump_json())
    except RingfenceError as error:
        yield event("error", bytes(refusal(error).body).decode())
    finally:
        asked.leave()
