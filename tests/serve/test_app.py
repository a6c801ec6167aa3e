"""Over HTTP: what is asked is answered, what is wrong is refused, and nothing else gets through."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from fastapi import testclient
from PIL import Image
from torch import Tensor

import ringfence as rf
from ringfence.errors import ArgumentError
from ringfence.serve.app import create_app
from ringfence.serve.asked import Asked, Bounds
from ringfence.serve.certificates import SigningKey, certificate_wrong
from ringfence.serve.guards import check_address, read_tokens
from ringfence.serve.inputs import largest
from ringfence.serve.job_base import JobBase
from ringfence.serve.jobs import Jobs
from ringfence.serve.limits import Limits, Question
from ringfence.serve.routes import bounds_event
from ringfence.serve.schemas import Answer
from ringfence.serve.served import Served

TOKEN = "a token of some length"
TestClient = partial(testclient.TestClient, base_url="http://127.0.0.1")


def png(x: Tensor) -> bytes:
    file = io.BytesIO()
    Image.fromarray((x[0] * 255).round().numpy().astype(np.uint8)).save(file, "PNG")
    return file.getvalue()


def npy(x: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, np.asarray(x))
    return file.getvalue()


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> SigningKey:
    return SigningKey.make(tmp_path_factory.mktemp("keys") / "key")


@pytest.fixture(scope="module")
def asker(serve: Callable[..., Served], key: SigningKey, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    served = serve(draws=2000, seconds=60.0, usual_seconds=60.0)
    limits = Limits(draws=2000, seconds=60.0, usual_seconds=60.0, body=200_000, per_minute=1_000_000, job_inputs=50)
    with TestClient(create_app([served], limits=limits, jobs=tmp_path_factory.mktemp("jobs"), key=key)) as client:
        yield client


@pytest.mark.parametrize("form", ["png", "npy", "bytes", "json"])
def test_every_form_of_an_input_is_the_same_input(asker: Any, digits: list[Tensor], form: str) -> None:
    x = digits[0]
    sent: dict[str, tuple[bytes, str]] = {
        "png": (png(x), "image/png"),
        "npy": (npy(x.numpy()), "application/x-npy"),
        "bytes": (npy((x * 255).round().numpy().astype(np.uint8)), "application/x-npy"),
        "json": (json.dumps({"input": x.tolist()}).encode(), "application/json; charset=utf-8"),
    }
    content, kind = sent[form]
    reply = asker.post("/v1/certify?alpha=0.01&radius=0.25", content=content, headers={"Content-Type": kind})
    assert reply.status_code == 200, reply.text
    answer = Answer.model_validate(reply.json())
    assert answer.wrong(x) == []
    assert (answer.prediction, answer.class_name, answer.alpha, answer.norm) == (7, "7", 0.01, "l2")
    assert answer.radius >= 0.25
    assert answer.config_hash == asker.get("/v1/model").json()["models"][0]["config_hash"]


def test_predict_takes_the_fewest_draws(asker: Any, digits: list[Tensor]) -> None:
    ask = {"content": npy(digits[0].numpy()), "headers": {"Content-Type": "application/x-npy"}}
    answer = Answer.model_validate(asker.post("/v1/predict", **ask).json())
    assert (answer.prediction, answer.draws, answer.stopped) == (7, 75, "decided")
    assert answer.wrong(digits[0]) == []


@pytest.mark.parametrize(
    ("query", "content", "kind", "status", "told"),
    [
        ("", b"no image", "image/png", 422, "readable image/png"),
        ("", png(torch.zeros(1, 28, 29)), "image/png", 422, "28 x 28 pixels"),
        ("", png(torch.zeros(1, 28, 28)), "image/jpeg", 422, "readable image/jpeg"),
        ("", npy(np.zeros((1, 28, 28)) - 1), "application/x-npy", 422, "from 0 to 1"),
        ("", npy(np.full((1, 28, 28), np.nan)), "application/x-npy", 422, "from 0 to 1"),
        ("", npy(np.zeros((28, 28))), "application/x-npy", 422, "shape"),
        ("", npy(np.zeros((1, 28, 28), "i4")), "application/x-npy", 422, "uint8, or floats"),
        ("", npy(np.zeros((1, 28, 28)))[:-1], "application/x-npy", 422, "as many values"),
        ("", b'{"input": [[["0.5"]]]}', "application/json", 422, "numbers, nested"),
        ("", b'{"input": 1, "alpha": 2}', "application/json", 422, "the entry input alone"),
        ("", b"[" * 50_000, "application/json", 422, "must be JSON"),
        ("", b"", "text/plain", 415, "must be one of"),
        ("?alpha=0.9", b"", "image/png", 422, "between 1e-06 and 0.05"),
        ("?alpha=nonsense", b"", "image/png", 422, "must be a number"),
        ("?radius=1e9", npy(np.zeros((1, 28, 28))), "application/x-npy", 422, "must be a number from 0 to 1e6"),
        ("?radius=50", npy(np.zeros((1, 28, 28))), "application/x-npy", 422, "cannot be more than"),
        ("?seconds=1e9", b"", "image/png", 422, "at most 60"),
        ("?model=other", b"", "image/png", 404, "must be one of default"),
        ("", bytes(200_001), "image/png", 413, "at most 200000 bytes"),
    ],
)
def test_what_is_wrong_is_refused_by_name(
    asker: Any, query: str, content: bytes, kind: str, status: int, told: str
) -> None:
    reply = asker.post(f"/v1/certify{query}", content=content, headers={"Content-Type": kind})
    assert reply.status_code == status, reply.text
    error = reply.json()["error"]
    assert told in error["rule"]
    assert set(error) == {"argument", "rule", "received", "remedy"}
    assert "Traceback" not in reply.text


def test_nobody_holds_more_bytes_than_an_input_takes(served: Served) -> None:
    """A thousand clients may send as many as a job has, for a picture of a few pixels."""
    most, asker = largest((1, 28, 28)), TestClient(create_app([served]))
    longest = b'{"input": [[' + b", ".join(28 * [b"[" + b", ".join(28 * [b"0." + 62 * b"1"]) + b"]"]) + b"]]}"
    assert len(longest) < most < served.limits.body
    for path in ("certify", "predict"):
        reply = asker.post(f"/v1/{path}", content=bytes(most + 1), headers={"Content-Type": "image/png"})
        assert reply.status_code == 413, reply.text
        assert f"at most {most} bytes" in reply.json()["error"]["rule"]
    reply = asker.post("/v1/predict", content=longest, headers={"Content-Type": "application/json"})
    assert reply.status_code != 413, reply.text


def test_a_misspelt_parameter_is_refused_and_not_answered_without_it(asker: Any, digits: list[Tensor]) -> None:
    for path in ("certify", "predict", "jobs"):
        reply = asker.post(f"/v1/{path}?alpah=1e-6", content=png(digits[0]), headers={"Content-Type": "image/png"})
        assert reply.status_code == 422, reply.text
        told = reply.json()["error"]
        assert told["received"] == "alpah"
        assert "alpha" in told["rule"]


def test_a_wrong_method_path_or_body_is_told_what_would_be_right(asker: Any, served: Served) -> None:
    reply = asker.get("/v1/certify")
    assert (reply.status_code, reply.headers["Allow"]) == (405, "POST")
    told = reply.json()["error"]
    assert (told["argument"], told["rule"], told["received"]) == ("method", "must be POST here", "GET")
    assert asker.post("/certify").json()["error"]["received"] == "/certify"
    assert "--jobs" in TestClient(create_app([served])).post("/v1/jobs").json()["error"]["remedy"]
    for body in ({"inputs": [[[0]]]}, {"input": [[0]]}, {"input": "text"}):
        told = asker.post("/v1/certify", json=body).json()["error"]
        assert "Error" not in told["received"]
        assert "3 deep" in told["remedy"]


def test_a_head_is_what_a_get_begins_with(asker: Any, digits: list[Tensor], caplog: pytest.LogCaptureFixture) -> None:
    ask = {"content": npy(digits[0][None]), "headers": {"Content-Type": "application/x-npy"}}
    job = asker.post("/v1/jobs?radius=0", **ask).json()["id"]
    with caplog.at_level(logging.INFO, "ringfence.serve"):
        for path in ("/", "/healthz", "/readyz", "/v1/model", "/openapi.json", "/nothing", f"/v1/jobs/{job}/events"):
            reply, whole = asker.head(path), asker.get(path)
            assert (reply.status_code, reply.content) == (whole.status_code, b"")
            assert reply.headers["content-type"] == whole.headers["content-type"]
            assert reply.headers.get("content-length") == whole.headers.get("content-length")
    assert {json.loads(one.message)["method"] for one in caplog.records} == {"HEAD", "GET"}
    assert asker.head("/v1/certify").status_code == 405


def test_an_array_whose_header_lies_allocates_nothing(asker: Any) -> None:
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1, 28, 999999999999), }"
    lie = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
    reply = asker.post("/v1/certify", content=lie, headers={"Content-Type": "application/x-npy"})
    assert reply.status_code == 422
    assert "shape" in reply.json()["error"]["rule"]


def test_an_image_that_would_unfold_is_not_decoded(asker: Any) -> None:
    file = io.BytesIO()
    Image.new("1", (8_000, 8_000)).save(file, "PNG")
    assert len(file.getvalue()) < 200_000
    reply = asker.post("/v1/certify", content=file.getvalue(), headers={"Content-Type": "image/png"})
    assert (reply.status_code, reply.json()["error"]["received"]) == (422, "8000 x 8000")


def events_of(text: str) -> list[tuple[str, dict[str, Any]]]:
    blocks = [block.splitlines() for block in text.strip().split("\n\n")]
    return [(name.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for name, data in blocks]


def test_a_stream_shows_bounds_that_grow_to_the_answer(asker: Any, digits: list[Tensor]) -> None:
    headers = {"Content-Type": "application/x-npy", "Accept": "text/event-stream"}
    reply = asker.post("/v1/certify", content=npy(digits[0].numpy()), headers=headers)
    assert reply.headers["content-type"].startswith("text/event-stream")
    events = events_of(reply.text)
    assert [name for name, _ in events] == ["bounds"] * (len(events) - 1) + ["answer"]
    answer = Answer.model_validate(events[-1][1])
    radii = [told["radius"] for _, told in events]
    assert radii == sorted(radii)
    assert len(events) == len(answer.stages)
    assert answer.wrong(digits[0]) == []


def test_a_signed_answer_is_a_certificate(asker: Any, digits: list[Tensor], key: SigningKey, tmp_path: Path) -> None:
    ask = {"content": npy(digits[0].numpy()), "headers": {"Content-Type": "application/x-npy"}}
    content = asker.post("/v1/predict?signed=true", **ask).json()
    (tmp_path / "x.png").write_bytes(png(digits[0]))
    (tmp_path / "y.png").write_bytes(png(digits[1]))
    assert certificate_wrong(content, tmp_path / "x.png", key.public) == []
    assert "input_sha256" in certificate_wrong(content, tmp_path / "y.png", None)[0]
    assert content["key_id"] == key.id == asker.get("/v1/model").json()["models"][0]["key_id"]


def test_jobs_are_answered_in_order(asker: Any, digits: list[Tensor]) -> None:
    batch = {"content": npy(torch.stack(digits[:5]).numpy()), "headers": {"Content-Type": "application/x-npy"}}
    reply = asker.post("/v1/jobs?radius=0.25", **batch)
    assert reply.status_code == 202, reply.text
    job = reply.json()["id"]
    stream = asker.get(f"/v1/jobs/{job}/events")
    assert events_of(stream.text)[-1] == ("done", {"id": job})
    state = asker.get(f"/v1/jobs/{job}").json()
    assert (state["state"], state["answered"], state["inputs"], state["failed"]) == ("done", 5, 5, {})
    for x, answer in zip(digits, state["answers"], strict=False):
        assert Answer.model_validate(answer).wrong(x) == []
    again = events_of(asker.get(f"/v1/jobs/{job}/events").text)
    assert [name for name, _ in again] == ["answer"] * 5 + ["done"]
    assert asker.get("/v1/jobs/nothing").status_code == 404
    many = npy(np.zeros((51, 1, 28, 28), np.uint8))
    assert asker.post("/v1/jobs", content=many, headers=batch["headers"]).status_code == 422


def test_a_job_that_ends_while_its_stream_begins_is_told_whole(
    serve: Callable[..., Served], digits: list[Tensor], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its last answer is written after those on the disk were read, and before anybody asks whether it is done."""
    held, read = threading.Event(), threading.Event()
    tell, answers, finish = Jobs._tell, JobBase.answers, Jobs._finish

    def answers_and_then_more(self: JobBase, *parts: Any) -> list[str | None]:
        found = answers(self, *parts)
        held.set()
        assert read.wait(60)
        return found

    def finish_once_it_was_read(self: Jobs, rows: Any) -> Any:
        assert held.wait(60)
        return finish(self, rows)

    def tell_late(self: Jobs, job: str, event: Any) -> None:
        if event[0] != "bounds":
            read.set()  # it is on the disk
        tell(self, job, event)

    monkeypatch.setattr(JobBase, "answers", answers_and_then_more)
    monkeypatch.setattr(Jobs, "_finish", finish_once_it_was_read)
    monkeypatch.setattr(Jobs, "_tell", tell_late)
    batch = {"content": npy(digits[0][None].numpy()), "headers": {"Content-Type": "application/x-npy"}}
    with TestClient(create_app([serve()], jobs=tmp_path)) as client:
        job = client.post("/v1/jobs?radius=0", **batch).json()["id"]
        told = [name for name, _ in events_of(client.get(f"/v1/jobs/{job}/events").text)]
    assert [name for name in told if name != "bounds"] == ["answer", "done"]


def test_what_there_is_and_how_it_fares(asker: Any, digits: list[Tensor]) -> None:
    asker.post("/v1/certify?radius=0", content=png(digits[0]), headers={"Content-Type": "image/png"})
    assert asker.get("/healthz").text == asker.get("/readyz").text == "ok\n"
    (model,) = asker.get("/v1/model").json()["models"]
    assert (model["shape"], model["classes"], model["noise"]["sigma"]) == ([1, 28, 28], 10, 0.5)
    figures = asker.get("/metrics").text
    assert 'ringfence_requests_total{route="/v1/certify",status="200"}' in figures
    assert 'ringfence_draws_total{model="default"}' in figures
    assert 'ringfence_in_work{model="default"} 0.0' in figures
    assert asker.get("/nothing").status_code == 404
    assert asker.get("/v1/certify").status_code == 405
    assert asker.get("/docs").status_code == 404, "it would load scripts from elsewhere"


def test_headers_let_a_browser_do_nothing_but_the_page(asker: Any) -> None:
    reply = asker.get("/", headers={"Origin": "https://elsewhere.example"})
    assert "default-src 'none'" in reply.headers["content-security-policy"]
    assert "unsafe" not in reply.headers["content-security-policy"]
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert not [name for name in reply.headers if name.startswith("access-control")]
    for host in ("rebound.example:8000", "rebound.example", "127.0.0.1.rebound.example", ""):
        assert asker.get("/v1/model", headers={"Host": host}).status_code == 421, host
    for host in ("localhost:8000", "127.9.9.9:8000", "[::1]:8000", "[::1]", "LOCALHOST"):  # what may be listened at
        assert asker.get("/v1/model", headers={"Host": host}).status_code == 200, host


def test_tokens_are_needed_where_there_are_any(served: Served) -> None:
    client = TestClient(create_app([served], tokens=[TOKEN.encode(), b"another one, as long"]))
    for headers in ({}, {"Authorization": "Bearer"}, {"Authorization": f"Basic {TOKEN}"}, {"Authorization": TOKEN}):
        reply = client.get("/v1/model", headers=headers)
        assert reply.status_code == 401
        assert reply.headers["www-authenticate"] == "Bearer"
    assert client.get("/metrics").status_code == 401
    assert client.get("/openapi.json").status_code == 401
    assert client.get("/v1/model", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200
    assert client.get("/v1/model", headers={"Authorization": f"bearer {TOKEN} "}).status_code == 200
    assert client.get("/").status_code == client.get("/healthz").status_code == 200


def test_an_address_that_others_reach_needs_a_token(tmp_path: Path) -> None:
    for host in ("127.0.0.1", "::1", "localhost", "127.9.9.9"):
        check_address(host, ())
    for host in ("0.0.0.0", "::", "192.168.0.7", "example.org"):
        check_address(host, [b"token"])
        with pytest.raises(ArgumentError, match="needs bearer tokens"):
            check_address(host, ())
    file = tmp_path / "tokens"
    file.write_text(f"{TOKEN}\n\n{TOKEN}\n")
    assert read_tokens(file, "one of the environment") == (TOKEN.encode(), b"one of the environment")
    file.write_text("short")
    with pytest.raises(ArgumentError, match="at least 16 characters"):
        read_tokens(file, None)
    file.write_text("\n")
    with pytest.raises(ArgumentError, match="a token on each line"):
        read_tokens(file, None)


def test_a_client_that_asks_too_often_is_told_when_to_come_again(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Mock(monotonic=lambda: 0.0, perf_counter=lambda: 0.0)
    monkeypatch.setattr("ringfence.serve.guards.time", clock)
    limits = Limits(per_minute=60)
    client = TestClient(create_app([served], tokens=[TOKEN.encode(), b"another one, as long"], limits=limits))
    mine, other = ({"Authorization": f"Bearer {token}"} for token in (TOKEN, "another one, as long"))
    replies = [client.get("/v1/model", headers=mine) for _ in range(12)]
    assert [reply.status_code for reply in replies] == [200] * 10 + [429] * 2
    assert replies[-1].headers["retry-after"] == "1"
    assert client.get("/v1/model", headers=other).status_code == 200
    clock.monotonic = lambda: 1.0
    assert [client.get("/v1/model", headers=mine).status_code for _ in range(2)] == [200, 429]


def test_jobs_belong_to_whoever_sent_them(serve: Callable[..., Served], digits: list[Tensor], tmp_path: Path) -> None:
    tokens = [TOKEN.encode(), b"another one, as long"]
    with TestClient(create_app([serve()], tokens=tokens, jobs=tmp_path)) as client:
        mine, other = ({"Authorization": f"Bearer {token.decode()}"} for token in tokens)
        content, kind = npy(torch.stack(digits[:1]).numpy()), {"Content-Type": "application/x-npy"}
        job = client.post("/v1/jobs?radius=0", content=content, headers={**mine, **kind}).json()["id"]
        assert client.get(f"/v1/jobs/{job}", headers=mine).status_code == 200
        assert client.get(f"/v1/jobs/{job}", headers=other).status_code == 404
        assert client.get(f"/v1/jobs/{job}/events", headers=other).status_code == 404


def test_logs_hold_one_line_a_request_and_no_contents(
    asker: Any, digits: list[Tensor], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "ringfence.serve"):
        content = json.dumps({"input": digits[0].tolist()}).encode()
        reply = asker.post("/v1/predict", content=content, headers={"Content-Type": "application/json"})
    (line,) = [json.loads(record.message) for record in caplog.records if record.name == "ringfence.serve"]
    assert line["id"] == reply.headers["x-request-id"]
    assert (line["method"], line["path"], line["status"]) == ("POST", "/v1/predict", 200)
    assert len(json.dumps(line)) < 300


def test_errors_of_the_server_tell_clients_a_number_and_nothing_else(
    served: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Served, "load", property(lambda self: 1 / 0))
    client = TestClient(create_app([served]), raise_server_exceptions=False)
    with caplog.at_level(logging.ERROR, "ringfence.serve"):
        reply = client.get("/metrics")
    assert reply.status_code == 500
    assert reply.json()["error"]["received"] == f"id {reply.headers['x-request-id']}"
    assert "ZeroDivision" not in reply.text
    assert "ZeroDivisionError" in caplog.text


def test_a_broken_model_is_not_ready(serve: Callable[..., Served], digits: list[Tensor]) -> None:
    served = serve()
    client = TestClient(create_app([served]))
    served.broken = "it changed"
    assert client.get("/readyz").status_code == 503
    assert client.get("/healthz").status_code == 200
    ask = {"content": npy(digits[0].numpy()), "headers": {"Content-Type": "application/x-npy"}}
    reply = client.post("/v1/predict", **ask)
    assert (reply.status_code, reply.json()["error"]["received"]) == (503, "it changed")


@pytest.mark.parametrize("accept", ["application/json", "text/event-stream"])
@pytest.mark.parametrize("begun", [False, True])
def test_a_model_that_hangs_is_not_waited_for(
    serve: Callable[..., Served], digits: list[Tensor], monkeypatch: pytest.MonkeyPatch, accept: str, begun: bool
) -> None:
    served, taken = serve(), list[Asked]()

    def over() -> None:
        monkeypatch.setattr("ringfence.serve.questions.OVERDUE", -60.0)

    def ask(x: Tensor, question: Question, **how: Any) -> Asked:
        if begun and how["watch"] is not None:
            how["watch"](Bounds(7, 0.1, 0.9, 100, 0.1))
            monkeypatch.setattr("ringfence.serve.questions.bounds_event", lambda one: (over(), told(one))[1])
        else:
            over()
        taken.append(Asked(1, x, None, "request", True, question=question, test=served.test(question)))
        return taken[-1]

    monkeypatch.setattr(served, "ask", ask)
    monkeypatch.setattr("ringfence.serve.questions.OVERDUE", 60.0)
    told = bounds_event
    headers = {"Content-Type": "application/x-npy", "Accept": accept}
    reply = TestClient(create_app([served])).post("/v1/certify?seconds=0.1", content=npy(digits[0]), headers=headers)
    if begun and accept != "application/json":
        assert [name for name, _ in events_of(reply.text)] == ["bounds", "error"]
    else:
        assert reply.status_code == 503
    assert "no answer when its time was over" in reply.text
    assert taken[0].timing.left, "nobody works for those who have gone"


@pytest.mark.parametrize("accept", ["application/json", "text/event-stream"])
def test_who_leaves_before_anything_was_told_is_let_go(
    serve: Callable[..., Served], digits: list[Tensor], monkeypatch: pytest.MonkeyPatch, accept: str
) -> None:
    served, taken = serve(), list[Asked]()

    def ask(x: Tensor, question: Question, **how: Any) -> Asked:
        taken.append(Asked(1, x, None, "request", True, question=question, test=served.test(question)))
        return taken[-1]

    monkeypatch.setattr(served, "ask", ask)
    monkeypatch.setattr("ringfence.serve.questions.OVERDUE", 600.0)
    told = iter([{"type": "http.request", "body": npy(digits[0])}, {"type": "http.disconnect"}])

    async def receive() -> Any:
        return next(told)

    headers = {"host": "127.0.0.1", "content-type": "application/x-npy", "accept": accept}
    scope = {"type": "http", "method": "POST", "path": "/v1/certify", "query_string": b"", "root_path": ""}
    scope["headers"] = [(name.encode(), value.encode()) for name, value in headers.items()]

    async def send(message: Any) -> None:
        pytest.fail(f"to whom? {message}")

    asyncio.run(asyncio.wait_for(create_app([served])(scope, receive, send), 60))
    assert taken[0].timing.left, "nobody works for those who have gone"


def test_several_models_are_told_apart(serve: Callable[..., Served], digits: list[Tensor]) -> None:
    first, second = serve(), serve(rf.Certification("default:1", noise=rf.Gaussian(0.25), procedure=rf.Fixed(n=100)))
    second.name, second.limits = "quiet", Limits(most_alpha=0.01)
    client = TestClient(create_app([first, second]))
    ask = {"content": npy(digits[0].numpy()), "headers": {"Content-Type": "application/x-npy"}}
    answers = [Answer.model_validate(client.post(f"/v1/predict{q}", **ask).json()) for q in ("", "?model=quiet")]
    assert [one.model for one in answers] == ["default", "quiet"]
    assert [one.claim.noise.sigma for one in answers] == [0.5, 0.25]
    assert len({one.config_hash for one in answers}) == 2
    assert [one["most_alpha"] for one in client.get("/v1/model").json()["models"]] == [0.05, 0.01]
    replies = [client.post(f"/v1/predict?alpha=0.05{also}", **ask) for also in ("", "&model=quiet")]
    assert [one.status_code for one in replies] == [200, 422], "each within its own limits"


class Lying:
    """Passes requests on, and changes an entry of the answers."""

    def __init__(self, inner: Any, change: Callable[[dict[str, Any]], None]) -> None:
        self.inner, self.change = inner, change

    def handle_request(self, request: Any) -> Any:
        import httpx

        reply = self.inner.handle_request(request)
        content = reply.read()
        if reply.headers["content-type"] == "application/json":
            self.change(told := json.loads(content))
            content = json.dumps(told).encode()
        return httpx.Response(reply.status_code, content=content)

    def close(self) -> None:
        pass


def test_the_client_believes_only_what_follows(asker: Any, digits: list[Tensor], tmp_path: Path) -> None:
    from ringfence.serve.client import AnswerError, Client

    honest: Any = Lying(asker._transport, lambda told: None)
    client = Client("http://127.0.0.1", patience=0.0, transport=honest)
    answer = client.certify(digits[0], alpha=0.01, radius=0.25)
    assert (answer.prediction, answer.asked.radius) == (7, 0.25)
    assert client.predict((digits[0] * 255).round().byte()).prediction == 7
    (tmp_path / "x.png").write_bytes(png(digits[0]))
    assert client.predict(tmp_path / "x.png").prediction == 7
    assert certificate_wrong(client.certificate(digits[0], radius=0.0), None, None) == []
    assert [name for name, _ in client.events(digits[0], radius=0.0)][-1] == "answer"
    answers = client.wait(client.submit(torch.stack(digits[:2]), radius=0.0), every=0.05)
    assert [one and one.stages for one in answers] == [client.predict(x).stages for x in digits[:2]], "the same draws"
    with pytest.raises(AnswerError, match="between 1e-06 and"):
        client.certify(digits[0], alpha=0.5)
    with pytest.raises(AnswerError, match="not 0123"):
        Client("http://127.0.0.1", config_hash="0123", transport=honest).predict(digits[0])


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda a: a.update(radius=a["radius"] * 1.01), "radius"),
        (lambda a: a.update(prediction=3), "prediction"),
        (lambda a: a.update(alpha=0.0001), "alpha"),
        (lambda a: a["stages"][1]["cells"]["votes"].__setitem__(7, 24), "votes of request 1"),
        (lambda a: a["claim"]["procedure"].update(alpha=0.04), "radius"),
        (lambda a: a.update(input_sha256="00" * 32), "input_sha256"),
        (lambda a: a["asked"].update(alpha=0.002), "alpha"),
        (lambda a: a["claim"]["noise"].update(sigma=1.0), "radius"),
        (lambda a: a.update(sound=False), "sound"),
        (lambda a: a.update(stages=[]), "prediction"),
        (lambda a: a.pop("stages"), "must be a Answer"),
        (lambda a: a["claim"].update(classes=0), "must be a Answer"),
        (lambda a: a["claim"].update(mechanisms=[]), "must be a Answer"),
        (lambda a: a["claim"].update(seed=2**63), "must be a Answer"),
    ],
)
def test_a_server_that_lies_is_not_believed(
    asker: Any, digits: list[Tensor], change: Callable[[dict[str, Any]], None], told: str
) -> None:
    from ringfence.serve.client import AnswerError, Client

    client: Any = Client("http://127.0.0.1", transport=Lying(asker._transport, change))  # type: ignore[arg-type]
    with pytest.raises(AnswerError, match=told):
        client.predict(digits[0])


def test_slow_and_silent_senders_are_given_up(served: Served) -> None:
    from ringfence.serve.guards import TooLarge, body_of

    class Slow:
        async def stream(self) -> Any:
            yield b"begin"
            await asyncio.sleep(60)

    with pytest.raises(TooLarge, match=r"within 0.05 s; got 5 bytes by then"):
        asyncio.run(body_of(Slow(), Limits(body_seconds=0.05)))  # type: ignore[arg-type]
