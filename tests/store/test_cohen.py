from __future__ import annotations

import io
import math
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.errors import ArgumentError, StoreError
from ringfence.record import Record
from ringfence.rounding import confidence, rounded_down, written_down
from ringfence.store import RunConfig, RunFolder, export_cohen, import_cohen, read_cohen

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures" / "cohen"
HEADER = "idx\tlabel\tpredict\tradius\tcorrect\ttime"


def log_file(folder: Path, *lines: str, end: str = "\n", header: str = HEADER) -> Path:
    path = folder / "log"
    path.write_bytes(("\n".join([header, *lines]) + end).encode())
    return path


def test_a_published_log() -> None:
    log = read_cohen(FIXTURES / "cifar10_noise_0.25_sigma_0.25")
    assert len(log) == 500
    assert log.notes == ()
    assert log.idx[[0, 1, -1]].tolist() == [0, 20, 9980]
    assert log.predict[:2].tolist() == [3, -1]
    assert log.radius[:2].tolist() == [0.378, 0.0]
    assert log.seconds[0] == 15.4
    assert log.correct[:2].tolist() == [True, False]


def test_a_cut_log_is_read_up_to_the_cut() -> None:
    log = read_cohen(FIXTURES / "cifar10_noise_0.12_sigma_0.12_cut")
    assert log.idx[-1] == 600
    assert log.seconds[-1] == pytest.approx(14.132791)
    assert log.notes == ("line 33 is cut short and was left out: '620\\t7\\t7'",)


def test_every_shared_log_is_read(shared: Path) -> None:
    logs = [path for path in (shared / "logs" / "cohen" / "data" / "certify").rglob("*") if path.is_file()]
    assert len(logs) > 5
    assert {len(read_cohen(path)) for path in logs} == {427, 500, 513}


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("15.4", 15.4), ("0:02:31.25", 151.25), ("1:00:01", 3601.0), ("1 day, 0:00:01", 86401.0), ("1e-3", 0.001)],
)
def test_times(tmp_path: Path, text: str, seconds: float) -> None:
    assert read_cohen(log_file(tmp_path, f"0\t1\t1\t0.5\t1\t{text}")).seconds.tolist() == [seconds]


@pytest.mark.parametrize("line", ["1", "1\t2\t2\t0.", "1\t2\t2\t0.5\t1", "1\t2\t2\t0.5\t1\t", "1\t2\t2\t0.5\t1\t0:0"])
def test_a_cut_last_line_is_dropped_wherever_it_is_cut(tmp_path: Path, line: str) -> None:
    log = read_cohen(log_file(tmp_path, "0\t1\t1\t0.5\t1\t2", line, end=""))
    assert log.idx.tolist() == [0]
    assert len(log.notes) == 1


def test_a_last_line_that_lacks_only_its_newline_stays(tmp_path: Path) -> None:
    log = read_cohen(log_file(tmp_path, "0\t1\t1\t0.5\t1\t2", "1\t1\t1\t0.5\t1\t2", end=""))
    assert (len(log), log.notes) == (2, ())


def test_a_cut_radius_in_the_last_column_is_not_believed(tmp_path: Path) -> None:
    header = "idx\tlabel\tpredict\tcorrect\ttime\tradius"
    log = read_cohen(log_file(tmp_path, "0\t1\t1\t1\t2\t0.5", "1\t1\t1\t1\t2\t7", end="", header=header))
    assert log.radius.tolist() == [0.5]


@pytest.mark.parametrize(
    "line",
    [
        "1\t2\t2",
        "1\t2\tcat\t0.5\t1\t2",
        "1\t2\t2\tnan\t1\t2",
        "1\t2\t2\t-0.5\t1\t2",
        "1\t2\t2\tinf\t1\t2",
        "1\t2\t2\t0.5\t1\tsoon",
        "1\t2\t2\t0.5\t1\t2\t3",
        "1\t2\t-2\t0.5\t1\t2",
        f"1\t{2**31}\t2\t0.5\t1\t2",
        f"1\t2\t{2**31}\t0.5\t1\t2",
        "1\t2\t2\t1e308\t1\t2",
        "1\t2\t2\t0.5\t1\t-2",
        "",
    ],
)
def test_a_bad_row_is_refused_with_its_number_and_content(tmp_path: Path, line: str) -> None:
    path = log_file(tmp_path, "0\t1\t1\t0.5\t1\t2", line, "2\t1\t1\t0.5\t1\t2")
    with pytest.raises(StoreError) as caught:
        read_cohen(path)
    assert "line 3" in str(caught.value)
    assert repr(line) in str(caught.value)


def test_a_bad_last_row_that_is_whole_is_refused_too(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="line 2"):
        read_cohen(log_file(tmp_path, "0\t1\t1\tnan\t1\t2"))


def test_other_files_are_refused_clearly(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="prediction log, which has no radius"):
        read_cohen(FIXTURES / "imagenet_predict_first_rows")
    with pytest.raises(StoreError, match="certification log"):
        read_cohen(Path(__file__))
    with pytest.raises(StoreError, match="no rows"):
        read_cohen(log_file(tmp_path))
    with pytest.raises(StoreError, match="idx 4 twice"):
        read_cohen(log_file(tmp_path, "4\t1\t1\t0.5\t1\t2", "4\t1\t1\t0.5\t1\t2"))
    with pytest.raises(StoreError, match="readable file"):
        read_cohen(tmp_path)
    with pytest.raises(StoreError, match="No such file"):
        read_cohen(tmp_path / "nowhere")


def test_windows_line_ends_and_further_columns(tmp_path: Path) -> None:
    log = read_cohen(
        log_file(tmp_path, "0\t1\t1\t0.5\t1\t9\t2\r", header="\ufeff" + HEADER.replace("time", "x\ttime\r"))
    )
    assert log.seconds.tolist() == [2.0]


def test_rows_that_contradict_themselves_are_noted_and_the_label_counts(tmp_path: Path) -> None:
    log = read_cohen(log_file(tmp_path, "0\t1\t2\t0.5\t1\t2", "1\t-1\t-1\t0.0\t0\t2"))
    assert log.correct.tolist() == [False, False]
    assert log.notes[0].startswith("1 rows")


def test_import_keeps_what_the_log_says_and_claims_no_soundness(tmp_path: Path) -> None:
    source = FIXTURES / "cifar10_noise_0.25_sigma_0.25"
    run = import_cohen(source, 0.25, tmp_path / "run")
    log, records = read_cohen(source), run.read()
    assert [one.radius for one in records] == log.radius.tolist()
    assert [one.prediction for one in records] == log.predict.tolist()
    assert [one.label for one in records] == log.label.tolist()
    assert [one.seconds for one in records] == log.seconds.tolist()
    first, abstained = records[:2]
    assert not first.sound
    assert first.procedure == "imported:cohen"
    assert first.stages == ()
    assert first.p_a == pytest.approx(0.9347330687)  # Phi(0.378 / 0.25 = 1.512)
    assert first.p_a + first.p_b == pytest.approx(1)
    assert (abstained.p_a, abstained.p_b) == (0.0, 1.0)
    assert run.config.procedure.settings["source"] == "cohen log"
    assert run.config.classifier.classes == 10
    import_cohen(source, 0.25, run.path)
    assert len(list((run.path / "parts").iterdir())) == 1  # nothing is imported twice
    with pytest.raises(StoreError, match="sigma"):
        import_cohen(source, 0.5, run.path)


@pytest.mark.parametrize(("sigma", "alpha"), [(0.0, 0.001), (float("nan"), 0.001), (0.25, 0.0), (0.25, 1.0)])
def test_import_checks_its_settings_before_it_writes(tmp_path: Path, sigma: float, alpha: float) -> None:
    with pytest.raises(ArgumentError):
        import_cohen(FIXTURES / "cifar10_noise_0.25_sigma_0.25", sigma, tmp_path / "run", alpha=alpha)
    assert not (tmp_path / "run").exists()


def test_a_log_without_any_class_is_a_run_too(tmp_path: Path) -> None:
    run = import_cohen(log_file(tmp_path, "0\t-1\t-1\t0\t0\t2"), 0.25, tmp_path / "run")
    (record,) = RunFolder.open(run.path).read()
    assert (record.label, record.prediction, run.config.classifier.classes) == (None, -1, 1)


@pytest.mark.parametrize("name", ["cifar10_noise_0.25_sigma_0.25", "cifar10_noise_0.12_sigma_0.12_cut"])
def test_import_and_export_lose_nothing(tmp_path: Path, name: str) -> None:
    log = read_cohen(FIXTURES / name)
    written = export_cohen(import_cohen(FIXTURES / name, 0.25, tmp_path / "run"), tmp_path / "again")
    assert written == tmp_path / "again.unproved"
    again = read_cohen(written)
    assert again.notes[0].startswith("no proven guarantee")
    for column in ("idx", "label", "predict", "radius", "correct", "seconds"):
        assert np.array_equal(getattr(log, column), getattr(again, column))


def test_the_exported_lines(config: RunConfig, make_record: Callable[..., Record], tmp_path: Path) -> None:
    run = RunFolder.create_or_resume(tmp_path, config)
    run.append(
        [
            make_record(1, label=4, prediction=4, radius=0.98765999, seconds=3661.5),
            make_record(2, label=None, prediction=-1, radius=0.0, seconds=0.0),
            make_record(3, label=4, prediction=5, radius=0.0000123456789, seconds=59.9999999),
        ]
    )
    stream = io.StringIO()
    export_cohen(run, stream)
    assert stream.getvalue().split("\n") == [
        HEADER,
        "1\t4\t4\t0.987659\t1\t1:01:01.500000",
        "2\t-1\t-1\t0.0\t0\t0:00:00.000000",
        "3\t4\t5\t1.23456e-05\t0\t0:01:00.000000",
        "",
    ]


def test_radii_of_another_norm_are_written_in_l2_as_everybody_reads_them(
    config: RunConfig, make_record: Callable[..., Record], tmp_path: Path
) -> None:
    run = RunFolder.create_or_resume(tmp_path, config.model_copy(update={"norm": "l1"}))
    run.append([make_record(1, radius=0.5, norm="l1", config_hash=run.config.digest)])
    with pytest.raises(ArgumentError, match="coordinates"):
        export_cohen(run, io.StringIO())
    stream = io.StringIO()
    export_cohen(run, stream, coordinates=16)
    assert stream.getvalue().splitlines()[1].split("\t")[3] == "0.124999"
    run.write_summary({"shape": [1, 10, 10]})
    export_cohen(run, stream)
    assert float(stream.getvalue().splitlines()[-1].split("\t")[3]) == pytest.approx(0.05, rel=1e-5)


def test_a_log_holds_one_lane(config: RunConfig, make_record: Callable[..., Record], tmp_path: Path) -> None:
    run = RunFolder.create_or_resume(tmp_path, config)
    run.append([make_record(1, "a"), make_record(1, "b"), make_record(3, "b")])
    stream = io.StringIO()
    export_cohen(run, stream, lane="b")
    assert [line.split("\t")[0] for line in stream.getvalue().splitlines()] == ["idx", "1", "3"]
    for lane in (None, "c"):
        with pytest.raises(ArgumentError, match="a, b"):
            export_cohen(run, stream, lane=lane)


@given(st.floats(min_value=0, max_value=1e6), st.integers(min_value=1, max_value=17))
def test_printed_radii_never_exceed_the_proved_ones(radius: float, digits: int) -> None:
    printed = rounded_down(radius, digits)
    assert printed <= radius
    assert printed >= radius * (1 - 10.0 ** (1 - digits)) * (1 - 1e-15)


@given(st.floats(min_value=-1e6, max_value=1e6), st.integers(min_value=0, max_value=12))
def test_shown_decimals_never_exceed_what_was_proved(value: float, places: int) -> None:
    shown = written_down(value, places)
    assert Decimal(shown) <= Decimal(repr(value)) < Decimal(shown) + Decimal(1).scaleb(-places)


@pytest.mark.parametrize(
    ("value", "shown"), [(1.001, "1.001"), (1.0019, "1.001"), (math.inf, "inf"), (1e22, "1" + "0" * 22 + ".000")]
)
def test_a_radius_of_few_decimals_is_shown_as_it_is(value: float, shown: str) -> None:
    """1000 * 1.001 is below 1001 in floats."""
    assert written_down(value, 3) == shown


@pytest.mark.parametrize(
    ("alpha", "shown"), [(0.001, "0.999"), (0.05, "0.95"), (0.001 / 3, "0.9996666666"), (2e-9, "0.999999998")]
)
def test_a_guarantee_is_never_shown_surer_than_it_is(alpha: float, shown: str) -> None:
    """Each of three lanes that share 0.001 has 1 - 0.000333...: to nearest 0.9996666667, which nobody proved."""
    assert confidence(alpha) == shown
