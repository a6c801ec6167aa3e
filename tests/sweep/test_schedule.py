"""Jobs run after those they need, side by side, as far as the time goes; what fails stops only what needs it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from ringfence.beginning import hear_interrupts
from ringfence.errors import ArgumentError, DataError, StoreError
from ringfence.store.atomic import write_json
from ringfence.sweep import Estimates, Job, Schedule, State, Sweep, SweepFolder
from ringfence.sweep.job import found_in
from ringfence.sweep.worker import Worker

Read = Callable[..., Sweep]


class Seen:
    """What a schedule told."""

    def __init__(self) -> None:
        self.begun: list[list[str]] = []
        self.ended: list[tuple[str, State]] = []
        self.most = 0

    def begin(self, jobs: Sequence[Job]) -> None:
        self.begun.append([job.name for job in jobs])

    def end(self, job: Job, state: State, minutes: float) -> None:
        self.ended.append((job.name, state))

    def look(self, running: Sequence[Job], left: float | None) -> None:
        self.most = max(self.most, len(running))


@pytest.fixture
def schedule(program: list[str], tmp_path: Path) -> Callable[..., Schedule]:
    def make(sweep: Sweep, side_by_side: int = 1, only: str = "") -> Schedule:
        sweep.work.prepare(tmp_path, None, (), ())
        chosen = [job for job in sweep.jobs if job.name.startswith(only)]
        return Schedule(chosen, sweep.jobs, [Worker(program) for _ in range(side_by_side)])

    return make


MIXED = """
train:
- {name: last, needs: [first]}
- {name: first}
certify:
- {name: good, settings: {x: zoo/sweep/last}}
- {name: broken, settings: {bad: 1}}
- {name: after, needs: [broken]}
- {name: more, settings: {x: runs/after}}
"""


def test_what_fails_stops_only_what_needs_it_and_nothing_is_repeated(
    sweep: Read, schedule: Callable[..., Schedule]
) -> None:
    one, seen = schedule(sweep(MIXED)), Seen()
    one.run(seen)
    order = (one.chosen[0].work.path / "order").read_text().split()
    assert order == ["first", "last", "good", "broken"]
    assert one.states == {
        "train last": "done",
        "train first": "done",
        "certify good": "done",
        "certify broken": "failed",
        "certify after": "waiting",
        "certify more": "waiting",
    }
    assert [job.name for job in one.blocked()] == ["after", "more"]
    broken = next(job for job in one.chosen if job.name == "broken")
    assert broken.work.last_words(broken) == "it broke"
    again = schedule(sweep(MIXED))
    again.run(Seen())
    assert (one.chosen[0].work.path / "order").read_text().split() == [*order, "broken"]


def test_a_job_whose_settings_changed_or_whose_result_is_gone_runs_again(
    sweep: Read, schedule: Callable[..., Schedule]
) -> None:
    text = "certify: [{name: a, settings: {x: 1}}, {name: b}]"
    schedule(sweep(text)).run(Seen())
    changed = schedule(sweep(text.replace("x: 1", "x: 2")))
    assert [job.name for job in changed.waiting()] == ["a"]
    (changed.chosen[0].work.path / "runs" / "b").rmdir()
    assert [job.name for job in schedule(sweep(text)).waiting()] == ["b"]
    (changed.chosen[0].work.path / "jobs" / "certify-a.json").write_text("half a no")
    assert [job.name for job in schedule(sweep(text)).waiting()] == ["a", "b"]


def test_what_was_made_from_a_job_whose_settings_changed_runs_again(
    sweep: Read, schedule: Callable[..., Schedule]
) -> None:
    text = """
train: [{name: net, settings: {first: 0}}, {name: other}]
certify: [{name: run, settings: {x: zoo/sweep/net}}, {name: apart, needs: [other]}, {name: more, needs: [run]}]
"""
    one = schedule(sweep(text))
    one.run(Seen())
    assert not one.waiting()
    assert not schedule(sweep(text)).waiting()
    changed = schedule(sweep(text.replace("first: 0", "first: 1")))
    assert [job.name for job in changed.waiting()] == ["net", "run", "more"]
    assert [changed.chosen[0].work.outdated(job) for job in changed.chosen] == [True, False, True, False, True]
    older = one.chosen[2].work.note_of(one.chosen[2])  # from before a note said what it was made from
    older.write_text(json.dumps({"words": one.chosen[2].words}))
    assert not schedule(sweep(text)).waiting()


def test_what_was_not_chosen_must_be_there(sweep: Read, schedule: Callable[..., Schedule]) -> None:
    text = "train: [{name: net}]\ncertify: [{name: run, needs: [net]}]"
    one = schedule(sweep(text), only="run")
    one.run(Seen())
    assert [one.missing(job) for job in one.blocked()] == [["train net"]]
    (one.chosen[0].work.path / "zoo" / "sweep" / "net").mkdir(parents=True)
    two = schedule(sweep(text), only="run")
    two.run(Seen())
    assert two.states == {"certify run": "done"}


def test_trainings_that_share_go_together_and_one_that_fails_does_not_stop_the_others(
    sweep: Read, schedule: Callable[..., Schedule]
) -> None:
    text = "train: [{name: a}, {name: b, settings: {bad: 1}}, {name: apart, settings: {x: 1}}, {name: c}, {name: d}]"
    one, seen = schedule(sweep(text), side_by_side=3), Seen()
    one.run(seen)
    assert seen.begun[0] == ["a", "b", "c"]
    assert {tuple(group) for group in seen.begun[1:]} >= {("apart",), ("d",), ("a",), ("b",), ("c",)}
    assert seen.most <= 3
    assert sorted(name for name, state in seen.ended if state == "done") == ["a", "apart", "c", "d"]
    assert [name for name, state in seen.ended if state == "failed"] == ["b"]


def test_the_budget_stops_what_runs_and_the_rest_waits(sweep: Read, schedule: Callable[..., Schedule]) -> None:
    one, seen = schedule(sweep("certify: [{name: long, settings: {long: 1}}, {name: later}]")), Seen()
    one.run(seen, seconds=1.0)
    assert one.states == {"certify long": "stopped", "certify later": "waiting"}
    assert seen.ended == [("long", "stopped")]
    assert one.blocked() == []
    none = schedule(sweep("certify: [{name: later}]"))
    none.run(Seen(), seconds=0.0)
    assert none.states == {"certify later": "waiting"}


def test_whatever_stops_the_sweep_ends_its_workers(sweep: Read, schedule: Callable[..., Schedule]) -> None:
    one = schedule(sweep("certify: [{name: a, settings: {long: 1}}, {name: b, settings: {long: 1}}]"), side_by_side=2)
    processes = []

    class Interrupted(Seen):
        def look(self, running: Sequence[Job], left: float | None) -> None:
            processes.extend(group.worker._process for group in one._running)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        one.run(Interrupted())
    assert len(processes) == 2
    assert all(process is not None and process.poll() is not None for process in processes)
    assert set(one.states.values()) == {"stopped"}


def test_a_worker_that_died_says_so_and_starts_anew(program: list[str], tmp_path: Path) -> None:
    worker = Worker(program)

    def code(*words: str) -> int:
        worker.begin([words], tmp_path, Path("log"))
        while (found := worker.code()) is None:
            time.sleep(0.01)
        return found

    assert code("certify", "--die", "a") == 5
    assert code("certify", "b") == 0
    process = worker._process
    assert code("certify", "--bad", "c") == 1
    assert worker._process is process, "one that fails ends only itself"
    assert worker.end() == 0


def test_a_worker_that_has_answered_its_last_may_not_keep_others_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ringfence.sweep.worker.LEAVING", 0.1)
    hangs = "import sys, time; sys.stdin.readline(); print('0 END', flush=True); time.sleep(600)"
    worker = Worker([sys.executable, "-c", hangs])
    worker.begin([], tmp_path, Path("log"))
    process = worker._process
    while (found := worker.code()) is None:
        time.sleep(0.01)
    assert found == 0
    assert process is not None
    assert process.wait() < 0, "it was killed"


AT_ONCE = """
import sys, threading, time
from queue import SimpleQueue
from ringfence.sweep import worker
class Late(SimpleQueue):
    def get(self):
        while threading.active_count() > 1:  # the end was heard of before the work is begun
            time.sleep(0.01)
        return super().get()
worker.SimpleQueue = Late
worker.answer_work(lambda commands: 0, (), lambda: True)
"""


def test_a_worker_that_is_told_to_end_with_its_work_does_not_do_it(tmp_path: Path) -> None:
    told = json.dumps({"commands": [["certify"]], "folder": str(tmp_path), "log": "log"}) + "\n"
    program = [sys.executable, "-c", AT_ONCE]  # heard though these tests run where Ctrl-C is ignored, as under nohup
    done = subprocess.run(program, input=told, text=True, capture_output=True, preexec_fn=hear_interrupts)
    assert (done.returncode, done.stdout) == (130, ""), done.stderr


def test_a_folder_of_logs_that_cannot_be_written_is_told(sweep: Read, schedule: Callable[..., Schedule]) -> None:
    read = sweep("certify: [{name: good}]")
    made = schedule(read)
    (read.work.path / read.work.log_of(read.jobs[0])).mkdir()  # as root may do anything, something else in its place
    with pytest.raises(StoreError, match=r"certify-good\.log: must be writable; got "):
        made.run(Seen())


def test_estimates_come_from_what_was_measured_then_the_file_then_likes(sweep: Read, tmp_path: Path) -> None:
    work = SweepFolder(tmp_path)
    (tmp_path / "jobs").mkdir()
    found = sweep(
        "certify: [{name: 'a{i}', each: {i: [1, 2]}, minutes: 5}, {name: 'b{i}', each: {i: [1, 2]}}]", work=tmp_path
    ).jobs
    assert [Estimates(found).of(job) for job in found] == [5, 5, None, None]
    assert Estimates(found).total(found) is None
    assert [row["left"] for row in Estimates(found).rows(found)] == [10.0, None]
    work.end(found[0], 1.0)
    work.end(found[2], 3.0)
    after = Estimates(found)
    assert [after.of(job) for job in found] == [1.0, 5, 3.0, 3.0]
    assert after.total(found) == 12.0
    unknown = sweep("certify: [{name: a1}]", work=tmp_path / "other").jobs
    unknown[0].work.note_of(unknown[0]).parent.mkdir(parents=True)
    write_json(unknown[0].work.note_of(unknown[0]), unknown[0].note(elsewhere=True))
    (row,) = Estimates(unknown).rows(unknown)
    assert (row["done"], row["minutes"], row["left"]) == (1, None, 0.0), "nothing is left of what is done"


def test_the_work_folder_leads_to_the_data_and_holds_trainings_made_elsewhere(tmp_path: Path) -> None:
    zoo = tmp_path / "zoo" / "mnist"
    (zoo / "net").mkdir(parents=True)
    (zoo / "net" / "config.json").write_text("{}")
    (zoo / "net" / "final-0.safetensors").write_text("weights")
    (zoo / "lone.safetensors").write_text("weights")
    work = SweepFolder(tmp_path / "work")
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
        work.prepare(tmp_path, tmp_path / name, [Path("mnist/net"), Path("mnist/lone")], [tmp_path / "zoo"])
    assert (work.path / "data").resolve() == (tmp_path / "new").resolve()
    assert (work.path / "here").resolve() == tmp_path.resolve()
    assert (work.path / "zoo" / "mnist" / "net" / "config.json").is_file()
    assert (work.path / "zoo" / "mnist" / "lone.safetensors").is_file()
    (work.path / "data").unlink()
    (work.path / "data").mkdir()
    with pytest.raises(ArgumentError, match="Move it away"):
        work.prepare(tmp_path, tmp_path / "new", [], [])


def test_jobs_of_several_sweeps_run_in_the_order_asked_for(sweep: Read, program: list[str], tmp_path: Path) -> None:
    text = "train: [{name: a}, {name: b}]\ncertify: [{name: run, settings: {x: zoo/sweep/a}}]"
    one, two = (sweep(text, work=tmp_path / name, sweep=name) for name in ("one", "two"))
    for each in (one, two):
        each.work.prepare(tmp_path, None, (), ())
    chosen, seen = [two.jobs[0], *one.jobs, *two.jobs[1:]], Seen()
    schedule = Schedule(chosen, [*one.jobs, *two.jobs], [Worker(program)])
    schedule.run(seen)
    assert set(schedule.states.values()) == {"done"}
    assert schedule.states.keys() == {f"{name}: {key}" for name in ("one", "two") for key in KEYS}
    assert (tmp_path / "one" / "order").read_text().split() == ["a", "b", "run"]
    assert (tmp_path / "two" / "order").read_text().split() == ["a", "b", "run"]
    assert seen.begun[:2] == [["a"], ["a"]], "trainings of two sweeps share no process"
    again = Schedule(chosen, [*one.jobs, *two.jobs], [Worker(program)])
    assert again.waiting() == []


KEYS = ("train a", "train b", "certify run")


def test_what_cannot_come_to_its_first_checkpoint_is_not_begun(sweep: Read, schedule: Callable[..., Schedule]) -> None:
    text = """
certify:
- {name: far, minutes: 100, settings: {first: 0.5}}
- {name: near, minutes: 100, settings: {first: 0.001}}
- {name: unknown, settings: {first: 0.5}}
"""
    one = schedule(sweep(text))
    one.run(Seen(), seconds=2000.0)
    assert one.states == {"certify far": "waiting", "certify near": "done", "certify unknown": "done"}
    assert one.blocked() == []
    two = schedule(sweep(text))
    two.run(Seen())
    assert set(two.states.values()) == {"done"}, "without a budget all is begun"
    crowd = "train: [{name: 'a{i}', each: {i: [1, 2, 3]}, minutes: 100, settings: {first: 0.2}}]"
    three, seen = schedule(sweep(crowd), side_by_side=3), Seen()
    three.run(seen, seconds=3000.0)
    assert seen.begun[0] == ["a1", "a2"], "three at a time would come too late"


def test_a_tiny_job_is_begun_however_long_its_full_form_takes(sweep: Read, schedule: Callable[..., Schedule]) -> None:
    text = "tiny: {train: {first: 1.0}}\ntrain: [{name: a, minutes: 100, settings: {first: 0.01}}]"
    one = schedule(sweep(text, tiny=True))
    one.run(Seen(), seconds=600.0)
    assert one.states == {"train a": "done"}
    assert [job.minutes for tiny in (False, True) for job in sweep(text, tiny).jobs] == [100.0, None]


def test_what_is_kept_is_done(sweep: Read, tmp_path: Path) -> None:
    text = "train: [{name: a}, {name: b}, {name: c}]\ncertify: [{name: r, needs: [a]}, {name: s, needs: [b]}]"
    found = sweep(text)
    (tmp_path / "results" / "deep" / "r").mkdir(parents=True)
    (tmp_path / "results" / "deep" / "r" / "summary.json").touch()
    for name in ("a", "b"):
        (tmp_path / "zoo" / "sweep" / name).mkdir(parents=True)
        (tmp_path / "zoo" / "sweep" / name / "config.json").touch()
    found.work.prepare(tmp_path, None, (), ())
    adopted = found.work.adopt(found.jobs, [tmp_path / "results"], [tmp_path / "zoo"])
    assert [job.key for job in adopted] == ["train a", "train b", "certify r"]
    assert (found.work.path / "zoo" / "sweep" / "b" / "config.json").exists(), "what is needed is copied"
    assert [job.key for job in found.jobs if not job.done] == ["train c", "certify s"]


def test_where_nobody_may_look_there_is_nothing(sweep: Read, tmp_path: Path) -> None:
    (job,) = sweep("certify: [{name: good}]").jobs
    closed = tmp_path / ("x" * 300)  # as root may look anywhere, a name that the system refuses as well
    assert not SweepFolder(closed).there(job)
    assert found_in([closed], Path("a")) is None


def test_a_folder_without_weights_is_no_training(sweep: Read, tmp_path: Path) -> None:
    """A copy may take folders and no files, or be broken off: what lies elsewhere is taken, here and the next time."""
    empty, whole, given = tmp_path / "zoo", tmp_path / "carried" / "zoo", Path("z/net")
    (empty / given).mkdir(parents=True)
    (whole / given).mkdir(parents=True)
    (whole / given / "final-0.safetensors").write_text("weights")
    found = sweep("certify: [{name: r, settings: {x: 'zoo:z/net:0'}}]", zoos=[empty, whole])
    (found.work.path / "zoo" / given).mkdir(parents=True)
    (found.work.path / "zoo" / given / "config.json").write_text("{}")
    found.work.prepare(tmp_path, None, found.given, [empty, whole])
    assert (found.work.path / "zoo" / given / "final-0.safetensors").read_text() == "weights"
    assert [one.name for one in (found.work.path / "zoo" / "z").iterdir()] == ["net"]
    shutil.rmtree(found.work.path / "zoo" / given)
    (found.work.path / "zoo" / given).symlink_to(empty / given)
    found.work.prepare(tmp_path, None, found.given, [empty, whole])
    assert (found.work.path / "zoo" / given / "final-0.safetensors").read_text() == "weights"
    assert list((empty / given).iterdir()) == [], "what a link leads to is somebody else's"
    (found.work.path / "zoo" / given / "final-0.safetensors").unlink()
    (found.work.path / "zoo" / given / "member-0").mkdir()
    found.work.prepare(tmp_path, None, found.given, [empty, whole])
    assert [one.name for one in (found.work.path / "zoo" / given).iterdir()] == ["member-0"], "begun here"
    with pytest.raises(DataError, match="no zoo has it"):
        sweep("certify: [{name: r, settings: {x: 'zoo:z/net:0'}}]", zoos=[empty])


def test_workers_side_by_side_share_the_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    print_threads = "import os, sys; sys.stdin.readline(); print(os.environ.get('OMP_NUM_THREADS', 0))"

    def threads(beside: int) -> int:
        worker = Worker([sys.executable, "-c", print_threads], beside)
        worker.begin([], tmp_path, Path("log"))
        while (found := worker.code()) is None:
            time.sleep(0.01)
        worker.end()
        return found

    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 16)
    assert [threads(one) for one in (1, 3, 64)] == [0, 5, 1], "one alone has all that there is"
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    assert threads(3) == 7, "who says how many is heard"
