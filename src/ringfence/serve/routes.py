"""What all routes share: how a request is described, what it may be refused with, and events of a stream."""

from __future__ import annotations

import json
from typing import Any

from ringfence.serve.asked import Bounds
from ringfence.serve.inputs import JPEG, JSON, NPY, PNG
from ringfence.serve.schemas import Refused
from ringfence.types import ABSTAIN

STREAM = "text/event-stream"
_BINARY = {"type": "string", "format": "binary"}
_NUMBERS = {"type": "array", "items": {}, "description": "Numbers from 0 to 1, nested as the shape is."}


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
