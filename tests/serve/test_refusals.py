"""What newcomers get wrong: every refusal says what came, in words of theirs, and what to do about it."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from PIL import Image
from starlette.testclient import TestClient

from ringfence.errors import ArgumentError
from ringfence.serve.app import create_app
from ringfence.serve.guards import read_tokens
from ringfence.serve.served import Served

PNG, JPEG, NPY, JSON = "image/png", "image/jpeg", "application/x-npy", "application/json"
GREY = np.full((28, 28), 128, np.uint8)


def saved(kind: str) -> bytes:
    file = io.BytesIO()
    Image.fromarray(GREY).save(file, kind)
    return file.getvalue()


def npy(x: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, x)
    return file.getvalue()


@pytest.fixture(scope="module")
def asker(serve: Callable[..., Served]) -> Iterator[TestClient]:
    with TestClient(create_app([serve()]), "http://127.0.0.1") as client:
        yield client


@pytest.mark.parametrize(
    ("content", "kind", "received", "remedy"),
    [
        (b"", PNG, "no bytes", "name of the file"),
        (b"seven.png", PNG, "9 other or damaged bytes", "--data-binary @FILE"),
        (saved("PNG")[:50], PNG, "50 other or damaged bytes", "encode it again"),
        (saved("PNG"), JPEG, "bytes of image/png", "image/png"),
        (saved("JPEG"), PNG, "bytes of image/jpeg", "image/jpeg"),
        (npy(GREY), PNG, "bytes of application/x-npy", "application/x-npy"),
        (b"hello", NPY, "5 other or damaged bytes", "--data-binary"),
        (saved("PNG"), NPY, "bytes of image/png", "image/png"),
        (npy(GREY), NPY, "(28, 28)", "x[None]"),
        (npy(GREY[None, None]), NPY, "(1, 1, 28, 28)", "x[0]; several are a job"),
        (npy(GREY[..., None]), NPY, "(28, 28, 1)", "x.transpose(2, 0, 1)"),
        (npy(GREY[None, :14]), NPY, "(1, 14, 28)", "Resize"),
        (npy(GREY[None].astype(np.int64)), NPY, "int64", "x.astype('uint8')"),
        (npy(GREY[None].astype(np.float32)), NPY, "128 to 128", "by 255"),
        (npy(np.full((1, 28, 28), -0.5)), NPY, "-0.5 to -0.5", "leave it to the model to normalise"),
        (b"hello", JSON, "no JSON", "json.dump"),
        (b"[[[0.5]]]", JSON, "a list", "under input"),
        (b'{"image": [[[0.5]]]}', JSON, "the entries ['image']", "under input"),
        (json.dumps({"input": GREY.tolist()}).encode(), JSON, "input nested otherwise", "3 deep"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_of_inputs_it_is_told_what_came(
    asker: TestClient, content: bytes, kind: str, received: str, remedy: str
) -> None:
    reply = asker.post("/v1/certify", content=content, headers={"Content-Type": kind})
    assert reply.status_code == 422
    told = reply.json()["error"]
    assert received in told["received"]
    assert remedy in told["remedy"]
    assert "Error" not in reply.text, "the name of an exception is no word of the client's"


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("alpha=0,05", ("alpha", "must be a number", "0,05", "Write it with a point, as 0.001.")),
        ("alpha=", ("alpha", "must be a number", "nothing", "Write it with a point, as 0.001.")),
        ("alpha=2", ("alpha", "must be below 1", "2", "Correct it, or leave it out.")),
        ("radius=-1", ("radius", "must be at least 0", "-1", "Correct it, or leave it out.")),
        ("seconds=0", ("seconds", "must be above 0", "0", "Correct it, or leave it out.")),
        ("signed=maybe", ("signed", "must be true or false", "maybe", "Write one of these.")),
        ("radius=0.5&radius=0.25", ("radius", "must be given once", "2 times", "Keep one of them.")),
    ],
)
def test_of_parameters_it_is_told_in_plain_words(asker: TestClient, query: str, told: tuple[str, ...]) -> None:
    reply = asker.post(f"/v1/certify?{query}", content=saved("PNG"), headers={"Content-Type": PNG})
    assert reply.status_code == 422
    error = reply.json()["error"]
    assert tuple(error[name] for name in ("argument", "rule", "received", "remedy")) == told


def test_a_radius_in_another_norm_is_sent_to_what_was_certified(asker: TestClient) -> None:
    told = asker.post("/v1/certify?radius=0.03&norm=linf", headers={"Content-Type": PNG}).json()["error"]
    assert told["received"] == "norm"
    assert "/v1/model" in told["remedy"]


def test_a_slash_too_many_is_no_empty_answer(asker: TestClient) -> None:
    reply = asker.post("/v1/certify/", content=saved("PNG"), headers={"Content-Type": PNG}, follow_redirects=False)
    assert (reply.status_code, reply.json()["error"]["received"]) == (404, "/v1/certify/")


def test_too_little_time_is_told_to_be_that(asker: TestClient) -> None:
    reply = asker.post("/v1/certify?seconds=1e-6", content=saved("PNG"), headers={"Content-Type": PNG})
    assert reply.status_code == 503
    assert "more seconds" in reply.json()["error"]["remedy"]


@pytest.mark.parametrize(
    ("sent", "received"),
    [({}, "none"), ({"Authorization": "b" * 20}, "another form"), ({"Authorization": "Bearer x"}, "another token")],
)
def test_what_is_wrong_with_a_token_is_told(serve: Callable[..., Served], sent: dict[str, str], received: str) -> None:
    reply = TestClient(create_app([serve()], tokens=[b"b" * 20])).get("/v1/model", headers=sent)
    assert (reply.status_code, reply.json()["error"]["received"]) == (401, received)


def test_a_token_that_is_too_short_is_told_how_to_be_made() -> None:
    with pytest.raises(ArgumentError, match=r"at least 16 characters each; got one of 5\. .*token_urlsafe"):
        read_tokens(None, "a" * 40 + "\nshort\n")


def test_a_token_that_no_header_holds_is_refused() -> None:
    with pytest.raises(ArgumentError, match="must be ASCII"):
        read_tokens(None, "schl\u00fcssel mit umlauten")
