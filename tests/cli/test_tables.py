"""Tables on 80 columns: no number lost, no label folded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from click.testing import Result
from rich.console import Console

from ringfence.analysis.aces import ThetaMetrics
from ringfence.analysis.metrics import RunMetrics
from ringfence.analysis.stages import ConsensusStats
from ringfence.cli.console import PlainConsole
from ringfence.cli.tables import UNSOUND, metrics_table, milliseconds, print_points, sparkline, table

LOG = Path(__file__).parents[1] / "fixtures" / "cohen" / "cifar10_noise_0.25_sigma_0.25"
SOUND = RunMetrics(
    count=500,
    accuracy=0.748,
    acr=1.429,
    median_radius=0.3,
    abstention=0.086,
    certified_accuracy={0.0: 0.748, 0.25: 0.6, 0.5: 0.428, 0.75: 0.266, 1.0: 0.1},
    target=None,
    draws=500 * 100_100,
    forwards=500 * 100_100,
    seconds=500 * 15.4,
    sound=True,
    path="runs/" + "a-very-long-name-" * 6,
)
PAPER = replace(SOUND, sound=False, path="runs/published/" + "x" * 90)
FULL = dict.fromkeys(SOUND.certified_accuracy, 1.0)
CONSENSUS = ConsensusStats(members=10, agree=2, kcr=0.91, forwards_per_draw=2.7)


def shown(*runs: RunMetrics, width: int = 80) -> str:
    text = StringIO()
    Console(file=text, width=width, color_system=None, legacy_windows=False).print(
        metrics_table(runs, width, curve=True)
    )
    return text.getvalue()


def test_long_paths_leave_room_for_numbers_curve_and_label() -> None:
    text = shown(SOUND, PAPER)
    assert max(map(len, text.splitlines())) <= 80
    assert text.count(UNSOUND) == 1, "whole, and only where it belongs"
    assert text.count(sparkline([0.748, 0.6, 0.428, 0.266, 0.1])) == 2
    for number in ("74.8", "60.0", "42.8", "26.6", "10.0", "1.429", "8.6", "100100", "15400"):
        assert text.count(number) == 2, number
    folded = "".join(line[: len(UNSOUND)].strip() for line in text.splitlines())
    assert "x" * 20 in folded, "the path itself may be folded"


@pytest.mark.parametrize(
    ("run", "numbers"),
    [
        (replace(PAPER, certified_accuracy=FULL), ["100.0", "15400"]),
        (replace(PAPER, time_rf=12.34), ["10.0", "12.34"]),
        (replace(PAPER, consensus=CONSENSUS), ["91.00", "2.70"]),
        (replace(PAPER, consensus=CONSENSUS, time_rf=12.34, seconds=40.0), ["91.00", "2.70", "12.34"]),
    ],
)
def test_the_label_and_every_number_survive_more_columns(run: RunMetrics, numbers: list[str]) -> None:
    text = shown(run)
    assert UNSOUND in text
    for number in [*numbers, "1.429", "100100"]:
        assert number in text, number


def test_too_many_radii_are_thinned_out_and_none_is_cut_short() -> None:
    many = {0.25 * k: 1 - 0.05 * k for k in range(17)}
    loud = replace(SOUND, path="runs/loud", certified_accuracy=many, draws=500 * 200, seconds=50.0)
    lines = shown(loud).splitlines()
    assert lines[1].split() == [
        "run",
        "0",
        "0.5",
        "1",
        "1.5",
        "2",
        "2.5",
        "3",
        "3.5",
        "4",
        "ACR",
        "abst%",
        "draws",
        "ms",
    ]
    assert lines[3].split()[:4] == ["runs/loud", "100.0", "90.0", "80.0"]
    assert "9 of 17 radii, --json has all" in lines[4]
    assert "of 17 radii" not in shown(loud, width=160), "where there is room for all"


def test_a_wide_terminal_has_one_line_per_run() -> None:
    lines = shown(SOUND, replace(SOUND, path="b"), width=200).splitlines()
    assert len(lines) == 6, "title, heading, rule, two runs, caption"


def test_norms_and_alphas_that_are_not_alike_are_told_beside_their_runs() -> None:
    plain = replace(SOUND, path="plain", alpha=0.001)
    mixed = shown(plain, replace(plain, path="other", norm="l1", proved="l1"), width=160)
    assert ("plain in l2" in mixed, "other in l1" in mixed) == (True, True)
    alone = shown(replace(plain, norm="l1", proved="l1"), width=160)
    assert "at radius in l1" in alone
    assert "plain in" not in alone
    loose = shown(plain, replace(plain, path="loose", alpha=0.05), width=160)
    assert "plain, alpha 0.001" in loose
    assert "loose, alpha 0.05" in loose
    assert "alpha" not in shown(plain, plain, width=160)
    assert " in l" not in shown(plain, plain, width=160)


def test_two_radii_are_no_curve() -> None:
    few = replace(SOUND, path="a", certified_accuracy={0.0: 0.9, 0.5: 0.8})
    assert "curve" not in shown(few)
    assert "curve" in shown(few, SOUND)


def test_without_labels_no_accuracy_is_announced_and_the_caption_stays_one_line() -> None:
    bare = replace(SOUND, path="a", accuracy=None, acr=None, median_radius=None, certified_accuracy={})
    told = shown(bare)
    assert "No labels" in told
    assert "Certified accuracy" not in told
    assert "ACR" not in told
    assert "500 inputs; draws and ms per input\n" in told
    assert "Certified accuracy" in shown(bare, SOUND)


def test_the_metrics_command_prints_the_curve(call: Callable[..., Result]) -> None:
    line = call("metrics", LOG).stdout.splitlines()[3]
    assert sparkline([0.748, 0.6, 0.428, 0.266, 0.0]) in line


def test_draws_that_a_log_does_not_tell_are_a_dash(call: Callable[..., Result]) -> None:
    assert " 8.6 - 16882" in " ".join(call("metrics", LOG).stdout.split())


def test_hostile_names_are_no_markup() -> None:
    assert "[red]a[/red]" in shown(replace(SOUND, path="[red]a[/red]"))


def test_sparklines_show_shares() -> None:
    assert sparkline([0.0, 0.1249, 0.125, 0.5, 0.99, 1.0]) == "▁▁▂▅██"
    assert sparkline([1.0, None]) == "█ "


def test_milliseconds() -> None:
    assert [milliseconds(one) for one in (0.0161, 0.0999, 0.1486, 15.4)] == ["16.1", "99.9", "149", "15400"]


def test_of_a_hundred_and_one_thresholds_every_fifth_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    theta = ThetaMetrics(0.0, 0.5, 0.4, 0.1, {0.0: 0.5}, {0.0: 0.2}, 0.001, True)
    print_points([replace(theta, theta=step / 100) for step in range(101)])
    shown = [line.split()[0] for line in capsys.readouterr().out.splitlines() if line.lstrip()[:1].isdigit()]
    assert shown == 2 * [f"{step / 20:g}" for step in range(21)], "one table of accuracies, one of selections"


def test_a_narrow_window_cuts_no_number_and_leaves_out_no_column() -> None:
    text = StringIO()
    narrow = PlainConsole(file=text, width=20)
    narrow.print(table(("name", "files", "sigma"), [("a-name-that-is-long", "12/100", "0.25")], ("name",)))
    first, _, *rows = text.getvalue().splitlines()
    assert first.split() == ["name", "files", "sigma"]
    assert rows[0].split()[1:] == ["12/100", "0.25"]
    assert "".join(row.split()[0] for row in rows) == "a-name-that-is-long"
