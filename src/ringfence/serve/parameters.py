"""Parameters: what the address of a request asks for, read at once.

The framework could read them too, one by one, and would take longer for it than for all else it does for a request.
"""

from __future__ import annotations

from typing import Any, TypeVar

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import Request

from ringfence.serve.guards import refuse_others


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
    """What the address asks."""
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
