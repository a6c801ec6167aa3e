"""Component logs are read as written, and whatever cannot be one is refused by name and line."""

from __future__ import annotations

from pathlib import Path

import pytest

from ringfence.errors import StoreError
from ringfence.store.logs import read_component, selection_logs

FIXTURES = Path(__file__).parents[1] / "fixtures" / "aces"
GOOD = "idx\tpredict\tradius\tunperturbed predict\ttime\n20\t1\t0.25\t1\t0:01\n0\t-1\t0.0\t0\t0:01\n"


def write(path: Path, text: str = GOOD) -> Path:
    path.write_text(text)
    return path


def test_the_authors_logs() -> None:
    certification = read_component(FIXTURES / "cifar10_gaussian_025_certification")
    assert certification.idx.tolist() == list(range(0, 10_000, 20))
    assert certification.radius is not None
    assert certification.natural is not None
    assert certification.label is not None
    assert (certification.predict[:3].tolist(), certification.natural[:3].tolist()) == ([3, -1, 4], [3, 7, 4])
    core = read_component(FIXTURES / "lanet_core_prediction")
    assert (core.radius, core.natural) == (None, None)


def test_rows_are_ordered_by_index(tmp_path: Path) -> None:
    found = read_component(write(tmp_path / "log"))
    assert (found.idx.tolist(), found.predict.tolist()) == ([0, 20], [-1, 1])


@pytest.mark.parametrize(
    "text",
    [GOOD.replace("\n", "\r\n"), GOOD.rstrip("\n"), f"{GOOD}\n\n", f"\ufeff{GOOD}", GOOD.replace("\n20", "\n\n20")],
    ids=["CRLF", "no last newline", "empty lines at the end", "byte-order mark", "an empty line between"],
)
def test_line_ends_and_empty_lines_do_not_matter(tmp_path: Path, text: str) -> None:
    (tmp_path / "log").write_bytes(text.encode())
    found, plain = read_component(tmp_path / "log"), read_component(write(tmp_path / "plain"))
    assert found.radius is not None
    assert plain.radius is not None
    assert found.radius.tolist() == plain.radius.tolist() == [0.0, 0.25]
    assert found.natural is not None
    assert (found.idx.tolist(), found.predict.tolist(), found.natural.tolist()) == ([0, 20], [-1, 1], [0, 1])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "must be a component log"),
        ("idx predict\n", "must be a component log"),
        ("idx\tpredict\n", "must hold at least one row"),
        ("idx\tpredict\n1\t2\t3\n", r"line 2: must have 2 columns; got '1"),
        ("idx\tpredict\n1\tx\n", r"line 2: predict must be a number; got '1\\tx'"),
        ("idx\tpredict\n1\tnan\n", r"line 2: predict must be a number"),
        ("idx\tpredict\n1\t1\n2\t-7\n", r"line 3: predict must be at least -1; got '2\\t-7'"),
        ("idx\tpredict\n1\t1\n2\t0.5\n", r"line 3: predict must be a whole number; got '2\\t0\.5'"),
        ("idx\tpredict\n1\t1\n\n2\t-7\n", r"line 4: predict must be at least -1"),
        ("idx\tpredict\tradius\n1\t1\t-0.5\n", r"line 2: radius must be at least 0"),
        ("idx\tpredict\n1\t1\n1\t0\n", "idx 1 twice"),
    ],
)
def test_bad_logs_are_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(StoreError, match=message):
        read_component(write(tmp_path / "log", text))


def test_selection_logs_are_found_in_every_way(tmp_path: Path) -> None:
    for theta in ("1.00", "0.00", "0.35"):
        write(tmp_path / f"x_selection_{theta}")
    write(tmp_path / "x_certification")
    write(tmp_path / "other_0.10")
    ways = [[tmp_path], [tmp_path / "x_selection"], [tmp_path / "x_selection_*"], sorted(tmp_path.glob("x_sel*"))]
    for way in ways:
        assert list(selection_logs(way)) == [0.0, 0.35, 1.0]
    assert list(selection_logs([tmp_path / "x_selection_0.35"])) == [0.35]


def test_selection_logs_that_are_none_are_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="must lead to selection logs"):
        selection_logs([tmp_path])
    with pytest.raises(StoreError, match="ends in _THETA"):
        selection_logs([write(tmp_path / "log")])
    with pytest.raises(StoreError, match=r"thetas lie in \[0, 1\]; got 1.5"):
        selection_logs([write(tmp_path / "selection_1.5")])
    with pytest.raises(StoreError, match=r"0\.5 twice"):
        selection_logs([write(tmp_path / "selection_0.5"), write(tmp_path / "selection_0.50")])
