"""Work that is handed out: whatever dies, hangs, lies or fails, every input has one answer, and the right one."""

from __future__ import annotations

import errno
import os
import random
import time
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from thread_crew import ThreadCrew, Threads
from toys import BucketLanes, Buckets

import ringfence as rf
from ringfence.data import Input
from ringfence.engines import into_folder
from ringfence.engines.crew import Manager, Message
from ringfence.engines.dispatch import Dispatch
from ringfence.engines.worker import Parcel, Worker, drawing_kind
from ringfence.errors import ClassifierError, ModelError, StoreError
from ringfence.models.compose import tree_of
from ringfence.store import RunFolder, StoreWarning, guarded
from ringfence.store.writer import describe_environment
from ringfence.work import Engine, Origin, Work

COUNT = 60
FAR = (17, 40)
"""Inputs that no noise brings near the others."""
ORIGIN = Input(0, torch.zeros(3), None, "")


def points() -> torch.Tensor:
    found = torch.linspace(-1, 2, COUNT)[:, None].repeat(1, 3)
    found[list(FAR)] += 20
    return found


def value(classifier: torch.nn.Module | None = None, **more: Any) -> rf.Certification:
    data = [Input(i, x, 1, str(i), range_told=True) for i, x in enumerate(points())]
    test = more.pop("procedure", rf.Fixed(n0=20, n=200))
    return rf.Certification(classifier or Buckets(), data, noise=rf.Gaussian(0.5), procedure=test, seed=4, **more)


def told(records: list[rf.Record]) -> dict[tuple[int, str], Any]:
    found = {}
    for one in records:
        assert (one.input_id, one.lane) not in found
        counts = [{name: cells.tolist() for name, cells in stage.cells.items()} for stage in one.stages]
        found[one.input_id, one.lane] = (one.prediction, one.radius, one.p_a, counts)
    return found


def certified(engine: Any, certification: rf.Certification | None = None, **more: Any) -> list[rf.Record]:
    execution = rf.Execution("cpu", batch=50, engine=engine, **more)
    return list((certification or value()).stream(execution))


@cache
def alone(certification: rf.Certification | None = None) -> dict[tuple[int, str], Any]:
    """What one process finds; of the usual value once for all tests."""
    return told(certified("local", certification))


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_the_records_are_those_of_one_process(workers: int) -> None:
    assert told(certified(Threads(workers))) == alone()


def test_lanes_of_an_input_come_together_and_sequential_tests_stop_alike() -> None:
    one = value(BucketLanes(), lanes=("a", "b"), procedure=rf.Sequential(radius=0.3, n=5000))
    found = certified(Threads(3), one)
    assert told(found) == alone(one)
    assert [record.lane for record in found] == ["a", "b"] * COUNT


def test_a_worker_that_dies_loses_nothing() -> None:
    remarks: list[str] = []
    engine = Threads(2, lambda worker, reports: "dies" if worker in "01" and reports == 3 else None)
    assert told(certified(engine, on_remark=remarks.append)) == alone()
    assert any("worker 0 is gone: killed" in one for one in remarks)


def test_a_second_answer_is_dropped() -> None:
    engine = Threads(2, lambda worker, reports: "twice")
    assert told(certified(engine)) == alone()


def test_a_worker_that_hangs_is_replaced_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its patience is over as soon as it hangs: the clock is put forward, once, by more than that."""
    ahead, remarks = [0.0], list[str]()
    monkeypatch.setattr("ringfence.engines.crew.time", Mock(monotonic=lambda: time.monotonic() + ahead[0]))

    def fault(worker: str, reports: int) -> str | None:
        if worker != "1":
            return None
        ahead[0] = 700.0
        return "hangs"

    assert told(certified(Threads(2, fault, patience=600.0), on_remark=remarks.append)) == alone()
    assert any("worker 1 is gone: it did nothing for 600 s" in one for one in remarks)


class Raises(Buckets):
    """Raises at what is far."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if (x.mean(1) > 10).any():
            raise RuntimeError("no answer up here")
        return super().forward(x)


def test_an_input_that_makes_the_model_raise_is_told_and_the_rest_goes_on() -> None:
    certification, failed = value(Raises()), dict[int, str]()
    found = told(certified(Threads(2), certification, on_failed=failed.__setitem__))
    assert sorted(failed) == list(FAR)
    assert sorted(input_id for input_id, _ in found) == [i for i in range(COUNT) if i not in FAR]
    assert all("RuntimeError: no answer up here" in reason for reason in failed.values())
    assert found == {key: entry for key, entry in alone().items() if key in found}


def test_without_anyone_who_keeps_the_reason_it_ends_the_run() -> None:
    with pytest.raises(ClassifierError, match="must answer input"):
        certified(Threads(2), value(Raises()))


def test_a_broken_worker_is_found_out_and_named() -> None:
    class Broken(Buckets):
        """When a run's whole batches come."""

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) * (torch.nan if len(x) > 1 else 1)

    remarks: list[str] = []
    engine = Threads(2, classifier=lambda worker, module: Broken() if worker == 1 else module)
    assert told(certified(engine, on_remark=remarks.append)) == alone()
    assert any("worker 1 is gone: it failed on inputs that others answered" in one for one in remarks)


class Other(Buckets):
    """The same weights by other code, as of a file that was edited, or of another version of a library."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x).flip(1)


def test_a_worker_whose_code_is_other_than_the_drivers_is_refused() -> None:
    remarks: list[str] = []
    engine = Threads(2, classifier=lambda worker, module: Other() if worker == 0 else module)
    assert told(certified(engine, on_remark=remarks.append)) == alone()
    assert any("worker 0 is gone: classifier: must say of the same noisy inputs what" in one for one in remarks)
    with pytest.raises(ModelError, match=r"got other scores for 4 of 4, by a network with the same weights"):
        certified(Threads(2, classifier=lambda worker, module: Other()))


def test_a_core_whose_code_is_other_than_the_drivers_is_refused() -> None:
    """No noise reaches it, and no score tells it."""

    def another_core(worker: int, module: rf.Aces) -> rf.Aces:
        return rf.Aces(module.certify, module.select, Other())

    selector = rf.EntropySelector(0.5)
    one = value(rf.Aces(Buckets(), selector, Buckets()), procedure=rf.AcesCertify(n0=20, n=200), lanes=("0.5",))
    assert told(certified(Threads(1), one)) == alone(one)
    with pytest.raises(ModelError, match="other scores for 4 of 4"):
        certified(Threads(1, classifier=another_core), one)


def test_the_driver_asks_its_network_about_no_input(tmp_path: Path) -> None:
    """One that kills whoever asks about it may be the first of a session."""
    seen, before = list[torch.Tensor](), list[torch.Tensor]()

    class Notes(Buckets):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            seen.append(x.clone())
            return super().forward(x)

    class Kept(Engine):
        name = "kept"

        def records(self, work: Work) -> Iterator[rf.Record]:
            before.extend(seen)
            seen.clear()
            assert Parcel.of(work, replace(ORIGIN, x=torch.full((3,), 50.0))).work.answered is not None
            return iter(())

    certified(Kept(), value(Notes()))
    assert seen
    assert max(float(x.max()) for x in seen) < 5
    far = [Input(0, torch.full((3,), 50.0), 1, "far", range_told=True)]
    into = rf.Certification(Notes(), far, noise=rf.Gaussian(0.5), procedure=rf.Fixed(n0=20, n=200))
    started = into.start(tmp_path / "run", rf.Execution("cpu", engine=Kept(), check=False))
    before.clear()
    seen.clear()
    with pytest.raises(StoreError, match="at least one record"), pytest.warns(StoreWarning, match="not whole"):
        list(started.records())
    assert before
    assert max(float(x.max()) for x in before) < 5


def test_a_network_that_raises_at_what_is_no_input_is_certified() -> None:
    class Raises(Buckets):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if bool((x == 0.5).all()):
                raise RuntimeError("no picture")
            return super().forward(x)

    assert told(certified(Threads(1), value(Raises()))) == alone()


def test_a_model_that_raises_for_all_ends_soon() -> None:
    class Never(Buckets):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if len(x) > 1:
                raise RuntimeError("out of order")
            return super().forward(x)

    failed: dict[int, str] = {}
    engine = Threads(2, classifier=lambda worker, module: Never())
    with pytest.raises(ClassifierError, match="out of order"):
        certified(engine, on_failed=failed.__setitem__)
    assert len(failed) <= 3


def test_workers_that_cannot_load_the_model_end_the_run() -> None:
    def load(worker: int) -> None:
        raise ModelError("net.py:make", "must be importable", "no module named there", "Install it everywhere.")

    with pytest.raises(ModelError, match="no module named there"):
        certified(Threads(2, load=load))


def test_one_that_cannot_load_it_is_replaced() -> None:
    def load(worker: int) -> None:
        if worker == 0:
            raise ModelError("net.py:make", "must be importable", "no module named there", "Install it everywhere.")

    assert told(certified(Threads(2, load=load))) == alone()


def test_failed_inputs_are_in_the_folder(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StoreWarning)  # the run is not whole, and every reader says so
        run = rf.certify_into(value(Raises()), tmp_path / "run", rf.Execution("cpu", batch=50, engine=Threads(2)))
        found = run.read()
    assert sorted(run.failed) == list(FAR)
    assert len(found) == COUNT - len(FAR)


def bad_at(*places: int) -> rf.Certification:
    """Inputs at these places make the network raise."""
    found = torch.linspace(-1, 2, COUNT)[:, None].repeat(1, 3)
    found[list(places)] += 20
    data = [Input(i, x, 1, str(i), range_told=True) for i, x in enumerate(found)]
    return rf.Certification(Raises(), data, noise=rf.Gaussian(0.5), procedure=rf.Fixed(n0=20, n=200), seed=4)


@pytest.mark.filterwarnings("ignore::ringfence.store.StoreWarning")
def test_a_run_whose_inputs_failed_is_run_again_with_the_same_end(tmp_path: Path) -> None:
    """All that is left to do fails once more: that says nothing about the classifier."""
    bad = (10, 20, 30, 40, 50)
    for _ in range(2):
        run = rf.certify_into(bad_at(*bad), tmp_path / "run", rf.Execution("cpu", batch=50, engine=Threads(2)))
        assert sorted(run.failed) == list(bad)
        assert len(run.done_ids()) == COUNT - len(bad)


@pytest.mark.filterwarnings("ignore::ringfence.store.StoreWarning")
@pytest.mark.parametrize("workers", [1, 2])
def test_a_session_that_begins_with_inputs_that_fail_goes_on_behind_them(tmp_path: Path, workers: int) -> None:
    bad = (20, 21, 22, 23)
    begun = RunFolder.create_or_resume(tmp_path / "run", bad_at(*bad).load().config)
    records = [
        replace(one, config_hash=begun.config.digest) for one in certified("local", bad_at()) if one.input_id < 20
    ]
    begun.append(records, begun.add_environment(describe_environment()))
    run = rf.certify_into(bad_at(*bad), tmp_path / "run", rf.Execution("cpu", batch=50, engine=Threads(workers)))
    assert sorted(run.failed) == list(bad)
    assert len(run.done_ids()) == COUNT - len(bad)


def test_inputs_that_reach_a_worker_too_late_for_its_round_go_on() -> None:
    """Calls of an actor may overtake each other: the end of a round may be there before the inputs sent first."""

    class Overtaken(ThreadCrew):
        late = looks = 0

        def feed(self, worker: str, items: list[Input], last: bool) -> None:
            self.late += 1
            super().feed(worker, [] if self.late == 1 else items, last or self.late == 1)

        def messages(self, patience: float) -> Iterable[Message]:
            self.looks += 1
            assert self.looks < 100_000, "nobody does what was sent too late"
            yield from super().messages(patience)

    class Late(Engine):
        name = "late"

        def records(self, work: Work) -> Iterator[rf.Record]:
            first, *rest = work.inputs
            crew = Overtaken(lambda worker: Parcel.of(work, first), lambda: 1, lambda worker, reports: None)
            return Manager(crew, iter([first, *rest]), work.execution, 60.0).records()

    assert told(certified(Late())) == alone()


def test_no_input_is_done_twice_at_once_by_workers_that_draw_other_noise() -> None:
    """The first answer counts, and a test that proves something ends sooner: two paths would be two chances."""
    dispatch = Dispatch(iter([Input(0, torch.zeros(1), None, "")]), workers=3)
    dispatch.kinds = {"a": "cuda, kernel", "b": "cpu, torch", "c": "cuda, kernel"}
    (given,) = dispatch.group("a")
    assert dispatch.spare("b") is None
    assert dispatch.spare("c") is given


def test_a_worker_says_what_its_draws_depend_on() -> None:
    works: list[Work] = []

    class Kept(Engine):
        name = "kept"

        def records(self, work: Work) -> Iterator[rf.Record]:
            works.append(work)
            return iter(())

    certified(Kept())
    exact = replace(works[0], noise=rf.Gaussian(0.5, "exact"))
    assert [drawing_kind(one) for one in (works[0], exact)] == ["cpu, torch", "exact"]
    remote = Worker(Parcel.of(works[0], ORIGIN))
    remote.begin(None, [], last=True)
    assert remote.report(1.0).kind == "cpu, torch"


def test_a_resumed_folder_is_the_same(tmp_path: Path) -> None:
    whole = rf.certify_into(value(), tmp_path / "whole", rf.Execution("cpu", batch=50))

    def fault(worker: str, reports: int) -> str | None:
        if reports == 3:
            raise KeyboardInterrupt
        return None

    with pytest.raises(KeyboardInterrupt):
        rf.certify_into(value(), tmp_path / "run", rf.Execution("cpu", batch=50, engine=Threads(2, fault)))
    run = rf.certify_into(value(), tmp_path / "run", rf.Execution("cpu", batch=50, engine=Threads(2)))
    assert told(run.read()) == told(whole.read())


def test_another_network_than_the_drivers_is_refused() -> None:
    model = rf.load_model("default")
    same = Origin(tree_of("default"), {}, (1, 28, 28), model.digest)
    assert isinstance(same.classifier(), torch.nn.Module)
    with pytest.raises(ModelError, match="must be the driver's network"):
        replace(same, digest="0" * 64).classifier()
    other = replace(same, digest=model.digest.replace("weights:", "weights:0"))
    with pytest.raises(ModelError, match=r"default: must be the driver's network; got one with other weights\. Give"):
        other.classifier()


def refused(worker: int, tried: list[int], good: int) -> None:
    tried.append(worker)
    if worker != good:
        raise ModelError("net.py", "must be the driver's network", "one with other weights", "Give it the same.")


def test_a_machine_that_cannot_load_the_model_is_tried_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock stands still: whatever is due later never is."""
    tried, remarks = list[int](), list[str]()
    monkeypatch.setattr("ringfence.engines.crew.time", Mock(monotonic=lambda: 100.0))
    engine = Threads(2, load=lambda worker: refused(worker, tried, good=0))
    assert told(certified(engine, on_remark=remarks.append)) == alone()
    assert tried == [0, 1]
    assert len(remarks) == 1

    clock = count(100, 100)  # and with time it is tried again
    monkeypatch.setattr("ringfence.engines.crew.time", Mock(monotonic=lambda: float(next(clock))))
    assert told(certified(replace(engine, patience=1e6))) == alone()
    assert len(tried) > 4


def test_where_nobody_works_a_worker_is_hired_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tried, asked = list[int](), count()

    def room() -> int:
        assert tried[3:] or next(asked) < 100, "waits for a worker that nobody hires"
        return 1

    monkeypatch.setattr("ringfence.engines.crew.time", Mock(monotonic=lambda: 100.0))
    engine = Threads(1, load=lambda worker: refused(worker, tried, good=3), room=room)
    assert told(certified(engine)) == alone()
    assert tried == [0, 1, 2, 3]


@pytest.mark.parametrize("versions", [("0.0", torch.__version__), (rf.__version__, "0.0")], ids=["ours", "torch"])
def test_other_versions_than_the_drivers_are_refused(versions: tuple[str, str]) -> None:
    parcels: list[Parcel] = []

    class Sends(Threads):
        """Keeps what is sent."""

        def records(self, work: Any) -> Any:
            parcels.append(Parcel.of(work, ORIGIN))
            return super().records(work)

    certified(Sends(1))
    assert parcels[0].unpacked().seed == 4
    with pytest.raises(ModelError, match="versions: must be the driver's"):
        replace(parcels[0], versions=versions).unpacked()


@pytest.mark.parametrize(("gpus", "expected"), [(0, 250), (2, 1000)])
def test_a_worker_without_a_gpu_expects_its_share_of_the_draws(
    monkeypatch: pytest.MonkeyPatch, gpus: int, expected: int
) -> None:
    """Whether compiling pays is up to what it draws itself."""
    from ringfence.engines import ray

    works: list[Work] = []

    class Keeps(Threads):
        """Keeps what it is asked for."""

        def records(self, work: Any) -> Any:
            works.append(work)
            return super().records(work)

    certified(Keeps(1))
    work = replace(works[0], execution=replace(works[0].execution, draws=1000))
    cluster = Mock(cluster_resources=lambda: {"CPU": 8.0, "GPU": float(gpus)})
    monkeypatch.setattr(ray, "_ray", lambda: cluster)
    assert ray.Ray(workers=4)._with_share_of_draws(work).execution.draws == expected


def test_workers_that_come_later_take_part() -> None:
    """There is room for one until the first report."""
    reported: list[str] = []
    engine = Threads(
        fault=lambda worker, reports: reported.append(worker),  # type: ignore[func-returns-value]
        room=lambda: 3 if reported else 1,
    )
    assert told(certified(engine)) == alone()
    assert reported[0] == "0"
    assert {"1", "2"} <= set(reported)


def test_a_clock_that_jumps_makes_nobody_late(monkeypatch: pytest.MonkeyPatch) -> None:
    jumps = random.Random(1)
    monkeypatch.setattr(time, "time", lambda: jumps.uniform(-1e9, 1e10))
    remarks: list[str] = []
    assert told(certified(Threads(2, patience=600), on_remark=remarks.append)) == alone()
    assert remarks == []


def test_two_drivers_on_one_folder(tmp_path: Path) -> None:
    refused: list[str] = []

    def second(worker: str, reports: int) -> str | None:
        if not refused:
            with pytest.raises(StoreError, match="a folder has one writer") as error:
                rf.certify_into(value(), tmp_path / "run", rf.Execution("cpu", batch=50, engine=Threads(2)))
            refused.append(str(error.value))
        return None

    run = rf.certify_into(value(), tmp_path / "run", rf.Execution("cpu", batch=50, engine=Threads(2, second)))
    assert f"process {os.getpid()} on " in refused[0]
    assert told(run.read()) == alone()
    assert not rf.verify(run)


def test_a_disk_that_is_full_loses_nothing_that_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, parts = guarded.create_exclusively, list[Path]()

    def full(path: Path, content: bytes) -> None:
        parts.append(path)
        if len(parts) > 1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(path, content)

    monkeypatch.setattr(guarded, "create_exclusively", full)
    monkeypatch.setattr(into_folder, "FLUSH_RECORDS", 20)
    execution = rf.Execution("cpu", batch=50, engine=Threads(2))
    with pytest.raises(StoreError, match="Free some space"):
        rf.certify_into(value(), tmp_path / "run", execution)
    monkeypatch.setattr(guarded, "create_exclusively", real)
    with warnings.catch_warnings(action="ignore"):
        assert 0 < len(rf.RunFolder.open(tmp_path / "run").read()) < COUNT
    run = rf.certify_into(value(), tmp_path / "run", execution)
    assert told(run.read()) == alone()
    assert not rf.verify(run)


@pytest.mark.parametrize("workers", [1, 3])
def test_an_input_that_kills_every_worker_is_tried_alone_and_given_up(workers: int) -> None:
    """As one that takes all memory does: the others are answered, and few workers die of it."""
    dispatch = Dispatch(iter([Input(i, torch.zeros(1), None, "") for i in range(50)]), workers)
    names, deaths = iter(range(1000)), 0
    while not dispatch.finished:
        worker = str(next(names))
        single = dispatch.suspect(worker)
        items = [single] if single is not None else dispatch.group(worker)
        killed = any(one.id == 5 for one in items)
        assert single is None or len(items) == 1
        if killed:
            deaths += 1
            dispatch.lost(worker, "out of memory")
            continue
        for one in items:
            assert dispatch.answer(worker, one.id)
        dispatch.lost(worker, "went home")
    assert dispatch.failed == {5: "out of memory"}
    assert dispatch.answered == 49
    assert deaths <= 6


@pytest.mark.parametrize("seed", range(60))
def test_whatever_happens_every_input_is_answered_once_or_has_a_reason(seed: int) -> None:
    """Any order of deaths, errors, answers and second answers; inputs 3 and 7 always fail."""
    choose = random.Random(seed)
    count, workers = 40, choose.randint(1, 4)
    dispatch = Dispatch(iter([Input(i, torch.zeros(1), None, "") for i in range(count)]), workers)
    held: dict[str, list[Input]] = {str(i): [] for i in range(workers)}
    answers: list[int] = []
    names = iter(range(workers, 10_000))
    for _ in range(5000):
        if dispatch.finished:
            break
        worker = choose.choice(sorted(held))
        if not held[worker]:
            suspect = dispatch.suspect(worker)
            held[worker] = [suspect] if suspect else dispatch.group(worker)
            continue
        if any(one.id in (3, 7) for one in held[worker]):
            dispatch.ended(worker, "bad")
            held[worker] = []
            continue
        match choose.choice(["answer", "answer", "answer", "again", "dies", "raises"]):
            case "answer":
                if dispatch.answer(worker, (done := held[worker].pop()).id):
                    answers.append(done.id)
            case "again" if answers:
                assert not dispatch.answer(worker, answers[-1])
            case "dies":
                dispatch.lost(worker, "died")
                del held[worker]
                held[str(next(names))] = []
            case _:
                if len(held[worker]) > 1:
                    dispatch.ended(worker, "somebody's fault")
                    held[worker] = []
    assert dispatch.finished
    assert len(answers) == len(set(answers))
    assert set(answers) | set(dispatch.failed) == set(range(count))
    assert {3, 7} <= set(dispatch.failed)
