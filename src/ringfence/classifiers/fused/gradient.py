"""Gradients of a CIFAR ResNet's scores in its images, in evaluation mode: two kernels (gradient.cu), one each way.

Only images, scores, their gradients and a bit for every activation cross the memory bus. Weights change with every step
of a training, so that folding and packing them is a few gathers from all parameters in one row.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from ringfence.classifiers.architectures.resnet import Block, ResNet
from ringfence.classifiers.base import with_networks
from ringfence.classifiers.fused import (
    IMAGES,
    THREADS,
    as_read,
    convolutions,
    count_resnets,
    in_order,
    resnet_in,
    run_kernel,
    scale_and_shift,
    starts_of,
    why_not,
)
from ringfence.errors import RingfenceError

COMPARED = 64
"""Rows at which gradients are compared, at most."""
LARGEST_DRIFT = 0.2
"""Share of a gradient's length by which the kernels' may differ from the network's, beyond what rounding explains."""


def in_order_back(weights: list[Tensor]) -> Tensor:
    """The convolutions' weights as the way back takes them: the last first, channels exchanged, taps turned around.

    Those that change the width keep their taps, which are told apart by where they look; the 1 x 1 comes after them.
    """
    swapped = [weight.transpose(0, 1) for weight in reversed(weights)]
    return torch.cat([in_order(one.flip(2, 3) if one.shape[0] == one.shape[1] else one) for one in swapped])


def sign_words(rows: int, blocks: int) -> int:
    """Words of 32 bits that hold which activations of so many images are positive."""
    return -(-rows // IMAGES) * THREADS * (4 * (2 * blocks + 1) + 2 * 2 * blocks + 2 * blocks)


@final
class FusedGradients:
    """A network's parameters and where each of them stands in what the kernels read.

    Numbers 0 and 1 come first, so that a place 0 is a zero: the kernels' order of places is found as that of weights.
    """

    def __init__(self, network: ResNet, mean: Tensor | None = None, std: Tensor | None = None) -> None:
        self.network, self.blocks, self.classes = network, len(network.layer1), network.linear.out_features
        self._pairs: list[tuple[nn.Conv2d, nn.BatchNorm2d]] = []
        self._weights, self._channels, self._owners = 2, 2, [torch.zeros(2)]
        every = list(convolutions(network, self._counted))
        weights, biases = [weight for weight, _ in every], [bias for _, bias in every]
        device = network.linear.weight.device
        owners = torch.cat(self._owners).to(device, torch.int32)

        def on_device(places: Tensor) -> Tensor:
            return places.to(device, torch.int32)

        self._forth = on_device(torch.cat([in_order(one) for one in weights]))
        self._back = on_device(in_order_back(weights))
        self._forth_channel, self._back_channel = owners[self._forth], owners[self._back]
        self._biases = on_device(torch.cat(biases))
        self._eps = torch.cat([torch.full((norm.num_features,), norm.eps) for _, norm in self._pairs]).to(device)
        self._constants = torch.tensor([0.0, 1.0], device=device)
        self._norm = torch.cat(scale_and_shift(mean, std)).float().to(device)

    def _counted(self, convolution: nn.Conv2d, norm: nn.BatchNorm2d) -> tuple[Tensor, Tensor]:
        """Places of a convolution's weights, as they lie in memory, and of its norm's channels: float32, exact here."""
        weight, channels = convolution.weight, convolution.out_channels
        places = torch.arange(weight.numel()).as_strided(weight.shape, weight.stride()) + self._weights
        owner = torch.empty(weight.numel())
        channel = torch.arange(channels, dtype=torch.float32) + self._channels
        owner.as_strided(weight.shape, weight.stride()).copy_(channel.view(-1, 1, 1, 1).expand(weight.shape))
        self._owners.append(owner)
        self._pairs.append((convolution, norm))
        self._weights += weight.numel()
        self._channels += channels
        return places.float(), channel

    @torch.no_grad()
    def now(self) -> FusedScores:
        """The network as it is now, with gradients in its images alone."""

        def of_norms(name: str) -> Tensor:
            return torch.cat([getattr(norm, name) for _, norm in self._pairs])

        constants = self._constants
        flat = torch.cat([constants, *(_in_memory(one.weight) for one, _ in self._pairs)])
        scale = of_norms("weight") * torch.rsqrt(of_norms("running_var") + self._eps)
        shift = of_norms("bias") - of_norms("running_mean") * scale
        shift = torch.cat([constants, shift])
        scale = torch.cat([torch.ones_like(constants), scale])

        def packed(places: Tensor, channel: Tensor) -> Tensor:
            return (flat.index_select(0, places) * scale.index_select(0, channel)).to(torch.bfloat16)

        head = (self.network.linear.weight.flatten(), self.network.linear.bias)
        numbers = torch.cat([shift.index_select(0, self._biases), *head, self._norm])
        forth, back = packed(self._forth, self._forth_channel), packed(self._back, self._back_channel)
        return FusedScores(forth, back, numbers, self.blocks, self.classes)


def _in_memory(weight: Tensor) -> Tensor:
    """A dense tensor's numbers in a row, as they lie there: channels last need no copy."""
    return weight.as_strided((weight.numel(),), (1,))


@final
class FusedScores(nn.Module):
    """(B, 3, 32, 32) -> scores (B, K) in float32, differentiable in the images, once."""

    forth: Tensor
    back: Tensor
    numbers: Tensor

    def __init__(self, forth: Tensor, back: Tensor, numbers: Tensor, blocks: int, classes: int) -> None:
        super().__init__()
        self.register_buffer("forth", forth)
        self.register_buffer("back", back)
        self.register_buffer("numbers", numbers)
        self.blocks, self.classes = blocks, classes

    def forward(self, x: Tensor) -> Tensor:
        """Scores of a batch."""
        scores: Tensor = _Scored.apply(x, self)  # type: ignore[no-untyped-call]
        return scores


@final
class _Scored(torch.autograd.Function):
    """The two kernels as torch's pair of functions."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, form: FusedScores) -> Tensor:
        """Scores; what was positive is kept."""
        read, planar = as_read(x)
        scores = torch.empty(len(x), form.classes, device=x.device)
        signs = torch.empty(sign_words(len(x), form.blocks), dtype=torch.int32, device=x.device)
        tensors = (read, form.forth, *starts_of(form.numbers, form.classes), scores, signs)
        run_kernel("fused_resnet_signs", x.device, tensors, (len(x), form.blocks, form.classes, planar))
        ctx.form, ctx.planar, ctx.dtype, ctx.shape = form, planar, x.dtype, x.shape
        ctx.save_for_backward(signs)
        return scores

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor, None]:
        """Of what is differentiated, by the images."""
        (signs,), form, slope = ctx.saved_tensors, ctx.form, slopes[0].float().contiguous()
        layout = torch.contiguous_format if ctx.planar else torch.channels_last
        found = torch.empty(ctx.shape, device=slope.device, memory_format=layout)
        _, head, norm = starts_of(form.numbers, form.classes)
        tensors = (slope, signs, form.back, head, norm, found)
        run_kernel("fused_resnet_back", slope.device, tensors, (len(slope), form.blocks, form.classes, ctx.planar))
        return found.to(ctx.dtype), None


def fused_gradients(module: nn.Module, x: Tensor) -> FusedGradients | str:
    """A network's form, whatever its weights will be; or why there is none. Compared at images x (B, 3, 32, 32).

    Compared is a copy with blocks that add little: of a fresh ResNet-110 rounding leaves no gradient to compare.
    """
    found, calm = resnet_in(module), copy.deepcopy(module).eval()
    if problem := why_not(x.device) or (None if found else "another network than a CIFAR ResNet"):
        return problem
    for part in calm.modules():
        if isinstance(part, Block):
            part.bn2.weight.data.mul_(0.1)
    fused = _as_kernels(calm)
    assert found is not None
    assert fused is not None
    return gradients_off(calm, fused, x[:COMPARED]) or FusedGradients(found[0], *found[1])


def fuse_gradients(classifier: nn.Module, x: Tensor) -> tuple[nn.Module, str | None]:
    """A copy for attacks, all of whose CIFAR ResNets are kernels; or the classifier itself, and why: compared at x."""
    if problem := why_not(x.device) or (None if count_resnets(classifier) else "it has no CIFAR ResNet"):
        return classifier, problem
    found = with_networks(classifier, _as_kernels)
    problem = gradients_off(classifier, found, x[:COMPARED])
    return (found, None) if problem is None else (classifier, problem)


def _as_kernels(module: nn.Module) -> nn.Module | None:
    found = resnet_in(module)
    return None if found is None else FusedGradients(found[0], *found[1]).now()


def gradients_off(plain: Callable[[Tensor], Tensor], fused: Callable[[Tensor], Tensor], x: Tensor) -> str | None:
    """In which way the kernels' gradients at x are not the network's; None: rounding explains all difference.

    Rounding is what the network in bf16 differs from itself in float32: differences count from twice that on.
    """

    def gradient(scores: Callable[[Tensor], Tensor], half: bool = False) -> Tensor:
        images = x.detach().requires_grad_()
        with torch.enable_grad(), torch.autocast(x.device.type, torch.bfloat16) if half else nullcontext():
            answers = scores(images).float()
            weights = torch.arange(answers.numel(), device=x.device).cos().view_as(answers)
            return torch.autograd.grad((answers * weights).sum(), images)[0].float()

    exact = gradient(plain)
    try:
        difference, rounding = gradient(fused) - exact, gradient(plain, half=True) - exact
    except RingfenceError as error:
        return str(error)
    drift = float((difference.norm() - 2 * rounding.norm()) / exact.norm())
    return None if drift <= LARGEST_DRIFT else f"gradients that are {drift:.0%} off"
