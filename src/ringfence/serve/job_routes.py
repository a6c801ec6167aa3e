"""Routes for jobs: many inputs, which are answered when there is time, and streams of what becomes of them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from ringfence.serve.asked import Bounds
from ringfence.serve.guards import body_of, refusal, refuse_others
from ringfence.serve.inputs import JSON, read_inputs
from ringfence.serve.jobs import Event, Jobs
from ringfence.serve.limits import Gone, NotFound, Question
from ringfence.serve.routes import ERRORS, STREAM, JobParameters, body, bounds_event, described, event, read_parameters
from ringfence.serve.schemas import JobState, Refused
from ringfence.serve.service import Service
from ringfence.serve.wakeup import from_threads

PAGE = 100
"""Answers of a job that are read at once for a stream."""

_Answers = Annotated[bool, Query(description="False: only how far it is.")]


def job_routes(service: Service, jobs: Jobs) -> APIRouter:
    """Asking about many inputs, and coming back for the answers."""
    damaged = {"model": Refused, "description": "What was kept of it was changed."}
    routes = APIRouter(prefix="/v1/jobs", responses={**ERRORS, 410: damaged})

    def state_of(job: str, request: Request) -> JobState:
        found = jobs.state(job, request.state.client)
        if found is None:
            raise NotFound("job", "must be one of yours", job[:80], "Its id is what POST /v1/jobs answered.")
        return found

    @routes.post("", status_code=202, response_model=JobState, openapi_extra=body("inputs") | described(JobParameters))
    async def submit(request: Request) -> Any:
        """Keep a batch, an array (N, *shape), and answer it when there is time; it survives a restart."""
        wanted, limits = read_parameters(request, JobParameters), service.limits
        served = service.model(wanted.model)
        question = Question.within(served.limits, wanted.alpha, wanted.radius, wanted.seconds, job=True)
        content, kind = await body_of(request, limits)
        of_model = (served.shape, limits.job_inputs, served.config.noise.sigma)
        inputs = await run_in_threadpool(read_inputs, content, kind, *of_model)
        job = await run_in_threadpool(jobs.submit, served.name, inputs, question, request.state.client)
        return await run_in_threadpool(state_of, job, request)

    @routes.get("/{job}", response_model=JobState)
    async def state(request: Request, job: str, answers: _Answers = True) -> Any:
        """How far it is, with the answers there are."""
        refuse_others(request, ("answers",))

        def told() -> str:
            head = state_of(job, request).model_dump_json(exclude={"answers"})
            return f'{head[:-1]},"answers":[{",".join(one or "null" for one in jobs.base.answers(job) if answers)}]}}'

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
            for place, answer in enumerate(await run_in_threadpool(jobs.base.answers, job, start, PAGE), start):
                if answer is not None:
                    told.add(place)
                    yield _answer_event(place, answer)
        for place, why in now.failed.items():
            told.add(place)
            yield event("failed", json.dumps({"place": place, "why": why}))
        stopped = now.stopped
        while now.state != "done":
            if stopped:
                error = Gone("needs a model that works on it", stopped, "It goes on once the server is started anew.")
                yield event("error", bytes(refusal(error).body).decode())
                return
            name, place, what = await heard.get()
            if name == "done":
                break
            if name == "stopped":
                stopped = (await run_in_threadpool(state)).stopped
            elif place in told:
                continue
            elif isinstance(what, Bounds):
                yield bounds_event(what, place)
            elif name == "answer":
                (answer,) = await run_in_threadpool(jobs.base.answers, job, place, 1)
                yield _answer_event(place, answer or "null")
            else:
                yield event(name, json.dumps({"place": place, "why": what}))
        yield event("done", json.dumps({"id": job}))


def _answer_event(place: int, answer: str) -> str:
    return event("answer", f'{{"place": {place}, "answer": {answer}}}')
