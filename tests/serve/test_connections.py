"""Connections before anybody has shown a token: they are let go in time, take little, and keep nobody out."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from typing import Any

import httpx
import pytest

from ringfence.serve.app import create_app
from ringfence.serve.limits import Limits
from ringfence.serve.served import Served
from ringfence.serve.service import MOST_HEAD, http_server

TOKEN = "a token of some length"
HEAD = f"POST /v1/predict HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n".encode()
Open = Callable[[], socket.socket]


@pytest.fixture
def server(serve: Callable[..., Served]) -> Iterator[tuple[str, Open]]:
    """Its address, and what connects to it."""
    ready, listening = threading.Event(), socket.create_server(("127.0.0.1", 0))
    limits = Limits(body_seconds=600.0, per_minute=1_000_000)
    made = http_server(create_app([serve()], tokens=[TOKEN.encode()], limits=limits), 30, ready.set)
    thread = threading.Thread(target=made.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    assert ready.wait(60)
    with ExitStack() as opened:
        yield (
            f"http://127.0.0.1:{listening.getsockname()[1]}",
            lambda: opened.enter_context(socket.create_connection(listening.getsockname(), 60)),
        )
    made.should_exit = True
    thread.join(60)


@pytest.mark.parametrize("sent", [b"", b"GET / HT", b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\nGET / HT"])
def test_who_asks_nothing_is_let_go(server: tuple[str, Open], monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    monkeypatch.setattr("ringfence.serve.service.HEAD_SECONDS", 0.1)
    line = server[1]()
    line.sendall(sent)
    with suppress(ConnectionResetError):
        while line.recv(1000):  # until it is closed
            pass


def received(line: socket.socket) -> bytes:
    """An answer whose end is the end of what came: all of them are short, and have a length."""
    found = b""
    while not found.partition(b"\r\n\r\n")[2].endswith((b"ok\n", b"}}")):
        part = line.recv(1000)
        assert part
        found += part
    return found


def held_open(line: socket.socket, more: bytes) -> bool:
    """Whether bytes now and then keep a connection open, for longer than anybody should wait."""
    line.settimeout(0.01)
    until = time.monotonic() + 60
    with suppress(ConnectionError):
        while time.monotonic() < until:
            try:
                if not line.recv(1000):
                    return False
            except TimeoutError:
                line.sendall(more)
        return True
    return False


@pytest.mark.parametrize(
    ("asked", "status", "more"),
    [
        (b"POST /v1/predict HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\nhalf", b"401", b"x"),
        (b"POST /v1/predict HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n", b"401", b"1\r\nx\r\n"),
        (HEAD.replace(b"predict", b"predict?beta=1") + b"Content-Length: 1000000000\r\n\r\nhalf", b"422", b"x"),
    ],
    ids=["a body", "chunks", "with a token"],
)
def test_the_rest_of_a_body_that_was_refused_holds_no_connection(
    server: tuple[str, Open], monkeypatch: pytest.MonkeyPatch, asked: bytes, status: bytes, more: bytes
) -> None:
    line = server[1]()
    line.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
    received(line)  # so that only what comes now is timed
    monkeypatch.setattr("ringfence.serve.service.HEAD_SECONDS", 0.1)
    line.sendall(asked)
    assert received(line).startswith(b"HTTP/1.1 " + status)
    assert not held_open(line, more)


def test_empty_lines_after_an_answer_hold_no_connection(
    server: tuple[str, Open], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ringfence.serve.service.KEEP_ALIVE", 0.1)
    line = server[1]()
    line.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
    assert received(line).startswith(b"HTTP/1.1 200")
    assert not held_open(line, b"\r\n")


def test_who_goes_on_asking_is_not_let_go(server: tuple[str, Open], monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where an answer came before its body: what is left of it is read, and then the next request."""
    monkeypatch.setattr("ringfence.serve.service.HEAD_SECONDS", 600.0)  # whatever holds this test up
    line = server[1]()
    for _ in range(3):
        line.sendall(b"POST /v1/predict HTTP/1.1\r\nHost: x\r\nContent-Length: 8\r\n\r\nhalf")
        assert received(line).startswith(b"HTTP/1.1 401")
        line.sendall(b"rest")
    healthy = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
    line.sendall(healthy)
    received(line)
    monkeypatch.setattr("ringfence.serve.service.HEAD_SECONDS", 0.0)  # of two at once the second is in work afterwards
    line.sendall(healthy + HEAD + b"Content-Length: 8\r\n\r\nhalf")
    assert received(line).startswith(b"HTTP/1.1 200")
    line.settimeout(0.2)
    with pytest.raises(TimeoutError):  # neither an answer nor an end comes before the rest
        line.recv(1)
    line.settimeout(60)
    line.sendall(b"rest")
    assert received(line).startswith(b"HTTP/1.1 415")


@pytest.mark.parametrize(
    "begin",
    [b"GET / HTTP/1.1\r\nX: ", b"GET /", HEAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\nX: "],
    ids=["header", "address", "trailer"],
)
def test_what_stands_beside_a_body_has_an_end(
    server: tuple[str, Open], monkeypatch: pytest.MonkeyPatch, begin: bytes
) -> None:
    monkeypatch.setattr("ringfence.serve.service.HEAD_SECONDS", 600.0)  # its length ends it, not its time
    line = server[1]()
    line.sendall(begin)
    with pytest.raises(ConnectionError):
        line.sendall(bytes(b"a" * 2**26))  # far more than the buffers in between hold


def test_a_long_body_is_none_of_it(server: tuple[str, Open]) -> None:
    body = b'{"input": [[' + b", ".join(28 * [b"[" + b", ".join(28 * [b"0." + 60 * b"1"]) + b"]"]) + b"]]}"
    assert len(body) < MOST_HEAD
    body += MOST_HEAD * b" "
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    parts = (body[start : start + 1000] for start in range(0, len(body), 1000))
    reply = httpx.post(f"{server[0]}/v1/predict", content=parts, headers=headers, timeout=60)
    assert reply.status_code != 400, reply.text


def test_of_many_open_requests_the_next_is_sent_away(server: tuple[str, Open], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringfence.serve.guards.MOST_REQUESTS", 2)
    for _ in range(2):
        server[1]().sendall(HEAD + b"Content-Length: 10\r\n\r\nhalf")
    headers = {"Authorization": f"Bearer {TOKEN}"}
    while (reply := httpx.get(f"{server[0]}/v1/model", headers=headers, timeout=60)).status_code == 200:
        time.sleep(0.01)
    assert (reply.status_code, reply.headers["Retry-After"]) == (429, "1")
    told: Any = reply.json()["error"]
    assert told["rule"] == "is taken where fewer than 2 are open"
    assert httpx.get(f"{server[0]}/v1/model", timeout=60).status_code == 401, "whoever has no token hears that"
    assert httpx.get(f"{server[0]}/readyz", timeout=60).status_code == 200, "for the balancer it is well"
