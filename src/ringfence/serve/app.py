"""The HTTP application: requests become questions to a model, its records become answers."""

from __future__ import annotations

import asyncio
import json
import time
from asyncio import Queue
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import PlainTextResponse, StreamingResponse
from prometheus_client import generate_latest
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from ringfence.errors import RingfenceError
from ringfence.record import Record
from ringfence.serve.certificates import Certificate, SigningKey
from ringfence.serve.guards import Guard, body_of, misread, missing, refusal, refuse_others, refused, told
from ringfence.serve.inputs import JPEG, JSON, NPY, PNG, largest, read_input, read_inputs
from ringfence.serve.jobs import Event, Jobs
from ringfence.serve.limits import Gone, Limits, NotFound, Question
from ringfence.serve.model import Model
from ringfence.serve.parameters import CertifyParameters, JobParameters, PredictParameters, described, read_parameters
from ringfence.serve.schemas import Answer, JobState, ModelInfo, Models, Refused
from ringfence.serve.service import Service
from ringfence.serve.sharing import Asked, Bounds
from ringfence.serve.wakeup import from_threads
from ringfence.types import ABSTAIN
from ringfence.version import __version__

STREAM = "text/event-stream"
SMALL = 2**16
"""Bytes that are decoded sooner than a thread would begin with them."""
PAGE = 100
"""Answers of a job that are read at once for a stream."""
OVERDUE = 10.0
"""Seconds after the budget of a request when no answer is expected any more: its model hangs."""

_Answers = Annotated[bool, Query(description="False: only how far it is.")]
_BINARY = {"type": "string", "format": "binary"}
_NUMBERS = {"type": "array", "items": {}, "description": "Numbers from 0 to 1, nested as the shape is."}


def _body(key: str) -> dict[str, Any]:
    """What a request holds, for the description of the interface."""
    schema = {"type": "object", "required": [key], "properties": {key: _NUMBERS}, "additionalProperties": False}
    example = {key: [[[0.0, 0.5], [1.0, 0.25]]]}
    content = {**{kind: {"schema": _BINARY} for kind in (PNG, JPEG, NPY)}, JSON: {"schema": schema, "example": example}}
    return {"requestBody": {"required": True, "content": content}}


_ERRORS: dict[int | str, dict[str, Any]] = {
    401: {"model": Refused, "description": "No token, or another one."},
    404: {"model": Refused, "description": "There is none of that name."},
    413: {"model": Refused, "description": "More bytes than are read, or too slowly sent."},
    415: {"model": Refused, "description": "None of the kinds that are read."},
    422: {"model": Refused, "description": "Outside a limit, or not what the model takes."},
    429: {"model": Refused, "description": "Too much at once; Retry-After says when to come again."},
    503: {"model": Refused, "description": "No answer: no time was left, or the server stops."},
}


def _answers() -> dict[int | str, dict[str, Any]]:
    """What a request is answered with: an example that was drawn, and that verifies."""
    example = json.loads((files("ringfence.serve") / "page" / "example.json").read_bytes())
    return {200: {"content": {"application/json": {"example": example}, STREAM: {"schema": {"type": "string"}}}}}


def create_app(
    models: Sequence[Model],
    *,
    tokens: Sequence[bytes] = (),
    limits: Limits | None = None,
    jobs: Path | None = None,
    key: SigningKey | None = None,
    loopback: bool = True,
) -> FastAPI:
    """The application; loopback: it is asked from this machine only, so that other names for it are refused.

    limits: of bodies, rates and jobs, the first model's where none are given; a question is within those of its model.
    """
    service = Service(models, limits or models[0].limits, jobs, key)
    app = FastAPI(
        title="Ringfence",
        version=__version__,
        summary="Predictions with certificates: no perturbation smaller than the radius changes the class.",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,  # an empty answer would not say what is wrong
        lifespan=service.running,
    )
    app.state.stopping = service.stopping
    app.include_router(_questions(service))
    app.include_router(_about(service))
    if service.jobs is not None:
        app.include_router(_jobs(service, service.jobs))
    for kind, respond in ((RingfenceError, refused), (RequestValidationError, misread), (404, missing), (405, missing)):
        app.add_exception_handler(kind, respond)
    app.add_middleware(Guard, tokens=tokens, limits=service.limits, registry=service.registry, loopback=loopback)
    return app


def _questions(service: Service) -> APIRouter:
    """Asking about one input, and waiting for it."""
    routes = APIRouter(prefix="/v1", responses=_ERRORS)

    async def answered(request: Request, wanted: PredictParameters, radius: float | None) -> Any:
        served, signed = service.model(wanted.model), wanted.signed
        question = Question.within(served.limits, wanted.alpha, radius, wanted.seconds)
        service.check_signed(signed)
        content, kind = await body_of(request, service.limits, largest(served.shape))
        came = request.state.came
        served.check_room(question, came)  # before anything is decoded
        parts = (content, kind, served.shape)
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
            return Response(_event("answer", reply(record).model_dump_json()), media_type=STREAM)
        served.pace.reply.saw(time.monotonic() - asked.timing.ended)
        # Itself, not for the framework to check and to encode once more.
        return Response(reply(record).model_dump_json(), media_type=JSON)

    def about_an_input(path: str, kind: type[PredictParameters]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        extra = _body("input") | described(kind)
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


def _event(name: str, data: str) -> str:
    return f"event: {name}\ndata: {data}\n\n"


def _bounds(bounds: Bounds, place: int = 0) -> str:
    top = None if bounds.prediction == ABSTAIN else bounds.prediction
    return _event("bounds", json.dumps({"place": place, **vars(bounds), "prediction": top}, allow_nan=False))


async def _events(
    asked: Asked, first: Bounds, heard: Queue[Any], reply: Callable[[Record], Answer | Certificate]
) -> AsyncIterator[str]:
    """Bounds as they grow, then the answer; reply: what is told of a record."""
    one: Any = first
    try:
        while isinstance(one, Bounds):
            yield _bounds(one)
            one = await _next(asked, heard)
        if one is not None:  # or whoever asked went away just when the first bounds came
            yield _event("answer", reply(asked.answer.result()).model_dump_json())
    except RingfenceError as error:
        yield _event("error", bytes(refusal(error).body).decode())
    finally:
        asked.leave()


def _jobs(service: Service, jobs: Jobs) -> APIRouter:
    """Asking about many inputs, and coming back for the answers."""
    damaged = {"model": Refused, "description": "What was kept of it was changed."}
    routes = APIRouter(prefix="/v1/jobs", responses={**_ERRORS, 410: damaged})

    def state_of(job: str, request: Request) -> JobState:
        found = jobs.state(job, request.state.client)
        if found is None:
            raise NotFound("job", "must be one of yours", job[:80], "Its id is what POST /v1/jobs answered.")
        return found

    @routes.post("", status_code=202, response_model=JobState, openapi_extra=_body("inputs") | described(JobParameters))
    async def submit(request: Request) -> Any:
        """Keep a batch, an array (N, *shape), and answer it when there is time; it survives a restart."""
        wanted, limits = read_parameters(request, JobParameters), service.limits
        served = service.model(wanted.model)
        question = Question.within(served.limits, wanted.alpha, wanted.radius, wanted.seconds, job=True)
        content, kind = await body_of(request, limits)
        inputs = await run_in_threadpool(read_inputs, content, kind, served.shape, limits.job_inputs)
        job = await run_in_threadpool(jobs.submit, served.name, inputs, question, request.state.client)
        return await run_in_threadpool(state_of, job, request)

    @routes.get("/{job}", response_model=JobState)
    async def state(request: Request, job: str, answers: _Answers = True) -> Any:
        """How far it is, with the answers there are."""
        refuse_others(request, ("answers",))

        def told() -> str:
            head = state_of(job, request).model_dump_json(exclude={"answers"})
            return f'{head[:-1]},"answers":[{",".join(one or "null" for one in jobs.answers(job) if answers)}]}}'

        return Response(await run_in_threadpool(told), media_type=JSON)

    @routes.get("/{job}/events", response_class=StreamingResponse, responses={200: {"content": {STREAM: {}}}})
    async def events(request: Request, job: str) -> Any:
        """Bounds of its inputs as they grow, and answers as they come; ends with all of them, or with an error."""
        refuse_others(request)
        await run_in_threadpool(state_of, job, request)  # refused before a stream is begun
        return StreamingResponse(_job_events(jobs, job, partial(state_of, job, request)), media_type=STREAM)

    return routes


async def _job_events(jobs: Jobs, job: str, state: Callable[[], JobState]) -> AsyncIterator[str]:
    """What there is, and then what comes. Listening begins before the state is asked for, and answers are read after
    it: of a job that was done then all of them are on the disk, of another one its end will be heard."""
    heard, put = from_threads()
    told: set[int] = set()

    def listener(event: Event) -> None:
        if event[0] != "bounds" or heard.qsize() < PAGE:
            put(event)

    with jobs.heard_by(listener, job):
        now = await run_in_threadpool(state)
        for start in range(0, now.inputs, PAGE):  # a page at a time: who reads slowly must not hold all of them
            for place, answer in enumerate(await run_in_threadpool(jobs.answers, job, start, PAGE), start):
                if answer is not None:
                    told.add(place)
                    yield _answer_event(place, answer)
        for place, why in now.failed.items():
            told.add(place)
            yield _event("failed", json.dumps({"place": place, "why": why}))
        stopped = now.stopped
        while now.state != "done":
            if stopped:
                error = Gone("needs a model that works on it", stopped, "It goes on once the server is started anew.")
                yield _event("error", bytes(refusal(error).body).decode())
                return
            name, place, what = await heard.get()
            if name == "done":
                break
            if name == "stopped":
                stopped = (await run_in_threadpool(state)).stopped
            elif place in told:
                continue
            elif isinstance(what, Bounds):
                yield _bounds(what, place)
            elif name == "answer":
                (answer,) = await run_in_threadpool(jobs.answers, job, place, 1)
                yield _answer_event(place, answer or "null")
            else:
                yield _event(name, json.dumps({"place": place, "why": what}))
        yield _event("done", json.dumps({"id": job}))


def _answer_event(place: int, answer: str) -> str:
    return _event("answer", f'{{"place": {place}, "answer": {answer}}}')


def _about(service: Service) -> APIRouter:
    """What there is, whether it works, and the page."""
    routes = APIRouter()

    @routes.get("/v1/model", response_model=Models, responses={401: _ERRORS[401], 429: _ERRORS[429]})
    async def model() -> Any:
        """The models, what they take and promise."""
        key = service.key.id if service.key else None
        return Models(models=[ModelInfo.of(one, key) for one in service.models.values()])

    @routes.get("/healthz", response_class=PlainTextResponse)
    async def healthy() -> str:
        """Whether there is a server."""
        return "ok\n"

    @routes.get("/readyz", response_class=PlainTextResponse, responses={503: {"model": Refused}})
    async def ready() -> Any:
        """Whether all models answer."""
        broken = [one.name for one in service.models.values() if one.broken]
        return told(503, "model", "must stay as it was", ", ".join(broken), "Start anew.") if broken else "ok\n"

    @routes.get("/metrics", response_class=PlainTextResponse, responses={401: _ERRORS[401], 429: _ERRORS[429]})
    def metrics() -> Any:  # in a thread: those of jobs are read from the disk
        """Figures for Prometheus."""
        return PlainTextResponse(generate_latest(service.registry))

    for path, name, kind in (
        ("/", "index.html", "text/html; charset=utf-8"),
        ("/page.js", "page.js", "text/javascript"),
        ("/page.css", "page.css", "text/css"),
        ("/icon.svg", "icon.svg", "image/svg+xml"),
    ):
        routes.add_api_route(path, _file(name, kind), include_in_schema=False, methods=["GET"])
    return routes


def _file(name: str, kind: str) -> Callable[[], Response]:
    content = (files("ringfence.serve") / "page" / name).read_bytes()
    return lambda: Response(content, media_type=kind)
