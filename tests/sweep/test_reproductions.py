"""Sweep files of reproduce/ and examples/: the program takes every job of every one of them, as it is and tiny."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from ringfence.cli.sweep_commands import SweepCommands, job_of
from ringfence.sweep import read_sweep
from ringfence.training import TrainingJob

ROOT = Path(__file__).resolve().parents[2]
SWEEPS = sorted([*ROOT.glob("reproduce/*/*.yaml"), *ROOT.glob("examples/*.yaml")])
NESTEROV = {"aces", "cifar10", "mnist-lenet5", "drt"}
"""Files whose trainings all have Nesterov's momentum, and say so; others have the plain one, as most sources do."""


@pytest.mark.parametrize("file", SWEEPS, ids=lambda file: file.stem)
@pytest.mark.parametrize("tiny", [False, True], ids=["full", "tiny"])
def test_the_program_takes_every_job(file: Path, tiny: bool) -> None:
    found = read_sweep(file, SweepCommands(), tiny, [ROOT / "zoo"])
    assert found.about
    for job in found.jobs:
        assert tiny or (job.minutes or 0) > 0, job.name
        for word in job.words:  # settings that a run keeps name no machine
            assert not any(part.startswith("/") for part in word.replace("@", ":").replace("(", ":").split(":")), word
        if job.command == "certify":  # what the files certify must not change with a default
            assert "--noise-form" in job.words, job.name
            assert not tiny or {"--n", "--stages"} & set(job.words), f"{job.name} draws as many as it would on a GPU"
        if job.command == "train":  # of ten Gaussian ResNet-110 the first was trained so
            gaussian = file.stem == "resnet110-ten" and job.name.startswith("gaussian")
            assert job_of(job.words).job.nesterov is (gaussian or file.stem in NESTEROV), job.name
        if "--init" in job.words:  # refused once the weights are loaded: they bring their own normalisation
            assert "--mean" not in job.words, job.name
    makers = {job.key for job in found.jobs}
    assert all(set(job.needs) <= makers for job in found.jobs)
    used = [job for job in found.jobs if job.command != "train" and "zoo" in " ".join(job.words[:-1])]
    assert all(job.needs or found.given for job in used)


def test_networks_that_select_are_trained_as_those_that_certify() -> None:
    """Horvath et al. 2022, ACES, appendix D.3.2: the same architecture and the same training method."""
    found = read_sweep(ROOT / "reproduce" / "horvath2022-aces" / "aces.yaml", SweepCommands(), zoos=[ROOT / "zoo"])
    jobs = [job_of(job.words).job for job in found.jobs if job.command == "train"]
    assert [(job.objective.eta, job.objective.n) for job in jobs] == [(0.5, 1000), (0.95, 1000)]
    for job in jobs:
        settings = (ROOT / "zoo" / job.classifier.split(":")[1] / "config.json").read_text(encoding="utf-8")
        certifies = TrainingJob.of(json.loads(settings))
        assert job.objective.base == certifies.objective
        assert replace(job, objective=certifies.objective, classifier=None) == certifies


def test_the_example_of_the_documentation_is_a_sweep(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "sweep.md").read_text(encoding="utf-8")
    file = tmp_path / "docs.yaml"
    file.write_text(page.partition("```yaml\n")[2].partition("```")[0])
    jobs = read_sweep(file, SweepCommands()).jobs
    assert [job.name for job in jobs][:3] == ["net-0.25", "net-0.5", "net-0.25-at-0.25"]
    assert jobs[-1].needs == ("train net-0.5",)


def test_an_attack_waits_for_the_run_it_attacks(tmp_path: Path) -> None:
    file = tmp_path / "attack.yaml"
    file.write_text("certify: [{name: a, settings: --sigma 0.5}]\nattack: [{name: b, arguments: [runs/a]}]\n")
    certified, attacked = read_sweep(file, SweepCommands()).jobs
    assert attacked.words == ("attack", "runs/a", "--out", "runs/b")
    assert attacked.needs == (certified.key,)
    assert attacked.checked.makes == (Path("runs/b/attack.json"),)
