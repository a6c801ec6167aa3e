"""The plan of what is left: minutes come from measured rows, every job of the headline tables stands in one step."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from left_page import FOLDER
from minutes import derived
from paper_runs import Runs
from paper_sweeps import all_not_run, entries, not_run
from stretch_plan import PLAN, Step, rows, steps

HEADLINES = {
    "horvath2022-ensembles/resnet110.yaml",
    "horvath2022-ensembles/resnet110-ten.yaml",
    "horvath2022-ensembles/minibatches.yaml",
    "horvath2022-aces/aces.yaml",
    "joshi2022-smooth-reduce/patches.yaml",
    "yang2022-diversity/mnist.yaml",
    "yang2022-diversity/cifar10-drt.yaml",
}


@pytest.mark.parametrize(("file", "entry", "minutes"), list(derived()), ids=lambda one: str(one))
def test_minutes_of_trainings_are_what_was_measured(file: str, entry: str, minutes: float) -> None:
    told = [
        float(one["minutes"])
        for command, one, _ in entries(FOLDER / file)
        if (command, one["name"]) == ("train", entry)
    ]
    assert told == [pytest.approx(minutes, abs=0.06)]


def test_rates_of_certification_are_what_was_measured() -> None:
    """Minutes need no third digit: told are rates within a tenth of those in results/benchmarks/gpu.json."""
    page = (FOLDER / "README.md").read_text(encoding="utf-8")
    told = re.search(
        r"Certification: ([\d,]+) noisy forwards a second \(ResNet-110\), ([\d.]+) million \(ResNet-20\)", page
    )
    assert told
    first = json.loads((FOLDER.parent / "results" / "benchmarks" / "gpu.json").read_text(encoding="utf-8"))["tables"][0]
    measured = {row[0]: float(row[2].replace(",", "")) for row in first["rows"]}
    assert float(told[1].replace(",", "")) == pytest.approx(measured["ResNet-110, fused"], rel=0.1)
    assert 1e6 * float(told[2]) == pytest.approx(measured["ResNet-20, fused"], rel=0.1)


def test_the_plan_holds_every_job_that_is_left_of_the_headline_tables() -> None:
    planned = steps(entries)
    assert {step.sweep for step in planned} - HEADLINES == {"horvath2022-ensembles/best.yaml"}
    for file in HEADLINES:
        left = [
            float(entry["minutes"])
            for _, entry, jobs in entries(FOLDER / file)
            for _, place in jobs
            if not (place / "config.json").exists()
        ]
        assert sorted(one for step in planned if step.sweep == file for one in step.left) == sorted(left), file
    assert all(step.fills for step in planned)


def test_a_job_counts_in_the_first_step_that_names_it(tmp_path: Path) -> None:
    plan = tmp_path / PLAN.name
    plan.write_text("- {sweep: a.yaml, names: [run-1], fills: x}\n- {sweep: a.yaml, names: [run], fills: y}\n")
    jobs = [
        ("run-1", tmp_path / "none"),
        ("run-2", tmp_path / "none"),
        ("run-3", tmp_path / "kept"),
        ("other", tmp_path),
    ]
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "config.json").touch()
    first, second = steps(lambda _: iter([("certify", {"minutes": "2"}, jobs)]), plan)
    assert (first.left, second.left) == ((2.0,), (2.0,))


def test_steps_take_stretches_one_after_the_other() -> None:
    planned = [
        Step("a.yaml", ("x", "y"), "f", (3.0, 3.0)),
        Step("b.yaml", ("z",), "g", ()),
        Step("b.yaml", ("w",), "h", (11.0,)),
    ]
    assert rows(planned, limit=8.0) == [
        ["1", "`a.yaml:x,y`", "2", "6.0", "f"],
        ["1 to 3", "`b.yaml:w`", "1", "11.0", "h"],
    ]


def test_a_page_counts_what_is_missing_of_its_files(tmp_path: Path) -> None:
    file = tmp_path / "some.yaml"
    file.write_text(
        "zoo: none\ntrain: [{name: 'net-{i}', each: {i: [1, 2]}, minutes: 2}]\n"
        "certify: [{name: gaussian-resnet110-0.25, minutes: 1}, {name: never-made, minutes: 3}]\n"
    )
    assert not_run(file, Runs(())) == "2 of 2 trainings, 2 of 2 certifications (about 8 minutes of one H200)"
    assert not_run(file) == "2 of 2 trainings, 1 of 2 certifications (about 7 minutes of one H200)"
    assert all_not_run(tmp_path)[-2] == f"- `some.yaml`: {not_run(file)}."
    file.write_text("certify: [{name: gaussian-resnet110-0.25, minutes: 1}]\n")
    assert not_run(file) == ""
    assert all_not_run(tmp_path) == []
