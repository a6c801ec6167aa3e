"""Attacks beside certificates: the figure is the stored numbers, the words name every broken certificate."""

from __future__ import annotations

import html
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ringfence.cli import app
from ringfence.errors import ArgumentError, StoreError
from ringfence.report.lane_figures import figure
from ringfence.report.other_figures import other_figures
from ringfence.report.page import report_page, sections
from ringfence.report.reading import load, sort_out
from ringfence.report.rendering import specification
from ringfence.store import RunFolder
from ringfence.store.attack import AttackResult, Broken, write_attack

FakeRun = Callable[..., RunFolder]
HOSTILE = '</script><img src=x onerror="alert(2)">'


def evidence(of: RunFolder, out: Path, **changes: Any) -> AttackResult:
    """The result of an attack on a run that nobody made, stored in a folder."""
    settings = {"attack": "pgd", "steps": 20, "copies": 32, "box": False, "n": 1000, "recheck": 100_000, "seed": 1}
    about = {"run": of.path.name, "config_hash": of.config.digest, "lane": "main", "sigma": 0.5, "alpha": 0.001}
    found = {"inputs": 40, "attacked": 31, "radii": (0.25, 0.5), "certified": (0.75, 0.5), "empirical": (0.875, 0.8)}
    made = AttackResult(**{**settings, **about, **found, **changes})
    write_attack(made, {}, out)
    return made


def broken(input_id: int) -> Broken:
    return Broken(
        input_id=input_id,
        certified_class=1,
        radius=0.512345,
        distance=0.499,
        attacked_class=2,
        votes=61_234,
        draws=100_000,
    )


def test_the_figure_is_what_was_stored(fake_run: FakeRun, tmp_path: Path) -> None:
    run = fake_run(tmp_path / "a")
    evidence(run, tmp_path / "e", certified=(0.75, None))
    drawn = other_figures(load([run.path, tmp_path / "e"]))["attacks"]
    rows = {(row["kind"], row["radius"]): row["accuracy"] for row in drawn.rows}
    assert rows == {("certified", 0.25): 0.75, ("empirical", 0.25): 0.875, ("empirical", 0.5): 0.8}
    assert drawn.names == ["a, pgd"]
    spec = specification(drawn)
    assert [row for rows in spec["datasets"].values() for row in rows] == drawn.rows


def test_attacks_are_found_by_content_wherever_they_lie(fake_run: FakeRun, tmp_path: Path) -> None:
    run = fake_run(tmp_path / "a")
    evidence(run, tmp_path / "e")
    renamed = tmp_path / "result-of-monday.json"
    renamed.write_bytes((tmp_path / "e" / "attack.json").read_bytes())
    evidence(run, run.path)
    runs, extras = sort_out([run.path, tmp_path / "e", renamed])
    assert runs == [run.path], "a run folder with evidence inside is both"
    assert [name for name, _ in extras.attacks] == ["a", "e", "result-of-monday.json"]


def test_attacks_are_named_after_their_lane_and_keep_its_colour(fake_run: FakeRun, tmp_path: Path) -> None:
    runs = [fake_run(tmp_path / name, seed=place) for place, name in enumerate("ab")]
    evidence(runs[1], tmp_path / "e")
    evidence(runs[1], tmp_path / "f", attack="ddn")
    evidence(runs[1], tmp_path / "g", config_hash="of another run", run="elsewhere")
    evidence(runs[1], tmp_path / "h", attack="ddn", seed=2)
    names = [tmp_path / name for name in "abefgh"]
    drawn = other_figures(load(names))["attacks"]
    assert drawn.names == ["b, pgd", "b, ddn (f)", "elsewhere, pgd", "b, ddn (h)"]
    assert drawn.colours[0] == 1, "as in the other figures"
    assert len(set(drawn.colours)) == 4


def test_an_unbroken_run_says_so(fake_run: FakeRun, tmp_path: Path) -> None:
    run = fake_run(tmp_path / "a")
    evidence(run, tmp_path / "e")
    material = load([run.path, tmp_path / "e"])
    section = next(one for one in sections(material) if one.id == "attacks")
    (note,) = section.notes
    assert note.text == "a, pgd: no certificate was broken (31 attacked)."
    assert "20 steps on 32 fixed noise draws, PREDICT with 1,000 fresh draws, seed 1" in note.detail
    assert not note.alarm
    page = report_page(material)
    assert 'class="note alarm"' not in page
    assert "badge alarm" not in page
    assert "Trained Smoothed Classifiers" in page


def test_broken_certificates_are_shown_with_their_evidence(fake_run: FakeRun, tmp_path: Path) -> None:
    run = fake_run(tmp_path / "a")
    evidence(run, tmp_path / "e", broken=(broken(3), broken(17)))
    page = html.unescape(report_page(load([run.path, tmp_path / "e"])))
    assert "badge alarm" in page
    assert "a, pgd: 2 of 31 attacked certificates were broken" in page
    assert 'class="note alarm"' in page
    for number in (3, 17):
        assert (
            f"input {number}: class 1 was certified within 0.512345, but at distance 0.499 PREDICT says class 2" in page
        )
    assert "61,234 of 100,000 fresh draws" in page
    assert "certificates of up to 0.04 of the inputs, on average, fail by chance" in page


def test_hostile_text_in_a_result_stays_text(fake_run: FakeRun, tmp_path: Path) -> None:
    run = fake_run(tmp_path / "a")
    evidence(run, tmp_path / "e", run=HOSTILE, config_hash=HOSTILE, lane=HOSTILE, attack=HOSTILE, broken=(broken(3),))
    page = report_page(load([run.path, tmp_path / "e"]))
    assert HOSTILE not in page
    assert "<img src=x" not in page


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 99}, "Update ringfence"),
        ({"radii": "all"}, "must be whole"),
        ({"format": "other"}, "must be the result of an attack or a variance study"),
    ],
)
def test_bad_results_are_refused_by_name(
    fake_run: FakeRun, tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    run = fake_run(tmp_path / "a")
    found = evidence(run, tmp_path / "e")
    (tmp_path / "e" / "attack.json").write_text(json.dumps({**found.to_dict(), **change}))
    with pytest.raises(StoreError, match=message) as error:
        load([run.path, tmp_path / "e"])
    assert "attack.json" in str(error.value)


@pytest.mark.parametrize("content", ["", '{"format": "ringfence-attack", "ver', "[" * 100_000])
def test_half_written_results_are_refused(fake_run: FakeRun, tmp_path: Path, content: str) -> None:
    run = fake_run(tmp_path / "a")
    (tmp_path / "attack.json").write_text(content)
    with pytest.raises(StoreError, match="must hold JSON"):
        load([run.path, tmp_path / "attack.json"])


def test_the_figure_for_a_paper_needs_no_run(fake_run: FakeRun, tmp_path: Path) -> None:
    evidence(fake_run(tmp_path / "a"), tmp_path / "e")
    words = ["plot", str(tmp_path / "e"), "--kind", "attacks", "--out", str(tmp_path / "a.svg"), "--json"]
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    assert done.exit_code == 0
    assert len(json.loads(done.output)["rows"]) == 4
    assert (tmp_path / "a.svg").read_text().startswith("<svg")
    with pytest.raises(ArgumentError, match="These runs have attacks"):
        figure("curve", [], other_figures(load([tmp_path / "e"], without_runs=True)))
