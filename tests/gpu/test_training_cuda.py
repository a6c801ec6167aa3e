"""Kernels and compiled code of training on a GPU, against float64 and against torch op by op."""

from __future__ import annotations

import copy
from contextlib import nullcontext

import pytest
import torch
from torch import Tensor, nn

from ringfence.classifiers import fold_batch_norm
from ringfence.classifiers.architectures import resnet
from ringfence.noise.checked import checked_kernel
from ringfence.sampling.preparing import compiled
from ringfence.training import DeviceData, TrainingJob
from ringfence.training.fabric import compile_members, make_fabric
from ringfence.training.narrow import KERNEL
from ringfence.training.objectives import Drt
from ringfence.training.objectives.compiled_gradient import Differentiated, differentiated
from ringfence.training.objectives.diversity import loss_of_rows, margin_over_runner_up
from ringfence.training.objectives.second_order import SecondOrder
from ringfence.training.stepper import Stepper

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore"),  # the compiler's own
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device is visible"),
]


def drawn(*shape: int) -> Tensor:
    return torch.randn(shape, device="cuda").bfloat16().contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize(("channels", "side", "rows"), [(16, 32, 37), (32, 16, 64), (32, 16, 37)])
def test_convolutions_of_few_channels_are_those_of_float64(channels: int, side: int, rows: int) -> None:
    from ringfence.training import narrow_kernel

    torch.manual_seed(rows)
    image = (rows, channels, side, side)
    x, weight, gradient = drawn(*image), drawn(channels, channels, 3, 3), drawn(*image)
    exact = [one.double().requires_grad_() for one in (x, weight)]
    out = torch.conv2d(*exact, padding=1)
    wanted = (out, *torch.autograd.grad(out, exact, gradient.double()))
    found = [
        (narrow_kernel.convolved(x, weight), narrow_kernel.convolved(gradient, weight, back=True)),
        (narrow_kernel.to_weight(x, gradient),),
    ]
    for ours, exactly in zip([one for part in found for one in part], wanted, strict=True):
        assert (ours.double() - exactly).norm() <= 5e-3 * exactly.norm()
    again = narrow_kernel.to_weight(x, gradient)
    assert torch.equal(again, found[1][0])


def test_a_compiled_member_uses_them_and_has_the_plain_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    from ringfence.training import narrow_kernel

    assert checked_kernel(KERNEL, torch.device("cuda", torch.cuda.current_device()))  # counts no more, below
    calls: list[str] = []
    for name in ("convolved", "to_weight"):
        real = getattr(narrow_kernel, name)
        monkeypatch.setattr(
            narrow_kernel, name, lambda *given, name=name, real=real, **more: calls.append(name) or real(*given, **more)
        )
    torch.manual_seed(0)
    member = resnet(8).train().to("cuda", memory_format=torch.channels_last)
    x = torch.rand(64, 3, 32, 32, device="cuda").contiguous(memory_format=torch.channels_last)
    compile_members(
        [member], x, make_fabric("cuda", 1, "bf16"), recorded=True
    )  # refuses gradients that are not the plain network's
    assert calls.count("convolved") == 6
    assert calls.count("to_weight") == 3


@pytest.mark.parametrize("values", [margin_over_runner_up, loss_of_rows])
def test_compiled_gradients_of_gradients_are_those_of_torch(values: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    torch.manual_seed(0)
    member = resnet(8).train().to("cuda", memory_format=torch.channels_last)
    other = copy.deepcopy(member)
    x, y = torch.rand(32, 3, 32, 32, device="cuda"), torch.arange(32, device="cuda") % 10

    def of(found: Differentiated, network: nn.Module) -> tuple[Tensor, ...]:
        total = found.scores.square().mean() + found.values.sum() + found.gradient.flatten(1).norm(dim=1).sum()
        return torch.autograd.grad(total, list(network.parameters()))

    fast = differentiated(compiled(member), x, y, values)  # type: ignore[arg-type]
    plain = differentiated(other, x, y, values)  # type: ignore[arg-type]
    for one, two in zip((*fast, *of(fast, member)), (*plain, *of(plain, other)), strict=True):
        assert (one - two).norm() <= 1e-2 * two.norm() + 1e-3
    for one, two in zip(member.buffers(), other.buffers(), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-3, atol=1e-4)


def test_steps_that_are_not_recorded_keep_the_memory_of_one() -> None:
    """Members' streams are the same in every step: torch keeps memory for each that it has seen."""
    torch.manual_seed(0)
    members = [resnet(8).train().to("cuda", memory_format=torch.channels_last) for _ in range(3)]
    data = DeviceData(torch.rand(64, 3, 32, 32, device="cuda"), torch.arange(64, device="cuda") % 10, 10)
    job = TrainingJob(objective=Drt(), batch=64, sigma=0.25, precision="bf16", graph=False, compile=False)
    stepper, kept = Stepper(job, members, data, make_fabric("cuda", 1, "bf16")), []
    stepper.clear(0, 1.0, 1.0)
    for _ in range(12):
        stepper.aim(torch.arange(64, device="cuda"), 0.01)
        stepper.step()
        kept.append(torch.cuda.memory_reserved())
    assert kept[-1] <= 1.5 * kept[1]


def test_convolutions_joined_with_what_follows_are_those_of_torch() -> None:
    torch.manual_seed(0)
    member = resnet(8).eval().cuda()
    for part in member.modules():
        if isinstance(part, nn.BatchNorm2d):  # biases other than zero
            nn.init.normal_(part.bias, 0, 0.2)
    x = torch.rand(64, 3, 32, 32, device="cuda")
    joined, plain = (
        fold_batch_norm(member, joined=one).to(torch.bfloat16).to(memory_format=torch.channels_last)
        for one in (True, False)
    )
    narrow = x.bfloat16().contiguous(memory_format=torch.channels_last)
    with torch.inference_mode():
        exact, ours, theirs = member(x), joined(narrow).float(), plain(narrow).float()
        fast = compiled(joined)(narrow).float()
    assert (ours - exact).norm() <= 1.5 * (theirs - exact).norm() + 1e-3
    assert (fast - ours).norm() <= 1e-2 * ours.norm()


def test_input_gradients_in_a_loss_are_differentiated_as_torch_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    torch.manual_seed(0)
    member = resnet(8).train().to("cuda", memory_format=torch.channels_last)
    x = torch.rand(32, 3, 32, 32, device="cuda", requires_grad=True)
    found = []
    for mode in (SecondOrder(everywhere=True), nullcontext()):
        with mode as second:
            total = member(x).square().sum()
        slope = second.gradient(total, x) if second else torch.autograd.grad(total, x, create_graph=True)[0]
        found.append(torch.autograd.grad(slope.norm(), list(member.parameters()), allow_unused=True))
    for ours, theirs in zip(*found, strict=True):
        assert (ours is None) == (theirs is None)
        assert ours is None or (ours - theirs).norm() <= 1e-2 * theirs.norm() + 1e-3
