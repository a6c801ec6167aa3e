"""Gradients by kernels: what they are given, when they are trusted, and who uses them.

Their own arithmetic is tested in test_fused_kernel.py (emulated) and in tests/gpu.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import ringfence as rf
from ringfence.attacks.on_run import _as_seen
from ringfence.classifiers import SoftVote
from ringfence.classifiers.architectures import LeNet, resnet
from ringfence.classifiers.architectures.resnet import Shortcut
from ringfence.classifiers.fused import FusedResNet, gradient
from ringfence.classifiers.fused.gradient import FusedGradients, fuse_gradients, fused_gradients, gradients_off
from ringfence.errors import ArgumentError
from ringfence.training import TrainingJob
from ringfence.training.data import Batch, TrainingNoise
from ringfence.training.fabric import attackable, make_fabric
from ringfence.training.objectives import NoiseAugmentation, SmoothAdv
from ringfence.training.objectives.base import Attackable, as_trained, eager, evaluating
from ringfence.training.stepper import Stepper

MEAN, STD = torch.tensor([0.4, 0.5, 0.6]), torch.tensor([0.2, 0.25, 0.3])


def made(depth: int = 8, shortcut: Shortcut = "projection") -> nn.Module:
    torch.manual_seed(0)
    network = resnet(depth, 7, shortcut)
    for part in network.modules():
        if isinstance(part, nn.BatchNorm2d):
            nn.init.uniform_(part.weight, 0.3, 0.9)
            nn.init.uniform_(part.bias, -0.5, 0.5)
            nn.init.uniform_(part.running_mean, -0.2, 0.2)
            nn.init.uniform_(part.running_var, 0.5, 2.0)
    return network.eval()


@pytest.mark.parametrize("shortcut", ["projection", "pad"])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_weights_of_the_moment_are_folded_as_for_scores(shortcut: Shortcut, layout: torch.memory_format) -> None:
    network = made(14, shortcut).to(memory_format=layout)  # type: ignore[call-overload]
    form = FusedGradients(network, MEAN, STD)
    for _ in range(2):
        found, wanted = form.now(), FusedResNet(network, MEAN, STD)
        assert torch.equal(found.forth, wanted.weights.view(torch.bfloat16))
        assert torch.allclose(found.numbers, wanted.numbers.view(torch.float32), rtol=1e-6, atol=1e-7)
        assert torch.equal(found.back.sort().values, found.forth.sort().values)  # the same weights, in another order
        with torch.no_grad():
            for one in network.state_dict().values():
                one.mul_(2)


def test_gradients_that_are_the_networks_are_trusted_and_no_others() -> None:
    network, x = made(), torch.rand(4, 3, 32, 32)
    half = made().to(torch.bfloat16)
    other = made()
    with torch.no_grad():
        other.layer3[0].conv2.weight.neg_()
    assert gradients_off(network, lambda x: half(x.to(torch.bfloat16)).float(), x) is None
    assert "off" in str(gradients_off(network, other, x))
    assert "off" in str(gradients_off(network, lambda x: network(x) * torch.nan, x))
    assert "off" in str(gradients_off(network, lambda x: 0 * network(x), x))


def test_without_such_a_gpu_attacks_use_autograd_and_say_why(monkeypatch: pytest.MonkeyPatch) -> None:
    network, x = made(), torch.rand(2, 3, 32, 32)
    assert fused_gradients(network, x) == "device cpu"
    assert fuse_gradients(network, x) == (network, "device cpu")
    monkeypatch.setattr(gradient, "why_not", lambda device: None)
    assert fused_gradients(LeNet(), x) == "another network than a CIFAR ResNet"
    assert fuse_gradients(LeNet(), x)[1] == "it has no CIFAR ResNet"


@pytest.mark.parametrize("sound", [True, False])
def test_every_network_of_a_classifier_is_replaced_or_none(monkeypatch: pytest.MonkeyPatch, sound: bool) -> None:
    monkeypatch.setattr(gradient, "why_not", lambda device: None)
    members, x = [made(), made(14)], torch.rand(2, 3, 32, 32)
    right, sign = FusedGradients.now, 1 if sound else -1

    def now(self: FusedGradients) -> gradient.FusedScores:
        form = right(self)
        form.plain = copy.deepcopy(self.network)  # type: ignore[assignment]
        return form

    monkeypatch.setattr(FusedGradients, "now", now)
    monkeypatch.setattr(gradient.FusedScores, "forward", lambda self, x: sign * self.plain(x))
    vote = SoftVote(members).eval()
    found, problem = fuse_gradients(vote, x)
    assert (problem is None) == sound
    assert (found is vote) != sound
    assert sum(isinstance(one, gradient.FusedScores) for one in found.modules()) == (2 if sound else 0)
    assert torch.equal(found(x), vote(x))
    form = fused_gradients(members[0].train(), x)
    assert isinstance(form, FusedGradients) == sound
    assert members[0].training


@pytest.mark.parametrize("sound", [True, False])
def test_a_run_in_bf16_is_attacked_by_the_kernels_and_says_so(monkeypatch: pytest.MonkeyPatch, sound: bool) -> None:
    if sound:
        monkeypatch.setattr(gradient, "why_not", lambda device: None)
    network, told = made(), list[str]()
    monkeypatch.setattr(gradient.FusedScores, "forward", lambda self, x: network(x))
    some = [torch.rand(3, 32, 32) for _ in range(2)]
    for precision in ("fp32", "bf16"):
        run: Any = SimpleNamespace(config=SimpleNamespace(precision=precision))
        seen = _as_seen(run, network, some, rf.Gaussian(0.25), torch.device("cpu"), told.append)
        assert isinstance(seen, gradient.FusedScores) == (sound and precision == "bf16")
        assert seen is network or sound
    assert told == ["gradients by the fused kernels" if sound else "gradients by autograd (device cpu)"]


class Counted:
    """Stands for the kernels: the network in evaluation mode, and how often its weights were taken."""

    def __init__(self, network: nn.Module) -> None:
        self.network, self.taken = network, 0

    def now(self) -> Callable[[Tensor], Tensor]:
        self.taken += 1
        kept = {key: value.clone() for key, value in self.network.state_dict().items()}

        def scores(x: Tensor) -> Tensor:
            self.network.eval()
            found: Tensor = torch.func.functional_call(self.network, kept, (x,))
            self.network.train()
            return found

        return scores


def test_attacks_of_a_training_see_the_kernels_and_the_rest_does_not() -> None:
    network = made().train()
    form = Counted(network)
    member = Attackable(network, form)  # type: ignore[arg-type]
    batch = Batch(torch.rand(4, 3, 32, 32), torch.arange(4))
    noise = TrainingNoise(0.25, torch.ones(()), torch.ones(()), TrainingJob().unit_noise)
    draws = 0.25 * torch.randn(2, *batch.x.shape)
    objective = SmoothAdv(eps=0.5, steps=3)
    wanted = objective.attacked(network, batch, draws, noise.attack)
    assert torch.allclose(objective.attacked(member, batch, draws, noise.attack), wanted, atol=1e-6)
    assert form.taken == 1  # once for all steps
    assert network.training
    assert torch.equal(member(batch.x), network(batch.x))
    assert form.taken == 1
    with evaluating(network):  # without kernels
        assert not network.training
    assert eager(member) is network
    assert as_trained(member) is network


def test_a_training_that_cannot_have_the_kernels_is_refused() -> None:
    with pytest.raises(ArgumentError, match="fused: rounds to bf16; got precision fp32"):
        TrainingJob(fused=True)
    with pytest.raises(ArgumentError, match=r"needs CIFAR ResNets, a GPU .*; got device cpu"):
        attackable([made()], [made()], torch.rand(2, 3, 32, 32))


def test_a_training_asks_for_the_kernels_only_if_it_is_told_to(monkeypatch: pytest.MonkeyPatch) -> None:
    from ringfence.training import DeviceData, stepper

    asked: list[int] = []
    monkeypatch.setattr(stepper, "attackable", lambda members, run, x: asked.append(len(x)) or list(run))
    data = DeviceData(torch.rand(8, 3, 32, 32), torch.arange(8) % 7, 7)
    for fused in (False, True):
        job = TrainingJob(objective=NoiseAugmentation(2), batch=4, precision="bf16", fused=fused)
        Stepper(job, [made()], data, make_fabric("cpu", 1, "bf16"))
    assert asked == [8]
    assert TrainingJob.of(TrainingJob(precision="bf16", fused=True).config()).fused
