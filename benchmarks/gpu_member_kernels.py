"""An experiment: convolutions of many members in one launch, as Triton kernels, beside cuDNN's.

    python benchmarks/gpu_member_kernels.py [--members 10] [--batch 256] [--out FILE.json]
    TRITON_INTERPRET=1 python benchmarks/gpu_member_kernels.py --check    (on any CPU)

Members of one network do the same to other numbers, so that the member is an axis of the grid: memory is
(member, image, row, column, channel), and a program does TILE places of one member, all channels of them.

    convolve          out = weight * relu(scale x + shift), and of out each channel's sum and sum of squares: batch norm
                      and ReLU of the layer before cost no pass over memory, nor do this layer's statistics.
                      Input gradients are the same kernel with the taps turned around and channels exchanged.
    weight_gradient   a program adds up one tap over a range of places; ranges are added up afterwards, in order, so
                      that a training ends with the same weights each time.

A training path of it would keep every convolution's raw output and every block's output in bf16 and nothing else: norm
and ReLU inside a block are made again where they are read, forward and backward. A block backward is then, per
convolution, one pass that adds up the two sums of the norm's gradient, one input gradient (with the norm's gradient and
the ReLU's mask on load, not here yet) and one weight gradient; the optimiser is one multi-tensor launch over
(member, ...) parameters.

Only stride 1, 3 x 3, 16 to 64 channels: all but a few layers of the CIFAR ResNets. Each time is that of a layer of all
members, divided by the members. Nothing here is used by ``ringfence train``: whether it should is the question.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import triton
import triton.language as tl
from gpu_training_steps import Size, Step, recorded, timed
from torch import Tensor
from torch.nn.functional import conv2d

LAYERS = ((16, 32), (32, 16), (64, 8))
"""Channels and side of an image, of the three groups."""

SETTINGS = [(64, 2, 3), (64, 4, 3), (128, 4, 3), (128, 8, 3), (256, 4, 3), (256, 8, 3)]
"""Places of a program or of one turn of its loop, warps of a program, loads on their way: few, each is compiled."""


@triton.jit
def convolve(
    x, weight, scale, shift, out, sums, places,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, C: tl.constexpr, K: tl.constexpr, TILE: tl.constexpr, NORM: tl.constexpr
):  # fmt: skip
    """x (M, places, C), weight (M, 9, C, K), scale and shift (M, C) -> out (M, places, K), sums (M, programs, 2, K)."""
    member, program = tl.program_id(1).to(tl.int64), tl.program_id(0)
    place = program * TILE + tl.arange(0, TILE)
    down, across = place // WIDTH % HEIGHT, place % WIDTH
    c, k = tl.arange(0, C), tl.arange(0, K)
    x += member * places * C
    weight += member * 9 * C * K
    total = tl.zeros((TILE, K), tl.float32)
    if NORM:
        factor, added = tl.load(scale + member * C + c)[None, :], tl.load(shift + member * C + c)[None, :]
    for tap in tl.static_range(9):
        y, z = down + (tap // 3 - 1), across + (tap % 3 - 1)
        inside = ((place < places) & (y >= 0) & (y < HEIGHT) & (z >= 0) & (z < WIDTH))[:, None]
        where = (place + (tap // 3 - 1) * WIDTH + (tap % 3 - 1))[:, None] * C + c[None, :]
        values = tl.load(x + where, mask=inside, other=0.0)
        if NORM:  # what is outside is zero after the ReLU, not before the norm
            values = tl.where(inside, tl.maximum(values.to(tl.float32) * factor + added, 0.0), 0.0)
            values = values.to(x.dtype.element_ty)
        total = tl.dot(values, tl.load(weight + tap * C * K + c[:, None] * K + k[None, :]), total)
    kept = total.to(out.dtype.element_ty)
    there = (place < places)[:, None]
    tl.store(out + member * places * K + place[:, None] * K + k[None, :], kept, mask=there)
    rounded = kept.to(tl.float32)
    sums += (member * tl.num_programs(0) + program) * 2 * K
    tl.store(sums + k, tl.sum(rounded, 0))
    tl.store(sums + K + k, tl.sum(rounded * rounded, 0))


@triton.jit
def weight_gradient(
    x, gradient, scale, shift, found, places,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, C: tl.constexpr, K: tl.constexpr, TILE: tl.constexpr, NORM: tl.constexpr,
    EACH: tl.constexpr
):  # fmt: skip
    """x (M, places, C), gradient (M, places, K) -> found (M, ranges, 9, K, C), a range being EACH places."""
    member, tap, part = tl.program_id(1).to(tl.int64), tl.program_id(0) % 9, tl.program_id(0) // 9
    c, k = tl.arange(0, C), tl.arange(0, K)
    x += member * places * C
    gradient += member * places * K
    total = tl.zeros((K, C), tl.float32)
    if NORM:
        factor, added = tl.load(scale + member * C + c)[None, :], tl.load(shift + member * C + c)[None, :]
    for start in range(0, EACH, TILE):
        place = part * EACH + start + tl.arange(0, TILE)
        y, z = place // WIDTH % HEIGHT + (tap // 3 - 1), place % WIDTH + (tap % 3 - 1)
        inside = ((place < places) & (y >= 0) & (y < HEIGHT) & (z >= 0) & (z < WIDTH))[:, None]
        where = (place + (tap // 3 - 1) * WIDTH + (tap % 3 - 1))[:, None] * C + c[None, :]
        values = tl.load(x + where, mask=inside, other=0.0)
        if NORM:
            values = tl.where(inside, tl.maximum(values.to(tl.float32) * factor + added, 0.0), 0.0)
            values = values.to(x.dtype.element_ty)
        there = (place < places)[:, None]
        come = tl.load(gradient + place[:, None] * K + k[None, :], mask=there, other=0.0)
        total = tl.dot(tl.trans(come), values, total)
    found += ((member * (tl.num_programs(0) // 9) + part) * 9 + tap) * K * C
    tl.store(found + k[:, None] * C + c[None, :], total)


@dataclass(frozen=True)
class Layer:
    """One layer of M members: x and gradient (M, N, H, W, C), weight (M, K, 3, 3, C), scale and shift (M, C)."""

    x: Tensor
    gradient: Tensor
    weight: Tensor
    scale: Tensor
    shift: Tensor

    @classmethod
    def drawn(cls, members: int, batch: int, channels: int, side: int, device: str, kind: torch.dtype) -> Layer:
        """Random, with outputs of about the size of the inputs."""
        torch.manual_seed(0)
        x, gradient = (torch.randn(members, batch, side, side, channels, device=device).to(kind) for _ in range(2))
        weight = (torch.randn(members, channels, 3, 3, channels, device=device) / (9 * channels) ** 0.5).to(kind)
        scale, shift = 0.5 + torch.rand(members, channels, device=device), torch.randn(members, channels, device=device)
        return cls(x, gradient, weight, scale, shift)

    @property
    def places(self) -> int:
        """Of one member."""
        return int(self.x[0, ..., 0].numel())

    def sizes(self) -> dict[str, int]:
        """What the kernels are compiled for."""
        return {
            "HEIGHT": self.x.shape[2],
            "WIDTH": self.x.shape[3],
            "C": self.x.shape[4],
            "K": self.gradient.shape[4],
        }

    def forward(self, tile: int = 64, warps: int = 4, stages: int = 1) -> tuple[Tensor, Tensor]:
        """Outputs (M, N, H, W, K), and per channel the sum and the sum of squares (M, 2, K)."""
        weight = self.weight.permute(0, 2, 3, 4, 1).reshape(len(self.weight), 9, -1, self.weight.shape[1]).contiguous()
        return self._convolved(self.x, weight, self.sizes(), True, tile, warps, stages)

    def input_gradient(self, tile: int = 64, warps: int = 4, stages: int = 1) -> Tensor:
        """(M, N, H, W, C), before the ReLU's."""
        turned = self.weight.permute(0, 2, 3, 1, 4).reshape(len(self.weight), 9, self.weight.shape[1], -1).flip(1)
        sizes = self.sizes()
        exchanged = {**sizes, "C": sizes["K"], "K": sizes["C"]}
        return self._convolved(self.gradient, turned.contiguous(), exchanged, False, tile, warps, stages)[0]

    def _convolved(
        self, x: Tensor, weight: Tensor, sizes: dict[str, int], norm: bool, tile: int, warps: int, stages: int
    ) -> tuple[Tensor, Tensor]:
        members, programs = len(x), -(-self.places // tile)
        out = x.new_empty(*x.shape[:4], sizes["K"])
        sums = torch.empty(members, programs, 2, sizes["K"], device=x.device)
        convolve[(programs, members)](
            x, weight, self.scale, self.shift, out, sums, self.places,
            **sizes, TILE=tile, NORM=norm, num_warps=warps, num_stages=stages
        )  # fmt: skip
        return out, sums.sum(1)

    def weights_gradient(self, tile: int = 64, warps: int = 4, stages: int = 1, ranges: int = 32) -> Tensor:
        """(M, K, 3, 3, C)."""
        sizes, members = self.sizes(), len(self.x)
        each = -(-self.places // (ranges * tile)) * tile
        ranges = -(-self.places // each)
        found = torch.empty(members, ranges, 9, sizes["K"], sizes["C"], device=self.x.device)
        weight_gradient[(9 * ranges, members)](
            self.x, self.gradient, self.scale, self.shift, found, self.places,
            **sizes, TILE=tile, NORM=True, EACH=each, num_warps=warps, num_stages=stages
        )  # fmt: skip
        return found.sum(1).view(members, 3, 3, sizes["K"], sizes["C"]).permute(0, 3, 1, 2, 4)

    def expected(self) -> dict[str, Tensor]:
        """The same by torch, in float64, member by member."""
        found: dict[str, list[Tensor]] = {"forward": [], "sums": [], "input gradient": [], "weight gradient": []}
        for x, gradient, weight, scale, shift in zip(*vars(self).values(), strict=True):
            active = (x.float() * scale + shift).relu().to(x.dtype).double().permute(0, 3, 1, 2).requires_grad_()
            taps = weight.double().permute(0, 3, 1, 2).requires_grad_()
            out = conv2d(active, taps, padding=1)
            found["forward"].append(out.detach().permute(0, 2, 3, 1))
            found["sums"].append(torch.stack([out.sum((0, 2, 3)), (out**2).sum((0, 2, 3))]).detach())
            for name, one in zip(
                ("input gradient", "weight gradient"),
                torch.autograd.grad(out, (active, taps), gradient.double().permute(0, 3, 1, 2)),
                strict=True,
            ):
                found[name].append(one.permute(0, 2, 3, 1))
        return {name: torch.stack(parts) for name, parts in found.items()}


def errors(layer: Layer, **setting: int) -> dict[str, float]:
    """Largest difference from float64 over the largest value, of everything the kernels find."""
    out, sums = layer.forward(**setting)
    found = {
        "forward": out,
        "sums": sums,
        "input gradient": layer.input_gradient(**setting),
        "weight gradient": layer.weights_gradient(**setting),
    }
    wanted = layer.expected()
    return {
        name: float((one.double() - wanted[name]).abs().max() / wanted[name].abs().max()) for name, one in found.items()
    }


def cudnn_steps(layer: Layer) -> dict[str, dict[str, Step]]:
    """The convolutions by cuDNN, without norm and ReLU: member after member, as groups, and as one with more rows."""
    members, kind = len(layer.x), torch.channels_last
    backward, settings = torch.ops.aten.convolution_backward, ([1, 1], [1, 1], [1, 1], False, [0, 0])

    def laid(one: Tensor) -> Tensor:
        return one.contiguous(memory_format=kind)

    def of(x: Tensor, gradient: Tensor, weight: Tensor, groups: int, times: int) -> dict[str, Step]:
        x, gradient, weight = laid(x), laid(gradient), laid(weight)

        def masked(*mask: bool) -> Step:
            return lambda: [backward(gradient, x, weight, None, *settings, groups, mask) for _ in range(times)]

        return {
            "forward": lambda: [torch.ops.aten.convolution(x, weight, None, *settings, groups) for _ in range(times)],
            "input gradient": masked(True, False, False),
            "weight gradient": masked(False, True, False),
        }

    firsts = [one.permute(0, 3, 1, 2) for one in (layer.x[0], layer.gradient[0], layer.weight[0])]
    stacked = [one.permute(1, 0, 4, 2, 3).flatten(1, 2) for one in (layer.x, layer.gradient)]
    filters = layer.weight.permute(0, 1, 4, 2, 3).flatten(0, 1)
    rows = [one.flatten(0, 1).permute(0, 3, 1, 2) for one in (layer.x, layer.gradient)]
    return {
        "cuDNN, one after the other": of(firsts[0], firsts[1], firsts[2], 1, members),
        "cuDNN, groups": of(stacked[0], stacked[1], filters, members, 1),
        "cuDNN, one filter for all rows": of(rows[0], rows[1], firsts[2], 1, 1),
    }


def measured(layer: Layer, size: Size) -> Iterator[dict[str, Any]]:
    """Microseconds a member: of ours the best setting, and which it was."""
    torch.backends.cudnn.benchmark = True
    members = len(layer.x)
    for way, steps in cudnn_steps(layer).items():
        found = {name: round(1000 * timed(size, recorded(size, step)) / members, 2) for name, step in steps.items()}
        yield {"way": way, "us": found}
    best: dict[str, tuple[float, tuple[int, int, int]]] = {}
    for setting in SETTINGS:
        own = {
            "forward": lambda s=setting: layer.forward(*s),
            "input gradient": lambda s=setting: layer.input_gradient(*s),
            "weight gradient": lambda s=setting: layer.weights_gradient(*s),
        }
        for name, step in own.items():
            try:
                us = 1000 * timed(size, recorded(size, step)) / members
            except Exception as error:  # a setting that needs more than the device has
                print(f"  {name} {setting}: {str(error)[:100]}", flush=True)
                continue
            best[name] = min(best.get(name, (us, setting)), (us, setting))
    yield {"way": "ours", "us": {name: round(us, 2) for name, (us, _) in best.items()}, "settings": best}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="small and on the CPU, in Triton's interpreter")
    parser.add_argument("--members", type=int, default=10)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.check:
        for channels, side in LAYERS:
            layer = Layer.drawn(2, 3, channels, side // 4, "cpu", torch.float32)
            found = errors(layer, tile=16)
            print(channels, found)
            assert max(found.values()) < 1e-5
        return 0
    rows = []
    for channels, side in LAYERS:
        layer = Layer.drawn(options.members, options.batch, channels, side, "cuda", torch.bfloat16)
        found = errors(layer)
        print(f"{channels} channels: off by {found}", flush=True)
        assert max(found.values()) < 0.02
        for one in measured(layer, Size("", torch.device("cuda"), options.batch, 0, 5)):
            rows.append({"channels": channels, "members": options.members, **one})
            print(channels, one, flush=True)
            if options.out:
                options.out.write_text(json.dumps(rows, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
