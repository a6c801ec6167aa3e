"""A CIFAR ResNet as one CUDA kernel whose activations never leave the chip (resnet.cu).

At 16 to 64 channels the convolutions of a ResNet are bound by memory: a compiled network writes every activation and
reads it again. The kernel keeps those of two images in the shared memory of a multiprocessor, from the first
convolution to the pooling. Same arithmetic as the folded network in bf16: half-precision products, float32 sums.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_weights

from ringfence.classifiers.architectures.resnet import Block, PadShortcut, ResNet
from ringfence.classifiers.base import Composed, has_hooks, runs_its_code_alone, with_networks
from ringfence.classifiers.fused.launching import kernel_of, launch_kernel, source
from ringfence.classifiers.normalize import Normalize
from ringfence.errors import ArgumentError

Folding = Callable[[nn.Conv2d, nn.BatchNorm2d], tuple[Tensor, Tensor]]
"""A convolution and the batch norm behind it as (weight, bias)."""


def convolutions(network: ResNet, folded: Folding) -> Iterator[tuple[Tensor, Tensor]]:
    """(weight, bias) with batch norms folded, in the order in which the kernel uses them."""
    weight, bias = folded(network.conv1, network.bn1)
    wide = torch.zeros(16, 16, 3, 3)
    wide[:, :3] = weight  # three channels stand in sixteen, the rest is zero
    yield wide, bias
    for group in (network.layer1, network.layer2, network.layer3):
        for block in group:
            assert isinstance(block, Block)
            if not isinstance(block.shortcut, nn.Identity):
                yield _shortcut(block, folded)
            yield folded(block.conv1, block.bn1)
            yield folded(block.conv2, block.bn2)


def on_host(network: nn.Module) -> Callable[[Tensor], Tensor]:
    """Its parameters and buffers in float32, on the CPU: by one transfer, as each waits for the device."""
    tensors = [*network.parameters(), *network.buffers()]
    flat = torch.cat([one.detach().reshape(-1).float() for one in tensors]).cpu()
    parts = torch.split(flat, [one.numel() for one in tensors])
    found = {id(one): part.view(one.shape) for one, part in zip(tensors, parts, strict=True)}
    return lambda one: found[id(one)]


def _folded(host: Callable[[Tensor], Tensor], convolution: nn.Conv2d, norm: nn.BatchNorm2d) -> tuple[Tensor, Tensor]:
    """In float32, on the CPU; the layers stay as and where they are."""
    given = (convolution.weight, convolution.bias, norm.running_mean, norm.running_var, norm.weight, norm.bias)
    weight, bias, mean, variance, scale, shift = (None if one is None else host(one) for one in given)
    assert weight is not None
    assert mean is not None
    assert variance is not None
    both = fuse_conv_bn_weights(weight, bias, mean, variance, norm.eps, scale, shift)
    return both[0].detach(), both[1].detach()


def _shortcut(block: Block, folded: Folding) -> tuple[Tensor, Tensor]:
    """The 1 x 1 convolution that joins two widths; zeros in new channels are one as well."""
    if isinstance(block.shortcut, PadShortcut):
        inputs, outputs = block.conv1.in_channels, block.conv1.out_channels
        weight = torch.zeros(outputs, inputs, 1, 1)
        rows = torch.arange(inputs)
        weight[rows + (outputs - inputs) // 2, rows] = 1
        return weight, torch.zeros(outputs)
    assert isinstance(block.shortcut, nn.Sequential)
    convolution, norm = block.shortcut
    assert isinstance(convolution, nn.Conv2d)
    assert isinstance(norm, nn.BatchNorm2d)
    return folded(convolution, norm)


def in_order(weight: Tensor) -> Tensor:
    """(K, C, k, k) in the order of mma.m16n8k16's second operand: (tap, C/16, K/16, lane, 2, 4), flat.

    Taps below each other are neighbours: the kernel takes the weights of a column at a time.
    """
    outputs, inputs = weight.shape[:2]
    by_tap = weight.transpose(2, 3).flatten(2).permute(2, 0, 1)  # (tap, K, C)
    lane = torch.arange(32)
    pairs, steps = torch.arange(outputs // 16), torch.arange(inputs // 16)
    column = (2 * pairs.view(-1, 1, 1) + torch.arange(2)) * 8 + (lane // 4).view(1, -1, 1)  # (pairs, lane, 2)
    row = steps.view(-1, 1, 1) * 16 + (lane % 4 * 2).view(1, -1, 1) + torch.tensor([0, 1, 8, 9])  # (steps, lane, 4)
    return by_tap[:, column.view(1, len(pairs), 32, 2, 1), row.view(len(steps), 1, 32, 1, 4)].flatten()


SHARED_BYTES = 2 * 10 * 10 * 64 * 2 + 9 * 64 * 64 * 2
"""Where activations are narrow: those of two images, and a set of weights. Everything earlier fits into it."""
LAYERS = (ResNet, Block, PadShortcut, nn.Sequential, nn.Identity, nn.Conv2d, nn.BatchNorm2d, nn.Linear)
"""What a ResNet is made of."""
IMAGES, THREADS = 2, 256
SHAPE = (3, 32, 32)


def fused_resnet(x: Tensor, weights: Tensor, numbers: Tensor, blocks: int, classes: int) -> Tensor:
    """Scores (B, classes)."""
    # The first call of an operator loads torch's compiler, which takes longer than many a run.
    run = _operator if torch.compiler.is_compiling() else launch
    scores: Tensor = run(x, weights, numbers, blocks, classes)
    return scores


def launch(x: Tensor, weights: Tensor, numbers: Tensor, blocks: int, classes: int) -> Tensor:
    """Scores (B, classes), by the kernel."""
    x, planar = as_read(x)
    scores = torch.empty(len(x), classes, device=x.device)
    arguments = (x, weights, *starts_of(numbers, classes), scores)
    run_kernel("fused_resnet", x.device, arguments, (len(x), blocks, classes, planar))
    return scores


def as_read(x: Tensor) -> tuple[Tensor, bool]:
    """Images in bf16, and whether they lie channel by channel: both layouts are read."""
    if tuple(x.shape[1:]) != SHAPE:
        raise ArgumentError("fused", f"takes images {SHAPE}", tuple(x.shape[1:]), "Leave it out for other shapes.")
    x = x.to(torch.bfloat16)
    planar = x.is_contiguous()
    return (x if planar else x.contiguous(memory_format=torch.channels_last)), planar


def starts_of(numbers: Tensor, classes: int) -> list[Tensor]:
    """The biases and what follows, the last layer and what follows, the normalisation."""
    return [numbers[first:] for first in places(len(numbers), classes)]


def run_kernel(name: str, device: torch.device, tensors: Sequence[Tensor], sizes: Sequence[int]) -> None:
    """Launch a kernel on the current stream, a block for every two of the first size."""
    blocks = -(-sizes[0] // IMAGES)
    launch_kernel(kernel_on(device, name), device, blocks, THREADS, SHARED_BYTES, *tensors, *sizes)


def scale_and_shift(mean: Tensor | None, std: Tensor | None) -> tuple[Tensor, Tensor]:
    """A normalisation as the kernel applies it, in float64; without one: that which changes nothing."""
    mean, std = torch.zeros(3) if mean is None else mean, torch.ones(3) if std is None else std
    scale = (1 / std.double().flatten()).expand(3)
    return scale, -mean.flatten() * scale


def places(count: int, classes: int) -> tuple[int, int, int]:
    """Where among the numbers the biases, the last layer and the normalisation begin."""
    return 0, count - 65 * classes - 6, count - 6


_operator = torch.library.custom_op("ringfence::fused_resnet", launch, mutates_args=())
"""An operator of its own, so that torch.compile leaves it whole."""


@_operator.register_fake
def _shape_of_scores(x: Tensor, weights: Tensor, numbers: Tensor, blocks: int, classes: int) -> Tensor:
    return x.new_empty(len(x), classes, dtype=torch.float32)


def kernel_on(device: torch.device, name: str = "fused_resnet") -> Any:
    """The kernel there: the network's, or one of its gradients."""
    options: tuple[str, ...] = ("--use_fast_math",)
    texts: tuple[str, ...] = ("tensor_cores.cu", "resnet.cu")
    if name != "fused_resnet":
        texts, options = (*texts, "gradient.cu"), (*options, "-DGRADIENT")
    return kernel_of(source(*texts), name, device, SHARED_BYTES, *options)


@final
class FusedResNet(nn.Module):
    """The kernel with one network's weights: (B, 3, 32, 32) in bf16 -> scores (B, K) in float32.

    Weights are kept as the integers that have their bits: casting a network to another type leaves those alone.
    """

    weights: Tensor
    numbers: Tensor

    def __init__(self, network: ResNet, mean: Tensor | None = None, std: Tensor | None = None) -> None:
        super().__init__()
        host = on_host(network)
        every = list(convolutions(network, partial(_folded, host)))
        self.blocks, self.classes = len(network.layer1), network.linear.out_features
        biases = (bias for _, bias in every)
        parts = [*biases, host(network.linear.weight), host(network.linear.bias), *scale_and_shift(mean, std)]
        numbers = torch.cat([part.detach().cpu().double().flatten() for part in parts]).float()
        packed = torch.cat([in_order(weight) for weight, _ in every]).to(torch.bfloat16)
        self.register_buffer("weights", packed.view(torch.int16))
        self.register_buffer("numbers", numbers.view(torch.int32))

    def forward(self, x: Tensor) -> Tensor:
        """Scores of a batch."""
        scores: Tensor = fused_resnet(x, self.weights, self.numbers, self.blocks, self.classes)
        return scores


def fuse_resnets(module: nn.Module, device: torch.device) -> nn.Module:
    """A copy in which every CIFAR ResNet, with the normalisation before it, is one kernel.

    That it computes what the networks do is checked where it is used (sampling/check.py).
    """
    if problem := why_not(device):
        raise ArgumentError(
            "fused",
            "needs a GPU of compute capability 8.0 or later, and CuPy",
            problem,
            "Leave it out: plans without it run.",
        )
    # A network by itself is not copied first, which would take longer than all the rest.
    return _fused(module, device) or with_networks(module, partial(_fused, device=device))


def count_resnets(module: nn.Module) -> int:
    """How many networks there are to fuse: a ResNet that is part of another network is none."""
    if _fusable(module):
        return 1
    composed = isinstance(module, Composed | nn.ModuleList)
    return sum(count_resnets(part) for part in module.children()) if composed else 0


def rows_at_a_time(device: torch.device) -> int:
    """Rows that the device takes in one wave of blocks: one block on every multiprocessor."""
    found: Any = torch.cuda.get_device_properties(device)
    return int(IMAGES * found.multi_processor_count)


def whole_waves(rows: int, device: torch.device) -> int:
    """The largest number of rows up to this one that leaves no wave half empty."""
    return rows - rows % rows_at_a_time(device)


def is_hopper(device: torch.device) -> bool:
    """Whether the device has the instructions of Hopper, which later GPUs have not."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) == (9, 0)


@lru_cache(maxsize=8)
def why_not(device: torch.device) -> str | None:
    """What is missing on this device, if anything."""
    if device.type != "cuda":
        return f"device {device.type}"
    found: Any = torch.cuda.get_device_properties(device)
    if found.major < 8 or found.shared_memory_per_block_optin < SHARED_BYTES:  # products in bf16, copies beside them
        return f"{found.name} (compute capability {found.major}.{found.minor})"
    try:
        kernel_on(device)
    except Exception as error:  # CuPy is missing, or made for another CUDA
        return f"{type(error).__name__}: {error}"
    return None


def _fusable(network: nn.Module) -> bool:
    """Whether the network is its weights: the kernel reads nothing else of it. A layer in the place of one of these may
    differ in few rows alone, which the check would not notice."""
    if type(network) is not ResNet or not runs_its_code_alone(network):
        return False
    return all(type(one) in LAYERS and getattr(one, "padding_mode", "zeros") == "zeros" for one in network.modules())


def resnet_in(module: nn.Module) -> tuple[ResNet, tuple[Tensor, ...]] | None:
    """The network that the kernel can stand for, if the module is one, and its normalisation's mean and std, if any."""
    network: nn.Module = module
    moments: tuple[Tensor, ...] = ()
    if isinstance(module, Normalize) and not has_hooks(module):
        network, moments = module.module, (module.mean.cpu(), module.std.cpu())
    return (network, moments) if isinstance(network, ResNet) and _fusable(network) else None


def _fused(module: nn.Module, device: torch.device) -> nn.Module | None:
    found = resnet_in(module)
    return None if found is None else FusedResNet(found[0], *found[1]).to(device)
