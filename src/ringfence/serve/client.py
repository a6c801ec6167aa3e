"""Client: ask a server, and believe only what follows from the counts it sends."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any, Self, TypeVar, final

import numpy as np
import torch
from pydantic import ValidationError
from torch import Tensor

from ringfence.errors import ArgumentError, RingfenceError
from ringfence.serve import extra
from ringfence.serve.claim import Wire
from ringfence.serve.inputs import NPY, file_content, read_input_file
from ringfence.serve.schemas import Answer, JobState, ModelInfo, Models
from ringfence.serve.served import input_hash

with extra():
    import httpx

T = TypeVar("T", bound=Wire)
AnyInput = Tensor | np.ndarray[Any, Any] | str | Path
"""An input (*shape) in [0,1], an array of bytes, or the name of a PNG, JPEG, NPY or JSON file."""
DISTRUST = "Do not use it, and tell the operator."


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
        headers = {} if token is None else {"Authorization": f"Bearer {_sendable(token)}"}
        self._http = httpx.Client(base_url=url, headers=headers, timeout=timeout, transport=transport)
        self._model, self._config_hash, self._patience = model, config_hash, patience
        self._sent: dict[str, tuple[list[str], dict[str, Any]]] = {}  # job -> hashes of its inputs, what was asked

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._http.close()

    def models(self) -> list[ModelInfo]:
        """What the server has."""
        return _read(Models, self._send("GET", "/v1/model")).models

    def certify(
        self, x: AnyInput, *, alpha: float | None = None, radius: float | None = None, seconds: float | None = None
    ) -> Answer:
        """The class and its radius; radius: decide about this one, seconds: the largest that is proved by then."""
        settings = {"alpha": alpha, "radius": radius, "seconds": seconds}
        return self._answered(_read(Answer, self._ask("/v1/certify", x, settings)), x, settings)

    def predict(self, x: AnyInput, *, alpha: float | None = None, seconds: float | None = None) -> Answer:
        """The class alone."""
        settings = {"alpha": alpha, "seconds": seconds}
        return self._answered(_read(Answer, self._ask("/v1/predict", x, settings)), x, {**settings, "radius": 0.0})

    def certificate(self, x: AnyInput, **settings: float | None) -> dict[str, Any]:
        """The answer of ``certify`` as a signed document, for ``ringfence verify``, which says whose key it must be."""
        from ringfence.serve.certificates import CERTIFICATE, Certificate, signature_wrong

        found: dict[str, Any] = self._ask("/v1/certify", x, {**settings, "signed": "true"})
        answer = self._answered(_read(Certificate, found).answer, x, settings)
        self._checked(answer, signature_wrong(found, CERTIFICATE, None), {})
        return found

    def submit(self, inputs: Tensor | np.ndarray[Any, Any], **settings: float | None) -> str:
        """Leave a batch (N, *shape) as a job; returns its id."""
        job = _read(JobState, self._ask("/v1/jobs", inputs, settings)).id
        self._sent[job] = [input_hash(x) for x in _tensor(inputs)], settings
        return job

    def job(self, job: str) -> JobState:
        """How far a job is, its answers checked; that they are about its inputs, if this client has sent them."""
        found = self._state(job)
        sent, settings = self._sent.get(job, ([one and one.input_sha256 for one in found.answers], {}))
        if (found.id, found.inputs, len(found.answers)) != (job, len(sent), len(sent)):
            received = f"job {found.id[:40]} with {found.inputs} inputs and {len(found.answers)} answers"
            raise AnswerError("answer", f"must be about the {len(sent)} inputs of job {job}", received, DISTRUST)
        for answer, wanted in zip(found.answers, sent, strict=True):
            if answer is not None:
                other = [] if answer.input_sha256 == wanted else [f"input_sha256 is not {wanted}, that of its input"]
                self._checked(answer, [*answer.wrong(), *other], settings)
        return found

    def wait(self, job: str, every: float = 0.5) -> list[Answer | None]:
        """The answers of a job, when all are there; None where an input failed."""
        while (found := self._state(job, answers="false")).state != "done":
            if found.stopped:
                remedy = "Wait for it once the operator has started the server anew: it goes on."
                raise AnswerError("job", "must be worked on to be waited for", found.stopped, remedy)
            time.sleep(every)
        return self.job(job).answers

    def events(self, x: AnyInput, **settings: float | None) -> Iterator[tuple[str, dict[str, Any]]]:
        """(name, content) of what happens to a ``certify``: bounds that grow, then the answer, which is checked."""
        request = self._request(x, settings, Accept="text/event-stream")
        with self._connection_errors(), self._http.stream("POST", "/v1/certify", **request) as reply:
            if reply.status_code != 200:
                reply.read()
                raise _refused(reply)
            name = ""
            for line in reply.iter_lines():
                key, _, value = line.partition(": ")
                if key == "event":
                    name = value
                elif key == "data":
                    content = _parsed(value.encode())
                    if name == "answer":
                        self._answered(_read(Answer, content), x, settings)
                    yield name, content

    def _state(self, job: str, **settings: str) -> JobState:
        return _read(JobState, self._send("GET", f"/v1/jobs/{job}", params=settings))

    def _answered(self, answer: Answer, x: AnyInput, settings: Mapping[str, Any]) -> Answer:
        return self._checked(answer, answer.wrong(self._as_read_by_server(x, answer.model)), settings)

    def _ask(self, path: str, x: AnyInput, settings: Mapping[str, Any]) -> Any:
        return self._send("POST", path, **self._request(x, settings))

    def _request(self, x: AnyInput, settings: Mapping[str, Any], **headers: str) -> dict[str, Any]:
        content, kind = _packed(x)
        told = {key: value for key, value in {"model": self._model, **settings}.items() if value is not None}
        return {"params": told, "content": content, "headers": {"Content-Type": kind, **headers}}

    def _send(self, method: str, path: str, **request: Any) -> Any:
        """The JSON of the reply; while the server is busy the same is asked again, which shows the same draws."""
        until = time.monotonic() + self._patience
        while True:
            with self._connection_errors():
                reply = self._http.request(method, path, **request)
            told = reply.headers.get("Retry-After", "")
            wait = float(told) if told.isdecimal() else 1.0  # proxies may name a date instead
            if reply.status_code not in (429, 503) or time.monotonic() + wait > until:
                break
            time.sleep(wait)
        if reply.is_success:
            return _parsed(reply.content)
        raise _refused(reply)

    @contextmanager
    def _connection_errors(self) -> Iterator[None]:
        """Nobody there, or a connection that broke, is an error of this library's too."""
        try:
            yield
        except httpx.TransportError as error:
            rule, received = "must be that of a server that answers", f"{self._http.base_url} ({error})"
            remedy = "Begin it with http:// or https://, check name and port, and that `ringfence serve` runs there."
            raise AnswerError("url", rule, received, remedy) from error

    def _checked(self, answer: Answer, wrong: list[str], settings: Mapping[str, Any]) -> Answer:
        """The answer, if nothing was found wrong with it and it is the one to what was asked."""
        wrong += [
            f"{name} is {there}, asked was {wanted}"
            for name, wanted in settings.items()
            if wanted is not None and (there := getattr(answer.asked, name)) != wanted
        ]
        if self._model not in (None, answer.model):
            wrong.append(f"it is of the model {answer.model}, not {self._model}")
        if self._config_hash not in (None, answer.config_hash):
            wrong.append(f"it is of the certification {answer.config_hash}, not {self._config_hash}")
        if wrong:
            raise AnswerError(
                "answer", "must follow from its counts, and from what was asked", "; ".join(wrong[:3]), DISTRUST
            )
        return answer

    def _as_read_by_server(self, x: AnyInput, model: str) -> Tensor:
        """The input as the server read it."""
        if not isinstance(x, str | Path):
            return _tensor(x)
        shape = next((one.shape for one in self.models() if one.name == model), None)
        if shape is None:
            raise AnswerError("answer", "must be of a model that the server has", model[:80], DISTRUST)
        return read_input_file(Path(x), tuple(shape))


def _sendable(token: str) -> str:
    """The token without the end of its line; what no header can hold is refused, and never shown."""
    token = token.strip()
    others = sum(not (one.isascii() and one.isprintable()) for one in token)
    if others or not token:
        received = f"one of {len(token)} characters, {others} of them others" if token else "an empty one"
        remedy = "Give it as the operator of the server wrote it, or None for a server without tokens."
        raise ArgumentError("token", "must be printable ASCII, as headers are", received, remedy)
    return token


def _parsed(content: bytes) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise AnswerError("answer", "must be JSON", type(error).__name__, "Is it Ringfence?") from error


def _read(kind: type[T], content: Any) -> T:
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        rule = f"must be a {kind.__name__}"
        raise AnswerError("answer", rule, f"{error.error_count()} entries that are not", "Is it Ringfence?") from error


def _refused(reply: httpx.Response) -> AnswerError:
    try:
        told = reply.json()["error"]
        return AnswerError(told["argument"], told["rule"], told["received"], told["remedy"])
    except (ValueError, LookupError, TypeError):
        return AnswerError("request", "must be answered", f"status {reply.status_code}", "Is it a Ringfence server?")


def _tensor(x: Any) -> Tensor:
    """As the server will read it."""
    if isinstance(x, Tensor):  # of which NumPy does not know every kind
        x = (x if x.dtype == torch.uint8 else x.float()).detach().cpu()
    array = np.asarray(x)
    array = array.astype(np.float32) / 255 if array.dtype == np.uint8 else array.astype(np.float32)
    return torch.from_numpy(np.ascontiguousarray(array))


def _packed(x: AnyInput) -> tuple[bytes, str]:
    """The bytes of an input and what kind they are."""
    if isinstance(x, str | Path):
        return file_content(Path(x))
    file = BytesIO()
    np.save(file, _tensor(x).numpy())
    return file.getvalue(), NPY
