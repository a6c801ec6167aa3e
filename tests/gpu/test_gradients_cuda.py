"""Gradients in images by kernels, on a GPU: those of the network, in any batch, and what trainings and attacks do."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from ringfence.attacks import Pgd, smoothed_loss
from ringfence.classifiers import Normalize, SoftVote
from ringfence.classifiers.architectures import resnet
from ringfence.classifiers.architectures.resnet import Shortcut
from ringfence.classifiers.fused import fused_resnet, why_not
from ringfence.classifiers.fused.gradient import FusedGradients, fuse_gradients, fused_gradients
from ringfence.training import DeviceData, TrainingJob, train
from ringfence.training.objectives import Catrs, Objective, Reweight, SmoothAdv, SmoothMix

DEVICE = os.environ.get("RINGFENCE_TEST_DEVICE", "cuda")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available() or DEVICE == "cpu", reason="the kernels need a GPU"),
]


@pytest.fixture(autouse=True)
def _needs_kernels() -> None:
    if (problem := why_not(torch.device(DEVICE))) is not None:
        pytest.skip(problem)


def made(depth: int, shortcut: Shortcut = "projection", seed: int = 0) -> nn.Module:
    """A network whose norms have seen data, in evaluation mode with frozen parameters, as attacks see it."""
    torch.manual_seed(seed)
    network = resnet(depth, 10, shortcut).to(DEVICE).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    for part in network.modules():
        if isinstance(part, nn.BatchNorm2d):
            part.momentum = None  # all of what they see
    with torch.no_grad():
        network(noisy(256))
    return network.eval().requires_grad_(False)


def noisy(rows: int, seed: int = 0) -> Tensor:
    generator = torch.Generator(DEVICE).manual_seed(seed)
    shape = (rows, 3, 32, 32)
    clean = torch.rand(shape, generator=generator, device=DEVICE)
    return clean + 0.25 * torch.randn(shape, generator=generator, device=DEVICE)


def gradient(scores: nn.Module, x: Tensor, half: bool = False) -> Tensor:
    """Of the cross-entropy of every row at class 3."""
    x = x.detach().requires_grad_()
    with torch.autocast("cuda", torch.bfloat16, enabled=half):
        loss = -torch.log_softmax(scores(x).float(), 1)[:, 3].sum()
    return torch.autograd.grad(loss, x)[0]


def likeness(one: Tensor, other: Tensor) -> float:
    return float(torch.cosine_similarity(one.flatten(1), other.flatten(1)).mean())


@pytest.mark.parametrize(("depth", "shortcut"), [(8, "projection"), (20, "pad"), (110, "projection")])
@pytest.mark.parametrize("rows", [1, 513])
def test_gradients_are_as_near_to_float32_as_those_of_bf16(depth: int, shortcut: Shortcut, rows: int) -> None:
    network, x = made(depth, shortcut), noisy(rows)
    form = FusedGradients(network).now()
    exact, half, found = gradient(network, x), gradient(network, x, half=True), gradient(form, x)
    assert torch.equal(form(x), fused_resnet(x, form.forth, form.numbers, form.blocks, form.classes))
    assert 1 - likeness(found, exact) < 2 * (1 - likeness(half, exact)) + 0.001
    assert torch.equal(found, gradient(form, x))  # every time
    if rows > 1:
        assert torch.equal(gradient(form, x.flip(0)), found.flip(0))  # neighbours do not matter
        assert torch.equal(gradient(form, x[:101]), found[:101])  # nor does the size of the batch
        last = gradient(form, x.contiguous(memory_format=torch.channels_last))
        assert torch.equal(last, found)  # nor the layout
        assert last.is_contiguous(memory_format=torch.channels_last)


def test_a_classifier_is_attacked_by_kernels_as_by_autograd() -> None:
    for classifier in (Normalize(made(20), [0.4, 0.5, 0.6], [0.2, 0.25, 0.3]), SoftVote([made(20), made(8, "pad", 1)])):
        classifier.to(DEVICE).eval()
        x, y = noisy(64).clamp(0, 1), torch.arange(64, device=DEVICE) % 10
        draws = 0.25 * torch.randn(2, *x.shape, device=DEVICE)
        seen, problem = fuse_gradients(classifier, x)
        assert problem is None
        losses = [
            float(smoothed_loss(classifier, at, y, draws).mean())
            for at in (x, Pgd(0.5)(classifier, x, y, draws), Pgd(0.5)(seen, x, y, draws))
        ]
        assert losses[2] - losses[0] > 0.95 * (losses[1] - losses[0])


def test_gradients_of_other_weights_are_not_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    right = FusedGradients.now

    def wrong(self: FusedGradients) -> nn.Module:
        form = right(self)
        form.back = form.back.flip(0)
        return form

    monkeypatch.setattr(FusedGradients, "now", wrong)
    for network in (made(8), resnet(110).to(DEVICE)):  # the latter fresh, as a training begins
        assert "off" in str(fused_gradients(network, noisy(8)))


def test_a_fresh_network_is_trusted_and_stays_as_it_is() -> None:
    network = resnet(110).to(DEVICE)
    before = {key: value.clone() for key, value in network.state_dict().items()}
    assert isinstance(fused_gradients(network, noisy(8)), FusedGradients)
    assert network.training
    assert all(torch.equal(before[key], value) for key, value in network.state_dict().items())


@pytest.mark.parametrize(
    "objective", [SmoothAdv(steps=2), SmoothMix(steps=2), Reweight(begin=0, least=0.0, steps=2), Catrs(steps=2)]
)
@pytest.mark.parametrize("graph", [False, True])
def test_trainings_with_attacks_take_them(objective: Objective, graph: bool, tmp_path: Path) -> None:
    """Recorded or not, with the weights of every step: the first steps come close to those with autograd."""
    torch.manual_seed(0)
    data = DeviceData(torch.rand(128, 3, 32, 32), torch.arange(128) % 10, 10, torch.full((128, 10), 0.1))
    ends = []
    for fused in (False, True):
        torch.manual_seed(1)
        job = TrainingJob(objective=objective, batch=64, epochs=1, precision="bf16", graph=graph, fused=fused)
        (trained,) = train(job, [resnet(8)], data, tmp_path / str(fused), device=DEVICE)
        ends.append(torch.cat([one.flatten() for one in trained.parameters()]))
    torch.manual_seed(1)
    start = torch.cat([one.detach().flatten() for one in resnet(8).parameters()])
    moved = ends[0] - start
    assert (ends[1] - ends[0]).norm() < 0.3 * moved.norm()
    assert moved.norm() > 0
