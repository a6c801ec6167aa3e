"""The settings of DRT that held-out images choose are those that the sweep file then has."""

from __future__ import annotations

from pathlib import Path

import pytest
from choose import NAME, SWEEP, Choice, choices, chosen

import ringfence as rf


def test_the_largest_average_radius_of_each_kind_goes_into_the_file() -> None:
    found = [
        Choice(10.0, "paper_sum", "0.0001", 1.1),
        Choice(10.0, "mean", "0.00003", 1.3),
        Choice(0.5, "paper_sum", "0.002", 1.2),
        Choice(0.5, "mean", "0.001", 1.19),
    ]
    text = chosen(SWEEP.read_text(), found)
    assert '  gentle: {lr: 0.002, reduction: paper_sum, squared: false, rho1: "{rho1}"' in text
    assert '  steep: {lr: 0.00003, reduction: mean, squared: true, rho1: "{rho1}"' in text
    assert chosen(text, [found[0]]).count("lr: 0.002, reduction: paper_sum") == 1, "a kind without any stays"
    with pytest.raises(SystemExit, match="no line of settings called steep"):
        chosen("", found[:1])


def test_the_runs_that_the_file_names_are_read(tmp_path: Path) -> None:
    name, other = "choose-0.5-10.0-2.5-mean-lr0.00003", "choose-0.5-0.5-2.0-mean-lr0.001"
    run = rf.certify("default", rf.load_dataset("default", limit=3), sigma=0.5, n=100, out=tmp_path / name)
    (one,) = choices(tmp_path, f"training: [{name}]")
    (metrics,) = run.metrics()
    assert one == Choice(10.0, "mean", "0.00003", metrics.acr)
    with pytest.raises(SystemExit, match=f"{other} is not finished"):  # not begun: among some the best is no choice
        list(choices(tmp_path, f"training: [{name}, {other}]"))
    (tmp_path / name / "summary.json").unlink()
    with pytest.raises(SystemExit, match=f"{name} is not finished"):
        list(choices(tmp_path, f"training: [{name}]"))


def test_the_file_names_six_of_two_kinds() -> None:
    found = [one["rho1"] for one in NAME.finditer(SWEEP.read_text())]
    assert sorted(found) == ["0.5", "0.5", "10.0", "10.0", "10.0", "10.0"]
