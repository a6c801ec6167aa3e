"""Members trained together, and compiled members, are the ones that training alone and uncompiled gives."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

from ringfence.classifiers.architectures import resnet
from ringfence.errors import ArgumentError
from ringfence.training import DeviceData, Schedule, TrainingJob, train
from ringfence.training.checkpoints import Status
from ringfence.training.compared import LARGEST_DRIFT, check_gradients, gradient_drift
from ringfence.training.fabric import compile_members, make_fabric
from ringfence.training.in_progress import TrainingInProgress
from ringfence.training.loop import train_together
from ringfence.training.objectives import Consistency, Drt, NoiseAugmentation

PLANS = [
    TrainingJob(NoiseAugmentation(), sigma=0.2, epochs=3, batch=16, schedule=Schedule(lr=0.1), crop=1, seed=seed)
    for seed in range(3)
]


def network(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 12), nn.BatchNorm1d(12), nn.Tanh(), nn.Linear(12, 3))


def same(first: nn.Module, second: nn.Module) -> bool:
    return all(
        torch.equal(a, b) for a, b in zip(first.state_dict().values(), second.state_dict().values(), strict=True)
    )


@pytest.fixture
def alone(data: DeviceData, tmp_path: Path) -> list[nn.Module]:
    return [train(plan, [network(plan.seed)], data, tmp_path / f"alone-{plan.seed}", device="cpu")[0] for plan in PLANS]


def test_together_is_the_same_as_alone(data: DeviceData, tmp_path: Path, alone: list[nn.Module]) -> None:
    seen: list[tuple[int, Status]] = []
    together = train_together(
        PLANS,
        [[network(plan.seed)] for plan in PLANS],
        data,
        [tmp_path / f"{i}" for i in range(3)],
        device="cpu",
        on_status=lambda number, status: seen.append((number, status)),
    )
    assert all(same(one, other) for one, other in zip(chain(*together), alone, strict=True))
    assert [(number, status.epoch) for number, status in seen] == [(i, epoch) for epoch in (1, 2, 3) for i in range(3)]


def test_members_that_are_not_equally_far_are_continued(
    data: DeviceData, tmp_path: Path, alone: list[nn.Module], monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = [tmp_path / f"{i}" for i in range(3)]
    train(PLANS[1], [network(1)], data, folders[1], device="cpu", stop_after=2)
    train(PLANS[2], [network(2)], data, folders[2], device="cpu")
    begun: list[tuple[int, int]] = []
    begin = TrainingInProgress.begin

    def noted(self: TrainingInProgress) -> None:
        begun.append((self.job.seed, self.progress.epoch))
        begin(self)

    monkeypatch.setattr(TrainingInProgress, "begin", noted)
    together = train_together(PLANS, [[network(i)] for i in range(3)], data, folders, device="cpu")
    # The one with an epoch left takes it beside the first of the one behind; the finished one not at all.
    assert begun == [(0, 0), (1, 2), (0, 1), (0, 2)]
    assert all(same(one, other) for one, other in zip(chain(*together), alone, strict=True))


def test_trainings_of_several_kinds_go_together(data: DeviceData, tmp_path: Path) -> None:
    """Members trained jointly beside a single one, with another objective, noise and end: each as if it were alone."""
    plans = [PLANS[0], replace(PLANS[1], objective=Drt(rho1=0.1, rho2=0.5), sigma=0.4, epochs=2)]
    groups = [[network(0)], [network(1), network(2)]]
    alone = [
        train(plan, copy.deepcopy(group), data, tmp_path / f"alone-{i}", device="cpu")
        for i, (plan, group) in enumerate(zip(plans, groups, strict=True))
    ]
    together = train_together(plans, groups, data, [tmp_path / "0", tmp_path / "1"], device="cpu")
    for one, other in zip(chain(*together), chain(*alone), strict=True):
        assert same(one, other)


def test_plans_with_other_steps_do_not_go_together(data: DeviceData, tmp_path: Path) -> None:
    plans = [PLANS[0], replace(PLANS[1], batch=8)]
    with pytest.raises(ArgumentError, match=r"jobs: must have the same batch.*got 16 in fp32, 8 in fp32"):
        train_together(plans, [[network(0)], [network(1)]], data, [tmp_path / "0", tmp_path / "1"], device="cpu")


class Forgetful(nn.Module):
    """What a wrong compiler makes of a network: the same answers, no gradient for its first layer."""

    def __init__(self, inner: nn.Sequential) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        answers: Tensor = self.inner[2:](self.inner[:2](x).detach())
        return answers


def test_a_compiled_network_without_some_gradients_is_refused(
    data: DeviceData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "compile", lambda module, **settings: Forgetful(module))
    with pytest.raises(ArgumentError, match=r"compile: a compiled network must have the gradients.*100% off"):
        train(replace(PLANS[0], compile=True), [network(0)], data, tmp_path, device="cpu")


def test_a_faithful_compiler_is_accepted_and_leaves_no_trace(data: DeviceData, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", lambda module, **settings: module)
    fabric: Any = make_fabric("cpu", 1, "fp32")
    member = network(0).train()
    before = {key: value.clone() for key, value in member.state_dict().items()}
    (compiled,) = compile_members([member], data.x[:16], fabric)
    assert gradient_drift(member, member, compiled, data.x[:16]) == 0
    assert all(torch.equal(before[key], value) for key, value in member.state_dict().items())


class Watched(nn.Module):
    """A network that remembers how its inputs were laid out."""

    def __init__(self, inner: nn.Module, seen: set[tuple[Any, ...]]) -> None:
        super().__init__()
        self.inner, self.seen = inner, seen

    def forward(self, x: Tensor) -> Tensor:
        self.seen.add((x.shape, x.stride()))
        answers: Tensor = self.inner(x)
        return answers


@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_compiler_meets_one_shape_alone(
    data: DeviceData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, accumulate: int
) -> None:
    """The check before the first step must not ask for a graph that no step uses: a deep one takes minutes."""
    seen: set[tuple[Any, ...]] = set()
    monkeypatch.setattr(torch, "compile", lambda module, **settings: Watched(module, seen))
    plan = replace(PLANS[0], objective=Consistency(copies=3), compile=True, epochs=1, accumulate=accumulate)
    train(plan, [network(0)], data, tmp_path, device="cpu")
    assert [shape[0] for shape, _ in seen] == [3 * plan.batch // accumulate]


def test_rounding_in_half_precision_is_no_error_of_the_compiler(data: DeviceData) -> None:
    """Gradients of a fresh network are far off in bf16, compiled or not; one that is missing is still noticed."""
    fabric: Any = make_fabric("cpu", 1, "bf16")
    torch.manual_seed(0)
    member = resnet(20).train()
    x = torch.rand(32, 3, 32, 32)
    other = copy.deepcopy(member).to(memory_format=torch.channels_last)  # sums in another order

    class Shared(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            answers: Tensor = functional_call(other, dict(member.named_parameters()), (x,))
            return answers

    class Severed(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            weights = {name: one.detach() if name == "conv1.weight" else one for name, one in member.named_parameters()}
            answers: Tensor = functional_call(other, weights, (x,))
            return answers

    with fabric.autocast():
        assert gradient_drift(member, member, Shared(), x) < LARGEST_DRIFT
        assert gradient_drift(member, member, Severed(), x) == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize(("times", "drift"), [(2.9, 0.0), (4.0, 0.3 / 1.3)])
def test_three_times_the_rounding_of_the_plain_network_is_no_error_of_the_compiler(times: float, drift: float) -> None:
    """Both round, each in its own way: in bf16 one of a thousand weights is off by twice as much as the plain one."""
    torch.manual_seed(0)
    member, x = nn.Linear(3, 4), torch.rand(2, 3)
    plain = lambda x: member(x) * (1.3 if torch.is_autocast_enabled("cpu") else 1.0)  # noqa: E731
    with torch.autocast("cpu", torch.bfloat16):
        found = gradient_drift(member, plain, lambda x: member(x) * (1.3 + 0.3 * times), x)
    assert found == pytest.approx(drift, abs=0.02)


def test_what_is_off_by_chance_is_looked_at_once_more() -> None:
    torch.manual_seed(0)
    member, x, asked = nn.Linear(3, 4), torch.rand(2, 3), list[float]()

    def off(times: int) -> Callable[[Tensor], Tensor]:
        asked.clear()

        def fast(x: Tensor) -> Tensor:
            asked.append(float(x[0, 0]))
            return member(x) * (2.0 if len(asked) <= times else 1.0)

        return fast

    check_gradients(member, member, off(1), x)
    assert asked == [float(x[0, 0]), float(x[1, 2])], "at other inputs"
    with pytest.raises(ArgumentError, match="compile"):
        check_gradients(member, member, off(2), x)


def test_compiled_code_whose_gradients_are_nan_is_refused() -> None:
    """NaN exceeds no limit: it must not pass for that."""
    torch.manual_seed(0)
    member, x = nn.Linear(3, 4), torch.rand(2, 3)
    with pytest.raises(ArgumentError, match="compile"):
        check_gradients(member, member, lambda x: member(x) * torch.nan, x)


@pytest.mark.parametrize("together", [False, True])
def test_algorithms_are_tried_from_the_first_forward_and_not_after_the_training(
    data: DeviceData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, together: bool
) -> None:
    """cuDNN keeps what it first took for a shape, so the check of the compiled network must try algorithms too.

    A certification in the same process must not choose its kernels by how fast they happened to be.
    """
    seen: list[bool] = []

    class Noting(Watched):
        def forward(self, x: Tensor) -> Tensor:
            seen.append(torch.backends.cudnn.benchmark)
            return super().forward(x)

    monkeypatch.setattr(torch, "compile", lambda module, **settings: Noting(module, set()))
    plan = replace(PLANS[0], epochs=1, compile=True)
    if together:
        train_together([plan], [[network(0)]], data, [tmp_path], device="cpu")
    else:
        train(plan, [network(0)], data, tmp_path, device="cpu")
    assert len(seen) == 1 + len(data) // plan.batch  # the check and every step
    assert all(seen)
    assert not torch.backends.cudnn.benchmark


def test_algorithms_are_not_tried_for_what_no_step_needs(
    data: DeviceData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check's forward in float32 is no forward of a training in half precision; trying takes seconds."""
    seen: list[tuple[bool, bool]] = []

    class Noting(Watched):
        def forward(self, x: Tensor) -> Tensor:
            seen.append((torch.is_autocast_enabled("cpu"), torch.backends.cudnn.benchmark))
            return super().forward(x)

    monkeypatch.setattr(torch, "compile", lambda module, **settings: module)
    plan = replace(PLANS[0], epochs=1, compile=True, precision="bf16")
    train(plan, [Noting(network(0), set())], data, tmp_path, device="cpu")
    assert set(seen) == {(True, True), (False, False)}
    assert seen.count((False, False)) == 1
