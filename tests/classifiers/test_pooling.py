"""Which layers of a traced network are one kernel, and what the operator does; the kernel itself is in other tests."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from exchanged import run_exchanged
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.functional import max_pool2d, relu

from ringfence.classifiers import exchanging, pooling
from ringfence.classifiers.architectures.lenet import LeNet, convolve_and_pool, wide_lenet
from ringfence.classifiers.pooling import Layers, layers_of
from ringfence.sampling import ForwardPlan
from ringfence.sampling.check import checked_forward

pytestmark = pytest.mark.filterwarnings("ignore:.*script_method:DeprecationWarning")  # torch, loading its compiler
CPU = torch.device("cpu")
PAIR = "pooled_twice.default"
HOPPER = 227 * 1024
"""Bytes of shared memory that a block can have there."""


class Net(nn.Module):
    """Two layers; how: of the first convolution; pool: instead of the first maximum; between: done in between."""

    def __init__(
        self,
        pool: nn.Module | None = None,
        between: Callable[[Tensor, Tensor], Tensor] = lambda x, found: found,
        channels: tuple[int, int] = (4, 5),
        **how: Any,
    ) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Conv2d(1, channels[0], **{"kernel_size": 3, **how})
        self.second = nn.Conv2d(channels[0], channels[1], 3, padding=1)
        self.pool, self.between = pool or nn.MaxPool2d(2), between

    def forward(self, x: Tensor) -> Tensor:
        x = x + 0
        between = self.between(x, self.pool(relu(self.first(x))))
        return max_pool2d(torch.relu(self.second(between)), 2)


class ByName(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return max_pool2d(input=x, kernel_size=(2, 2))


def changed(x: Tensor, found: Tensor) -> Tensor:
    x.mul_(3)
    return found


@pytest.fixture(autouse=True)
def everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the CPU were a GPU."""
    monkeypatch.setattr(exchanging, "_on_cuda", lambda x: True)
    monkeypatch.setattr(exchanging, "_has_kernels", lambda device: True)
    monkeypatch.setattr(exchanging, "_room", lambda device: 227 * 1024)


LEFT_OUT = {
    "stride": Net(stride=2),
    "taps apart": Net(dilation=2),
    "edges that differ": Net(padding=(1, 0)),
    "edges by name": Net(padding="same"),
    "taps that differ": Net(kernel_size=(3, 5)),
    "no bias": Net(bias=False),
    "a maximum of three": Net(nn.MaxPool2d(3)),
    "windows that overlap": Net(nn.MaxPool2d(2, 1)),
    "windows with edges": Net(nn.MaxPool2d(2, padding=1)),
    "windows with edges on two sides": Net(nn.MaxPool2d(2, padding=(1, 0))),
    "oblong windows": Net(nn.MaxPool2d((2, 1))),
    "windows that are not full": Net(nn.MaxPool2d(2, ceil_mode=True)),
    "windows with gaps": Net(nn.MaxPool2d(2, 2, dilation=2)),
    "a mean": Net(nn.AvgPool2d(2)),
    "something between": Net(between=lambda x, found: found + 1),
    "an input that is changed between": Net(between=changed),
    "many channels": Net(channels=(33, 5)),
    "more channels": Net(channels=(4, 65)),
}
TAKEN = {
    "plainly": Net(),
    "with an edge": Net(padding=2),
    "few taps": Net(kernel_size=2),
    "by name": Net(ByName()),
    "wide": Net(channels=(32, 64)),
}


@pytest.mark.parametrize("name", [*TAKEN, *LEFT_OUT])
def test_two_plain_layers_are_one_operator(name: str) -> None:
    model, x = (TAKEN | LEFT_OUT)[name].bfloat16().eval(), torch.randn(3, 1, 18, 18).bfloat16()
    called, found = run_exchanged(model, x)
    assert called.count(PAIR) == (name in TAKEN)
    torch.testing.assert_close(found, model(x), rtol=0.02, atol=0.02)


def test_what_is_read_between_the_layers_stays() -> None:
    class Both(Net):
        def forward(self, x: Tensor) -> Tensor:
            between = self.pool(relu(self.first(x)))
            return max_pool2d(torch.relu(self.second(between)), 2) + between.sum()

    assert PAIR not in run_exchanged(Both().bfloat16(), torch.randn(2, 1, 18, 18).bfloat16())[0]


@pytest.mark.parametrize("what", ["float32", "elsewhere", "no kernels"])
def test_what_is_not_in_half_precision_on_a_gpu_is_left_to_torch(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if what == "elsewhere":
        monkeypatch.undo()
    if what == "no kernels":
        monkeypatch.setattr(exchanging, "_has_kernels", lambda device: False)
    kind = torch.float32 if what == "float32" else torch.bfloat16
    for model in (Net(), LeNet()):
        assert PAIR not in run_exchanged(model.to(kind), torch.randn(2, 1, 28, 28).to(kind))[0]


@pytest.mark.parametrize("make", [LeNet, wide_lenet])
def test_both_lenets_begin_with_a_pair(make: Callable[[], LeNet]) -> None:
    torch.manual_seed(0)
    model, x = make().bfloat16().eval(), torch.randn(3, 1, 28, 28).bfloat16()
    called, found = run_exchanged(model, x)
    assert called.count(PAIR) == 1
    torch.testing.assert_close(found, model(x), rtol=0.02, atol=0.02)


@pytest.mark.parametrize(("make", "pairs"), [(LeNet, 1), (wide_lenet, 0)])
def test_layers_that_a_gpu_has_no_room_for_are_compiled_as_they_are(
    make: Callable[[], LeNet], pairs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = SimpleNamespace(shared_memory_per_block_optin=99 * 1024)
    monkeypatch.undo()
    monkeypatch.setattr(exchanging, "_on_cuda", lambda x: True)
    monkeypatch.setattr(exchanging, "_has_kernels", lambda device: True)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: room)
    called, _ = run_exchanged(make().bfloat16().eval(), torch.randn(3, 1, 28, 28).bfloat16())
    assert called.count(PAIR) == pairs


def test_three_layers_are_a_pair_and_one() -> None:
    layers = [part for size in (1, 4, 4) for part in (nn.Conv2d(size, 4, 3, padding=1), nn.ReLU(True), nn.MaxPool2d(2))]
    model, x = nn.Sequential(*layers).bfloat16().eval(), torch.randn(2, 1, 16, 16).bfloat16()
    called, found = run_exchanged(model, x)
    assert called.count(PAIR) == 1
    torch.testing.assert_close(found, model(x), rtol=0.02, atol=0.02)


def test_the_operator_is_the_kernel_where_it_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, Layers]] = []

    def checked(name: str, device: torch.device, layers: Layers) -> Any:
        asked.append((name, layers))
        return SimpleNamespace(pooled_twice=lambda layers, x, *weights: x.new_full((1,), 7))

    monkeypatch.setattr(pooling, "checked_kernel", checked)
    model, x = wide_lenet().bfloat16(), torch.randn(3, 1, 28, 28).bfloat16()
    first, second = model.features[0], model.features[3]
    weights = (first.weight, first.bias, second.weight, second.bias)
    assert torch.ops.ringfence.pooled_twice(x, *weights, 0, 0).tolist() == [7]
    assert asked == [(pooling.KERNEL, Layers((1, 28, 28), (5, 0, 20), (5, 0, 50)))]
    assert asked[0][1].weights == tuple(one.shape for one in weights)
    wanted = model.float().features(x.float())
    found = torch.ops.ringfence.pooled_twice(x.float(), *weights, 0, 0)  # another type: torch's
    torch.testing.assert_close(found, wanted)
    assert len(asked) == 1


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_compilers_are_told_what_the_operator_answers(layout: torch.memory_format) -> None:
    x = torch.randn(2, 3, 12, 14).bfloat16().contiguous(memory_format=layout)
    weights = [torch.randn(shape).bfloat16() for shape in ((5, 3, 3, 3), (5,), (6, 5, 3, 3), (6,))]
    found = torch.ops.ringfence.pooled_twice(x, *weights, 0, 1)
    with FakeTensorMode() as mode:
        told = torch.ops.ringfence.pooled_twice(*map(mode.from_tensor, (x, *weights)), 0, 1)
    assert (told.shape, told.dtype, told.stride()) == (found.shape, found.dtype, found.stride())
    known = layers_of(x, weights[0], weights[2], 0, 1)
    assert known is not None
    assert known.last == (layout is torch.channels_last)
    assert found.shape[2:] == known.sizes[1]


def test_a_lenet_with_a_pair_passes_the_check() -> None:
    """Compiled as for a GPU; the operator here is torch's layers."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    plan = ForwardPlan(48, "bf16", compile=True, exchanged=True)
    found = checked_forward(LeNet().eval(), plan, CPU, 10, lambda count: torch.rand(count, 1, 28, 28))
    assert found.forward.plan == plan


def test_a_wrong_kernel_is_refused_by_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though it passed its own: the whole network is compared."""

    def wrong(layers: Layers, x: Tensor, *weights: Tensor) -> Tensor:
        between = convolve_and_pool(x, *weights[:2], layers.first[1])
        return convolve_and_pool(between, *weights[2:], layers.second[1]).flip(1)

    monkeypatch.setattr(pooling, "checked_kernel", lambda *_: SimpleNamespace(pooled_twice=wrong))
    torch._dynamo.reset()
    torch.manual_seed(0)
    plan = ForwardPlan(48, "bf16", compile=True, exchanged=True)
    found = checked_forward(LeNet().eval(), plan, CPU, 10, lambda count: torch.rand(count, 1, 28, 28))
    assert not found.forward.plan.exchanged
    assert [one.split(":")[0] for one in found.forward.plan.refused] == ["exchanged"]


@pytest.mark.parametrize(
    ("layers", "warps"),
    [
        (Layers((1, 28, 28), (5, 0, 20), (5, 0, 50)), 12),
        (Layers((1, 28, 28), (5, 2, 6), (5, 0, 16)), 12),
        (Layers((3, 32, 32), (5, 0, 32), (5, 2, 64)), 0),
    ],
)
def test_a_block_has_as_many_warps_as_its_memory_holds(layers: Layers, warps: int) -> None:
    assert layers.warps(HOPPER) == warps
    assert layers.warps(layers.shared_bytes(4)) == 4
    assert layers.warps(layers.shared_bytes(4) - 1) == 0


def test_other_shapes_are_not_the_kernels() -> None:
    x, first, second = (torch.empty(shape).bfloat16() for shape in ((2, 1, 28, 28), (20, 1, 5, 5), (50, 20, 5, 5)))
    assert layers_of(x, first, second, 0, 0) == Layers((1, 28, 28), (5, 0, 20), (5, 0, 50))
    wrong: list[tuple[Tensor, ...]] = [
        (x[:0], first, second),
        (x[0], first, second),
        (x.float(), first, second),
        (x, first.float(), second),
        (x, first, second[:, :19]),
        (x.expand(2, 2, 28, 28), first, second),
        (x[..., :12, :12], first, second),  # nothing is left
        (x[..., :27, :27], first, second),  # an odd number of pixels
        (torch.empty(2, 1, 34, 34).bfloat16(), first, second),
    ]
    for given in wrong:
        assert layers_of(*given, 0, 0) is None
