"""A certification under service: the same function, the same draws, batches that requests share."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import ANY, Mock

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import ringfence as rf
from ringfence.data import Input
from ringfence.errors import ArgumentError, DataError, ModelError
from ringfence.lift import MODES
from ringfence.sampling import ForwardPlan
from ringfence.serve.asked import Asked, Bounds
from ringfence.serve.limits import Busy, Gone, Limits, Question
from ringfence.serve.pace import Pace
from ringfence.serve.schemas import Answer
from ringfence.serve.served import Served, Waiting, input_hash
from ringfence.serve.stored import certification_at

Serve = Callable[..., Served]
SHORT = Question(0.001, 0.25, 600.0)


class Brightness(nn.Module):
    """Class 1 where the mean pixel is above 1/2."""

    def forward(self, x: Tensor) -> Tensor:
        side = x.flatten(1).mean(1) - 0.5
        return torch.stack([-side, side], 1)


def votes(record: rf.Record) -> list[list[int]]:
    return [stage.cells["votes"].tolist() for stage in record.stages]


def answer_of(served: Served, asked: Asked) -> Answer:
    return Answer.of(served, asked, asked.answer.result(300))


def test_answers_are_those_of_a_run_with_the_noise_key_as_id(served: Served, digits: list[Tensor]) -> None:
    """What is served is what ``certify`` computes: the operator can derive any answer again."""
    asked = [served.ask(x, SHORT) for x in digits[:6]]
    records = [one.answer.result(300) for one in asked]
    inputs = [Input(served.noise_key(x), x, None, "") for x in digits[:6]]
    again = rf.certify(
        "default",
        inputs,
        noise=rf.Gaussian(0.5),
        procedure=replace(served.test(SHORT), seconds=None),
        execution=rf.Execution(device="cpu", plan=ForwardPlan(100)),
    )
    derived = {record.input_id: record for record in again}
    for record in records:
        other = derived[record.input_id]
        assert votes(record) == votes(other)
        assert (record.prediction, record.radius, record.p_a) == (other.prediction, other.radius, other.p_a)


def between(one: Tensor, other: Tensor) -> Tensor:
    """An input not all of whose draws agree: if they did, other draws would look the same."""
    return (one + other) / 2


def test_repeating_or_asking_otherwise_shows_the_same_draws(served: Served, digits: list[Tensor]) -> None:
    hard = between(*digits[:2])
    first, again = (served.ask(hard, SHORT).answer.result(60) for _ in range(2))
    assert votes(first) == votes(again)
    longer = served.ask(hard, Question(0.001, None, 600.0)).answer.result(60)
    shorter = served.ask(hard, Question(0.001, 0.0, 300.0)).answer.result(60)
    counts = votes(longer)
    assert all(max(one) < sum(one) for one in counts[:2])
    assert votes(first) == counts[: len(first.stages)], "another radius stops elsewhere among the same draws"
    assert votes(shorter) == counts[: len(shorter.stages)]
    assert len(shorter.stages) < len(longer.stages)


def test_a_pixel_secret_or_config_draws_again(served: Served, digits: list[Tensor], serve: Serve) -> None:
    changed = digits[0].clone()
    changed[0, 3, 3] += 1 / 255
    quiet = rf.Certification("default", noise=rf.Gaussian(0.25), procedure=rf.Fixed(n=1000))
    other = serve(quiet, draws=2000)  # the same looks
    elsewhere = Served.__new__(Served)
    vars(elsewhere).update({**vars(served), "_secret": b"another secret, as long"})
    keys = {
        served.noise_key(digits[0]),
        served.noise_key(changed),
        other.noise_key(digits[0]),
        elsewhere.noise_key(digits[0]),
    }
    assert len(keys) == 4
    assert all(-(2**63) <= key < 2**63 for key in keys)


def test_another_alpha_shows_the_same_draws(served: Served, digits: list[Tensor]) -> None:
    """Else whoever asks at a thousand alphas just below 0.001 has a thousand chances of a lucky, signed radius."""
    hard, alphas = between(*digits[:2]), (0.00099, 0.001, 0.05)
    found = [served.ask(hard, Question(one, None, None), background=True).answer.result(120) for one in alphas]
    assert max(votes(found[0])[-1]) < sum(votes(found[0])[-1])
    assert votes(found[0]) == votes(found[1]) == votes(found[2])
    assert found[0].p_a < found[1].p_a < found[2].p_a


def test_other_bytes_of_the_same_input_draw_the_same(served: Served, serve: Serve, digits: list[Tensor]) -> None:
    signed = torch.where(digits[0] == 0, -digits[0], digits[0])
    assert torch.equal(signed, digits[0])
    assert signed.numpy().tobytes() != digits[0].numpy().tobytes()
    assert served.noise_key(signed) == served.noise_key(digits[0])
    exact = serve(rf.Certification("default", noise=rf.Gaussian(0.5, form="exact"), procedure=rf.Fixed(n=100)))
    beside = torch.nextafter(digits[0], torch.tensor(0.5))
    beside = torch.where(digits[0] == 0, digits[0], beside)
    assert not torch.equal(beside, digits[0])
    first, other = (exact.ask(x, Question(0.001, 0.0, 600.0)).answer.result(60) for x in (digits[0], beside))
    assert first.input_id == other.input_id, "both stand for one lattice point"


def test_the_hash_is_of_values_and_shape() -> None:
    x = torch.arange(6.0).reshape(1, 2, 3)
    assert input_hash(x) == input_hash(x.clone())
    assert input_hash(x) == input_hash(x.permute(0, 2, 1).contiguous().permute(0, 2, 1)), "not of strides"
    assert input_hash(x) != input_hash(x.reshape(1, 3, 2))


def test_several_devices_work_on_one_line(served: Served, digits: list[Tensor]) -> None:
    value = served.certification
    execution = rf.Execution(device="cpu", plan=ForwardPlan(100))
    limits = Limits(draws=2000, seconds=600.0, usual_seconds=600.0)
    from_one = [served.ask(x, SHORT).answer.result(60) for x in digits]
    with Served(value, bytes(range(32)), limits=limits, execution=execution, devices=("cpu", "cpu")) as two:
        while two._waiting._idle < 2:
            time.sleep(0.01)
        asked = [two.ask(x, SHORT) for x in digits]
        from_two = [one.answer.result(60) for one in asked]
        assert all(one.drawn > 0 for one in two._samplers), "both had work"
    assert [votes(one) for one in from_two] == [votes(one) for one in from_one]


def test_a_busy_device_leaves_one_for_each_idle_one(served: Served, digits: list[Tensor]) -> None:
    line = Waiting(10, Pace())
    first, second = (Asked(0, x, None, "", question=SHORT, test=served.test(SHORT)) for x in digits[:2])
    line._idle = 1
    line.put(first)
    assert line.take(block=False) is None
    line.put(second)
    assert line.take(block=False) is first
    line.close()
    assert line.take(block=False) is second, "after closing nobody is waited for"


def test_whoever_hears_that_there_is_no_answer_finds_the_line_free(served: Served, digits: list[Tensor]) -> None:
    """It may ask again, or wait for somebody who does."""
    line, free = Waiting(10, Pace()), list[bool]()
    late, job, next_one = (Asked(0, x, None, "", question=SHORT, test=served.test(SHORT)) for x in digits[:3])
    late.leave()

    def hears(_: object) -> None:
        with ThreadPoolExecutor(1) as pool:
            free.append(pool.submit(line._changed.acquire, blocking=False).result(60))
            pool.submit(line._changed.release).exception(60)

    for asked in (late, replace(job, background=True), next_one):
        asked.answer.add_done_callback(hears)
        line.put(asked)
    assert line.take(block=True) is next_one
    line.close()
    assert free == [True, True]


class Gate(nn.Module):
    """Puts everything into class 1 by a margin; once armed, or at that batch, it waits until it is opened."""

    def __init__(self) -> None:
        super().__init__()
        self.opened, self.reached, self.armed = threading.Event(), threading.Event(), False
        self.change, self.at = 0.0, -1
        self.rows: list[int] = []

    def __deepcopy__(self, memo: Any) -> Gate:
        return self

    def forward(self, x: Tensor) -> Tensor:
        if self.armed or len(self.rows) == self.at:
            self.reached.set()
            assert self.opened.wait(600)
        self.rows.append(len(x))
        flat = x.flatten(1)
        return torch.stack([flat[:, 0] - 4.0, flat[:, 0] + 4.0 + self.change * flat[:, 1]], 1)


def gated(serve: Serve, batch: int = 200, **limits: Any) -> tuple[Gate, Served]:
    gate = Gate()
    data = [Input(k, torch.full((1, 2, 2), 0.1 * k), None, "") for k in range(3)]
    value = rf.Certification(gate, data, noise=rf.Gaussian(0.5), procedure=rf.Fixed(n=100))
    return gate, serve(value, plan=ForwardPlan(batch), **limits)


def inputs(count: int) -> list[Tensor]:
    return [torch.full((1, 2, 2), (k + 1) / (count + 1)) for k in range(count)]


def test_requests_in_flight_share_batches(serve: Serve) -> None:
    """50 draws choose and 25 decide: four requests of a batch of 200 take two batches together, not eight."""
    gate, served = gated(serve, seconds=600.0, usual_seconds=600.0)
    question = Question(0.001, 0.0, 600.0)
    served.ask(inputs(1)[0], question).answer.result(60)
    alone = served.load.batches
    gate.armed = True
    first = served.ask(inputs(1)[0], question)
    assert gate.reached.wait(60)
    others = [served.ask(x, question) for x in inputs(4)]
    before = len(gate.rows)
    gate.opened.set()
    for one in [first, *others]:
        assert one.answer.result(60).prediction == 1
    assert alone == 2
    assert len(gate.rows) - before <= 5, "one at a time it would be ten"


def test_a_long_request_does_not_hold_up_a_short_one(serve: Serve) -> None:
    gate, served = gated(serve, batch=100, seconds=600.0, usual_seconds=600.0, draws=200_000)
    gate.armed = True
    long = served.ask(inputs(2)[0], Question(0.001, None, 600.0))
    assert gate.reached.wait(60)
    short = served.ask(inputs(2)[1], Question(0.001, 0.0, 600.0))
    short.answer.add_done_callback(lambda _: long.leave())  # at once, by the model's own thread
    gate.opened.set()
    assert short.answer.result(60).draws == 75
    assert long.answer.result(60).draws < 200_000


def test_who_has_had_the_fewest_draws_is_next(serve: Serve) -> None:
    """In turn, thirty long requests would each get a batch before each of the two that a short one needs."""
    gate, served = gated(serve, batch=100, seconds=600.0, usual_seconds=600.0, draws=200_000)
    gate.armed = True
    long = [served.ask(x, Question(0.001, None, 600.0)) for x in inputs(30)]
    assert gate.reached.wait(60)
    first, gate.opened, gate.at = gate.opened, threading.Event(), len(gate.rows) + 600
    gate.armed = False
    gate.reached.clear()
    first.set()  # now all are there, and none has had more than another
    assert gate.reached.wait(60)
    assert served.load.draws >= 30 * 1000
    short, batches = served.ask(inputs(1)[0], Question(0.001, 0.0, 600.0)), [len(gate.rows)]
    short.answer.add_done_callback(lambda _: batches.append(len(gate.rows)))  # by the model's own thread
    gate.opened.set()
    assert short.answer.result(60).draws == 75
    assert batches[1] - batches[0] < 30
    for one in long:
        one.leave()


def test_time_that_ends_between_two_looks_leaves_what_the_last_one_proved(serve: Serve) -> None:
    """And what was drawn since is nobody's: whoever gets the slot next has its own draws alone."""
    gate, served = gated(serve, batch=100, seconds=600.0, usual_seconds=600.0, draws=100_000)
    x, other = torch.full((1, 2, 2), 0.0), torch.full((1, 2, 2), 0.9)
    gate.at = len(gate.rows) + 7  # the first of two batches of a look
    asked = served.ask(x, Question(0.001, None, 600.0))
    assert gate.reached.wait(60)
    asked.timing.until = time.monotonic()
    gate.opened.set()
    answer = answer_of(served, asked)
    assert answer.stopped == "deadline"
    assert 75 <= answer.draws < served.load.draws
    assert answer.radius > 0
    assert answer.wrong(x) == []
    record = served.ask(other, Question(0.001, None, 600.0)).answer.result(60)
    assert sum(sum(one) for one in votes(record)) == record.draws == served.test(SHORT).most_draws
    assert all(min(one) == 0 for one in votes(record)), "of one class, as all of its draws are"


def test_a_request_that_could_not_be_answered_in_time_is_refused_at_once(serve: Serve) -> None:
    gate, served = gated(serve, seconds=600.0, usual_seconds=600.0)
    served.pace.lead = Mock(seconds=3000.0)
    gate.armed = True
    first = served.ask(inputs(1)[0], Question(0.001, 0.0, 600.0))  # nothing else to do: it is tried
    assert gate.reached.wait(60)
    with pytest.raises(Busy, match="to a first answer"):
        served.ask(inputs(1)[0], Question(0.001, 0.0, 600.0))
    served.ask(inputs(1)[0], Question(0.001, 0.0, 9000.0))
    late = time.monotonic() - 4000.0  # it came long ago, and little is left
    with pytest.raises(Busy, match="to a first answer"):
        served.ask(inputs(1)[0], Question(0.001, 0.0, 9000.0), came=late)
    gate.opened.set()
    assert first.answer.result(60).prediction == 1


def test_each_request_has_its_own_settings_and_stops_when_it_is_decided(served: Served, digits: list[Tensor]) -> None:
    questions = [Question(a, r, 600.0) for a in (0.01, 0.0001) for r in (0.0, 0.25, None)]
    asked = [served.ask(x, question) for x in digits[:4] for question in questions]
    answers = [answer_of(served, one) for one in asked]
    for one, answer in zip(asked, answers, strict=True):
        assert answer.wrong(one.x) == []
        assert answer.asked == one.question
        assert answer.stopped in (("draws",) if one.question.radius is None else ("decided", "draws"))
        assert answer.draws == sum(stage.draws for stage in answer.stages)
    draws = [answer.draws for answer in answers]
    assert min(draws) < 200 < 2000 < max(draws)


def test_a_budget_ends_at_a_look_that_is_stored(serve: Serve) -> None:
    gate, served = gated(serve, batch=100, seconds=600.0, usual_seconds=600.0, draws=10_000_000)
    looks: list[Bounds] = []

    def watch(bounds: Bounds) -> None:
        looks.append(bounds)
        if len(looks) == 3:
            asked.timing.until = time.monotonic()

    gate.armed = True
    asked = served.ask(inputs(1)[0], Question(0.001, None, 600.0), watch=watch)
    gate.opened.set()
    answer = answer_of(served, asked)
    assert answer.stopped == "deadline"
    assert answer.draws == looks[-1].draws < 10_000_000
    assert answer.radius > 0
    assert answer.wrong() == []


def test_a_job_waits_for_its_first_look_however_short_its_budget(served: Served, digits: list[Tensor]) -> None:
    asked = served.ask(digits[1], Question(0.001, None, 1e-6), background=True)
    answer = answer_of(served, asked)
    assert (answer.stopped, answer.draws) == ("deadline", 75)
    assert answer.wrong(digits[1]) == []


def test_bounds_grow_while_a_request_is_watched(served: Served, digits: list[Tensor]) -> None:
    heard: list[Bounds] = []
    record = served.ask(digits[0], Question(0.001, None, 600.0), watch=heard.append).answer.result(60)
    radii = [one.radius for one in heard] + [record.radius]
    assert len(heard) == len(record.stages) - 1
    assert radii == sorted(radii)
    assert [one.draws for one in heard] == np.cumsum([stage.draws for stage in record.stages])[:-1].tolist()
    assert {one.prediction for one in heard} <= {record.prediction, rf.ABSTAIN}


def test_more_than_it_takes_is_refused_and_what_was_taken_is_answered(serve: Serve) -> None:
    gate, served = gated(serve, waiting=2, together=1, seconds=600.0, usual_seconds=600.0)
    question = Question(0.001, 0.0, 600.0)
    gate.armed = True
    taken = [served.ask(inputs(1)[0], question)]
    assert gate.reached.wait(60)
    taken += [served.ask(inputs(1)[0], question) for _ in range(2)]
    with pytest.raises(Busy, match="waits where 2 others do already"):
        served.ask(inputs(1)[0], question)
    gate.opened.set()
    assert {one.answer.result(60).prediction for one in taken} == {1}


def test_a_request_whose_time_is_over_before_its_turn_gets_no_answer(serve: Serve) -> None:
    gate, served = gated(serve, seconds=600.0, usual_seconds=600.0)
    gate.armed = True
    first = served.ask(inputs(1)[0], Question(0.001, 0.0, 600.0))
    assert gate.reached.wait(60)
    second = served.ask(inputs(1)[0], Question(0.001, 0.0, 600.0))
    second.timing.came -= 600.0  # as if it had waited for so long
    gate.opened.set()
    assert first.answer.result(60).prediction == 1
    with pytest.raises(Gone, match="no time left"):
        second.answer.result(60)


def test_leaving_before_its_turn_harms_nobody_else(serve: Serve) -> None:
    """Also without a budget, which only programs that ask by themselves can leave out."""
    gate, served = gated(serve, seconds=600.0, usual_seconds=600.0)
    gate.armed = True
    first = served.ask(inputs(1)[0], Question(0.001, 0.0))
    assert gate.reached.wait(60)
    second = served.ask(inputs(1)[0], Question(0.001, 0.0))
    second.leave()
    gate.opened.set()
    assert first.answer.result(60).prediction == 1
    with pytest.raises(Gone, match="no time left"):
        second.answer.result(60)
    assert served.broken is None


def test_a_model_that_changes_answers_nobody(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    gate, served = gated(serve, seconds=600.0, usual_seconds=600.0)
    gate.armed = True
    first, *others = inputs(3)
    asked = [served.ask(x, Question(0.001, 0.0, 600.0)) for x in (first, first, *others)]
    assert gate.reached.wait(60)
    gate.change = 50.0
    gate.opened.set()
    for one in asked:
        with pytest.raises(Gone, match="stays as it was"):
            one.answer.result(60)
    assert served.broken is not None
    with pytest.raises(Gone, match="must stay the same while it is certified"):
        served.ask(inputs(1)[0], SHORT)
    (told,) = caplog.messages
    assert json.loads(told) == {"error": "model", "model": "default", "why": ANY}, "the operator hears of it"
    assert "; got " in json.loads(told)["why"]
    assert "; got " not in served.broken, "what was found may be words of the model's own"


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, MemoryError])
def test_whatever_ends_a_model_nobody_waits_for_it(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: type[BaseException]
) -> None:
    """Also what code of models may raise that is no Exception: its thread would end unseen."""
    _, served = gated(serve, seconds=600.0, usual_seconds=600.0)
    monkeypatch.setattr(served._samplers[0], "step", Mock(side_effect=error))
    with pytest.raises(Gone, match="stays as it was"):
        served.ask(inputs(1)[0], SHORT).answer.result(60)
    assert served.broken == error.__name__
    assert error.__name__ in caplog.text


def test_closing_answers_what_was_taken(serve: Serve) -> None:
    gate, served = gated(serve, seconds=600.0, usual_seconds=600.0, drain=600.0)
    gate.armed = True
    asked = [served.ask(x, Question(0.001, 0.0, 600.0)) for x in inputs(3)]
    assert gate.reached.wait(60)
    job = served.ask(inputs(1)[0], Question(0.001, 0.0, None), background=True)
    closing = threading.Thread(target=served.close)
    closing.start()
    assert job.answer.exception(60) is not None, "jobs that have not begun stay undone"
    gate.opened.set()
    closing.join(60)
    assert [one.answer.result(0).prediction for one in asked] == [1, 1, 1]
    with pytest.raises(Gone, match="was not begun"):
        job.answer.result(0)
    with pytest.raises(Gone, match="not taken any more"):
        served.ask(inputs(1)[0], SHORT)


def test_a_model_that_hangs_does_not_keep_the_server_from_ending(serve: Serve) -> None:
    gate, served = gated(serve, seconds=600.0, usual_seconds=600.0, drain=0.1)
    gate.armed = True
    asked = served.ask(inputs(1)[0], Question(0.001, 0.0, 600.0))
    assert gate.reached.wait(60)
    closing = threading.Thread(target=served.close, daemon=True)
    closing.start()
    closing.join(60)
    waits = closing.is_alive()
    gate.opened.set()
    assert asked.answer.result(300).prediction == 1
    assert not waits


def test_a_job_that_is_taken_while_the_model_closes_is_left_too(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the end would wait for all of its draws: it is neither in line any more nor yet in work."""
    _, served = gated(serve, draws=100_000, seconds=600.0, usual_seconds=600.0)
    taken, closed, take, (worker,) = threading.Event(), threading.Event(), served._waiting.take, served._threads

    def late(*parts: Any, **how: Any) -> Asked | None:
        found = take(*parts, **how)
        if found is not None and found.background:
            taken.set()
            assert closed.wait(60)
        return found

    monkeypatch.setattr(served._waiting, "take", late)
    monkeypatch.setattr(served, "_threads", [Mock(join=lambda seconds: (closed.set(), worker.join(60)))])
    served.ask(inputs(1)[0], SHORT).answer.result(60)  # since when it takes by what stands above
    job = served.ask(inputs(1)[0], Question(0.001, None, None), background=True)
    assert taken.wait(60)
    served.close()
    assert job.timing.left
    assert job.answer.done()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"procedure": rf.Softmax(n=100)}, "class that most noisy copies vote for"),
        ({"classifier": rf.lanes("default", "default:1", votes=["soft", "hard"])}, "one lane"),
        ({"classifier": "patches(default, resize=32, size=28, count=2, noise=patch, form=paper)"}, "must be sound"),
    ],
    ids=["scores", "lanes", "paper"],
)
def test_other_claims_are_not_served(options: dict[str, Any], told: str) -> None:
    value = rf.Certification(**{"classifier": "default", "noise": rf.Gaussian(0.5), **options})
    with pytest.raises(ArgumentError, match=told):
        Served(value, bytes(32))


@pytest.mark.parametrize("mode", MODES)
def test_patches_drawn_for_each_input_are_not_served(serve: Serve, mode: str) -> None:
    """The key of an input follows from its values, and with it the patches: x' beside x has others, so that x could be
    certified as one class and x' as another, far within either radius."""
    image = torch.cat([torch.ones(1, 8, 4), torch.zeros(1, 8, 4)], 2)
    for sampling in ("random", "dense"):
        cut = {"size": 4, "resize": 9, "count": 2, "noise": mode, "sampling": sampling}
        value = rf.Certification(rf.patches(Brightness(), **cut), [image], noise=rf.Gaussian(0.25))
        if sampling == "random":
            with pytest.raises(ArgumentError, match="a perturbed one would get other patches"):
                serve(value)
        else:
            served = serve(value)
            assert answer_of(served, served.ask(image, SHORT)).sound


def test_inputs_must_fit(served: Served, serve: Serve, digits: list[Tensor]) -> None:
    with pytest.raises(ArgumentError, match=r"shape \(1, 28, 28\)"):
        served.ask(torch.zeros(1, 28, 27), SHORT)
    with pytest.raises(ArgumentError, match="cannot be more than"):
        served.ask(digits[0], Question(0.001, 9.0, 1.0))
    exact = serve(rf.Certification("default", noise=rf.Gaussian(0.5, form="exact"), procedure=rf.Fixed(n=100)))
    assert answer_of(exact, exact.ask(digits[0], Question(0.001, 0.0, 600.0))).wrong() == []
    with pytest.raises(DataError, match="on the lattice of step 1/255"):
        exact.ask(digits[0] * 0.999, SHORT)


def test_questions_stay_within_the_limits() -> None:
    limits = Limits(least_alpha=1e-4, most_alpha=0.01, seconds=5)
    assert Question.within(limits, None, None, None) == Question(0.001, None, 2.0)
    assert Question.within(limits, None, 0.5, None, job=True) == Question(0.001, 0.5, None)
    for alpha, radius, seconds in [(0.02, None, None), (1e-5, None, None), (None, -1.0, None), (None, None, 6.0)]:
        with pytest.raises(ArgumentError):
            Question.within(limits, alpha, radius, seconds)
    with pytest.raises(ArgumentError, match="usual_seconds"):
        Limits(seconds=1.0)


def test_a_run_folder_is_served_by_what_it_was_certified_with(tmp_path: Path, digits: list[Tensor]) -> None:
    weights, data = tmp_path / "w.safetensors", tmp_path / "d.npz"
    import safetensors.torch as safe

    module = rf.load_model("default").module
    state = {key.removeprefix("module."): value for key, value in module.state_dict().items()}
    safe.save_file(state, weights)
    np.savez(data, x=np.stack([(x * 255).round().numpy().astype(np.uint8)[0] for x in digits[:3]]))
    value = rf.Certification(f"lenet@{weights}", str(data), noise=rf.Gaussian(0.5), procedure=rf.Fixed(n=100))
    run = value.run(tmp_path / "run")
    assert certification_at(tmp_path / "run").config() == run.config
    data.unlink()  # nobody needs it any more
    here = rf.Execution(device="cpu", plan=ForwardPlan(100))
    with Served(certification_at(tmp_path / "run"), bytes(32), execution=here) as served:
        assert served.config_hash == run.digest
        assert served.shape == (1, 28, 28)
        assert answer_of(served, served.ask(digits[0], SHORT)).wrong(digits[0]) == []
    safe.save_file({key: entry + 0.01 for key, entry in state.items()}, weights)
    with pytest.raises(ModelError, match=r"what the config was made of.*weights"):
        certification_at(tmp_path / "run")


def test_what_is_drawn_is_what_the_config_says(serve: Serve, served: Served, digits: list[Tensor]) -> None:
    """An open form is float here, because requests may lie anywhere; one that was named is the one drawn."""
    assert (served.config.noise.form, served.certification.noise.law.form) == ("float", "float")
    noise = rf.Gaussian(0.5, form="exact")
    exact = serve(rf.Certification("default", noise=noise, procedure=rf.Fixed(n=1000)))
    assert (exact.config.noise.form, exact.certification.noise.law.lattice) == ("exact", 255)
    record = exact.ask(digits[0], SHORT).answer.result(60)
    inputs = [Input(exact.noise_key(digits[0]), digits[0], None, "")]
    test = replace(exact.test(SHORT), seconds=None)
    how = rf.Execution(device="cpu", plan=ForwardPlan(100))
    (again,) = rf.certify("default", inputs, noise=noise, procedure=test, execution=how)
    assert votes(record) == votes(again)
    below = digits[0].clone()
    below[0, 20:] = 0  # another picture, with the same first rows
    assert exact.noise_key(below) != exact.noise_key(digits[0])
    assert exact.noise_key(digits[0] * (1 - 2**-22)) == exact.noise_key(digits[0])
