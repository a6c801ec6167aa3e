"""Bars of programs and notebooks: how far a run is, with the time left, and nothing where nobody looks."""

from __future__ import annotations

from pathlib import Path
from threading import Event
from typing import Any

import pytest
import rich.progress

import ringfence as rf
from ringfence.bars import MOMENT, bar, in_words, pace
from ringfence.driver import Progress

X = rf.load_dataset("default", limit=3)
FAST = rf.Execution(device="cpu", batch=50)
start = rich.progress.Progress.start


def test_the_time_left_is_that_of_inputs_or_of_draws_where_their_number_is_known() -> None:
    assert pace(Progress(2, 400, 4.0), 10) == ("2/10 inputs, 100 draws/s", 16.0)
    assert pace(Progress(2, 400, 4.0), 10, done=4) == ("6/10 inputs, 100 draws/s", 8.0)
    assert pace(Progress(0, 400, 4.0), 10, draws=100) == ("0/10 inputs, 100 draws/s", 6.0)
    assert pace(Progress(0, 400, 4.0), 10) == ("0/10 inputs, 100 draws/s", None)
    assert [in_words(one) for one in (3.4, 130.0, 9000.0)] == ["3 s", "2 min", "2.5 h"]


@pytest.mark.parametrize("shown", [True, False])
def test_a_bar_appears_after_a_moment_where_somebody_looks(
    shown: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    for terminal in (False, True):
        monkeypatch.setenv("TTY_COMPATIBLE", str(int(terminal)))
        with bar("certifying", 10, 2, shown=shown) as report:
            report(Progress(1, 100, MOMENT / 2))
            assert capsys.readouterr().err == ""
            report(Progress(4, 400, 2.0))
        told = capsys.readouterr()
        assert told.out == ""
        assert ("6/10 inputs, 200 draws/s, 2 s left" in told.err) == (shown and terminal)


def test_a_bar_appears_before_the_first_batch_too(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checks of a large network take long, and nothing is told meanwhile; what is over at once shows nothing."""
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    with bar("certifying", 10):
        pass
    assert capsys.readouterr().err == ""
    shown = Event()
    monkeypatch.setattr("ringfence.bars.MOMENT", 0.0)
    monkeypatch.setattr("rich.progress.Progress.start", lambda bars: (start(bars), shown.set()))
    with bar("certifying", 10):
        assert shown.wait(60)
    assert "trying the network first" in capsys.readouterr().err


def test_a_run_of_a_program_has_a_bar(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ringfence.bars.MOMENT", 0.0)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    options: dict[str, Any] = {"sigma": 0.25, "n": 100, "check": False, "execution": FAST}
    run = rf.certify("default", X, **options, out=tmp_path / "run")
    assert len(run.records) == 3
    assert "3/3 inputs" in capsys.readouterr().err
    rf.certify("default", X, **options, progress=False, out=tmp_path / "other")
    assert capsys.readouterr().err == ""


def test_a_batch_in_memory_has_a_bar_too(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr("ringfence.bars.MOMENT", 0.0)
    smoothed = rf.Smoothed(rf.load_model("default").module, sigma=0.5, execution=FAST)
    for terminal in (False, True):
        monkeypatch.setenv("TTY_COMPATIBLE", str(int(terminal)))
        for doing, ask in (("certifying", smoothed.certify), ("predicting", smoothed.predict)):
            assert [one.input_id for one in ask([one.x for one in X], n=200)] == [0, 1, 2]
            assert (f"{doing} " in capsys.readouterr().err) == terminal
