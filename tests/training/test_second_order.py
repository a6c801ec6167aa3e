"""Input gradients in a loss: the same as torch's second derivatives, by other kernels."""

from __future__ import annotations

import copy
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import batch_norm
from torch.utils._python_dispatch import TorchDispatchMode

from ringfence.classifiers.architectures import build_architecture
from ringfence.training.objectives.second_order import SecondOrder


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(
    "how", [{}, {"stride": 2, "padding": 1}, {"padding": (1, 2), "dilation": 2}, {"groups": 2}, {"padding": "same"}]
)
def test_a_convolution_may_be_differentiated_twice_in_everything(how: dict[str, Any], bias: bool) -> None:
    generator = torch.Generator().manual_seed(3)

    def drawn(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()

    groups = 2 if "groups" in how else 1
    given = [drawn(2, 4, 4, 3), drawn(4, 4 // groups, 3, 3), *([drawn(4)] if bias else [])]

    def convolved(x: Tensor, weight: Tensor, offset: Tensor | None = None) -> Tensor:
        with SecondOrder(everywhere=True):
            found: Tensor = torch.conv2d(x, weight, offset, **how).sin()
        return found

    assert torch.autograd.gradcheck(convolved, given)
    assert torch.autograd.gradgradcheck(convolved, given)


@pytest.mark.parametrize("shape", [(5, 3), (4, 3, 2, 5)])
def test_a_batch_norm_may_be_differentiated_twice_in_everything(shape: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(3)

    def drawn(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()

    def normed(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        with SecondOrder(everywhere=True):
            found: Tensor = batch_norm(x, None, None, weight, bias, training=True).sin()
        return found

    given = [drawn(*shape), drawn(3), drawn(3)]
    assert torch.autograd.gradcheck(normed, given)
    assert torch.autograd.gradgradcheck(normed, given)


def test_second_derivatives_of_a_batch_norm_are_taken_in_fewer_passes() -> None:
    passes: list[Any] = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            passes.append(func)
            return func(*args, **(kwargs or {}))

    launched = []
    for mode in (SecondOrder(everywhere=True), nullcontext()):
        member = nn.Sequential(nn.BatchNorm2d(3), nn.ReLU())
        x = torch.rand(4, 3, 8, 8).requires_grad_()
        with mode as second:
            total = member(x).square().sum()
        slope = second.gradient(total, x) if second else torch.autograd.grad(total, x, create_graph=True)[0]
        passes.clear()
        with Watch():
            slope.square().sum().backward()
        launched.append(sum(func is torch.ops.aten.sum.dim_IntList for func in passes))
    assert launched[0] == 0 < launched[1]


@pytest.mark.parametrize("momentum", [0.3, None])
def test_a_batch_norm_counts_and_evaluates_as_torchs_own(momentum: float | None) -> None:
    ours, theirs = (nn.BatchNorm2d(3, momentum=momentum) for _ in range(2))
    for seed in range(3):
        x = torch.rand(4, 3, 8, 8, generator=torch.Generator().manual_seed(seed)) + seed
        with SecondOrder(everywhere=True):
            found = ours(x)
        assert torch.equal(found, theirs(x))
    assert all(torch.equal(a, b) for a, b in zip(ours.buffers(), theirs.buffers(), strict=True))
    with SecondOrder(everywhere=True):
        assert torch.equal(ours.eval()(x), theirs.eval()(x))
        assert torch.equal(nn.BatchNorm2d(3, affine=False)(x), nn.BatchNorm2d(3, affine=False)(x))


def steepness(member: nn.Module, x: Tensor, second: bool) -> list[Tensor]:
    """Gradients of the weights of a loss that has the length of the input gradient in it."""
    x = x.clone().requires_grad_()
    with SecondOrder(everywhere=True) if second else nullcontext() as mode:
        scores = member(x)
    total = scores.float().square().sum()
    slope = mode.gradient(total, x) if mode else torch.autograd.grad(total, x, create_graph=True)[0].float()
    (scores.float().logsumexp(1).mean() + slope.norm()).backward()
    return [one.grad for one in member.parameters() if one.grad is not None]


# In bf16 those of a deep network are off float32's by their own length, and by how much depends on the CPU: on one with
# AMX ours and torch's differ by up to .43 of it.
@pytest.mark.parametrize(("arch", "rounding"), [("lenet", 0.2), ("resnet20", 0.6)], ids=["lenet", "resnet20"])
@pytest.mark.parametrize("autocast", [False, True])
def test_networks_get_the_gradients_torch_gives_them(arch: str, rounding: float, autocast: bool) -> None:
    torch.manual_seed(0)
    member = build_architecture(arch, 10).train()
    shape = (1, 28, 28) if arch == "lenet" else (3, 32, 32)
    x = torch.rand(4, *shape)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        expected = steepness(copy.deepcopy(member), x, second=False)
        found = steepness(copy.deepcopy(member), x, second=True)
    for ours, theirs in zip(found, expected, strict=True):
        assert float((ours - theirs).norm()) <= (rounding if autocast else 1e-4) * float(theirs.norm()) + 1e-5


def test_the_first_gradient_leaves_the_weights_alone() -> None:
    asked: list[str] = []
    real = torch.ops.aten.convolution_backward.default

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func is real and args[-1][1]:
                asked.append("weight")
            return func(*args, **(kwargs or {}))

    x, member = torch.rand(2, 3, 8, 8).requires_grad_(), nn.Conv2d(3, 4, 3)
    with Watch():
        with SecondOrder(everywhere=True) as second:
            total = member(x).square().sum()
        slope = second.gradient(total, x)
        assert not asked
        slope.square().sum().backward()  # type: ignore[no-untyped-call]
    assert asked
    assert member.weight.grad is not None


def test_on_a_cpu_torchs_own_steps_are_taken() -> None:
    x, member = torch.rand(2, 3, 8, 8).requires_grad_(), nn.Conv2d(3, 4, 3)
    with SecondOrder() as second:
        scores = member(x)
    assert "ConvolutionBackward" in type(scores.grad_fn).__name__
    slope = second.gradient(scores.square().sum(), x)
    slope.square().sum().backward()  # type: ignore[no-untyped-call]
    assert member.weight.grad is not None
