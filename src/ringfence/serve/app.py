"""The HTTP application: requests become questions to a model, its records become answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.responses import PlainTextResponse
from prometheus_client import generate_latest
from starlette.responses import Response

from ringfence.errors import RingfenceError
from ringfence.serve.certificates import SigningKey
from ringfence.serve.guards import Guard, misread, missing, refused, told
from ringfence.serve.job_routes import job_routes
from ringfence.serve.limits import Limits
from ringfence.serve.model import Model
from ringfence.serve.questions import questions
from ringfence.serve.routes import ERRORS
from ringfence.serve.schemas import ModelInfo, Models, Refused
from ringfence.serve.service import Service
from ringfence.version import __version__


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
    app.include_router(questions(service))
    app.include_router(_about(service))
    if service.jobs is not None:
        app.include_router(job_routes(service, service.jobs))
    for kind, respond in ((RingfenceError, refused), (RequestValidationError, misread), (404, missing), (405, missing)):
        app.add_exception_handler(kind, respond)
    app.add_middleware(Guard, tokens=tokens, limits=service.limits, registry=service.registry, loopback=loopback)
    return app


def _about(service: Service) -> APIRouter:
    """What there is, whether it works, and the page."""
    routes = APIRouter()

    @routes.get("/v1/model", response_model=Models, responses={401: ERRORS[401], 429: ERRORS[429]})
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

    @routes.get("/metrics", response_class=PlainTextResponse, responses={401: ERRORS[401], 429: ERRORS[429]})
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
