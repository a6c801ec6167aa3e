"""Jobs that nobody works on any more: whoever listens or waits hears so, and a server started anew goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from torch import Tensor, nn

import ringfence as rf
from ringfence.data import Input
from ringfence.sampling import ForwardPlan
from ringfence.serve.app import create_app
from ringfence.serve.client import AnswerError, Client
from ringfence.serve.jobs import Jobs
from ringfence.serve.limits import Limits, Question
from ringfence.serve.served import Served

SHAPE = (1, 2, 2)
MANY = torch.rand(20, 1, 2, 1).expand(20, *SHAPE)
"""More than a model is given at once, so that jobs behind it have nothing in hand; none is decided soon."""


class Breaks(nn.Module):
    """Compares two pixels, until it is told to break."""

    def __init__(self) -> None:
        super().__init__()
        self.broken = False

    def __deepcopy__(self, memo: Any) -> Breaks:
        return self

    def forward(self, x: Tensor) -> Tensor:
        if self.broken:
            raise RuntimeError("the device is gone")
        even = x.flatten(1)[:, 0] - x.flatten(1)[:, 1]
        return torch.stack([even, -even], 1)


def certified(model: nn.Module) -> rf.Certification:
    data = [Input(k, torch.full(SHAPE, 0.1 * k), None, "") for k in range(3)]
    return rf.Certification(model, data, noise=rf.Gaussian(0.5), procedure=rf.Fixed(n=100))


@pytest.fixture
def breaking(
    serve: Callable[..., Served], listen: Callable[[Any], str], tmp_path: Path
) -> Iterator[tuple[Breaks, str]]:
    """A model that can be broken and one that cannot, and where they are served."""
    limits = Limits(draws=10_000_000, per_minute=1_000_000)
    one, execution = Breaks(), rf.Execution(device="cpu", plan=ForwardPlan(200))
    whole = Served(certified(Breaks()), bytes(32), name="whole", limits=Limits(draws=100_000), execution=execution)
    with whole:
        served = serve(certified(one), plan=ForwardPlan(200), draws=10_000_000)
        yield one, listen(create_app([served, whole], limits=limits, jobs=tmp_path))


def names(url: str, job: str, begun: threading.Event | None = None) -> list[str]:
    """Of the events of a job, up to the end of the stream; of an error with what it says."""
    told = list[str]()
    with httpx.stream("GET", f"{url}/v1/jobs/{job}/events", timeout=120) as reply:
        for line in reply.iter_lines():
            if line.startswith("event: "):
                told.append(line[7:])
                if begun is not None and told[-1] in ("bounds", "answer"):
                    begun.set()
            elif line and told[-1] == "error":
                told[-1] += line
    return told


def test_listeners_of_a_broken_model_hear_so(breaking: tuple[Breaks, str]) -> None:
    model, url = breaking
    with Client(url) as client, Client(url, model="whole") as whole, ThreadPoolExecutor(3) as pool:
        first, second = client.submit(MANY, radius=0.1), client.submit(MANY[:2], radius=0.1)
        other = whole.submit(MANY[:3], radius=0.1)
        begun, last = threading.Event(), threading.Event()
        streams = [pool.submit(names, url, job, begun) for job in (first, second)]
        beside = pool.submit(names, url, other, last)
        assert begun.wait(60)
        assert last.wait(60)  # so that the broken model is given nothing more, of which all would hear
        model.broken = True
        for stream in (*(one.result(120) for one in streams), names(url, first)):
            assert stream[-1].startswith("error"), stream[-1]
            assert "started anew" in stream[-1]
        assert "answer" in (told := beside.result(300))
        assert told[-1] == "done", "another model's job goes on"
        for job in (first, second):
            with pytest.raises(AnswerError, match="must be worked on to be waited for"):
                client.wait(job, every=0.01)
        assert client.job(first).stopped
        assert client.job(other).stopped is None


def test_why_a_model_ended_is_told_also_once_the_server_stops_for_it(
    serve: Callable[..., Served], tmp_path: Path
) -> None:
    """Both happen at the same moment, and which one a listener asks after is chance."""
    served = serve(certified(Breaks()))
    served.broken = "a process that has ended"
    jobs = Jobs(tmp_path, {"default": served}, Limits())
    job = jobs.submit("default", MANY[:1], Question(0.001, 0.1), "me")
    jobs.halt()
    told = jobs.state(job, "me")
    served.broken = None
    without = jobs.state(job, "me")
    jobs.close()
    assert told is not None
    assert told.stopped == "a process that has ended"
    assert without is not None
    assert without.stopped == "a server that stops"


def test_waiting_fetches_the_answers_once(breaking: tuple[Breaks, str]) -> None:
    _, url = breaking
    asked = list[httpx.URL]()

    def passed(request: httpx.Request) -> httpx.Response:
        asked.append(request.url)
        return through.handle_request(request)

    through = httpx.HTTPTransport()
    with through, Client(url, model="whole", transport=httpx.MockTransport(passed)) as client:
        job = client.submit(MANY[:5], radius=0.1)
        assert len(client.wait(job, every=0.01)) == 5
    polled = [url.params.get("answers") for url in asked[1:]]
    assert polled == ["false"] * (len(polled) - 1) + [None]
    assert httpx.get(f"{url}/v1/jobs/{job}?answers=false", timeout=60).json()["answers"] == []
    assert httpx.get(f"{url}/v1/jobs/{job}?answer=false", timeout=60).status_code == 422, "misspelt"
