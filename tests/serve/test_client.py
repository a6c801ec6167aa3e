"""The client believes an answer only if it is one to what was asked, whatever else about it agrees."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from fastapi import testclient
from torch import Tensor

from ringfence.errors import ArgumentError, DataError
from ringfence.serve.app import create_app
from ringfence.serve.certificates import SigningKey
from ringfence.serve.client import AnswerError, Client
from ringfence.serve.limits import Limits
from ringfence.serve.schemas import Answer
from ringfence.serve.served import Served

Change = Callable[[httpx.Request, Any], Any]


@pytest.fixture(scope="module")
def server(serve: Callable[..., Served], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A server that signs, and has jobs."""
    folder = tmp_path_factory.mktemp("server")
    limits = Limits(draws=2000, seconds=60.0, usual_seconds=60.0, per_minute=1_000_000)
    served = serve(draws=2000, seconds=60.0, usual_seconds=60.0)
    app = create_app([served], limits=limits, jobs=folder, key=SigningKey.make(folder / "key"))
    with testclient.TestClient(app, base_url="http://127.0.0.1") as found:
        yield found


def client_of(server: Any, change: Change | None = None, path: str = "", other: Any = None, **settings: Any) -> Client:
    """A client between whom and the server somebody changes the answers, or what is asked: its path, its settings."""

    def passed(request: httpx.Request) -> httpx.Response:
        url = request.url.copy_merge_params(other or {}) if request.method == "POST" else request.url
        url = url.copy_with(path=path or url.path)
        kind = {"Content-Type": request.headers.get("Content-Type", "")}
        reply = server.request(request.method, str(url), content=request.read(), headers=kind)
        told = reply.json()
        return httpx.Response(reply.status_code, json=told if change is None else change(request, told))

    return Client("http://127.0.0.1", patience=0.0, transport=httpx.MockTransport(passed), **settings)


def test_an_honest_answer_to_another_question_is_refused(server: Any, digits: list[Tensor]) -> None:
    lenient = client_of(server, other={"alpha": 0.05})
    with pytest.raises(AnswerError, match=r"alpha is 0\.05, asked was 0\.001"):
        lenient.certificate(digits[0], alpha=0.001, radius=0.0)
    job = lenient.submit(torch.stack(digits[:1]), alpha=0.001, radius=0.0)
    with pytest.raises(AnswerError, match=r"alpha is 0\.05, asked was 0\.001"):
        lenient.wait(job, every=0.05)
    with pytest.raises(AnswerError, match=r"radius is 0\.25, asked was 0\.0"):
        client_of(server, path="/v1/certify", other={"radius": 0.25}).predict(digits[0])


def test_answers_about_other_inputs_of_a_job_are_refused(server: Any, digits: list[Tensor]) -> None:
    def swapped(request: httpx.Request, told: Any) -> Any:
        return {**told, "answers": told["answers"][::-1]} if request.method == "GET" else told

    def fewer(request: httpx.Request, told: Any) -> Any:
        return {**told, "answers": told["answers"][:1]} if request.method == "GET" else told

    for change, rule in [(swapped, "that of its input"), (fewer, "about the 2 inputs")]:
        client = client_of(server, change)
        with pytest.raises(AnswerError, match=rule):
            client.wait(client.submit(torch.stack(digits[:2]), radius=0.0), every=0.05)
    other = client_of(server)
    job = other.submit(torch.stack(digits[:2]), radius=0.0)
    assert len(other.wait(job, every=0.05)) == 2
    assert len(client_of(server, swapped).wait(job)) == 2, "who did not send them cannot know"


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float64, torch.uint8])
def test_tensors_of_every_kind_are_sent(server: Any, digits: list[Tensor], kind: torch.dtype) -> None:
    x = (digits[0] * 255).round().to(kind) if kind == torch.uint8 else digits[0].to(kind)
    assert client_of(server).predict(x).prediction == 7


def test_files_that_cannot_be_sent_are_told_by_name(server: Any, tmp_path: Path) -> None:
    for file, rule in [("none.png", "must be readable"), ("x.gif", "must end in one of")]:
        with pytest.raises(DataError, match=rule):
            client_of(server).certify(tmp_path / file)


def test_a_job_is_heard_of_while_it_is_answered(server: Any, digits: list[Tensor]) -> None:
    job = client_of(server).submit(torch.stack(digits[5:9]), radius=0.0)
    lines = server.get(f"/v1/jobs/{job}/events").text.splitlines()
    told = [json.loads(data[6:]) for name, data in pairwise(lines) if name == "event: answer"]
    assert sorted(one["place"] for one in told) == [0, 1, 2, 3]
    assert all(Answer.model_validate(one["answer"]).wrong(digits[5 + one["place"]]) == [] for one in told)


def test_the_signature_of_a_certificate_is_checked(server: Any, digits: list[Tensor]) -> None:
    def later(request: httpx.Request, told: Any) -> Any:
        return {**told, "time": "2038-01-19T03:14:08+00:00"}

    with pytest.raises(AnswerError, match="does not fit what is signed"):
        client_of(server, later).certificate(digits[0], radius=0.0)


def test_another_model_is_refused(server: Any, digits: list[Tensor], tmp_path: Path) -> None:
    from PIL import Image

    def renamed(request: httpx.Request, told: Any) -> Any:
        return {**told, "model": "other"} if "model" in told else told

    with pytest.raises(AnswerError, match="of the model other, not default"):
        client_of(server, renamed, model="default").predict(digits[0])
    Image.fromarray((digits[0][0] * 255).round().byte().numpy()).save(tmp_path / "x.png")
    with pytest.raises(AnswerError, match="must be of a model that the server has"):
        client_of(server, renamed).predict(tmp_path / "x.png")


def test_what_proves_nothing_is_refused(server: Any, digits: list[Tensor]) -> None:
    """A paper form agrees with its counts, and says itself that it is none."""
    told = client_of(server).predict(digits[0]).model_dump()
    told["claim"]["lift"] = {"name": "linear", "norm_bound": 1.0, "form": "paper"}
    found = Answer.model_validate({**told, "sound": False}).wrong()
    assert found == ["sound is false: nothing is proved about it"], found


def test_the_answer_at_the_end_of_a_stream_is_checked(digits: list[Tensor], server: Any) -> None:
    told = client_of(server).predict(digits[0]).model_dump_json()
    for answer, rule in [(told, None), (told.replace('"prediction":7', '"prediction":3'), "prediction"), ("{", "JSON")]:
        stream = httpx.Response(200, content=f"event: answer\ndata: {answer}\n\n".encode())
        client = Client("http://127.0.0.1", transport=httpx.MockTransport(lambda _, reply=stream: reply))
        if rule is None:
            assert [name for name, _ in client.events(digits[0])] == ["answer"]
            continue
        with pytest.raises(AnswerError, match=rule):
            list(client.events(digits[0]))


@pytest.mark.parametrize(
    "change",
    [
        lambda told: told["stages"][0]["cells"]["votes"].__setitem__(0, 2**63),
        lambda told: told["stages"][1].update(start=-1),
        lambda told: told["claim"]["procedure"].update(radii=None),
    ],
    ids=["too large", "negative", "nothing"],
)
def test_numbers_that_nobody_counts_are_refused_by_name(server: Any, digits: list[Tensor], change: Any) -> None:
    def changed(request: httpx.Request, told: Any) -> Any:
        change(told)
        return told

    with pytest.raises(AnswerError, match="answer: must"):
        client_of(server, changed).predict(digits[0])


@pytest.mark.parametrize("after", ["Wed, 21 Oct 2026 07:28:00 GMT", "nan", "-5", ""])
def test_a_busy_server_may_say_when_as_it_likes(after: str, digits: list[Tensor]) -> None:
    busy = httpx.MockTransport(lambda _: httpx.Response(429, headers={"Retry-After": after}, json={}))
    with pytest.raises(AnswerError, match="status 429"):
        Client("http://127.0.0.1", patience=0.0, transport=busy).predict(digits[0])


def test_an_entry_that_stands_twice_is_refused(server: Any, digits: list[Tensor], tmp_path: Path) -> None:
    """One reader takes the first, another the last: what is verified must be what everybody reads."""
    from ringfence.errors import StoreError
    from ringfence.serve.certificates import certificate_wrong, read_document

    signed = client_of(server).certificate(digits[0], radius=0.0)
    path = tmp_path / "certificate.json"
    path.write_text(json.dumps(signed))
    assert certificate_wrong(read_document(path), None, None) == []
    forged = {**signed["answer"], "radius": 9.0}
    path.write_text('{"answer": ' + json.dumps(forged) + "," + json.dumps(signed)[1:])
    with pytest.raises(StoreError, match="stands twice"):
        read_document(path)


def test_a_server_that_is_not_there_is_told_of_with_its_address(digits: list[Tensor]) -> None:
    def nobody(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("Connection refused")

    client = Client("http://127.0.0.1:1", token="with a line end\n", transport=httpx.MockTransport(nobody))
    for ask in (lambda: client.certify(digits[0]), lambda: list(client.events(digits[0])), client.models):
        with pytest.raises(AnswerError, match=r"http://127\.0\.0\.1:1/? \(Connection refused\).*ringfence serve"):
            ask()
    with pytest.raises(AnswerError, match="Begin it with http://"):
        Client("127.0.0.1:8000").models()


def test_a_token_read_from_a_file_may_end_its_line() -> None:
    def told(request: httpx.Request) -> httpx.Response:
        return httpx.Response(
            403,
            json={
                "error": dict.fromkeys(("argument", "rule", "remedy"), "-")
                | {"received": request.headers["Authorization"]}
            },
        )

    with pytest.raises(AnswerError, match=r"got Bearer secret\."):
        Client("http://127.0.0.1", token="secret\n", transport=httpx.MockTransport(told)).models()


@pytest.mark.parametrize(
    ("token", "found"),
    [
        ("pass\u00fcort", "one of 8 characters, 1 of them others"),
        ("pass\nport", "one of 9 characters, 1 of them others"),
        (" \n", "an empty one"),
    ],
)
def test_a_token_that_no_header_can_hold_is_refused_at_once_and_never_shown(token: str, found: str) -> None:
    rule, remedy = "must be printable ASCII, as headers are", "Give it as the operator of the server wrote it"
    with pytest.raises(ArgumentError, match=f"^token: {rule}; got {found}. {remedy}") as refused:
        Client("http://127.0.0.1", token=token)
    assert "pass" not in str(refused.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"eight\.png: must be readable"):
        Client("http://127.0.0.1").certify(tmp_path / "eight.png")
    with pytest.raises(DataError, match="must end in one of"):
        Client("http://127.0.0.1").certify(tmp_path / "eight.webp")
