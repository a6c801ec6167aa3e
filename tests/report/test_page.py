"""The page as text: whole, closed, escaped, small."""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ringfence.errors import StoreError
from ringfence.procedures import Multinomial, Predict
from ringfence.report.gallery import number, sheets
from ringfence.report.page import report_page, script_json
from ringfence.report.reading import load
from ringfence.store import RunFolder

FakeRun = Callable[..., RunFolder]
HOSTILE = '</script><script>alert(1)</script><img src=x onerror="alert(2)">'


def gallery_of(page: str) -> dict[str, Any]:
    packed = re.search(r'id="gallery-data">([^<]*)<', page)
    assert packed
    found: dict[str, Any] = json.loads(gzip.decompress(base64.b64decode(packed[1])))
    return found


def test_the_page_is_closed(fake_run: FakeRun, tmp_path: Path) -> None:
    fake_run(tmp_path / "a")
    page = report_page(load([tmp_path / "a"]))
    outside = re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    assert not re.findall(r'(?:src|href)="(?!#|data:)', outside)
    assert "default-src &#39;none&#39;" in page
    assert "unsafe-eval" not in page
    assert page == report_page(load([tmp_path / "a"])), "equal runs give equal pages"


def test_hostile_names_stay_text(fake_run: FakeRun, tmp_path: Path) -> None:
    fake_run(tmp_path / "<b>run<", names=[HOSTILE], model=HOSTILE, data=HOSTILE, lanes=(HOSTILE, "b"))
    page = report_page(load([tmp_path / "<b>run<"]), HOSTILE, [HOSTILE] * 4)
    assert HOSTILE not in page
    assert "<b>run" not in page
    assert "<img src=x" not in page
    assert gallery_of(page)["items"]["name"][0] == HOSTILE


@pytest.mark.parametrize("text", ["</script>", "<!--", "a&b", "\u2028", "]]>"])
def test_json_in_scripts_cannot_end_them(text: str) -> None:
    written = script_json({text: [text]})
    assert not set("<>&\u2028") & set(written)
    assert json.loads(written) == {text: [text]}


def test_the_gallery_holds_every_record(fake_run: FakeRun, tmp_path: Path) -> None:
    one, other = fake_run(tmp_path / "a", 20), fake_run(tmp_path / "b", 30, seed=1, sigma=1.0)
    found = gallery_of(report_page(load([one.path, other.path])))
    assert found["items"]["id"] == list(range(30))
    for run, lane in zip((one, other), found["lanes"], strict=True):
        records = run.read()
        assert lane["prediction"][: len(records)] == [record.prediction for record in records]
        assert lane["prediction"][len(records) :] == [None] * (30 - len(records))
        for record, radius in zip(records, lane["radius"], strict=False):
            assert record.radius * (1 - 1e-6) <= radius <= record.radius, "shown radii never grow"
        assert all(shown >= record.p_b for record, shown in zip(records, lane["p_b"], strict=False))
        stage, requests, draws, pairs, *_ = lane["streams"][0][-1]
        assert (stage, requests, draws) == (1, 1, 500)
        assert pairs[1] == max(records[0].stages[-1].cells["votes"])


def test_runs_on_different_data_do_not_share_inputs(fake_run: FakeRun, tmp_path: Path) -> None:
    fake_run(tmp_path / "a", 5, data_hash="1")
    fake_run(tmp_path / "b", 5, data_hash="2")
    found = gallery_of(report_page(load([tmp_path / "a", tmp_path / "b"])))
    assert len(found["items"]["id"]) == 10


def test_classes_are_called_as_the_data_of_the_run_call_them(fake_run: FakeRun, tmp_path: Path) -> None:
    run = fake_run(tmp_path / "a", 5)
    material = load([run.path])
    assert gallery_of(report_page(material))["sets"] == [{"name": "fake.npz", "classes": []}]
    run.write_summary({**(run.summary() or {}), "class_names": ["ant", "bee", HOSTILE, "dog"]})
    page = report_page(load([run.path]))
    assert gallery_of(page)["sets"][0]["classes"] == ["ant", "bee", HOSTILE, "dog"]
    assert HOSTILE not in page
    assert gallery_of(report_page(load([run.path]), class_names=["a", "b", "c", "d"]))["sets"][0]["classes"][0] == "a"
    assert (
        gallery_of(report_page(load([fake_run(tmp_path / "m", 5, data="mnist").path])))["sets"][0]["classes"][9] == "9"
    )


def test_runs_without_pictures_labels_or_radii_have_a_page(fake_run: FakeRun, tmp_path: Path) -> None:
    fake_run(tmp_path / "a", shape=None, labelled=False)
    fake_run(tmp_path / "b", procedure=Predict(), shape=None)
    page = report_page(load([tmp_path / "a", tmp_path / "b"]))
    assert "These runs hold no pictures" in page
    assert "most probable class" in page


def test_paper_mode_is_marked(fake_run: FakeRun, tmp_path: Path) -> None:
    fake_run(tmp_path / "a")
    fake_run(tmp_path / "b", procedure=Multinomial(n=500, form="paper"))
    page = report_page(load([tmp_path / "a", tmp_path / "b"]))
    assert "b: paper mode: no proven guarantee" in page
    assert page.count('class="badge"') == 1


def test_only_training_is_no_report(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("epoch,loss\n1,2\n")
    with pytest.raises(StoreError, match="at least one run"):
        load([tmp_path])
    with pytest.raises(StoreError, match="nothing there"):
        load([tmp_path / "missing"])


def test_ten_runs_of_500_fit_in_5_megabytes(fake_run: FakeRun, tmp_path: Path) -> None:
    for k in range(10):
        fake_run(tmp_path / str(k), 500, seed=k, shape=(64, 64, 3), mechanisms=("neyman_pearson", "one_sided"))
    page = report_page(load([tmp_path / str(k) for k in range(10)]))
    assert len(page.encode()) < 5_000_000


def test_sheets_of_clips_and_of_mixed_sizes() -> None:
    rng = np.random.default_rng(0)
    pictures = [rng.integers(0, 256, shape, dtype=np.uint8) for shape in ((4, 6, 3), (20, 5, 5, 1), (9, 2, 1))]
    found = sheets(pictures)
    assert found is not None
    assert found["frames"] == [1, 8, 1]
    assert found["sizes"] == [[4, 6], [5, 40], [9, 2]]
    assert (found["height"], found["width"]) == (9, 40)
    assert found["urls"][0].startswith("data:image/png")
    alike = sheets([pictures[0]] * 2)
    assert alike is not None
    assert (alike["frames"], alike["sizes"]) == ([], []), "said once for all"
    assert sheets([]) is None


def test_numbers_are_rounded_to_the_safe_side() -> None:
    assert number(0.1 + 0.2) == 0.3
    assert number(0.29) == 0.29
    assert number(1.23456789) == 1.234567
    assert number(1.23456711, up=True) == 1.234568
    assert number(float("nan")) is None
    assert number(float("inf")) == 1e308
    assert number(3) == 3
