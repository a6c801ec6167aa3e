"""Progress: one meter for certifying and training; bars on a terminal, lines elsewhere, nothing when quiet."""

from __future__ import annotations

import math
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console
from rich.progress import BarColumn

from ringfence import contradictions
from ringfence.cli import progress
from ringfence.cli.progress import describe, show_training
from ringfence.cli.sweep import Shown
from ringfence.driver import Progress
from ringfence.progress import followed
from ringfence.sweep.job import SweepFolder, speaks_as
from ringfence.training.checkpoints import Status


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is told where there is no terminal, and every line is due."""
    told: list[str] = []
    monkeypatch.setattr(progress, "remark", told.append)
    monkeypatch.setattr(progress, "is_terminal", lambda: False)
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
    return told


def status(epoch: int, epochs: int = 9) -> Status:
    return Status(epoch, epochs, 4, 4, 0.5, math.nan, {"loss": 0.5}, 0.75, left=3.0)


def test_a_run_tells_inputs_rate_and_time_left(lines: list[str]) -> None:
    with progress.show_progress(50, 10) as report:
        report(Progress(0, 2000, 2.0))
        report(Progress(10, 4000, 2.0))
    assert lines == [
        "certifying: trying the network first",
        "certifying: 10/50 inputs, 1,000 draws/s",
        "certifying: 20/50 inputs, 2,000 draws/s, about 6 s left",
    ]


def test_where_every_input_takes_the_same_draws_the_time_left_is_told_from_the_first_on(lines: list[str]) -> None:
    with progress.show_progress(5, 1, draws=1000) as report:
        report(Progress(0, 500, 1.0))
        report(Progress(2, 2500, 5.0))
    assert lines[1:] == [
        "certifying: 1/5 inputs, 500 draws/s, about 7 s left",
        "certifying: 3/5 inputs, 500 draws/s, about 3 s left",
    ]


@pytest.mark.parametrize(("settings", "known"), [(("--n", 200), True), (("--radius", 0.1), False)])
def test_certify_knows_the_time_before_the_first_input_unless_draws_may_stop(
    settings: tuple[object, ...], known: bool, call: Any, tmp_path: Path, lines: list[str]
) -> None:
    call("certify", "--sigma", 0.5, *settings, "--limit", 3, "--batch", 50, "--out", tmp_path / "run")
    undecided = [line for line in lines if line.startswith("certifying: 0/3")]
    assert undecided
    assert all(line.endswith(" left") == known for line in undecided)


def test_the_first_and_the_last_line_of_a_training_are_always_told(
    lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "LINE_SECONDS", 1e9)
    run = training_of(2)
    with show_training(run) as report:
        for member in (0, 1):
            for epoch in (1, 2, 9):
                report(member, status(epoch))
    assert [line.split(" step")[0] for line in lines] == [
        f"member {member}: epoch {epoch}/9" for member in (0, 1) for epoch in (1, 9)
    ]
    assert lines[2].endswith("step 4/4: held out 75.00%, loss 0.5, about 3 s left")


def test_what_a_training_came_to_stays_on_a_terminal_whose_bars_go(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(progress, "is_terminal", lambda: True)
    monkeypatch.setattr(progress, "remarks", Console(force_terminal=True, width=80, quiet=True))
    monkeypatch.setattr(progress, "aside", told.append)
    with show_training(training_of(1)) as report:
        report(0, status(1))
        report(0, status(9))
    assert told == ["member 0: epoch 9/9 step 4/4: held out 75.00%, loss 0.5"]


def training_of(members: int, done: tuple[int, ...] = ()) -> Any:
    job = SimpleNamespace(objective=SimpleNamespace(grouping="in turn"), trainings=range(members))
    return SimpleNamespace(job=job, done=lambda training: training in done)


def test_accuracy_is_told_before_the_terms_that_a_narrow_window_cuts() -> None:
    told = describe(Status(1, 90, 49, 78, 2.0, 0.4297, {"cross_entropy": 1.77, "consistency": 0.2}))
    assert told == "epoch 1/90 step 49/78: noisy accuracy 42.97%, cross_entropy 1.77, consistency 0.2"


def test_the_time_left_is_that_of_all_members_trained_in_turn(lines: list[str]) -> None:
    with show_training(training_of(4, done=(3,))) as report:
        report(0, status(3))  # a third is done and takes 3 s more: 4.5 s in all, for each of two more
        report(2, status(9))
    assert lines[0].endswith(", 2 more to train, about 12 s left")
    assert lines[1].endswith(", 1 more to train, about 8 s left"), "at the end of one the others are still to come"
    lines.clear()
    with show_training(training_of(3), at_once=3) as report:
        report(0, status(3))
    assert lines[0].endswith("about 6 s left"), "side by side they share the time"


def test_trainings_in_one_process_have_their_own_words_each(lines: list[str], tmp_path: Path) -> None:
    """They print into one log, whose last line is that of only one of them."""
    work = SweepFolder(tmp_path / "work")
    jobs: list[Any] = [
        SimpleNamespace(work=work, command="train", name=name, key=f"train {name}", out=Path("zoo/z", name))
        for name in ("first", "second", "silent")
    ]
    (work.path / "jobs").mkdir(parents=True)
    log = work.path / work.begin_log(jobs)
    for job, epoch in zip(jobs, (3, 4), strict=False):
        with show_training(training_of(1), named=speaks_as(job.out)) as report:
            report(0, status(epoch))
    log.write_text("\n".join(lines))
    told: dict[str, str] = {}
    schedule: Any = SimpleNamespace(states={}, waiting=tuple)
    totals: dict[str, float | None] = {}
    shown = Shown(
        schedule, lambda name, _, total, words, *__: (told.update({name: words}), totals.update({name: total}))
    )
    shown.begin(jobs)
    shown.look(jobs, None)
    assert {totals[job.key] for job in jobs} == {None}, "nobody knows how far they are: their bars move all the time"
    assert {key: words.partition(" step")[0] for key, words in told.items() if key != "sweep"} == {
        "train first": "member 0: epoch 3/9",
        "train second": "member 0: epoch 4/9",
        "train silent": "",
    }
    shown.begin(jobs[1:2])
    shown.look(jobs[1:2], None)
    assert told["train second"].startswith("second, member 0: epoch 4/9"), "a log of its own is shown as it is"


def test_quiet_tells_nothing(lines: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "is_quiet", lambda: True)
    with progress.show_progress(5, 0) as report:
        report(Progress(1, 100, 1.0))
    assert lines == []


def test_a_recent_line_is_not_repeated(lines: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "LINE_SECONDS", 1e9)
    with progress.meter() as show:
        show("a", 1, 2, "half", 1.0)
        show("a", 2, 2, "whole", 0.0, now=True)
    assert lines == ["a: whole, about 0 s left"]


def test_a_terminal_has_a_bar_of_its_own_for_each_name(
    lines: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from rich.console import Console

    console = Console(force_terminal=True, width=60)
    monkeypatch.setattr(progress, "is_terminal", lambda: True)
    monkeypatch.setattr(progress, "remarks", console)
    with console.capture() as seen, progress.meter() as show:
        show("member 0", 1, 2, "a long story " * 9, 300.0)
        show("member 1", 1, 2, "short", None)
    told = seen.get()
    assert "member 0" in told
    assert "member 1" in told
    assert "5 min left" in told, "words are cut, the time left is not"
    assert lines == []


def test_a_bar_that_knows_no_time_left_tells_how_long_it_has_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Networks that take seconds to be tried looked as if they had hung."""
    from rich.progress import Task

    console = Console(force_terminal=True, width=80)
    monkeypatch.setattr(progress, "is_terminal", lambda: True)
    monkeypatch.setattr(progress, "remarks", console)
    monkeypatch.setattr(Task, "elapsed", property(lambda task: 7.0))
    for left, told in ((None, "7 s so far"), (56.0, "56 s left")):
        with console.capture() as seen, progress.meter() as show:
            show("certifying", 0, 500, "trying the network first", left)
        assert told in seen.get()


def test_a_bar_without_a_total_moves_until_its_work_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    console = Console(force_terminal=True, width=60)
    monkeypatch.setattr(progress, "is_terminal", lambda: True)
    monkeypatch.setattr(progress, "remarks", console)
    pulses: list[bool] = []
    render = BarColumn.render
    monkeypatch.setattr(
        BarColumn, "render", lambda bar, task: (pulses.append(task.total is None), render(bar, task))[1]
    )
    with console.capture(), progress.meter() as show:
        show("a job", 0, None, "epoch 3/9")
        show("a job", 0, None, "epoch 4/9")
        assert pulses
        assert all(pulses)
        show("a job", 1, 1, "done")
        pulses.clear()
    assert not pulses, "nobody looks at what is done"


def test_a_narrow_terminal_shows_how_many_inputs_are_done(monkeypatch: pytest.MonkeyPatch) -> None:
    console = Console(force_terminal=True, width=44)
    monkeypatch.setattr(progress, "is_terminal", lambda: True)
    monkeypatch.setattr(progress, "remarks", console)
    with console.capture() as seen, progress.meter() as show:
        show("certifying", 147, 500, "147/500 inputs, 2,000 draws/s", 56.0)
    assert "147/500" in seen.get()
    assert "56 s left" in seen.get()


def test_time_in_words() -> None:
    found = [progress.in_words(seconds) for seconds in (-1, 42, 100, 600, 6000)]
    assert found == ["0 s", "42 s", "2 min", "10 min", "1.7 h"]


def test_loops_of_the_library_are_shown_with_the_time_left(lines: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(100))
    monkeypatch.setattr(progress.time, "monotonic", lambda: float(next(clock)))
    with progress.show_loops():
        for _ in followed(["a", "b"], "reading"):
            for _ in followed(range(2), "a part of it"):
                pass
    assert {line.split(",")[0] for line in lines} == {"reading: 25%", "reading: 50%", "reading: 75%"}
    assert all(line.endswith(" s left") for line in lines)
    lines.clear()
    with progress.show_loops(), progress.meter():
        list(followed(range(9), "not beside another meter"))
    monkeypatch.setattr(progress, "is_quiet", lambda: True)
    with progress.show_loops():
        list(followed(range(9), "not where quiet was asked for"))
    assert lines == []


@pytest.mark.parametrize("words", [("verify",), ("report", "--out", "OUT"), ("attack", "--limit", 2, "--steps", 1)])
def test_commands_that_take_long_tell_the_time_left(
    words: tuple[object, ...],
    call: Any,
    finished: dict[str, Path],
    tmp_path: Path,
    lines: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(progress, "MOMENT", 0.0)
    monkeypatch.setattr(contradictions, "AT_ONCE", 2)
    options = [tmp_path / "page.html" if word == "OUT" else word for word in words[1:]]
    call(words[0], finished["fixed"], *options)
    assert any(line.endswith(" left") for line in lines)


def test_a_map_of_the_simplex_tells_the_time_left(
    call: Any, tmp_path: Path, lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "MOMENT", 0.0)
    call("simplex", "map", "--step", 0.05, "--out", tmp_path / "map.svg")
    assert any(line.startswith("comparing mechanisms: 50%") for line in lines)
    assert any(line.startswith("drawing: ") for line in lines)


@pytest.mark.parametrize(
    ("terminal", "quiet", "told"), [(True, False, True), (True, True, False), (False, False, False)]
)
def test_a_terminal_is_told_what_is_waited_for(
    terminal: bool, quiet: bool, told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "is_terminal", lambda: terminal)
    monkeypatch.setattr(progress, "is_quiet", lambda: quiet)
    monkeypatch.setattr(progress, "MOMENT", 0.0)
    shown = words_of_spinners(monkeypatch)
    with progress.show_waiting("loading the model"):
        list(followed(range(2), "reading"))
    assert [one.partition(",")[0] for one in shown] == (
        ["loading the model", "loading the model", "reading 50%", "loading the model"] if told else []
    )


def words_of_spinners(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is said beside spinners, as it comes."""
    shown: list[str] = []

    def status(words: str) -> Any:
        shown.append(words)
        return nullcontext(SimpleNamespace(update=shown.append))

    monkeypatch.setattr(progress, "remarks", SimpleNamespace(status=status))
    return shown


@pytest.mark.parametrize("attack", ["pgd", "ddn"])
def test_an_attack_moves_before_its_first_radius_is_done(
    attack: str, call: Any, finished: dict[str, Path], lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "MOMENT", 0.0)
    call("attack", finished["fixed"], "--limit", 2, "--steps", 4, "--attack", attack, "--radii", "0.1")
    assert any(line.startswith(("attacking at the radii: 50%", "attacking at the radii: 40%")) for line in lines)


def test_nothing_turns_while_a_shell_completes_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "is_terminal", lambda: True)
    monkeypatch.setenv(progress.COMPLETING, "complete_bash")
    shown = words_of_spinners(monkeypatch)
    with progress.show_waiting("loading libraries"):
        assert shown == []


def test_a_terminal_is_told_that_training_loads_its_data(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[tuple[Any, ...]] = []
    monkeypatch.setattr(progress, "is_terminal", lambda: True)
    monkeypatch.setattr(progress, "_meter", lambda _: nullcontext(lambda *told, **more: shown.append(told[:3])))
    with show_training(training_of(1)) as report:
        assert shown == [("training", 0, 1)]
        report(0, status(3))
        report(0, status(4))
    assert [one[0] for one in shown[1:]] == ["training", "member 0", "member 0"], "gone with the first step"
