from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from configs import small_config

from ringfence.analysis import load_metrics, metrics, metrics_by_lane
from ringfence.analysis.metrics import default_radii, guarantee, load_together
from ringfence.errors import ArgumentError, StoreError
from ringfence.procedures import AcesPredict, Fixed, Predict, Procedure, Sequential
from ringfence.record import Record
from ringfence.settings import usual_radii
from ringfence.store import RunFolder, export_cohen, import_cohen, read_cohen

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures" / "cohen"
RADII = [0.0, 0.25, 0.5, 0.75]


def record(input_id: int, label: int | None, prediction: int, radius: float, lane: str = "", **more: Any) -> Record:
    values: dict[str, Any] = {"sound": True, "draws": 10, "forwards": 20, "seconds": 0.5} | more
    return Record(input_id, lane, label, prediction, radius, 0.9, 0.1, 0.001, "fixed", seed=0, **values)


@pytest.mark.parametrize(
    ("name", "percent", "acr"),
    [
        ("cifar10_noise_0.25_sigma_0.25", [74.8, 60.0, 42.8, 26.6], 0.429),
        ("cifar10_noise_0.50_sigma_0.50", [65.2, 54.6, 41.4, 32.0], 0.538),
    ],
)
def test_published_logs_give_the_published_numbers(name: str, percent: list[float], acr: float) -> None:
    (found,) = load_metrics(FIXTURES / name, RADII)
    assert [round(100 * share, 10) for share in found.certified_accuracy.values()] == percent
    assert found.acr is not None
    assert round(found.acr, 3) == acr
    assert found.count == 500
    assert not found.sound


def test_log_run_and_exported_log_have_the_same_metrics(tmp_path: Path) -> None:
    source = FIXTURES / "cifar10_noise_0.25_sigma_0.25"
    run = import_cohen(source, 0.25, tmp_path / "run")
    log = export_cohen(run, tmp_path / "log")
    assert log is not None
    again = import_cohen(log, 0.25, tmp_path / "again")
    shapes = [metrics(read_cohen(source), RADII), metrics(run, RADII), metrics(again.read(), RADII)]
    expected = shapes[0].to_dict() | {"path": ""}
    assert all(one.to_dict() | {"path": ""} == expected for one in shapes)
    assert shapes[1].draws == 500 * 100_100


def test_by_hand() -> None:
    records = [
        record(0, 1, 1, 0.5),
        record(1, 1, 2, 0.9),  # wrong: its radius earns nothing
        record(2, 1, -1, 0.0),  # withheld
        record(3, 1, 1, 0.0),  # right without a radius: counts at 0
        record(4, 1, 1, 0.25, sound=False),
    ]
    found = metrics(records, [0, 0.25, 0.5, 0.6])
    assert found.certified_accuracy == {0.0: 0.6, 0.25: 0.4, 0.5: 0.2, 0.6: 0.0}
    assert found.accuracy == 0.6
    assert found.acr == pytest.approx(0.15)
    assert found.median_radius == 0.0
    assert found.abstention == 0.2
    assert (found.draws, found.forwards, found.seconds) == (50, 100, 2.5)
    assert not found.sound
    assert metrics(records[:4], [0]).sound


def test_an_abstention_is_not_right_even_where_the_label_is_missing() -> None:
    found = metrics([record(0, None, -1, 0.0), record(1, 2, 2, 0.5)], [0])
    assert found.certified_accuracy == {0.0: 1.0}  # of the one labelled input
    assert found.count == 2
    unlabelled = metrics([record(0, None, -1, 0.0), record(1, None, 3, 0.5)], [0])
    assert (unlabelled.accuracy, unlabelled.acr, unlabelled.certified_accuracy) == (None, None, {})
    assert unlabelled.abstention == 0.5


def test_records_of_several_norms_are_no_run() -> None:
    records = [record(0, 1, 1, 0.5), record(1, 1, 1, 0.5, norm="l1"), record(0, 1, 1, 0.5, norm="l1")]
    assert metrics(records[1:], RADII).norm == "l1"
    with pytest.raises(ArgumentError, match="record 1 in l1") as error:
        metrics(records, RADII)
    assert "record 0 in l2" in str(error.value)


def test_a_known_radius_says_nothing_beyond_it() -> None:
    records = [record(0, 1, 1, 0.5, target=0.5), record(1, 1, -1, 0.0, target=0.5)]
    found = metrics(records, [0, 0.25, 0.5])
    assert (found.acr, found.median_radius, found.target) == (None, None, 0.5)
    assert found.certified_accuracy == {0.0: 0.5, 0.25: 0.5, 0.5: 0.5}
    with pytest.raises(ArgumentError, match=r"only tried to prove the radius 0\.5.*\[0\.75\]"):
        metrics(records, RADII)


@pytest.mark.parametrize(
    ("sigma", "radii"),
    [
        *((sigma, (0, 0.25, 0.5, 0.75, 1)) for sigma in (0.25, 0.3, 0.5, 1.0)),
        (0.1, (0, 0.1, 0.2, 0.3, 0.4)),
        (0.12, (0, 0.1, 0.2, 0.3, 0.4)),
        (0.002, (0, 0.001, 0.002, 0.003, 0.004)),
        (4.0, (0, 1, 2, 3, 4)),
        (30.0, (0, 5, 10, 15, 20)),
        (1e-300, (0, 1e-300, 2e-300, 3e-300, 4e-300)),
    ],
)
def test_usual_radii_follow_sigma(sigma: float, radii: tuple[float, ...]) -> None:
    assert usual_radii(sigma) == radii


def test_a_run_of_small_sigma_is_told_at_small_radii(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("idx\tlabel\tpredict\tradius\tcorrect\ttime\n0\t1\t1\t0.14\t1\t0\n1\t1\t1\t0.38\t1\t0\n")
    import_cohen(log, 0.1, tmp_path / "run")
    wanted = {0.0: 1.0, 0.1: 1.0, 0.2: 0.5, 0.3: 0.5, 0.4: 0.0}
    for path in (log, tmp_path / "run"):
        assert load_metrics(path, None)[0].certified_accuracy == wanted
    assert default_radii(RunFolder.open(tmp_path / "run")) == [0.0, 0.1, 0.2, 0.3]


def test_runs_of_several_sigmas_are_told_at_the_radii_of_all(tmp_path: Path) -> None:
    small, large = tmp_path / "small", tmp_path / "large"
    for path, radius in ((small, 0.32), (large, 0.9)):
        path.write_text(f"idx\tlabel\tpredict\tradius\tcorrect\ttime\n0\t1\t1\t{radius}\t1\t0\n")
    found = load_together([small, large], None)
    for one in found:
        assert list(one.certified_accuracy) == [0, 0.1, 0.2, 0.25, 0.3, 0.4, 0.5, 0.75, 1]
    assert [one.certified_accuracy[0.25] for one in found] == [1, 1]
    assert [one.certified_accuracy[0.4] for one in found] == [0, 1]
    assert [list(one.certified_accuracy) for one in load_together([small, large], [0.3])] == [[0.3], [0.3]]


@pytest.mark.parametrize("radius", [-0.25, float("nan"), float("inf")])
def test_senseless_radii_are_refused(radius: float) -> None:
    with pytest.raises(ArgumentError, match="finite and not negative"):
        metrics([record(0, 1, 1, 0.5)], [radius])


@pytest.mark.parametrize("radii", [0.5, "0.5", ["a"], [None]])
def test_radii_that_are_no_numbers_are_told(radii: Any) -> None:
    with pytest.raises(ArgumentError, match=r"radii: must be a list of numbers; got .* Give e\.g\. \[0\.25, 0\.5\]"):
        metrics([record(0, 1, 1, 0.5)], radii)


def test_lanes_are_measured_apart() -> None:
    records = [record(0, 1, 1, 0.5, "a"), record(0, 1, -1, 0.0, "b"), record(1, 1, 1, 0.25, "a")]
    one, other = metrics_by_lane(records, [0.25])
    assert (one.lane, one.count, one.certified_accuracy) == ("a", 2, {0.25: 1.0})
    assert (other.lane, other.count, other.certified_accuracy) == ("b", 1, {0.25: 0.0})
    assert metrics(records, [0.25], lane="b") == other
    for lane in (None, "c"):
        with pytest.raises(ArgumentError, match="'a', 'b'"):
            metrics(records, [0.25], lane=lane)


@pytest.mark.parametrize(
    ("theirs", "ours", "told"), [(3.0, 1.5, 2.0), (3.0, 0.0, None), (0.0, 1.5, None), (3.0, 1e-308, None)]
)
def test_time_is_compared_where_it_was_counted(theirs: float, ours: float, told: float | None) -> None:
    """A log's times of 1e-308 s ended reports and --json in a traceback: no JSON holds infinity."""
    reference, mine = (metrics([record(0, 1, 1, 0.5, seconds=one)], RADII) for one in (theirs, ours))
    assert mine.against(reference).time_rf == told


def test_the_entry_that_is_printed(tmp_path: Path) -> None:
    config = small_config(model="m", data="d", num_classes=2, sigma=0.5, procedure="fixed", lanes=["", "second"])
    run = RunFolder.create_or_resume(tmp_path / "run", config)

    def ours(*values: Any) -> Record:
        return replace(record(*values), config_hash=config.digest)

    run.append([ours(0, 1, 1, 0.5), ours(1, None, 1, 0.5), ours(2, 1, -1, 0.0)])
    (found,) = load_metrics(run.path, [0, 0.25])
    assert found.to_dict() == {
        "path": str(run.path),
        "count": 3,
        "sound": True,
        "acr": 0.25,
        "abstention": 1 / 3,
        "certified_accuracy": {"0.0": 0.5, "0.25": 0.5},
    }
    run.append([ours(0, 1, 0, 0.5, "second")])
    assert [one.to_dict()["lane"] for one in load_metrics(run.path, [0])] == ["", "second"]


def test_what_is_no_run_and_no_log_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="nothing there"):
        load_metrics(tmp_path / "nowhere", [0])
    with pytest.raises(StoreError, match="run folder"):
        load_metrics(tmp_path, [0])
    with pytest.raises(StoreError, match="run folder; got a file"):
        load_metrics(FIXTURES / "cifar10_noise_0.25_sigma_0.25", [0], format="run")
    with pytest.raises(StoreError, match="prediction log"):
        load_metrics(FIXTURES / "imagenet_predict_first_rows", [0])
    with pytest.raises(StoreError, match="at least one record"):
        metrics([], [0])


@pytest.mark.parametrize(
    ("test", "norm", "sound", "claim"),
    [
        (
            Fixed(n=500),
            "l2",
            True,
            "no perturbation of l2 norm below its radius changes the smoothed classifier's answer.",
        ),
        (
            Fixed(n=500),
            "l1",
            True,
            "no perturbation of l1 norm below its radius changes the smoothed classifier's answer.",
        ),
        (Sequential(radius=0.5), "l2", True, "no perturbation of l2 norm below its radius changes"),
        (Predict(), "l2", True, "each answer is the smoothed classifier's most probable class."),
        (AcesPredict(), "l2", True, "each answer is that of the network which the smoothed selector chooses."),
        (Fixed(n=500), "l2", False, "paper mode: these results reproduce a published procedure and carry no proven"),
    ],
)
def test_the_guarantee_says_what_the_procedure_proves(test: Procedure, norm: str, sound: bool, claim: str) -> None:
    told = guarantee(test, norm, sound, "input and theta")
    assert claim in told
    assert told.startswith("for each input and theta, with probability at least 0.999 over the noise") is sound


def test_the_guarantee_does_not_round_a_small_alpha_away() -> None:
    assert "at least 0.9999999 over" in guarantee(Fixed(n=500, alpha=1e-7), "l2", True)
    assert "at least 1 - 1e-20 over" in guarantee(Fixed(n=500, alpha=1e-20), "l2", True)
