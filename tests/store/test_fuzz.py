"""Every reader of somebody else's file, on anything at all: a result or a clear error, never a traceback."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ringfence.analysis.metrics import load_metrics, metrics
from ringfence.cli.console import numbers, whole_numbers
from ringfence.data import load_dataset
from ringfence.errors import RingfenceError
from ringfence.store import RunFolder, import_cohen, read_cohen
from ringfence.store.logs import read_component, selection_logs

fuzzed = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)

NUMBERS = st.one_of(
    st.integers(-5, 12).map(str),
    st.sampled_from(["9" * 20, "-" + "9" * 25, "9" * 5000, "1e308", "1e999", "nan", "inf", "-inf", "-0", "0x1", "1_0",
                     "", " ", "\u0661", "1.5", "1e23", "0:00:01.5", "1 day, 0:00:01", "\x00", "é", "99999999:00:00"]),
    st.text(max_size=6),
)  # fmt: skip
ROWS = st.lists(st.lists(NUMBERS, min_size=1, max_size=8).map("\t".join), max_size=6)
COHEN = "idx\tlabel\tpredict\tradius\tcorrect\ttime"
COMPONENT = "idx\tlabel\tpredict\tradius\tcorrect\tunperturbed predict"
TIDY = st.lists(st.tuples(*[NUMBERS] * 6).map("\t".join), max_size=6)


def told(use: Callable[[], object]) -> None:
    """Run it; what the package raises on purpose is an answer."""
    with warnings.catch_warnings(action="ignore"):
        try:
            use()
        except RingfenceError:
            return


def use_log(path: Path) -> None:
    log = read_cohen(path)
    metrics(log, [0.0, 0.5])
    import_cohen(path, 0.5, path.parent / "run")
    metrics(RunFolder.open(path.parent / "run"), [0.0])


@fuzzed
@given(
    rows=st.one_of(ROWS, TIDY),
    header=st.sampled_from([COHEN, COHEN + "\tmore", "# said\n" + COHEN, "", "idx\tpredict"]),
)
@example(rows=["9" * 20 + "\t1\t1\t0.5\t1\t1.0"], header=COHEN)
@example(rows=["1\t1\t" + "9" * 25 + "\t0.5\t1\t1.0"], header=COHEN)
@example(rows=["1\t1\t1\t1e308\t1\t1.0"], header=COHEN)
@example(rows=["1\t1\t1\t0.5\t1\t" + "9" * 400 + ":00:00"], header=COHEN)
@example(rows=["1\t-1\t-1\t0\t0\t1.0"], header=COHEN)
@example(rows=[f"1\t{2**63 - 1}\t1\t0.5\t0\t1.0"], header=COHEN)
def test_cohen_logs(tmp_path_factory: pytest.TempPathFactory, rows: list[str], header: str) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "log"
    path.write_text("\n".join([header, *rows]), encoding="utf-8", errors="surrogatepass")
    told(lambda: use_log(path))
    told(lambda: load_metrics(path, None))


@fuzzed
@given(content=st.binary(max_size=300))
def test_bytes_in_the_place_of_a_log(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "log").write_bytes(content)
    told(lambda: read_cohen(tmp_path / "log"))
    told(lambda: read_component(tmp_path / "log"))


@fuzzed
@given(rows=st.one_of(ROWS, TIDY))
@example(rows=["9" * 20 + "\t1\t1\t0.5\t1\t1"])
def test_component_logs(tmp_path: Path, rows: list[str]) -> None:
    (tmp_path / "log").write_text("\n".join([COMPONENT, *rows]), encoding="utf-8", errors="surrogatepass")
    told(lambda: read_component(tmp_path / "log"))


@fuzzed
@given(text=st.one_of(st.lists(NUMBERS, max_size=5).map(",".join), st.text(max_size=20)))
def test_radii_as_a_user_writes_them(tmp_path: Path, text: str) -> None:
    log = tmp_path / "log"
    if not log.exists():
        log.write_text(COHEN + "\n1\t1\t1\t0.5\t1\t1.0\n")
    told(lambda: whole_numbers(text, "--stages"))
    told(lambda: load_metrics(log, numbers(text, "--radii")))


ARRAYS = st.sampled_from(
    [
        np.zeros(0), np.zeros((3, 0)), np.zeros((3, 2, 2)), np.full((3, 2, 2), np.nan),
        np.zeros((3, 1, 2, 2), np.uint8),
        np.array(5.0), np.array(["x", "y", "z"]), np.zeros(3, np.complex128), np.arange(3), np.array([0, 0, 1]),
        np.array([0.0, np.nan, 2.0]), np.array([0.5, 1.0, 2.0]), np.array([2**63, 1, 2], np.uint64), np.zeros(3, bool),
        np.array([-5, 10**12, 3]), np.zeros((3, 2), "V4"), np.array([np.datetime64("2020")] * 3),
    ]
)  # fmt: skip


@fuzzed
@given(arrays=st.dictionaries(st.sampled_from(["x", "y", "index", "x_test", "y_test", "other"]), ARRAYS, max_size=4))
@example(arrays={})
@example(arrays={"x": np.zeros((3, 2, 2)), "index": np.array([0.0, np.nan, 2.0])})
def test_npz_files_of_any_arrays(tmp_path: Path, arrays: dict[str, np.ndarray]) -> None:
    np.savez(tmp_path / "data.npz", **arrays)
    told(lambda: list(load_dataset(str(tmp_path / "data.npz"))))


@fuzzed
@given(content=st.binary(max_size=200), cut=st.integers(0, 400))
@example(content=b"", cut=0)
def test_npz_files_of_any_bytes(tmp_path: Path, content: bytes, cut: int) -> None:
    whole = io.BytesIO()
    np.savez(whole, x=np.zeros((3, 2, 2)), y=np.arange(3))
    for name, written in (("a.npz", content), ("b.npz", whole.getvalue()[:cut] + content)):
        (tmp_path / name).write_bytes(written)
        told(lambda name=name: list(load_dataset(str(tmp_path / name))))  # type: ignore[misc]


@fuzzed
@given(content=st.binary(max_size=200), labels=st.one_of(st.none(), st.text(max_size=40)))
def test_image_folders_of_any_files(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, labels: str | None
) -> None:
    folder = tmp_path_factory.mktemp("images")
    (folder / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n" + content)
    (folder / "b.jpg").write_bytes(content)
    if labels is not None:
        (folder / "labels.csv").write_text(labels, encoding="utf-8", errors="surrogatepass")
    told(lambda: list(load_dataset(str(folder))))


LONG = "x" * 5000


@pytest.mark.parametrize(
    "use",
    [
        lambda folder: RunFolder.open(folder / LONG),
        lambda folder: load_metrics(folder / LONG, None),
        lambda folder: read_cohen(folder / LONG),
        lambda folder: import_cohen(folder / "log", 0.5, folder / LONG),
        lambda folder: selection_logs([folder / LONG]),
        lambda folder: load_dataset(str(folder / LONG)),
        lambda folder: load_dataset(str(folder / LONG) + ".npz"),
        lambda folder: load_dataset("nul\0"),
        lambda folder: RunFolder.open("nul\0"),
        lambda folder: load_metrics("nul\0", None),
    ],
)
def test_names_too_long_for_the_file_system(tmp_path: Path, use: Callable[[Path], object]) -> None:
    (tmp_path / "log").write_text(COHEN + "\n1\t1\t1\t0.5\t1\t1.0\n")
    with pytest.raises(RingfenceError):
        use(tmp_path)


@pytest.mark.parametrize(
    "given",
    [
        {"sigma": 1e308},
        {"sigma": 1e-308},
        {"n": 10**23},
        {"n0": -5},
        {"n": -1},
        {"n": 0},
        {"alpha": 1e-300},
        {"n": 2**62},
    ],
)
def test_absurd_settings_of_an_import(tmp_path: Path, given: dict[str, float]) -> None:
    (tmp_path / "log").write_text(COHEN + "\n1\t1\t1\t0.5\t1\t1.0\n")
    told(lambda: import_cohen(tmp_path / "log", **{"sigma": 0.5, "out": tmp_path / "run", **given}))  # type: ignore[arg-type]
