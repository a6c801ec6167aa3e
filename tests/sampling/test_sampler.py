"""The engine counts exactly the draws asked for, whatever the batch, and memory does not grow with them."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from toys import BucketLanes, Buckets, LittleMemory, SomeInvalid, draws_of, votes_of

from ringfence import Gaussian
from ringfence.classifiers import KConsensus
from ringfence.sampling import CHUNK, ForwardPlan, Readout, Sampler, Votes
from ringfence.sampling.readout import Scores
from ringfence.sampling.supply import Supply
from ringfence.types import IntArray

SHAPE = (3,)
NOISE = Gaussian(0.5)
SEED = 7
X = torch.tensor([[0.2, 0.0, 0.0], [0.6, 1.0, 0.0], [0.9, 0.5, 0.5], [-0.3, 0.0, 1.0]])


@contextmanager
def engine(module: nn.Module, batch: int, plans: list[ForwardPlan] | None = None) -> Iterator[Sampler]:
    on_plan = None if plans is None else plans.append
    made = Sampler(module.eval(), NOISE, (Votes(),), 4, ForwardPlan(batch), torch.device("cpu"), SHAPE, SEED, on_plan)
    yield made


def collect(running: Sampler) -> dict[int, list[IntArray]]:
    """slot -> tallies of its requests (lanes, cells), in the order they became complete."""
    found: dict[int, list[IntArray]] = {}
    while (finished := running.step()) is not None:
        votes = finished.tally.cells["votes"].reshape(len(finished.slots), running.lanes, 5)
        for slot, counts in zip(finished.slots, votes, strict=True):
            found.setdefault(int(slot), []).append(counts)
        assert (finished.tally.cells["votes"].sum(1) == finished.tally.draws).all()
    return found


def by_hand(module: nn.Module, x: Tensor, input_id: int, stage: int, start: int, n: int) -> IntArray:
    return votes_of(module, draws_of(NOISE, SHAPE, SEED, input_id, stage, start, n) + x, 4)


@pytest.mark.parametrize("batch", [1, 7, 100, 130, 1000])
def test_tallies_are_those_of_the_draws_asked_for(batch: int) -> None:
    module = Buckets()
    asked = [(0, 0, 100), (0, 0, 37), (1, 250, 130), (2, 99, 2), (1, 0, 500)]
    with engine(module, batch) as running:
        slots = [running.admit(10 + k, x) for k, x in enumerate(X)]
        for number, slot in enumerate(slots):
            running.submit(slot, *asked[number])
        found = collect(running)
        assert running.drawn == sum(draws for _, _, draws in asked[: len(slots)])
        assert module.largest_batch == batch
    for number, slot in enumerate(slots):
        (counts,) = found[slot]
        assert counts[0].tolist() == by_hand(module, X[number], 10 + number, *asked[number]).tolist()


def test_a_request_in_pieces_is_the_request_as_a_whole() -> None:
    module = Buckets()
    pieces = [(0, 30), (30, 70), (100, 1), (101, 199), (300, 25)]
    with engine(module, 64) as running:
        slot = running.admit(3, X[0])
        total = np.zeros(5, np.int64)
        for start, draws in pieces:
            running.submit(slot, 1, start, draws)
            total += collect(running)[slot][0][0]
    assert total.tolist() == by_hand(module, X[0], 3, 1, 0, 325).tolist()


def test_large_batches_cut_no_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even where rows are asked again: a chunk that is cut is drawn by itself, and would be in each later batch."""
    cut: list[int] = []
    chunk = Supply._chunk
    monkeypatch.setattr(Supply, "_chunk", lambda self, key: cut.append(key) or chunk(self, key))  # type: ignore[func-returns-value]
    module = Buckets()
    with engine(module, 2000) as running:
        running.submit(running.admit(3, X[0]), 1, 0, 40_000)
        (counts,) = collect(running)[0]
        assert running.confirmed > 0
    assert cut == []
    assert counts[0].tolist() == by_hand(module, X[0], 3, 1, 0, 40_000).tolist()


def test_a_freed_slot_starts_from_zero() -> None:
    module = Buckets()
    with engine(module, 20) as running:
        for round_, x in enumerate(X):
            slot = running.admit(round_, x)
            running.submit(slot, 0, 0, 150)
            assert collect(running)[slot][0][0].tolist() == by_hand(module, x, round_, 0, 0, 150).tolist()
            running.release(slot)


def test_invalid_scores_are_one_more_outcome() -> None:
    module = SomeInvalid()
    with engine(module, 50) as running:
        slot = running.admit(0, X[1])
        running.submit(slot, 0, 0, 400)
        counts = collect(running)[slot][0][0]
    assert counts.tolist() == by_hand(module, X[1], 0, 0, 0, 400).tolist()
    assert counts[-1] > 50
    assert counts.sum() == 400


def test_lanes_share_their_draws() -> None:
    module = BucketLanes()
    with engine(module, 90) as running:
        assert running.lanes == 2
        slot = running.admit(5, X[2])
        running.submit(slot, 0, 0, 333)
        counts = collect(running)[slot][0]
    for lane, part in enumerate((module.one, module.two)):
        assert counts[lane].tolist() == by_hand(part, X[2], 5, 0, 0, 333).tolist()
    assert counts[0].tolist() != counts[1].tolist()


def test_out_of_memory_halves_the_batch_and_loses_nothing() -> None:
    module, plans = LittleMemory(1000), list[ForwardPlan]()
    with engine(module, 400, plans) as running:
        assert plans == []
        module.limit = 120  # memory is taken by somebody else from now on
        slots = [running.admit(k, x) for k, x in enumerate(X)]
        for slot in slots:
            running.submit(slot, 1, 0, 730)
        found = collect(running)
        assert running.plan.batch == 100
    assert [plan.batch for plan in plans] == [200, 100]
    assert module.refused == 2
    for number, slot in enumerate(slots):
        assert found[slot][0][0].tolist() == by_hand(module.inner, X[number], number, 1, 0, 730).tolist()


def test_memory_that_is_short_from_the_start() -> None:
    plans = list[ForwardPlan]()
    with engine(LittleMemory(60), 200, plans) as running:
        assert running.plan.batch == 50
        slot = running.admit(0, X[0])
        running.submit(slot, 0, 0, 100)
        assert collect(running)[slot][0].sum() == 100
    assert [plan.batch for plan in plans] == [100, 50]


def test_short_batches_are_padded_to_the_plan() -> None:
    class Sizes(Buckets):
        def __init__(self) -> None:
            super().__init__()
            self.sizes: set[int] = set()

        def forward(self, x: Tensor) -> Tensor:
            self.sizes.add(len(x))
            return super().forward(x)

    module = Sizes()
    with engine(module, 64) as running:
        module.sizes.clear()  # rows are asked by themselves in the check
        slot = running.admit(0, X[0])
        running.submit(slot, 0, 0, 65)
        collect(running)
    assert module.sizes == {64}


def test_nothing_grows_with_the_number_of_draws() -> None:
    def tensors() -> list[Tensor]:
        gc.collect()
        return [one for one in gc.get_objects() if issubclass(type(one), Tensor)]

    earlier = tensors()  # of other tests: held here, so that none of them dies meanwhile
    with engine(Buckets(), 100) as running:
        slot = running.admit(0, X[0])
        living, queued = [], []
        for draws in (2_000, 20_000, 200_000):
            running.submit(slot, 0, 0, draws)
            queued.append(len(running._packer._queue))
            while (finished := running.step()) is not None and not len(finished.slots):
                assert not running._counts.travelling  # on the CPU nothing is under way between batches
            living.append(len(tensors()))
    assert queued == [1, 1, 1]
    assert len(earlier) < min(living)
    assert max(living) - min(living) <= 1  # the rows that filled up the last batch may be at hand


def test_an_idle_engine_says_so_and_admits_only_what_it_needs() -> None:
    with engine(Buckets(), 200) as running:
        assert running.step() is None
        admitted = 0
        while running.hungry:
            slot = running.admit(admitted, X[0])
            running.submit(slot, 0, 0, CHUNK)
            admitted += 1
        assert admitted == 4  # two full batches are queued
        assert running.slots >= admitted


def test_time_is_shared_out_between_the_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock on which every batch takes as long: one of a busy machine may stand still for hundreds."""
    monkeypatch.setattr("ringfence.sampling.sampler.time", Mock(perf_counter=count().__next__))
    with engine(Buckets(), 100) as running:
        one, two = running.admit(0, X[0]), running.admit(1, X[1])
        running.submit(one, 0, 0, 9000)
        running.submit(two, 0, 0, 100)
        collect(running)
        assert running.seconds[one] > running.seconds[two] > 0


class Opinion(nn.Module):
    """The class of one coordinate's bucket: members of several coordinates often differ."""

    def __init__(self, coordinate: int) -> None:
        super().__init__()
        self.coordinate = coordinate

    def forward(self, x: Tensor) -> Tensor:
        return torch.eye(4)[(2 * x[:, self.coordinate] + 1).long().clamp(0, 3)]


@pytest.mark.parametrize("fails", [False, True])
def test_a_consensus_leaves_its_waiting_to_the_next_batch(fails: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU, where batches are drawn ahead: in the middle of a forward, and if that runs out of memory, later."""
    module, told = KConsensus([Opinion(k) for k in (0, 1, 2)], 2), list[str]()
    prepare, answer = Supply.prepare, Opinion.forward

    def prepared(self: Supply, *given: Any) -> Any:
        told.append("drawn")
        if fails and told.count("drawn") == 2:
            raise torch.OutOfMemoryError("the next batch")
        return prepare(self, *given)

    def answered(self: Opinion, x: Tensor) -> Tensor:
        told.append(f"member {self.coordinate}")
        return answer(self, x)

    monkeypatch.setattr(Supply, "ahead", property(lambda self: True))
    with engine(module, 100) as running:
        monkeypatch.setattr(Supply, "prepare", prepared)
        monkeypatch.setattr(Opinion, "forward", answered)
        slots = [running.admit(10 + k, x) for k, x in enumerate(X)]
        for slot in slots:
            running.submit(slot, 0, 0, 250)
        found = collect(running)
    after = "member 0" if fails else "member 2"  # a smaller form is checked from its first member on
    assert told[:5] == ["drawn", "member 0", "member 1", "drawn", after]
    assert (running.drawn, running.plan.batch) == (1000, 50 if fails else 100)
    for number, slot in enumerate(slots):
        (counts,) = found[slot]
        assert counts[0].tolist() == by_hand(module, X[number], 10 + number, 0, 0, 250).tolist()


@pytest.mark.parametrize("agree", [0, 3])
@pytest.mark.parametrize("place", [1, 2, 3])
def test_a_batch_that_there_is_no_memory_to_draw_is_drawn_in_halves(
    place: int, agree: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a network, and by a K-consensus that asks no others: it is drawn before a forward, or right behind one."""
    module = KConsensus([Opinion(k) for k in (0, 1, 2)], agree) if agree else Buckets()
    prepare, drawn = Supply.prepare, list[int]()

    def prepared(self: Supply, segments: Any, *given: Any) -> Any:
        drawn.append(1)
        if len(drawn) == place:
            raise torch.OutOfMemoryError("the next batch")
        return prepare(self, segments, *given)

    monkeypatch.setattr(Supply, "ahead", property(lambda self: True))
    with engine(module, 100) as running:
        monkeypatch.setattr(Supply, "prepare", prepared)
        slots = [running.admit(10 + k, x) for k, x in enumerate(X)]
        for slot in slots:
            running.submit(slot, 0, 0, 250)
        found = collect(running)
    assert (running.drawn, running.plan.batch) == (1000, 50)
    for number, slot in enumerate(slots):
        (counts,) = found[slot]
        assert counts[0].tolist() == by_hand(module, X[number], 10 + number, 0, 0, 250).tolist()


def test_what_is_confirmed_meanwhile_ends_no_request_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that is drawn already comes before the one that confirms it."""
    module = Buckets()
    monkeypatch.setattr(Supply, "ahead", property(lambda self: True))
    with engine(module, 100) as running:
        slot = running.admit(3, X[0])
        running.submit(slot, 0, 0, 250)
        running.step()
        running.confirm()
        (counts,) = collect(running)[slot]
    assert counts[0].tolist() == by_hand(module, X[0], 3, 0, 0, 250).tolist()


class InThreads(nn.Module):
    """Asks two K-consensus at the same time, as DataParallel asks its replicas."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleList(KConsensus([Opinion(k) for k in order], 2) for order in ((0, 1, 2), (1, 2, 0)))

    def forward(self, x: Tensor) -> Tensor:
        with ThreadPoolExecutor(2) as pool:
            one, two = pool.map(lambda part: part(x), self.parts)
        return one + two / 2


def test_draws_are_taken_once_however_many_threads_look_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    module, prepare = InThreads(), Supply.prepare
    monkeypatch.setattr(Supply, "ahead", property(lambda self: True))

    def slowly(self: Supply, *given: Any) -> Any:
        time.sleep(0.02)  # both are here by then, unless one waits for the other
        return prepare(self, *given)

    with engine(module, 100) as running:
        monkeypatch.setattr(Supply, "prepare", slowly)
        slot = running.admit(3, X[0])
        running.submit(slot, 0, 0, 1000)
        (counts,) = collect(running)[slot]
    assert counts[0].tolist() == by_hand(module, X[0], 3, 0, 0, 1000).tolist()


@pytest.mark.parametrize("readout", [Votes(), Scores()])
def test_a_count_of_other_draws_than_were_asked_for_ends_the_run(readout: Readout) -> None:
    """Whatever lost them: here a batch of the queue."""
    device = torch.device("cpu")
    running = Sampler(Buckets(), NOISE, (readout,), 4, ForwardPlan(100), device, SHAPE, SEED)
    slot = running.admit(0, X[0])
    running.submit(slot, 0, 0, 250)
    running._packer.take(100)
    with pytest.raises(RuntimeError, match=r"slots \[\d+\] hold other numbers of draws than \[250\]"):
        list(iter(running.step, None))


def test_a_consensus_of_all_members_lets_the_next_batch_be_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Supply, "ahead", property(lambda self: True))
    drawn, prepare = list[int](), Supply.prepare
    with engine(KConsensus([Opinion(k) for k in (0, 1)], 2), 100) as running:
        monkeypatch.setattr(Supply, "prepare", lambda self, *given: drawn.append(1) or prepare(self, *given))
        running.submit(running.admit(10, X[0]), 0, 0, 250)
        running.step()
        assert len(drawn) == 2
