"""What all routes share: what a request asks, how it is described, what it may be refused with, events of a stream."""

from __future__ import annotations

import json
from typing import Any, TypeVar

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import Request

from ringfence.serve.asked import Bounds
from ringfence.serve.guards import refuse_others
from ringfence.serve.inputs import JPEG, JSON, NPY, PNG
from ringfence.serve.schemas import Refused
from ringfence.types import ABSTAIN

STREAM = "text/event-stream"
_BINARY = {"type": "string", "format": "binary"}
_NUMBERS = {"type": "array", "items": {}, "description": "Numbers, pixels from 0 to 1, nested as the shape is."}


class Parameters(BaseModel):
    """Of every request about inputs; which values the server allows is up to its limits."""

    model_config = ConfigDict(frozen=True)
    model: str | None = Field(None, description="Which model; the first where none is named.", max_length=100)
    alpha: float | None = Field(None, description="Probability that the answer is wrong, at most.", gt=0, lt=1)
    seconds: float | None = Field(None, description="Time budget: the answer is what was proved by then.", gt=0)


class PredictParameters(Parameters):
    """Of a request for the class alone."""

    signed: bool = Field(False, description="Answer with a signed certificate.")


class JobParameters(Parameters):
    """Of a job."""

    radius: float | None = Field(None, description="Decide about this radius; none: the largest in time.", ge=0)


class CertifyParameters(JobParameters, PredictParameters):
    """Of a request for a radius."""


T = TypeVar("T", bound=Parameters)


def read_parameters(request: Request, kind: type[T]) -> T:
    """What the address asks, read at once: by the framework, one by one, it would take longer than all else."""
    refuse_others(request, kind.model_fields)
    try:
        return kind.model_validate(dict(request.query_params))
    except ValidationError as error:
        raise RequestValidationError([{**one, "loc": ("query", *one["loc"])} for one in error.errors()]) from error


def described(kind: type[Parameters]) -> dict[str, Any]:
    """The parameters, for the description of the interface."""
    told = kind.model_json_schema()["properties"].items()
    shared: dict[str, Any] = {"in": "query", "required": False}
    return {
        "parameters": [
            {"name": name, "description": one.pop("description"), "schema": one, **shared} for name, one in told
        ]
    }


def body(key: str) -> dict[str, Any]:
    """What a request holds, for the description of the interface."""
    schema = {"type": "object", "required": [key], "properties": {key: _NUMBERS}, "additionalProperties": False}
    example = {key: [[[0.0, 0.5], [1.0, 0.25]]]}
    content = {**{kind: {"schema": _BINARY} for kind in (PNG, JPEG, NPY)}, JSON: {"schema": schema, "example": example}}
    return {"requestBody": {"required": True, "content": content}}


ERRORS: dict[int | str, dict[str, Any]] = {
    401: {"model": Refused, "description": "No token, or another one."},
    404: {"model": Refused, "description": "There is none of that name."},
    413: {"model": Refused, "description": "More bytes than are read, or too slowly sent."},
    415: {"model": Refused, "description": "None of the kinds that are read."},
    422: {"model": Refused, "description": "Outside a limit, or not what the model takes."},
    429: {"model": Refused, "description": "Too much at once; Retry-After says when to come again."},
    503: {"model": Refused, "description": "No answer: no time was left, or the server stops."},
}


def event(name: str, data: str) -> str:
    """One of a stream."""
    return f"event: {name}\ndata: {data}\n\n"


def bounds_event(bounds: Bounds, place: int = 0) -> str:
    """What is proved of an input by now."""
    top = None if bounds.prediction == ABSTAIN else bounds.prediction
    return event("bounds", json.dumps({"place": place, **vars(bounds), "prediction": top}, allow_nan=False))
