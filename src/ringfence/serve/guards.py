"""Guards: who may ask, how often and how much; what is logged, and what a browser may do with an answer."""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import math
import re
import secrets
import time
from collections.abc import Collection, Sequence
from hashlib import sha256
from ipaddress import ip_address
from itertools import count
from pathlib import Path
from typing import Any, final

from prometheus_client import CollectorRegistry, Counter, Histogram
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ringfence.errors import ArgumentError, RingfenceError
from ringfence.serve.limits import Busy, Limits, TooLarge
from ringfence.serve.schemas import Problem, Refused
from ringfence.store.atomic import read_file

OPEN = ("/", "/page.js", "/page.css", "/icon.svg", "/healthz", "/readyz")
"""Asked without a token: they tell nothing but that there is a server."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
LEAST_TOKEN = 16
MOST_CLIENTS = 10_000
MOST_REQUESTS = 1024
"""At once: each may hold a body."""
PLAIN = {
    "float_parsing": ("must be a number", "Write it with a point, as 0.001."),
    "bool_parsing": ("must be true or false", "Write one of these."),
    "greater_than": ("must be above {gt:g}", "Correct it, or leave it out."),
    "greater_than_equal": ("must be at least {ge:g}", "Correct it, or leave it out."),
    "less_than": ("must be below {lt:g}", "Correct it, or leave it out."),
    "string_too_long": ("must have at most {max_length} characters", "See /v1/model."),
}
"""What the framework's complaints mean: rule and remedy."""
log = logging.getLogger("ringfence.serve")


def read_tokens(file: Path | None, environment: str | None) -> tuple[bytes, ...]:
    """One token a line, of a file and of an environment variable; too short ones are refused."""
    text = ("" if file is None else read_file(file).decode("utf-8", "replace")) + "\n" + (environment or "")
    found = tuple(dict.fromkeys(line.strip().encode() for line in text.splitlines() if line.strip()))
    remedy = "Make it random: python -c 'import secrets; print(secrets.token_urlsafe(32))'."
    if (shortest := min(map(len, found), default=LEAST_TOKEN)) < LEAST_TOKEN:
        raise ArgumentError("tokens", f"must have at least {LEAST_TOKEN} characters each", f"one of {shortest}", remedy)
    if not all(one.isascii() for one in found):  # others are written to a header in one way, and read in another
        raise ArgumentError("tokens", "must be ASCII, as headers are", "one with other characters", remedy)
    if file is not None and not found:
        raise ArgumentError("tokens", "must hold a token on each line", f"none in {file}", "Write one.")
    return found


def is_loopback(host: str) -> bool:
    """Whether that is this machine, whoever asks."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def check_address(host: str, tokens: Sequence[bytes]) -> None:
    """Whoever can be reached from elsewhere needs tokens."""
    if not is_loopback(host) and not tokens:
        rule = "needs bearer tokens where it is not a loopback address"
        raise ArgumentError("host", rule, host, "Give --tokens FILE, or stay at 127.0.0.1.")


def refusal(error: RingfenceError) -> Response:
    """An error as its body and status."""
    status = getattr(error, "status", 422)
    after = math.ceil(error.after) if isinstance(error, Busy) else 1  # sooner, it would be refused once more
    headers = {"Retry-After": str(max(1, after))} if status in (429, 503) else {}
    return told(status, error.argument, error.rule, str(error.received), error.remedy, **headers)


def told(status: int, argument: str, rule: str, received: str, remedy: str, **headers: str) -> Response:
    """A refusal that no exception stands for."""
    problem = Problem(argument=argument, rule=rule, received=received, remedy=remedy)
    return JSONResponse(Refused(error=problem).model_dump(), status, headers)


async def body_of(request: Request, limits: Limits, most: int | None = None) -> tuple[bytes, str]:
    """The whole body, if it is no longer than allowed and comes in time, and what kind it is said to be.

    most: bytes of what is asked for, beyond which nobody need hold them.
    """
    content, most = bytearray(), min(limits.body, most or limits.body)
    try:
        async with asyncio.timeout(limits.body_seconds):
            async for part in request.stream():
                content += part
                if len(content) > most:
                    remedy = "Send less at once, and images in the size that the model takes (/v1/model)."
                    raise TooLarge("body", f"has at most {most} bytes", "more", remedy)
    except TimeoutError as error:
        rule = f"must have come within {limits.body_seconds:g} s"
        raise TooLarge("body", rule, f"{len(content)} bytes by then", "Send it faster.") from error
    return bytes(content), request.headers.get("content-type", "").partition(";")[0].strip().lower()


@final
class Guard:
    """Around the application: tokens, rates, headers, one line of log for every request, no traces of errors."""

    def __init__(
        self, app: ASGIApp, tokens: Sequence[bytes], limits: Limits, registry: CollectorRegistry, loopback: bool
    ) -> None:
        self._app, self._limits, self._loopback = app, limits, loopback
        self._tokens = [sha256(one).digest() for one in tokens]
        self._start, self._number = secrets.token_hex(4), count()  # random ones would each wait for the lock
        self._open = 0  # requests that are not answered yet
        self._left: dict[str, tuple[float, float]] = {}  # client -> requests it may still make, when that was counted
        self._count = Counter("ringfence_requests", "Requests.", ["route", "status"], registry=registry)
        self._time = Histogram("ringfence_request_seconds", "From request to answer.", ["route"], registry=registry)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begin, number, status, started = time.perf_counter(), f"{self._start}{next(self._number):08x}", 500, False
        method = scope["method"]
        scope = {**scope, "method": "GET"} if method == "HEAD" else scope  # the same, without its body

        async def answer(message: Message) -> None:
            nonlocal status, started
            if message["type"] == "http.response.start":
                status, started = message["status"], True
                headers = MutableHeaders(scope=message)
                headers["X-Request-Id"] = number
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            elif method == "HEAD":
                return
            await send(message)
            if method == "HEAD":  # at once: a stream would not end before its job does
                await send({"type": "http.response.body"})

        client, refused = self._admitted(scope)
        self._open += 1
        scope["state"] = {**scope.get("state", {}), "client": client, "came": time.monotonic()}
        try:
            await (refused or self._app)(scope, receive, answer)
        except ClientDisconnect:
            status = 499
        except asyncio.CancelledError:  # the server stops, and waits no longer
            status = 503
            if not started:
                rule, received = "was in work when the server's time to stop was over", f"{self._limits.drain:g} s"
                await told(503, "request", rule, received, "Ask again.")(scope, receive, answer)
        except Exception:
            log.exception(json.dumps({"id": number, "error": "internal"}))
            if not started:
                rule, remedy = "met an error of the server", "Tell the operator this number."
                await told(500, "request", rule, f"id {number}", remedy)(scope, receive, answer)
        finally:
            self._open -= 1
            route = getattr(scope.get("route"), "path", "other")
            seconds = time.perf_counter() - begin
            self._count.labels(route, str(status)).inc()
            self._time.labels(route).observe(seconds)
            if log.isEnabledFor(logging.INFO):
                line = {"id": number, "client": client, "method": method, "path": scope["path"]}
                log.info(json.dumps({**line, "status": status, "ms": round(1000 * seconds, 1)}))

    def _admitted(self, scope: Scope) -> tuple[str, Response | None]:
        """Who asks, and the refusal if it may not."""
        headers, client = Headers(scope=scope), str((scope.get("client") or ("unknown",))[0])
        if scope["path"] in OPEN:
            return client, None
        if not self._tokens:
            host = re.sub(r":\d*$", "", headers.get("host", "")) if self._loopback else "localhost"
            if not is_loopback(host.strip("[]").lower()):
                # A page of somebody else's, whose name leads here, would otherwise be let in by the browser.
                return client, told(
                    421, "Host", "must be this machine", host[:80], "Ask 127.0.0.1, or give it --tokens."
                )
        else:
            scheme, _, token = headers.get("authorization", "").partition(" ")
            offered = sha256(token.strip().encode("utf-8", "surrogateescape")).digest()
            known = [one for one in self._tokens if hmac.compare_digest(one, offered)]  # all of them, always
            if scheme.lower() != "bearer" or not known:
                found = "another token" if scheme.lower() == "bearer" else "another form" if scheme else "none"
                rule, remedy = "must be a token of this server", "Send Authorization: Bearer TOKEN."
                return client, told(401, "Authorization", rule, found, remedy, **{"WWW-Authenticate": "Bearer"})
            client = known[0].hex()[:12]
        if self._open >= MOST_REQUESTS:
            return client, refusal(Busy(f"is taken where fewer than {MOST_REQUESTS} are open", "one more"))
        return client, self._too_often(client)

    def _too_often(self, client: str) -> Response | None:
        """A bucket that fills with the client's rate and holds ten seconds of it, at least one request."""
        rate, now = self._limits.per_minute / 60, time.monotonic()
        most = max(1.0, 10 * rate)
        left, counted = self._left.get(client, (most, now))
        left = min(most, left + (now - counted) * rate)
        if len(self._left) >= MOST_CLIENTS:
            self._left = {name: one for name, one in self._left.items() if (now - one[1]) * rate < most}
        self._left[client] = (max(0.0, left - 1), now)
        if left >= 1:
            return None
        return refusal(Busy(f"{self._limits.per_minute} requests a minute are allowed", "more", (1 - left) / rate))


async def refused(request: Request, error: Any) -> Response:
    """The answer to what a request or its model refused."""
    return refusal(error)


async def misread(request: Request, error: Any) -> Response:
    """The answer where the parameters of a request cannot be read."""
    return refusal(problem_of(error.errors()))


def problem_of(errors: Sequence[Any]) -> RingfenceError:
    """What the framework found wrong with the parameters of a request."""
    first: dict[str, Any] = errors[0] if errors else {"loc": ["request"], "msg": "is wrong"}
    name = ".".join(str(step) for step in first["loc"][1:]) or "request"
    rule, remedy = str(first["msg"]), "See /openapi.json."
    if (kind := first.get("type")) in PLAIN:
        rule, remedy = PLAIN[kind]
        rule = rule.format(**first.get("ctx", {}))
    return ArgumentError(name, rule, str(first.get("input"))[:80] or "nothing", remedy)


def refuse_others(request: Request, known: Collection[str] = ()) -> None:
    """Refuse parameters that no one reads: a misspelt alpha would be answered at the usual one."""
    given = [name for name, _ in request.query_params.multi_items()]
    for name in given:
        if name not in known:
            rule = f"may have the parameters {', '.join(known)}" if known else "has no parameters"
            remedy = "Correct or remove it; noise and norm are those of the certification (/v1/model)."
            raise ArgumentError("address", rule, name[:80], remedy)
        if given.count(name) > 1:
            raise ArgumentError(name, "must be given once", f"{given.count(name)} times", "Keep one of them.")


async def missing(request: Request, error: Any) -> Response:
    """The answer where no route is: nothing at that path, or not by that method."""
    headers = dict(error.headers or {})
    if error.status_code == 405:
        rule, remedy = f"must be {headers.get('Allow', 'another')} here", "Ask by that method."
        return told(405, "method", rule, request.method, remedy, **headers)
    remedy = "Correct it; requests go to /v1/certify."
    if request.url.path.startswith("/v1/jobs"):
        remedy = "Jobs need a server that was started with --jobs FOLDER."
    return told(404, "path", "must be one that /openapi.json lists", request.url.path[:80], remedy, **headers)
