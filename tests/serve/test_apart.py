"""Models in a process of their own: the same answers, to those who asked, and nobody waits for one that has ended."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, wait
from functools import partial
from multiprocessing import Pipe, active_children, get_context
from pathlib import Path
from typing import Any

import pytest
import torch
from fastapi.testclient import TestClient
from torch import Tensor

import ringfence as rf
from ringfence.errors import ArgumentError, Problems, RingfenceError, StoreError
from ringfence.sampling import ForwardPlan
from ringfence.serve.apart import Lost, ModelsProcess, in_own_process
from ringfence.serve.app import create_app
from ringfence.serve.asked import Bounds
from ringfence.serve.channel import Channel
from ringfence.serve.host import host_models
from ringfence.serve.limits import Busy, Gone, Limits, Question
from ringfence.serve.schemas import Answer, ModelInfo
from ringfence.serve.served import Served

SECRET = bytes(range(32))
LONG = Question(0.001, None, 600.0)
pytestmark = pytest.mark.slow


def models(**limits: Any) -> list[Served]:
    """The embedded network twice, once with noise on a lattice; called in the other process."""
    torch.set_num_threads(1)
    execution = rf.Execution(device="cpu", plan=ForwardPlan(100))
    noises = {"default": rf.Gaussian(0.5), "exact": rf.Gaussian(0.25, form="exact")}
    return [
        Served(
            rf.Certification("default", noise=noise, procedure=rf.Fixed(n=1000)),
            SECRET,
            name=name,
            limits=Limits(**limits),
            execution=execution,
        )
        for name, noise in noises.items()
    ]


@pytest.fixture(scope="module")
def apart() -> Iterator[ModelsProcess]:
    with in_own_process(partial(models, draws=2000, seconds=600.0, usual_seconds=60.0)) as found:
        yield found
        for one in found.models:
            one.close()


@pytest.fixture(scope="module")
def here() -> Iterator[list[Served]]:
    found = models(draws=2000, seconds=600.0, usual_seconds=60.0)
    yield found
    for one in found:
        one.close()


def told(model: Any, asked: Any) -> dict[str, Any]:
    """The answer, but for how long it took."""
    return Answer.of(model, asked, asked.answer.result(300)).model_dump(exclude={"seconds"})


def test_every_request_has_its_own_answer_the_same_as_in_one_process(
    apart: ModelsProcess, here: list[Served], digits: list[Tensor]
) -> None:
    questions = [Question(alpha, radius, 600.0) for alpha in (0.001, 0.01) for radius in (0.0, 0.1, None)]
    cases = [(place, x, question) for place in (0, 1) for x in digits[:4] for question in questions]
    there = [apart.models[place].ask(x, question) for place, x, question in cases]  # all at once
    for (place, x, question), asked in zip(cases, there, strict=True):
        assert told(apart.models[place], asked) == told(here[place], here[place].ask(x, question))
    assert len({asked.answer.result().input_id for asked in there}) == len(cases) / 6, "one for each input"


def test_a_model_is_described_as_in_one_process(apart: ModelsProcess, here: list[Served]) -> None:
    for one, other in zip(apart.models, here, strict=True):
        assert ModelInfo.of(one, None) == ModelInfo.of(other, None)
        assert one.config_hash == other.config_hash


def test_every_route_says_what_it_says_in_one_process(
    apart: ModelsProcess, here: list[Served], digits: list[Tensor]
) -> None:
    def said(models: list[Any]) -> Iterator[Any]:
        client = TestClient(create_app(models), base_url="http://127.0.0.1")  # without its end, which is the models'
        for path in ("openapi.json", "v1/model", "healthz", "readyz", "", "v1/certify", "v1/jobs"):
            reply = client.get(f"/{path}")
            yield path, reply.status_code, reply.text
        yield {line.split("{")[0].split()[0] for line in client.get("/metrics").text.splitlines() if line[0] != "#"}
        for asked in ("radius=0.1", "radius=99", "alpha=0.5", "seconds=1e-9", "seconds=1e9", "model=x", "signed=true"):
            reply = client.post(f"/v1/certify?{asked}", json={"input": digits[0].tolist()})
            yield asked, reply.status_code, {key: one for key, one in reply.json().items() if key != "seconds"}

    there = list(said(apart.models))
    assert there == list(said(here))
    assert [code for _, code, _ in there[:7]] == [200, 200, 200, 200, 200, 405, 404]
    assert [code for _, code, _ in there[8:]] == [200, 422, 422, 503, 422, 404, 422]


def test_what_no_model_could_answer_is_refused_at_once(apart: ModelsProcess, digits: list[Tensor]) -> None:
    first, exact = apart.models
    with pytest.raises(ArgumentError, match="must have the shape"):
        first.ask(digits[0][:, 1:], LONG)
    with pytest.raises(ArgumentError, match="cannot be more than"):
        first.ask(digits[0], Question(0.001, 100.0, 60.0))
    with pytest.raises(RingfenceError, match="input"):
        exact.ask(digits[0] + 0.3 / 255, LONG)


def test_bounds_are_heard_and_whoever_leaves_is_let_go(digits: list[Tensor]) -> None:
    with in_own_process(partial(models, draws=100_000_000, seconds=600.0)) as apart:
        model, heard, begun = apart.models[0], list[Bounds](), threading.Event()

        def watch(bounds: Bounds) -> None:
            heard.append(bounds)
            if len(heard) > 1:  # the first are of the draws that choose a class: whoever leaves then has no answer
                begun.set()

        long, job = model.ask(digits[0], LONG, watch=watch), model.ask(digits[1], LONG, background=True)
        waiting = model.ask(digits[2], LONG)
        assert begun.wait(60)
        while not model.load.in_work:  # told now and then, also where nothing is answered
            time.sleep(0.01)
        long.leave()
        waiting.leave()
        record = long.answer.result(60)
        assert record.draws < 100_000_000
        assert long.timing.late
        assert [one.draws for one in heard] == sorted(one.draws for one in heard)
        assert all(isinstance(one, Bounds) and one.radius <= record.radius for one in heard)
        assert not job.answer.done()
        model.close()
        assert isinstance(job.answer.exception(60), Gone) or job.timing.left, "a job stays undone"
        with pytest.raises(Gone):
            model.ask(digits[0], LONG).answer.result(60)


def test_what_the_model_refuses_is_refused(digits: list[Tensor]) -> None:
    with in_own_process(partial(models, draws=100_000_000, seconds=600.0, together=1, waiting=1)) as apart:
        asked = [apart.models[0].ask(x, LONG) for x in digits]  # more than it has slots, however fast it takes them
        (refused, *_), _ = wait(
            [one.answer for one in asked], 120, FIRST_COMPLETED
        )  # which ones, the model's pace says
        told = refused.exception()
        assert isinstance(told, Busy)
        assert told.after >= 1
        for one in asked:
            one.leave()


def killed(digits: list[Tensor]) -> Iterator[BaseException | None]:
    """What those hear who wait for a model, or ask it, when its process is killed."""
    before, heard = set(active_children()), threading.Event()
    with in_own_process(partial(models, draws=100_000_000, seconds=600.0)) as apart:
        apart.when_lost(heard.set)
        model, (process,) = apart.models[0], set(active_children()) - before
        asked = model.ask(digits[0], LONG)
        assert process.pid is not None
        for number in (signal.SIGTERM, signal.SIGINT):  # as systems and terminals tell all: requests are to end first
            os.kill(process.pid, number)
        assert not heard.wait(0.2)
        os.kill(process.pid, signal.SIGKILL)
        yield asked.answer.exception(60)
        assert heard.wait(60)
        with pytest.raises(Gone) as caught:
            model.ask(digits[0], LONG)
        yield caught.value
        yield model.ask(digits[0], LONG, background=True).answer.exception(60)
        model.close()


def test_a_process_that_is_killed_leaves_nobody_waiting(digits: list[Tensor]) -> None:
    told: list[BaseException | None] = []
    with pytest.raises(Lost, match="code -9"):
        told.extend(killed(digits))
    assert [type(one) for one in told] == [Gone, Gone, Gone]


def ask_until_refused(model: Any) -> None:
    while True:
        model.check_room(LONG, time.monotonic())
        time.sleep(0.01)


def test_a_process_that_hangs_is_not_waited_for(digits: list[Tensor], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringfence.serve.channel.SILENCE", 2.0)
    monkeypatch.setattr("ringfence.serve.apart.LEAVE", 0.5)
    before = set(active_children())
    with in_own_process(partial(models, draws=2000, seconds=600.0, drain=0.5)) as apart:
        model, (process,) = apart.models[0], set(active_children()) - before
        assert process.pid is not None
        os.kill(process.pid, signal.SIGSTOP)
        with pytest.raises(Gone, match="told nothing for"):
            ask_until_refused(model)
        monkeypatch.setattr("ringfence.serve.channel.SILENCE", 600.0)
        os.kill(process.pid, signal.SIGCONT)
        while model.broken:
            time.sleep(0.01)
        assert model.ask(digits[0], Question(0.001, 0.0, 600.0)).answer.result(60).prediction == 7
        os.kill(process.pid, signal.SIGSTOP)
        model.close()
    assert not process.is_alive()


def unheard() -> list[Served]:
    """None, in a process whose words nobody reads any more."""
    here, there = os.pipe()
    os.dup2(there, 2)
    os.close(here)
    return []


def test_models_end_with_those_who_read_requests_and_their_words() -> None:
    """An end that had to be told first would keep the device for ever."""
    spawn = get_context("spawn")
    here, there = spawn.Pipe()
    process = spawn.Process(target=host_models, args=(there, unheard))
    process.start()
    there.close()
    while ("ready", []) not in pickle.loads(here.recv_bytes()):
        pass
    here.close()
    process.join(60)
    code = process.exitcode
    process.kill()
    process.join()
    assert code == 1


def forked(running: Path) -> list[Served]:
    """None, and a process that code of a model left behind, which has all that was open while that file is there."""
    if not os.fork():
        until = time.monotonic() + 600
        while running.exists() and time.monotonic() < until:
            time.sleep(0.05)
        os._exit(0)
    return []


def kill_the_one_that_forked(running: Path) -> None:
    before, heard = set(active_children()), threading.Event()
    with in_own_process(partial(forked, running)) as apart:
        apart.when_lost(heard.set)
        (process,) = set(active_children()) - before
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        assert heard.wait(60)


def test_a_process_that_forked_is_seen_to_end(tmp_path: Path) -> None:
    """While what it forked lives on."""
    (running := tmp_path / "running").touch()
    try:
        with pytest.raises(Lost, match="code -9"):
            kill_the_one_that_forked(running)
    finally:
        running.unlink()


def refused() -> list[Served]:
    raise Problems([ArgumentError("sigma", "must be above 0", -1, "Raise it."), StoreError("x", "y", "z", "w")])


def fallen() -> list[Served]:
    os._exit(3)


def test_what_is_wrong_with_a_model_is_told_where_it_was_asked_for() -> None:
    before = set(active_children())
    with pytest.raises(Problems, match="sigma: must be above 0; got -1") as caught, in_own_process(refused):
        raise AssertionError
    assert [type(one) for one in caught.value.problems] == [ArgumentError, StoreError]
    with pytest.raises(Lost, match="code 3"), in_own_process(fallen):
        raise AssertionError
    assert set(active_children()) <= before


@pytest.mark.parametrize(
    "error", [Busy("waits", "more", 7.5), Gone("stops", "it"), ArgumentError("a", "b", object(), "d"), Lost(-9)]
)
def test_errors_are_the_same_in_another_process(error: RingfenceError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert {**vars(again), "received": ""} == {**vars(error), "received": ""}
    assert again.told({"a": "--a"}) == error.told({"a": "--a"})


def test_the_models_process_has_no_part_in_http() -> None:
    """Nor its memory, nor whatever may be wrong with it, beside the secret."""
    program = "import sys, ringfence.serve.host; print({'fastapi', 'uvicorn', 'cryptography'} & {*sys.modules})"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout == "set()\n"


def test_what_gathers_goes_in_one_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringfence.serve.channel.BEAT", 600.0)
    here, there = Pipe()
    held, heard = threading.Event(), list[Any]()

    def news() -> Any:
        assert held.wait(60)
        return ("news",)

    channel = Channel(here, {}, lambda: None, news)
    Channel(there, {"news": partial(heard.append, "news"), "item": heard.append}, lambda: None)
    for number in range(100):
        channel.put("item", number)
    held.set()
    while len(heard) - heard.count("news") < 100:
        time.sleep(0.01)
    assert heard.count("news") <= 2, "those that came while the first was held go together"
    assert heard[0] == "news", "whoever hears that there is no answer may ask why"
    assert [item for item in heard if item != "news"] == list(range(100))
    here.close()


def test_what_cannot_be_told_ends_the_line(caplog: pytest.LogCaptureFixture) -> None:
    here, _there = Pipe()
    ended = threading.Event()
    Channel(here, {}, ended.set).put("item", threading.Lock())
    assert ended.wait(60), "somebody would wait for it"
    assert "cannot pickle" in caplog.text
