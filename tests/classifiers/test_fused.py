"""What can be shown of the fused kernel without a GPU: that it is given the right weights. tests/gpu runs it."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d, relu
from torch.nn.utils import parametrizations

from ringfence.classifiers import Aces, EntropySelector, KConsensus, NetworkSelector, Normalize, fused
from ringfence.classifiers.aces import Measured, Selector
from ringfence.classifiers.architectures import LeNet, resnet
from ringfence.classifiers.architectures.resnet import ResNet, Shortcut
from ringfence.classifiers.fused import (
    FusedResNet,
    _fused,
    count_resnets,
    fuse_resnets,
    fused_resnet,
    in_order,
    why_not,
)
from ringfence.errors import ArgumentError
from ringfence.sampling import ForwardPlan

CPU = torch.device("cpu")


def unpacked(flat: Tensor, outputs: int, inputs: int, taps: int) -> Tensor:
    """The weights (K, C, k, k) by the definition of mma.m16n8k16: lane l holds b0 at rows 2(l%4)+{0,1} of column l/4,
    and b1 eight rows below; a lane's 16 bytes are b0, b1 of one tile of eight columns, then of the next."""
    read, found = iter(flat.tolist()), torch.zeros(outputs, inputs, taps)
    for tap in range(taps):
        for step in range(inputs // 16):
            for pair in range(outputs // 16):
                for lane in range(32):
                    for tile in range(2):
                        for below in (0, 8):
                            for next_to in (0, 1):
                                row = step * 16 + lane % 4 * 2 + below + next_to
                                found[(2 * pair + tile) * 8 + lane // 4, row, tap] = next(read)
    size = 3 if taps == 9 else 1
    return found.view(outputs, inputs, size, size).transpose(2, 3)  # taps below each other are neighbours


class Reader:
    """Takes weights and biases of one convolution after the other, as the kernel does, and applies them."""

    def __init__(self, fused: FusedResNet) -> None:
        self.weights = fused.weights.view(torch.bfloat16).float()
        self.numbers = fused.numbers.view(torch.float32)
        self.at = self.bias_at = 0

    def convolve(self, x: Tensor, outputs: int, stride: int = 1, taps: int = 9) -> Tensor:
        inputs = x.shape[1]
        size = taps * inputs * outputs
        weight = unpacked(self.weights[self.at : self.at + size], outputs, inputs, taps)
        bias = self.numbers[self.bias_at : self.bias_at + outputs]
        self.at, self.bias_at = self.at + size, self.bias_at + outputs
        return conv2d(x, weight, bias, stride, padding=1 if taps == 9 else 0)

    def block(self, x: Tensor, outputs: int, first: bool) -> Tensor:
        side = self.convolve(x, outputs, 2, taps=1) if first else x
        return relu(self.convolve(relu(self.convolve(x, outputs, 2 if first else 1)), outputs) + side)


def kernel_in_torch(fused: FusedResNet, x: Tensor) -> Tensor:
    """What resnet.cu does, step by step, without its rounding."""
    reader, classes = Reader(fused), fused.classes
    scale, shift = reader.numbers[-6:-3], reader.numbers[-3:]
    x = x * scale.view(3, 1, 1) + shift.view(3, 1, 1)
    x = relu(reader.convolve(torch.cat([x, torch.zeros(len(x), 13, 32, 32)], 1), 16))
    for outputs in (16, 32, 64):
        for i in range(fused.blocks):
            x = reader.block(x, outputs, first=i == 0 and outputs > 16)
    assert reader.at == len(reader.weights)
    assert reader.bias_at == len(reader.numbers) - 6 - 65 * classes
    head = reader.numbers[reader.bias_at :]
    return x.mean((2, 3)) @ head[: 64 * classes].view(classes, 64).T + head[64 * classes : 65 * classes]


def shaken(network: nn.Module) -> nn.Module:
    """Batch norms as after training."""
    with torch.no_grad():
        for part in network.modules():
            if isinstance(part, nn.BatchNorm2d):
                for value in (part.weight, part.bias, part.running_mean):
                    value.uniform_(0.3, 0.9)
                part.running_var.uniform_(1, 3)
    return network.eval()


@pytest.mark.parametrize(("depth", "shortcut", "classes"), [(8, "projection", 10), (14, "pad", 7)])
def test_the_kernel_is_given_the_networks_weights_in_its_order(depth: int, shortcut: Shortcut, classes: int) -> None:
    torch.manual_seed(0)
    network = shaken(resnet(depth, classes, shortcut))
    normalised = Normalize(network, [0.4, 0.5, 0.6], [0.2, 0.25, 0.3]).eval()
    x = torch.rand(2, 3, 32, 32)
    with torch.inference_mode():
        wanted, found = normalised(x), kernel_in_torch(FusedResNet(network, normalised.mean, normalised.std), x)
        plain = kernel_in_torch(FusedResNet(network), x)
    assert (found - wanted).abs().max() < 0.02 * wanted.abs().max()  # weights are rounded to half precision
    assert (plain - network(x)).abs().max() < 0.02 * plain.abs().max()


def test_packing_keeps_every_weight_once() -> None:
    weight = torch.arange(32 * 16 * 9).remainder(251).float().view(32, 16, 3, 3)  # exact in half precision
    assert torch.equal(unpacked(in_order(weight), 32, 16, 9), weight)


def test_casting_the_network_leaves_the_kernels_numbers_alone() -> None:
    fused = FusedResNet(shaken(resnet(8)))
    before = {key: value.clone() for key, value in fused.state_dict().items()}
    cast = fused.to(torch.bfloat16).to(memory_format=torch.channels_last)
    assert all(torch.equal(before[key], value) for key, value in cast.state_dict().items())


def test_torch_knows_the_shape_of_the_scores_without_running() -> None:
    with torch.device("meta"):
        x, words = torch.empty(5, 3, 32, 32), torch.empty(1, dtype=torch.int32)
        assert torch.ops.ringfence.fused_resnet(x, words, words, 3, 7).shape == (5, 7)


def test_a_compiler_sees_an_operator_and_nobody_else_does(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(fused, "launch", lambda *args: asked.append("kernel"))
    monkeypatch.setattr(fused, "_operator", lambda *args: asked.append("operator"))
    words = torch.empty(1, dtype=torch.int32)
    for compiling in (False, True):
        monkeypatch.setattr(torch.compiler, "is_compiling", lambda compiling=compiling: compiling)
        fused_resnet(words, words, words, 3, 7)
    assert asked == ["kernel", "operator"]


def test_other_shapes_are_refused() -> None:
    words = torch.empty(1, dtype=torch.int32)
    with pytest.raises(ArgumentError, match=r"fused: takes images \(3, 32, 32\); got \(3, 36, 36\)"):
        fused_resnet(torch.empty(5, 3, 36, 36), words, words, 3, 7)


def test_without_such_a_gpu_it_is_refused_with_the_reason() -> None:
    assert why_not(CPU) == "device cpu"
    with pytest.raises(
        ArgumentError, match=r"needs a GPU of compute capability 8\.0 or later, and CuPy; got device cpu"
    ):
        fuse_resnets(resnet(8), CPU)


@pytest.mark.parametrize(
    ("version", "kilobytes", "fits"),
    [((7, 5), 64, False), ((8, 0), 163, True), ((8, 6), 99, True), ((9, 0), 227, True), ((12, 0), 99, True)],
)
def test_every_gpu_with_its_instructions_has_room_for_it(
    monkeypatch: pytest.MonkeyPatch, version: tuple[int, int], kilobytes: int, fits: bool
) -> None:
    """Shared memory a block may have, by compute capability, as NVIDIA's programming guide has it."""
    found = SimpleNamespace(
        name="a GPU", major=version[0], minor=version[1], shared_memory_per_block_optin=1024 * kilobytes
    )
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: found)
    monkeypatch.setattr(fused, "kernel_on", lambda device: None)
    assert why_not.__wrapped__(torch.device("cuda")) == (None if fits else "a GPU (compute capability 7.5)")


@pytest.mark.parametrize("settings", [{"precision": "fp32"}, {"precision": "bf16", "stacked": True}])
def test_plans_that_cannot_be_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(ArgumentError, match="fused: needs bf16, and members one by one"):
        ForwardPlan(8, fused=True, **settings)  # type: ignore[arg-type]


def test_only_networks_of_that_kind_are_fused() -> None:
    assert count_resnets(Normalize(resnet(8), [0.5], [0.5])) == 1
    assert count_resnets(KConsensus([LeNet(), resnet(8), resnet(8)], 1)) == 2
    assert count_resnets(LeNet()) == 0
    assert count_resnets(nn.Sequential(resnet(8), nn.ReLU())) == 0  # it may rely on the parts of its own network


class OfItsParts(Selector):
    """A stranger's selector, which asks a network for more than scores."""

    def __init__(self, net: ResNet) -> None:
        super().__init__([0.5])
        self.net = net

    def measure(self, x: Tensor, scores: Tensor) -> Measured:
        return Measured(self.net.conv1(x).flatten(1).mean(1).clamp(0, 1), 1)


def test_the_network_that_selects_is_fused_too(monkeypatch: pytest.MonkeyPatch) -> None:
    assert count_resnets(Aces(resnet(8), EntropySelector([0.5]), LeNet())) == 1
    assert count_resnets(Aces(resnet(8), OfItsParts(resnet(8)), LeNet())) == 1
    aces = Aces(resnet(14), NetworkSelector(Normalize(resnet(8, 2), [0.5], [0.5]), [0.5]), LeNet())
    assert count_resnets(aces) == 2
    monkeypatch.setattr(fused, "why_not", lambda device: None)
    made = fuse_resnets(aces, CPU)
    assert isinstance(made, Aces)
    assert isinstance(made.select, NetworkSelector)
    found = [one for one in (made.certify, made.select.net) if isinstance(one, FusedResNet)]
    assert [(one.blocks, one.classes) for one in found] == [(2, 10), (1, 2)]


def test_a_network_that_is_more_than_its_weights_is_not_fused() -> None:
    hooked, parametrised, replaced = (resnet(8).eval() for _ in range(3))
    hooked.layer1[0].bn1.register_forward_hook(lambda module, inputs, out: -out)
    parametrizations.weight_norm(parametrised.conv1)
    replaced.forward = lambda x: -ResNet.forward(replaced, x)
    for network in (hooked, parametrised, replaced):
        assert count_resnets(network) == 0
        assert _fused(network, CPU) is None
        assert _fused(Normalize(network, [0.5], [0.5]), CPU) is None
    normalised = Normalize(resnet(8), [0.5], [0.5]).eval()
    assert isinstance(_fused(normalised, CPU), FusedResNet)
    normalised.register_forward_hook(lambda module, inputs, out: -out)
    assert _fused(normalised, CPU) is None


class Limited(nn.Linear):
    """Differs in the few rows whose scores are large."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).clamp(max=50)


LAYERS: dict[str, Callable[[ResNet], object]] = {
    "the last layer": lambda network: setattr(network, "linear", Limited(64, 10)),
    "a shortcut": lambda network: setattr(network.layer1[0], "shortcut", nn.Hardtanh(-50, 50)),
    "a convolution": lambda network: setattr(
        network, "conv1", nn.Conv2d(3, 16, 3, padding=1, bias=False, padding_mode="reflect")
    ),
}


@pytest.mark.parametrize("which", LAYERS)
def test_a_network_with_a_layer_of_its_users_is_not_fused(which: str) -> None:
    network = resnet(8).eval()
    LAYERS[which](network)
    assert count_resnets(network) == 0
    assert _fused(network, CPU) is None
