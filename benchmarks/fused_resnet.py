"""An experiment: how much faster than the best compiled network a ResNet runs whose activations never leave the chip.

    python benchmarks/fused_resnet.py [--depths 20,110] [--batch 8192] [--seconds 2]

fused_resnet.cu keeps two images of a CIFAR ResNet in the shared memory of a multiprocessor from the first convolution
to the pooling. This script packs a network's weights for it, compares its scores with the plain network's, and measures
both beside torch.compile. It needs CuPy (for NVRTC) and a GPU of compute capability 9.0 (227 KB of shared memory).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from gpu import rate
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from ringfence.classifiers.architectures import resnet
from ringfence.classifiers.architectures.resnet import Block, PadShortcut, ResNet
from ringfence.sampling import Forward, ForwardPlan

SHARED_BYTES = 3 * (2 * 10 * 10 * 64 * 2) + 2 * (9 * 64 * 64 * 2)
"""Where the activations are narrow: two buffers and two sets of weights; everything earlier fits into it."""
IMAGES, THREADS = 2, 512


def convolutions(network: ResNet) -> Iterator[tuple[Tensor, Tensor]]:
    """(weight, bias) with batch norms folded, in the order in which the kernel uses them."""
    first = fuse_conv_bn_eval(network.conv1, network.bn1)
    wide = torch.zeros(16, 16, 3, 3)
    wide[:, :3] = first.weight.detach()  # three channels stand in sixteen, the rest is zero
    yield wide, biased(first)
    for group in (network.layer1, network.layer2, network.layer3):
        for block in group:
            assert isinstance(block, Block)
            if not isinstance(block.shortcut, nn.Identity):
                yield shortcut(block)
            for conv, norm in ((block.conv1, block.bn1), (block.conv2, block.bn2)):
                folded = fuse_conv_bn_eval(conv, norm)
                yield folded.weight.detach(), biased(folded)


def biased(conv: nn.Conv2d) -> Tensor:
    assert conv.bias is not None
    return conv.bias.detach()


def shortcut(block: Block) -> tuple[Tensor, Tensor]:
    """The 1 x 1 convolution that joins two widths; zeros in new channels are one as well."""
    if isinstance(block.shortcut, PadShortcut):
        inputs, outputs = block.conv1.in_channels, block.conv1.out_channels
        weight = torch.zeros(outputs, inputs, 1, 1)
        rows = torch.arange(inputs)
        weight[rows + (outputs - inputs) // 2, rows] = 1
        return weight, torch.zeros(outputs)
    assert isinstance(block.shortcut, nn.Sequential)
    folded = fuse_conv_bn_eval(block.shortcut[0], block.shortcut[1])
    return folded.weight.detach(), biased(folded)


def packed(weight: Tensor) -> Tensor:
    """(K, C, k, k) -> bf16 in the order of mma.m16n8k16's second operand: (tap, C/16, K/16, lane, 2, 4), flat."""
    outputs, inputs = weight.shape[:2]
    by_tap = weight.flatten(2).permute(2, 0, 1)  # (tap, K, C)
    lane = torch.arange(32)
    pairs, steps = torch.arange(outputs // 16), torch.arange(inputs // 16)
    column = (2 * pairs.view(-1, 1, 1) + torch.arange(2)) * 8 + (lane // 4).view(1, -1, 1)  # (pairs, lane, 2)
    row = steps.view(-1, 1, 1) * 16 + (lane % 4 * 2).view(1, -1, 1) + torch.tensor([0, 1, 8, 9])  # (steps, lane, 4)
    found = by_tap[:, column.view(1, len(pairs), 32, 2, 1), row.view(len(steps), 1, 32, 1, 4)]
    return found.to(torch.bfloat16).flatten()


class Fused:
    """The kernel with one network's weights: images (B, 3, 32, 32), channels last, bf16 -> scores (B, 10)."""

    def __init__(self, network: ResNet) -> None:
        import cupy

        source = (Path(__file__).parent / "fused_resnet.cu").read_text()
        self.kernel = cupy.RawKernel(source, "fused_resnet", options=("-std=c++17", "--use_fast_math"))
        self.kernel.max_dynamic_shared_size_bytes = SHARED_BYTES
        every = list(convolutions(network))
        self.weights = torch.cat([packed(weight) for weight, _ in every]).cuda()
        self.biases = torch.cat([bias for _, bias in every]).float().cuda()
        linear = network.linear
        self.classes = linear.out_features
        self.head = torch.cat([linear.weight.detach().flatten(), linear.bias.detach()]).float().cuda()
        self.norm = torch.tensor([1.0] * 3 + [0.0] * 3).cuda()
        self.blocks = len(network.layer1)
        self._cupy: Any = cupy

    def __call__(self, x: Tensor) -> Tensor:
        """Scores of a batch."""
        scores = torch.empty(len(x), self.classes, device=x.device)
        stream = self._cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream)
        pointers = [one.data_ptr() for one in (x, self.weights, self.biases, self.head, self.norm, scores)]
        with stream:
            numbers = [self._cupy.int32(one) for one in (len(x), self.blocks, self.classes)]
            grid = (-(-len(x) // IMAGES),)
            self.kernel(grid, (THREADS,), (*pointers, *numbers), shared_mem=SHARED_BYTES)
        return scores


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--depths", default="20,110")
    parser.add_argument("--batch", type=int, default=8192)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--compare", action="store_true", help="also measure torch.compile, autotuned")
    options = parser.parse_args()
    for depth in map(int, options.depths.split(",")):
        torch.manual_seed(0)
        network = resnet(depth).eval()
        with torch.no_grad():  # statistics as after training: without them activations grow with the depth
            for part in network.modules():
                if isinstance(part, nn.BatchNorm2d):
                    part.running_var.fill_(2.0)
                    part.bias.uniform_(-0.1, 0.1)
        x = torch.rand(options.batch, 3, 32, 32, device="cuda")
        x = x.to(torch.bfloat16).to(memory_format=torch.channels_last)
        fused = Fused(network)
        with torch.inference_mode():
            wanted = network.cuda()(x[:512].float())
            found = fused(x[:512])
        off, scale = float((found - wanted).abs().max()), float(wanted.abs().max())
        same = float((found.argmax(1) == wanted.argmax(1)).float().mean())
        print(f"ResNet-{depth}: largest difference {off:.4g} of {scale:.4g}, same class {same:.4f}", flush=True)
        print(f"ResNet-{depth}: fused {rate(fused, x, options.seconds, 'cuda'):,.0f} a second", flush=True)
        if options.compare:
            for tuned in (False, True):
                plan = ForwardPlan(options.batch, "bf16", channels_last=True, compile=True, fold=True, autotune=tuned)
                forward = Forward(network, plan, torch.device("cuda"), 10)
                name = "autotuned" if tuned else "compiled"
                print(f"ResNet-{depth}: {name} {rate(forward, x, options.seconds, 'cuda'):,.0f} a second", flush=True)


if __name__ == "__main__":
    main()
