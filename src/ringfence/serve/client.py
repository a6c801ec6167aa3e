"""Client: ask a server, and believe only what follows from the counts it sends."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any, Self, TypeVar, final

import httpx
import numpy as np
import torch
from pydantic import ValidationError
from torch import Tensor

from ringfence.errors import RingfenceError
from ringfence.serve.claim import Wire
from ringfence.serve.inputs import NPY, SUFFIXES, read_input_file
from ringfence.serve.schemas import Answer, JobState, ModelInfo, Models

T = TypeVar("T", bound=Wire)
Asked = Tensor | np.ndarray[Any, Any] | str | Path
"""An input (*shape) in [0,1], an array of bytes, or the name of a PNG, JPEG, NPY or JSON file."""


class AnswerError(RingfenceError):
    """The server refused, or what it said does not follow from what it counted."""


@final
class Client:
    """``Client("http://127.0.0.1:8000", token=...)``; answers are recomputed from their counts before they are given.

    model: which one, the first where none is named; config_hash: refuse answers of any other certification;
    patience: seconds that a request is repeated for while the server is busy.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        model: str | None = None,
        config_hash: str | None = None,
        timeout: float = 60.0,
        patience: float = 30.0,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._http = httpx.Client(base_url=url, headers=headers, timeout=timeout, transport=transport)
        self._model, self._config_hash, self._patience = model, config_hash, patience

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._http.close()

    def models(self) -> list[ModelInfo]:
        """What the server has."""
        return self._read(Models, self._send("GET", "/v1/model")).models

    def certify(
        self, x: Asked, *, alpha: float | None = None, radius: float | None = None, seconds: float | None = None
    ) -> Answer:
        """The class and its radius; radius: decide about this one, seconds: the largest that is proved by then."""
        return self._answer("/v1/certify", x, {"alpha": alpha, "radius": radius, "seconds": seconds})

    def predict(self, x: Asked, *, alpha: float | None = None, seconds: float | None = None) -> Answer:
        """The class alone."""
        return self._answer("/v1/predict", x, {"alpha": alpha, "seconds": seconds})

    def certificate(self, x: Asked, **settings: float | None) -> dict[str, Any]:
        """The answer of ``certify`` as a signed document, for ``ringfence verify``."""
        reply = self._ask("/v1/certify", x, {**settings, "signed": "true"})
        self._checked(self._read(Answer, reply, "answer"), x)
        found: dict[str, Any] = reply.json()
        return found

    def submit(self, inputs: Tensor | np.ndarray[Any, Any], **settings: float | None) -> str:
        """Leave a batch (N, *shape) as a job; returns its id."""
        return self._read(JobState, self._ask("/v1/jobs", inputs, settings)).id

    def job(self, job: str) -> JobState:
        """How far a job is, its answers checked."""
        found = self._read(JobState, self._send("GET", f"/v1/jobs/{job}"))
        for answer in found.answers:
            if answer is not None:
                self._checked(answer, None)
        return found

    def wait(self, job: str, every: float = 0.5) -> list[Answer | None]:
        """The answers of a job, when all are there; None where an input failed."""
        while (found := self.job(job)).state != "done":
            time.sleep(every)
        return found.answers

    def events(self, x: Asked, **settings: float | None) -> Iterator[tuple[str, dict[str, Any]]]:
        """(name, content) of what happens to a ``certify``: bounds that grow, then the answer, which is not checked."""
        content, kind = _packed(x)
        headers = {"Content-Type": kind, "Accept": "text/event-stream"}
        told = self._settings(settings)
        with self._http.stream("POST", "/v1/certify", params=told, content=content, headers=headers) as reply:
            if reply.status_code != 200:
                reply.read()
                raise _refused(reply)
            name = ""
            for line in reply.iter_lines():
                key, _, value = line.partition(": ")
                if key == "event":
                    name = value
                elif key == "data":
                    yield name, json.loads(value)

    def _settings(self, settings: dict[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in {"model": self._model, **settings}.items() if value is not None}

    def _answer(self, path: str, x: Asked, settings: dict[str, Any]) -> Answer:
        answer = self._checked(self._read(Answer, self._ask(path, x, settings)), x)
        for name, wanted in settings.items():
            if wanted is not None and getattr(answer.asked, name) != wanted:
                raise AnswerError("answer", f"must be about the {name} asked for", getattr(answer.asked, name), "")
        return answer

    def _ask(self, path: str, x: Asked, settings: dict[str, Any]) -> httpx.Response:
        content, kind = _packed(x)
        told, headers = self._settings(settings), {"Content-Type": kind}
        return self._send("POST", path, params=told, content=content, headers=headers)

    def _send(self, method: str, path: str, **request: Any) -> httpx.Response:
        """The reply; while the server is busy the same is asked again, which costs nothing: its draws are the same."""
        until = time.monotonic() + self._patience
        while True:
            reply = self._http.request(method, path, **request)
            wait = float(reply.headers.get("Retry-After", 1))
            if reply.status_code not in (429, 503) or time.monotonic() + wait > until:
                break
            time.sleep(wait)
        if reply.is_success:
            return reply
        raise _refused(reply)

    def _read(self, kind: type[T], reply: httpx.Response, entry: str | None = None) -> T:
        try:
            return kind.model_validate(reply.json()[entry] if entry else reply.json())
        except (ValidationError, ValueError, LookupError, TypeError) as error:
            raise AnswerError(
                "answer", f"must be a {kind.__name__}", type(error).__name__, "Is it Ringfence?"
            ) from error

    def _checked(self, answer: Answer, x: Asked | None) -> Answer:
        wrong = answer.wrong(None if x is None else self._seen(x, answer.model))
        if self._config_hash not in (None, answer.config_hash):
            wrong.append(f"it is of the certification {answer.config_hash}, not {self._config_hash}")
        if wrong:
            remedy = "Do not use it, and tell the operator."
            raise AnswerError("answer", "must follow from its counts", "; ".join(wrong[:3]), remedy)
        return answer

    def _seen(self, x: Asked, model: str) -> Tensor:
        """The input as the server read it."""
        if not isinstance(x, str | Path):
            return _tensor(x)
        shape = next(one.shape for one in self.models() if one.name == model)
        return read_input_file(Path(x), tuple(shape))


def _refused(reply: httpx.Response) -> AnswerError:
    try:
        told = reply.json()["error"]
        return AnswerError(told["argument"], told["rule"], told["received"], told["remedy"])
    except (ValueError, LookupError, TypeError):
        return AnswerError("request", "must be answered", f"status {reply.status_code}", "Is it a Ringfence server?")


def _tensor(x: Any) -> Tensor:
    """As the server will read it."""
    array = np.asarray(x.detach().cpu() if isinstance(x, Tensor) else x)
    array = array.astype(np.float32) / 255 if array.dtype == np.uint8 else array.astype(np.float32)
    return torch.from_numpy(np.ascontiguousarray(array))


def _packed(x: Asked) -> tuple[bytes, str]:
    """The bytes of an input and what kind they are."""
    if isinstance(x, str | Path):
        path = Path(x)
        return path.read_bytes(), SUFFIXES.get(path.suffix.lower(), "application/octet-stream")
    file = BytesIO()
    np.save(file, _tensor(x).numpy())
    return file.getvalue(), NPY
