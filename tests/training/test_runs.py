"""Whole runs: a job is one value, members may differ, wait for each other, or go beside other runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from ringfence.errors import ArgumentError, ModelError, StoreError
from ringfence.extending import register
from ringfence.models import load_model
from ringfence.settings import setting
from ringfence.training import (
    Batch,
    Schedule,
    TrainingJob,
    TrainingNoise,
    TrainingRun,
    run_together,
    run_training,
)
from ringfence.training.objectives import (
    OBJECTIVES,
    Adp,
    DenoiseMse,
    Drt,
    LossTerms,
    NoiseAugmentation,
    SingleObjective,
)
from ringfence.training.objectives.base import noise_copies
from ringfence.training.options import described_job, job_options, objective_options, training_command
from ringfence.training.run import check_takes

WIDER = """
def wider(num_classes=3):
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 20), nn.ReLU(), nn.Linear(20, num_classes))
"""


@pytest.fixture
def job(files: tuple[Path, Path]) -> TrainingJob:
    """Two networks of one kind and one of another."""
    data, nets = files
    nets.write_text(nets.read_text() + WIDER)
    members = (f"{nets}:build", f"{nets}:build", f"{nets}:wider")
    return TrainingJob(
        sigma=0.3, epochs=2, batch=16, schedule=Schedule(lr=0.1), data=str(data), members=members, seed=4
    )


def weights(files: list[Path]) -> list[dict[str, torch.Tensor]]:
    return [load_file(file) for file in files]


def equal(first: list[Path], second: list[Path]) -> bool:
    pairs = list(zip(weights(first), weights(second), strict=True))
    return all(one.keys() == two.keys() and all(torch.equal(one[key], two[key]) for key in one) for one, two in pairs)


@pytest.mark.parametrize("objective", [NoiseAugmentation(), Adp(), Drt(rho1=0.2, rho2=0.5)], ids=lambda one: one.name)
def test_members_of_different_architectures_train_together(job: TrainingJob, tmp_path: Path, objective) -> None:  # type: ignore[no-untyped-def]
    run = TrainingRun(replace(job, objective=objective), tmp_path / "out", "cpu")
    run_training(run)
    shapes = [one["1.weight"].shape for one in weights(run.files)]
    assert shapes == [(12, 16), (12, 16), (20, 16)]
    for arch, file in zip(job.members, run.files, strict=True):
        assert load_model(f"{arch}@{file}").module(torch.rand(2, 1, 4, 4)).shape == (2, 3)
    stored = TrainingJob.of(json.loads((run.out / "config.json").read_text()))
    assert stored == run.job
    assert stored.arch == ",".join(job.members)


def test_each_of_different_members_is_the_one_trained_alone(job: TrainingJob, tmp_path: Path) -> None:
    whole = run_training(TrainingRun(job, tmp_path / "whole", "cpu"))
    for place, arch in enumerate(job.members):
        lone = replace(job, members=(arch,), seed=job.seed + place)
        assert equal(run_training(TrainingRun(lone, tmp_path / str(place), "cpu")), [whole[place]])


def test_members_trained_where_nobody_finds_them_are_not_trained_for_ever(job: TrainingJob, tmp_path: Path) -> None:
    """Machines that do not share the folder train well, and nothing of it is there."""
    rounds: list[Sequence[int]] = []

    class Elsewhere:
        def each(self, work: Any, items: Sequence[int], on_news: Any) -> Any:
            rounds.append(items)
            assert len(rounds) < 3, "the same members are trained again and again"
            return None

    elsewhere: Any = Elsewhere()
    with pytest.raises(ArgumentError, match="a folder that all machines must share"):
        run_training(TrainingRun(job, tmp_path / "out", "cpu"), engine=elsewhere)


def test_members_one_by_one_meet_the_exported_ones_before_them(job: TrainingJob, tmp_path: Path) -> None:
    """By the command's value, by hand, and after a stop between two members: the same weights."""
    turn = replace(job, objective=Drt(rho1=0.3, rho2=0.5, one_by_one=True))
    run, told = TrainingRun(turn, tmp_path / "turn", "cpu"), list[int]()
    first = run_training(run, on_status=lambda member, status: told.append(member))
    assert sorted(set(told)) == [0, 1, 2]
    alone = run_training(TrainingRun(job, tmp_path / "alone", "cpu"))
    assert equal(first[:1], alone[:1])  # the first has its base alone
    assert not equal(first[1:2], alone[1:2])
    assert not equal(first[2:], alone[2:])
    kept = [file.rename(tmp_path / f"kept-{file.name}") if place else file for place, file in enumerate(first)]
    assert equal(run_training(run), kept)  # from their checkpoints
    without = replace(turn, objective=Drt(rho1=0.0, rho2=0.0, one_by_one=True))
    assert equal(run_training(TrainingRun(without, tmp_path / "zero", "cpu")), alone)


def test_members_one_by_one_go_beside_other_runs(job: TrainingJob, tmp_path: Path) -> None:
    turn = replace(job, objective=Drt(rho1=0.3, rho2=0.5, one_by_one=True))
    jobs = [turn, replace(job, objective=Adp(), sigma=0.1, epochs=3), job]
    apart = [run_training(TrainingRun(one, tmp_path / f"apart-{i}", "cpu")) for i, one in enumerate(jobs)]
    runs = [TrainingRun(one, tmp_path / f"beside-{i}", "cpu") for i, one in enumerate(jobs)]
    seen = set[tuple[str, int]]()
    beside = run_together(runs, lambda run, training, status: seen.add((run.out.name, training)))
    assert all(equal(one, two) for one, two in zip(apart, beside, strict=True))
    assert seen == {(f"beside-{i}", k) for i, count in enumerate((3, 1, 3)) for k in range(count)}
    with pytest.raises(ArgumentError, match="must share their data and device"):
        run_together(
            [TrainingRun(replace(one, limit=90 + i), tmp_path / f"x-{i}", "cpu") for i, one in enumerate(jobs)]
        )


def test_what_a_job_cannot_mean_is_refused(job: TrainingJob, tmp_path: Path) -> None:
    for changes, told in (
        ({"objective": Adp(), "members": job.members[:1]}, "members: adp trains at least two members together"),
        ({"objective": Drt(one_by_one=True), "members": job.members[:1]}, "at least two members one by one"),
        ({"objective": DenoiseMse(), "holdout": 10}, "holdout: denoise-mse trains no classifier"),
        ({"epochs": 1.5}, "epochs: must be a whole number"),
        ({"sigma": True}, "sigma: must be a number"),
        ({"momentum": 1.0}, r"momentum: must lie in \[0, 1\)"),
        ({"precision": "fp8"}, "precision: must be one of fp32, bf16"),
        ({"mean": (0.5,)}, "must be given together"),
    ):
        with pytest.raises(ArgumentError, match=told):
            replace(job, **changes)  # type: ignore[arg-type]
    for given, told in (
        ({"arch": "lenet,lenet", "members": 3}, "arch: must name one architecture, or one for each of 3 members"),
        ({"members": 0}, "members: must be at least 1"),
        ({"epoch": 3}, "options: must be options of a training; got epoch"),
    ):
        with pytest.raises(ArgumentError, match=told):
            described_job(given, {})
    with pytest.raises(ArgumentError, match="job: must name its data and its members"):
        TrainingRun(TrainingJob(), tmp_path)
    for config in ({}, {"plan": 3}, {**job.config(), "members": "many"}, {**job.config(), "more": 1}):
        with pytest.raises(ArgumentError, match="must be the settings of a training"):
            TrainingJob.of(config)


def test_a_checkpoint_of_other_networks_is_refused(job: TrainingJob, tmp_path: Path) -> None:
    run = TrainingRun(replace(job, members=job.members[:1]), tmp_path, "cpu")
    run_training(run)
    run.files[0].unlink()
    nets = Path(job.members[0].rpartition(":")[0])
    nets.write_text(nets.read_text().replace("nn.Linear(16, 12)", "nn.Linear(16, 13)").replace("(12, n", "(13, n"))
    with pytest.raises(StoreError, match=r"must hold the members of this training; got other weights for member\.0\."):
        run_training(run)


def test_options_are_the_fields_and_say_what_they_are() -> None:
    for one in job_options().values():
        assert one.help.endswith(".")
        one.check(one.default)
    for name, (_, help) in objective_options().items():
        owners = [kind.name for kind in OBJECTIVES.values() if name in kind.__dataclass_fields__]  # type: ignore[attr-defined]
        assert len(owners) > 4 or all(owner in help for owner in owners), name


def test_an_objective_of_ones_own_is_registered_and_that_is_all(monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass(frozen=True)
    class Halved(SingleObjective):
        """Half of the cross-entropy."""

        copies: int = noise_copies(1)
        shrink: float = setting(0.5, "What the loss is multiplied by.", above=0)
        name: ClassVar[str] = "halved"

        def loss_of(
            self, member: nn.Module, batch: Batch, noise: TrainingNoise, generator: torch.Generator
        ) -> LossTerms:
            found = NoiseAugmentation(self.copies).loss_of(member, batch, noise, generator)
            return replace(found, terms={"half": self.shrink * found.total})

    monkeypatch.setitem(OBJECTIVES, "halved", Halved)
    assert objective_options()["shrink"][1] == "halved: What the loss is multiplied by."
    job = described_job({"objective": "halved", "data": "d"}, {"shrink": "0.25"})
    assert job.objective == Halved(shrink=0.25)
    assert TrainingJob.of(job.config()) == job
    assert "--shrink 0.25" in training_command(job)
    with pytest.raises(ArgumentError, match="shrink: must be positive and finite"):
        described_job({"objective": "halved"}, {"shrink": "0"})
    with pytest.raises(ArgumentError, match="halved is taken"):
        register(type("Other", (SingleObjective,), {"name": "halved"}))
    assert OBJECTIVES["halved"] is Halved


def test_what_a_kill_left_half_written_goes_with_the_next_start(job: TrainingJob, tmp_path: Path) -> None:
    """Checkpoints are large, and killed trainings many."""
    run = TrainingRun(job, tmp_path / "out", "cpu")
    left = [folder / ".writing-1-epoch-00001.safetensors" for folder in (run.out, run.folder(0), run.folder(2))]
    for file in left:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"half")
    run.keep_settings()
    assert not any(file.exists() for file in left)


def test_a_network_of_one_score_is_not_trained() -> None:
    single = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 1))
    with pytest.raises(ModelError, match="arch: must return a score for each class to be trained; got own: one score"):
        check_takes("own", single, torch.zeros(1, 2, 2))
    check_takes("own", torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 2)), torch.zeros(1, 2, 2))
