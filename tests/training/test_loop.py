"""The loop learns, resumes exactly, and stops with the last good weights where the loss breaks."""

from __future__ import annotations

import csv
import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from torch import Tensor, nn

from ringfence.errors import ArgumentError, DataError, StoreError
from ringfence.store import StoreWarning
from ringfence.training import Batch, DeviceData, Schedule, TrainingJob, TrainingRun, train
from ringfence.training.checkpoints import Checkpoints, EpochLog, Progressed, Status, export
from ringfence.training.data import augment
from ringfence.training.fabric import make_fabric
from ringfence.training.in_progress import TrainingInProgress
from ringfence.training.job import warmth
from ringfence.training.objectives import Catrs, Drt, NoiseAugmentation, Reweight, SmoothAdv
from ringfence.training.stepper import Stepper

PLAN = TrainingJob(NoiseAugmentation(), sigma=0.2, epochs=4, batch=16, schedule=Schedule(lr=0.1), seed=3)


def tiny(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 12), nn.Tanh(), nn.Linear(12, 3))


def weights(members: list[nn.Module]) -> list[torch.Tensor]:
    return [value.clone() for member in members for value in member.state_dict().values()]


def equal(first: list[nn.Module], second: list[nn.Module]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(weights(first), weights(second), strict=True))


def test_training_learns(data: DeviceData, tmp_path: Path) -> None:
    seen: list[Status] = []
    plan = replace(PLAN, epochs=12, schedule=Schedule(lr=0.3, kind="one-cycle"))
    train(plan, [tiny()], data, tmp_path, device="cpu", on_status=seen.append)
    assert seen[0].accuracy < seen[-1].accuracy
    assert seen[-1].accuracy > 0.85
    with (tmp_path / "log.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert [int(line["epoch"]) for line in lines] == list(range(1, 13))
    assert float(lines[-1]["cross_entropy"]) == pytest.approx(seen[-1].terms["cross_entropy"], rel=1e-4)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"ema": 0.9},
        {"objective": Drt(SmoothAdv(eps=0.3, steps=2)), "accumulate": 2, "noise_warmup": 3},
        {"crop": 1, "flip": True, "clip": 0.5, "precision": "bf16"},
    ],
    ids=["plain", "averaged", "drt", "augmented"],
)
def test_a_training_killed_at_any_step_ends_with_the_same_weights(
    changes: dict[str, object], data: DeviceData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = replace(PLAN, **changes)
    whole = train(plan, [tiny(0), tiny(1)], data, tmp_path / "whole", device="cpu")
    killed_at = random.Random(str(changes)).randrange(1, 4 * 6)
    step, count = Stepper.step, 0

    def dying(self: Stepper) -> None:
        nonlocal count
        count += 1
        if count == killed_at:
            raise KeyboardInterrupt
        step(self)

    monkeypatch.setattr(Stepper, "step", dying)
    with pytest.raises(KeyboardInterrupt):
        train(plan, [tiny(0), tiny(1)], data, tmp_path / "cut", device="cpu")
    monkeypatch.setattr(Stepper, "step", step)
    torch.randn(7)  # whatever the process did in between does not matter
    resumed = train(plan, [tiny(5), tiny(6)], data, tmp_path / "cut", device="cpu") if killed_at > 6 else None
    if resumed is None:  # killed in the first epoch: the same start is needed, as the command line gives it
        resumed = train(plan, [tiny(0), tiny(1)], data, tmp_path / "cut", device="cpu")
    assert equal(whole, resumed)
    with (tmp_path / "cut" / "log.csv").open() as file:
        assert [int(line["epoch"]) for line in csv.DictReader(file)] == [1, 2, 3, 4]


def test_momentum_comes_back_laid_out_like_its_weights(tmp_path: Path) -> None:
    """Fused SGD on a GPU refuses anything else, and networks on colour images have their channels last."""
    data = DeviceData(torch.rand(32, 3, 4, 4), torch.arange(32) % 3, 3)

    def colour() -> nn.Module:
        return nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(16, 3))

    train(PLAN, [colour()], data, tmp_path, device="cpu", stop_after=1)
    course = TrainingInProgress(make_fabric("cpu", 1, PLAN.precision), PLAN, [colour()], data, None, tmp_path)
    course.load()
    for weight in course.stepper.parameters:
        momentum = course.stepper.optimizer.state[weight]["momentum_buffer"]
        assert momentum.stride() == weight.stride()
        assert momentum.abs().sum() > 0


@pytest.mark.parametrize("moment", ["before the checkpoint", "after the checkpoint", "before the line"])
def test_a_kill_between_the_writes_of_an_epoch_loses_no_line_of_the_log(
    moment: str, data: DeviceData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save, add = Checkpoints.save, EpochLog.add

    def dying_save(self: Checkpoints, progress: Progressed, tensors: Any) -> None:
        if moment == "after the checkpoint":
            save(self, progress, tensors)
        if progress.epoch == 2:
            raise KeyboardInterrupt
        save(self, progress, tensors)

    def dying_add(self: EpochLog, status: Status) -> None:
        if status.epoch == 2:
            raise KeyboardInterrupt
        add(self, status)

    with monkeypatch.context() as patch:
        if moment == "before the line":
            patch.setattr(EpochLog, "add", dying_add)
        else:
            patch.setattr(Checkpoints, "save", dying_save)
        with pytest.raises(KeyboardInterrupt):
            train(PLAN, [tiny()], data, tmp_path / "cut", device="cpu")
    whole = train(PLAN, [tiny()], data, tmp_path / "whole", device="cpu")
    assert equal(whole, train(PLAN, [tiny()], data, tmp_path / "cut", device="cpu"))
    lines = [(tmp_path / name / "log.csv").read_text().splitlines() for name in ("cut", "whole")]
    cut, uninterrupted = ([line.rpartition(",")[0] for line in one] for one in lines)  # all but the seconds
    assert cut == uninterrupted


def test_a_kill_while_a_checkpoint_is_written_leaves_the_one_before(
    data: DeviceData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ringfence.training.checkpoints as module

    train(PLAN, [tiny()], data, tmp_path, device="cpu", stop_after=2)
    monkeypatch.setattr(module, "write_json", lambda path, value: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        train(PLAN, [tiny()], data, tmp_path, device="cpu", stop_after=3)
    monkeypatch.undo()
    found = Checkpoints(tmp_path).load()
    assert found is not None
    assert found[0].epoch == 2
    whole = train(PLAN, [tiny()], data, tmp_path / "whole", device="cpu")
    assert equal(whole, train(PLAN, [tiny(9)], data, tmp_path, device="cpu"))


def test_gradient_accumulation_is_the_same_step_without_noise(data: DeviceData, tmp_path: Path) -> None:
    plan = replace(PLAN, sigma=0.0, epochs=1)
    once = train(plan, [tiny()], data, tmp_path / "1", device="cpu")
    twice = train(replace(plan, accumulate=4), [tiny()], data, tmp_path / "4", device="cpu")
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(weights(once), weights(twice), strict=True))


def test_the_best_epoch_is_kept_apart(data: DeviceData, tmp_path: Path) -> None:
    training, held_out = data.split(12)
    assert held_out is not None
    seen: list[Status] = []
    train(PLAN, [tiny()], training, tmp_path, held_out=held_out, device="cpu", on_status=seen.append)
    found = Checkpoints(tmp_path).load()
    assert found is not None
    accuracies = [one.held_out for one in seen if one.held_out is not None]
    assert found[0].best_accuracy == max(accuracies)
    assert found[0].best_epoch == 1 + accuracies.index(max(accuracies))
    assert Checkpoints(tmp_path).load_best() is not None


def test_a_loss_that_turns_nan_stops_and_keeps_the_last_good_checkpoint(
    data: DeviceData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = train(PLAN, [tiny()], data, tmp_path / "two", device="cpu", stop_after=2)
    loss = NoiseAugmentation.loss_of
    calls = 0

    def breaking(self, member, batch, noise, generator):  # type: ignore[no-untyped-def]
        nonlocal calls
        calls += 1
        found = loss(self, member, batch, noise, generator)
        return (
            replace(found, terms={"cross_entropy": found.terms["cross_entropy"] * float("nan")})
            if calls == 15
            else found
        )

    monkeypatch.setattr(NoiseAugmentation, "loss_of", breaking)
    with pytest.raises(ArgumentError, match=r"at step 14 \(epoch 3, step 3 of 6\).*after epoch 2 is kept"):
        train(PLAN, [tiny()], data, tmp_path / "cut", device="cpu")
    found = Checkpoints(tmp_path / "cut").load()
    assert found is not None
    assert found[0].epoch == 2
    assert torch.equal(found[1]["member.0.1.weight"], good[0].state_dict()["1.weight"])


def test_weights_that_the_last_step_of_an_epoch_broke_are_not_kept(data: DeviceData, tmp_path: Path) -> None:
    """Losses are taken before their step: the last one is finite still."""

    class Steep(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = tiny()

        def forward(self, x: Tensor) -> Tensor:
            answers: Tensor = 100 * self.inner(x)
            return answers

    plan = replace(PLAN, batch=len(data), schedule=Schedule(lr=1e38))
    with pytest.raises(ArgumentError, match=r"at step 0 \(epoch 1, step 1 of 1\).*no epoch was finished"):
        train(plan, [Steep()], data, tmp_path, device="cpu")
    assert Checkpoints(tmp_path).load() is None


def test_bad_settings_are_refused_before_the_first_step(data: DeviceData, tmp_path: Path) -> None:
    for changes, rule in (
        ({"epochs": 0}, "epochs"),
        ({"sigma": -1.0}, "sigma"),
        ({"sigma": float("nan")}, "sigma"),
        ({"batch": 0}, "batch"),
        ({"accumulate": 3}, "divide the batch"),
        ({"ema": 1.5}, "ema"),
    ):
        with pytest.raises(ArgumentError, match=rule):
            replace(PLAN, **changes)
    with pytest.raises(ArgumentError, match="at most the number of training inputs"):
        train(replace(PLAN, batch=97), [tiny()], data, tmp_path, device="cpu")
    normed = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(16), nn.Linear(16, 3))
    with pytest.raises(ArgumentError, match="batch norm needs more than one input"):
        train(replace(PLAN, batch=1), [normed], data, tmp_path, device="cpu")
    with pytest.raises(DataError, match="labels must be 0 to 2"):
        train(PLAN, [tiny()], DeviceData(data.x, data.y + 1, 3), tmp_path, device="cpu")
    with pytest.raises(DataError, match="finite"):
        train(PLAN, [tiny()], DeviceData(data.x * float("nan"), data.y, 3), tmp_path, device="cpu")
    for settings, rule in (
        ({"lr": 0.0}, "lr"),
        ({"kind": "cubic"}, "schedule: must be one of step, one-cycle, constant"),
    ):
        with pytest.raises(ArgumentError, match=rule):
            Schedule(**settings)  # type: ignore[arg-type]


def test_no_disk_is_said_and_nothing_is_lost(data: DeviceData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import ringfence.training.checkpoints as module

    train(PLAN, [tiny()], data, tmp_path, device="cpu", stop_after=1)

    def full(path: Path, content: bytes) -> None:
        raise StoreError(str(path), "must be writable", "No space left on device", "Free some space.")

    monkeypatch.setattr(module, "write_atomically", full)
    with pytest.raises(StoreError, match="No space left"):
        train(PLAN, [tiny()], data, tmp_path, device="cpu")
    monkeypatch.undo()
    found = Checkpoints(tmp_path).load()
    assert found is not None
    assert found[0].epoch == 1


def test_settings_of_a_folder_may_not_change(tmp_path: Path) -> None:
    job = TrainingJob(members=("lenet",), data="mnist:d")

    def kept(**changes: Any) -> None:
        TrainingRun(replace(job, **changes), tmp_path).keep_settings()

    kept(sigma=9.5)
    kept()  # corrected before anything was trained
    (tmp_path / "member-0").mkdir()
    (tmp_path / "member-0" / "last.json").write_text("{}")
    kept()
    with pytest.raises(StoreError, match=r"own settings; got plan\.sigma 0\.25 now, 0\.5 before\."):
        kept(sigma=0.25)
    config = json.loads((tmp_path / "config.json").read_text())
    for key in ("nesterov", "graph"):
        del config["plan"][key]  # as an older version wrote it, which knew no other value
    (tmp_path / "config.json").write_text(json.dumps(config))
    kept()
    with pytest.raises(StoreError, match=r"plan\.nesterov False now, True before"):
        kept(nesterov=False)
    config["plan"]["objective"]["newer"] = 1
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(
        StoreError, match=r"must be the settings of a training; got newer: gaussian has the settings copies alone"
    ):
        kept()


def test_the_same_weights_are_the_same_file(tmp_path: Path) -> None:
    """Its metadata came in any order: sums of files told of another training where there was none."""
    files, about = (
        [tmp_path / f"{number}.safetensors" for number in range(12)],
        {"sigma": "1", "arch": "a", "noise": "b"},
    )
    for file in files:
        export(file, tiny(), about)
    assert len({file.read_bytes() for file in files}) == 1
    with safe_open(files[0], "pt") as found:
        assert found.metadata() == about
        for name, value in tiny().state_dict().items():
            assert torch.equal(found.get_tensor(name), value.half())


def test_exported_weights_are_half_precision_and_load_exactly(tmp_path: Path) -> None:
    from ringfence.classifiers.architectures import LeNet
    from ringfence.models import load_model

    network = LeNet()
    export(tmp_path / "lenet.safetensors", network, {"arch": "lenet"})
    loaded = load_model(str(tmp_path / "lenet.safetensors")).module
    for ours, theirs in zip(network.state_dict().values(), loaded.state_dict().values(), strict=True):
        assert theirs.dtype == torch.float32
        assert torch.equal(ours.half().float(), theirs)
    assert (tmp_path / "lenet.safetensors").stat().st_size < 130_000
    with torch.no_grad():
        network.head[1].weight[0, 0] = 1e6
    with pytest.warns(StoreWarning, match=r"in float32: head\.1\.weight is beyond half precision"):
        export(tmp_path / "large.safetensors", network, {"arch": "lenet"})
    loaded = load_model(str(tmp_path / "large.safetensors")).module
    for ours, theirs in zip(network.state_dict().values(), loaded.state_dict().values(), strict=True):
        assert torch.equal(ours, theirs)
    with torch.no_grad():
        network.head[1].weight[0, 0] = float("inf")
    with pytest.raises(StoreError, match="must be finite"):
        export(tmp_path / "broken.safetensors", network, {})


def test_learning_rates_follow_the_papers_and_the_cycle() -> None:
    steps = Schedule(lr=0.01, every=30)
    assert [steps.at(epoch * 10, 10, 90) for epoch in (0, 29, 30, 60)] == pytest.approx([0.01, 0.01, 1e-3, 1e-4])
    assert Schedule(lr=0.1).at(50 * 10, 10, 150) == pytest.approx(0.01)  # every third of the epochs
    cycle = [Schedule(lr=1.0, kind="one-cycle").at(step, 10, 10) for step in range(100)]
    assert cycle[0] == pytest.approx(0.04)
    assert max(cycle) == pytest.approx(1.0, abs=0.01)
    assert cycle.index(max(cycle)) in (19, 20)
    assert cycle[-1] == pytest.approx(1e-4)


def test_warm_ups_begin_with_their_first_share_and_end_at_all(
    data: DeviceData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Epoch e of w: (e + 1) / w. A warm-up from 0 would spend an epoch on clean images and no attack."""
    shares: list[tuple[float, float]] = []
    plain = NoiseAugmentation.loss_of

    def watched(self, member, batch, noise, generator):  # type: ignore[no-untyped-def]
        shares.append((round(float(noise.reached), 6), round(float(noise.attack), 6)))
        return plain(self, member, batch, noise, generator)

    monkeypatch.setattr(NoiseAugmentation, "loss_of", watched)
    train(replace(PLAN, epochs=5, noise_warmup=4, attack_warmup=2), [tiny()], data, tmp_path, device="cpu")
    each = [shares[at] for at in range(0, len(shares), len(shares) // 5)]
    assert each == [(0.25, 0.5), (0.5, 1.0), (0.75, 1.0), (1.0, 1.0), (1.0, 1.0)]
    assert [warmth(epoch, 0) for epoch in (0, 7)] == [1.0, 1.0]


def test_crops_and_flips_move_pixels_and_change_none() -> None:
    x = torch.arange(1.0, 10.0).view(1, 1, 3, 3).repeat(200, 1, 1, 1)
    moved = augment(x, 1, True, torch.Generator().manual_seed(0))
    assert moved.shape == x.shape
    assert set(moved.unique().tolist()) <= set(range(10))
    centres = moved[:, 0, 1, 1].unique().tolist()
    assert sorted(centres) == list(range(1, 10))  # every shift occurs
    assert torch.equal(augment(x, 0, False, torch.Generator()), x)
    mirrored = augment(x, 0, True, torch.Generator().manual_seed(0))
    assert {tuple(one.flatten().tolist()) for one in mirrored} == {
        (1, 2, 3, 4, 5, 6, 7, 8, 9),
        (3, 2, 1, 6, 5, 4, 9, 8, 7),
    }


@pytest.mark.slow
def test_two_processes_share_each_batch(data: DeviceData, tmp_path: Path) -> None:
    """Without noise the mean of two half-batch gradients is the whole batch's."""
    plan = replace(PLAN, sigma=0.0, epochs=1)
    one = train(plan, [tiny()], data, tmp_path / "1", device="cpu")
    two = train(plan, [tiny()], data, tmp_path / "2", device="cpu", devices=2)
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(weights(one), weights(two), strict=True))


def test_inputs_are_drawn_by_weight_and_a_stop_changes_nothing(data: DeviceData, tmp_path: Path) -> None:
    """Reweight: Gaussian until it begins, then dropped inputs never come again, also after a stop."""
    plan = TrainingJob(
        Reweight(begin=2, least=0.9, every=2, copies=2), 0.4, epochs=6, batch=32, schedule=Schedule(lr=0.1)
    )
    seen: list[tuple[int, str, set[int]]] = []
    step = Stepper.step

    def watched(self: Stepper) -> None:
        seen.append((self.job.epochs, self.objective.name, set(self._rows.tolist())))
        step(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Stepper, "step", watched)
        whole = train(plan, [tiny(3)], data, tmp_path / "whole", device="cpu")
    names = [name for _, name, _ in seen]
    assert names == ["gaussian"] * 6 + ["reweight"] * 12
    assert set.union(*(rows for *_, rows in seen[:3])) == set(range(96))  # each of them once
    weights = Checkpoints(tmp_path / "whole").load()[1]["sampling.weights"]  # type: ignore[index]
    dropped = set(torch.nonzero(weights == 0).flatten().tolist())
    assert 0 < len(dropped) < 96
    assert not dropped & set.union(*(rows for *_, rows in seen[6:]))
    for last in (1, 3, 5, None):
        parts = train(plan, [tiny(3)], data, tmp_path / "parts", device="cpu", stop_after=last)
    for one, other in zip(whole[0].parameters(), parts[0].parameters(), strict=True):
        assert torch.equal(one, other)


def test_soft_labels_travel_with_their_inputs(data: DeviceData, tmp_path: Path) -> None:
    soft = torch.nn.functional.one_hot(data.y, 3).float()
    labelled = replace(data, soft=soft)
    rest, held_out = labelled.split(10)
    assert held_out is not None
    for part in (rest, held_out, labelled.to(torch.device("cpu"))):
        assert part.soft is not None
        assert torch.equal(part.soft.argmax(1), part.y)
    asked: list[bool] = []
    loss = Catrs.loss_of

    def watched(self: Catrs, member: nn.Module, batch: Batch, *others: Any) -> Any:
        assert batch.soft is not None
        asked.append(torch.equal(batch.soft.argmax(1), batch.y))
        return loss(self, member, batch, *others)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Catrs, "loss_of", watched)
        train(TrainingJob(Catrs(steps=1), 0.3, epochs=1, batch=32, accumulate=2), [tiny()], labelled, tmp_path)
    assert asked == [True] * 6
