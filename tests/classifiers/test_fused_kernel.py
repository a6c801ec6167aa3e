"""The fused kernels themselves, on a CPU: compiled by a C++ compiler against an emulation of a block."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pretended_cuda import without_words_of_cuda
from torch.nn.functional import conv2d, relu

from ringfence.classifiers.architectures import resnet
from ringfence.classifiers.architectures.resnet import ResNet, Shortcut
from ringfence.classifiers.fused import (
    SHARED_BYTES,
    THREADS,
    FusedResNet,
    _folded,
    convolutions,
    on_host,
    source,
    starts_of,
)
from ringfence.classifiers.fused.gradient import FusedGradients, sign_words

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler is installed"),
]

LAUNCH = """
extern "C" void scores(const unsigned short* x, const char* packed, const float* bias, const float* head,
                       const float* norm, float* out, int images, int blocks, int classes, int planar, bool late) {
  launch((images + IMAGES - 1) / IMAGES, late,
         [=] { fused_resnet(x, packed, bias, head, norm, out, images, blocks, classes, planar); });
}
extern "C" void signs(const unsigned short* x, const char* packed, const float* bias, const float* head,
                      const float* norm, float* out, u32* bits, int images, int blocks, int classes, int planar,
                      bool late) {
  launch((images + IMAGES - 1) / IMAGES, late,
         [=] { fused_resnet_signs(x, packed, bias, head, norm, out, bits, images, blocks, classes, planar); });
}
extern "C" void back(const float* slopes, u32* bits, const char* packed, const float* head, const float* norm,
                     float* out, int images, int blocks, int classes, int planar, bool late) {
  launch((images + IMAGES - 1) / IMAGES, late,
         [=] { fused_resnet_back(slopes, bits, packed, head, norm, out, images, blocks, classes, planar); });
}
"""


def translated(source: str) -> str:
    """The kernel as C++: its few primitives are those of emulated_cuda.hpp, everything else is as it stands."""
    for first, behind in (
        ("// Both halves of a mask", "__device__ __forceinline__ float low_of"),
        ("__device__ __forceinline__ void fetch", "// x = relu(conv(x)"),
    ):
        source = source[: source.index(first)] + source[source.index(behind) :]
    assert "asm" not in source
    source = source.replace("extern __shared__ __align__(128) char memory[];", "char* memory = shared_memory;")
    return without_words_of_cuda(source)


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Any:
    place = tmp_path_factory.mktemp("emulated")
    kernel = source("resnet.cu", "gradient.cu")
    header = Path(__file__).with_name("emulated_cuda.hpp").read_text()
    (place / "kernel.cpp").write_text(header + translated(kernel) + LAUNCH)
    sizes = [f"-DTHREADS_OF_BLOCK={THREADS}", f"-DBYTES_OF_BLOCK={SHARED_BYTES}"]
    words = ["g++", "-std=c++20", "-O2", "-shared", "-fPIC", *sizes, "kernel.cpp", "-o", "kernel.so"]
    subprocess.run(words, cwd=place, check=True)
    return ctypes.CDLL(str(place / "kernel.so"))


def made(depth: int, shortcut: Shortcut) -> ResNet:
    torch.manual_seed(0)
    network: ResNet = resnet(depth, 7, shortcut).eval()
    with torch.no_grad():
        for part in network.modules():
            if isinstance(part, torch.nn.BatchNorm2d):
                part.running_var.fill_(2.0)
                part.bias.uniform_(-0.2, 0.2)
    return network


MEAN, STD = torch.tensor([0.4, 0.5, 0.6]), torch.tensor([0.2, 0.25, 0.3])


def normalised(x: torch.Tensor) -> torch.Tensor:
    return (x - MEAN.view(3, 1, 1)) / STD.view(3, 1, 1)


def by_kernel(
    kernels: Any, network: ResNet, x: torch.Tensor, planar: bool = True, late: bool = True
) -> np.ndarray[Any, np.dtype[np.float32]]:
    fused = FusedResNet(network, MEAN, STD)
    pixels = (x if planar else x.permute(0, 2, 3, 1)).contiguous()
    scores = torch.full((len(x), 7), -1.0)
    tensors = (pixels, fused.weights, *starts_of(fused.numbers, 7), scores)
    kernels.scores(*map(pointer, tensors), len(x), fused.blocks, 7, planar, late)
    return scores.numpy()


def pointer(tensor: torch.Tensor) -> ctypes.c_void_p:
    return ctypes.c_void_p(tensor.data_ptr())


@torch.inference_mode()
def by_network(network: ResNet, x: torch.Tensor) -> np.ndarray[Any, np.dtype[np.float32]]:
    return network(normalised(x.float())).numpy()  # type: ignore[no-any-return]


@pytest.mark.parametrize(("depth", "shortcut", "images"), [(8, "projection", 3), (20, "pad", 2)])
@pytest.mark.parametrize("late", [False, True])
def test_the_kernel_computes_the_networks_scores(
    kernels: Any, depth: int, shortcut: Shortcut, images: int, late: bool
) -> None:
    """Weights may arrive as soon as they are sent for, or no sooner than they are waited for."""
    network, x = made(depth, shortcut), torch.rand(images, 3, 32, 32).to(torch.bfloat16)
    scores, wanted = by_kernel(kernels, network, x, not late, late), by_network(network, x)
    assert np.abs(scores - wanted).max() < 0.006 * np.abs(wanted).max()  # .002 was seen: rounding to half precision


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_an_invalid_row_comes_out_as_one_and_spoils_no_other(kernels: Any, bad: float) -> None:
    network, x = made(8, "projection"), torch.rand(4, 3, 32, 32).to(torch.bfloat16)
    x[1, 2, 17, 5] = bad
    scores, wanted = by_kernel(kernels, network, x), by_network(network, x)
    assert np.isfinite(wanted).all(1).tolist() == [True, False, True, True]
    assert np.isfinite(scores).all(1).tolist() == [True, False, True, True]
    whole = np.isfinite(wanted).all(1)
    assert np.abs(scores[whole] - wanted[whole]).max() < 0.006 * np.abs(wanted[whole]).max()


def test_weights_that_are_nan_give_no_class(kernels: Any) -> None:
    network, x = made(8, "projection"), torch.rand(2, 3, 32, 32).to(torch.bfloat16)
    with torch.no_grad():
        network.layer2[0].conv1.weight[3, 5, 1, 1] = torch.nan
    assert np.isnan(by_kernel(kernels, network, x)).all()


def gradients(
    kernels: Any, network: ResNet, x: torch.Tensor, slopes: torch.Tensor, planar: bool, late: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Scores and gradients (B, 3, 32, 32) in the images, by both kernels."""
    form, scores = FusedGradients(network, MEAN, STD).now(), torch.full((len(x), 7), torch.nan)
    pixels = (x if planar else x.permute(0, 2, 3, 1)).contiguous()
    signs = torch.full((sign_words(len(x), form.blocks),), -1, dtype=torch.int32)
    _, head, norm = starts = starts_of(form.numbers, 7)
    sizes = (len(x), form.blocks, 7, planar, late)
    kernels.signs(*map(pointer, (pixels, form.forth, *starts, scores, signs)), *sizes)
    found = torch.full_like(pixels, torch.nan, dtype=torch.float32)
    kernels.back(*map(pointer, (slopes, signs, form.back, head, norm, found)), *sizes)
    return scores, found if planar else found.permute(0, 3, 1, 2)


def rounded(values: torch.Tensor) -> torch.Tensor:
    """To half precision, where the kernels round; gradients pass."""
    return values + (values.detach().to(torch.bfloat16).float() - values.detach())


def in_half_precision(network: ResNet, x: torch.Tensor) -> torch.Tensor:
    """Scores as the kernel computes them: which activations are positive depends on its rounding."""
    folded = convolutions(network, partial(_folded, on_host(network)))
    layers = [(rounded(weight), bias.view(-1, 1, 1)) for weight, bias in folded]

    def convolve(x: torch.Tensor, stride: int = 1) -> torch.Tensor:
        weight, bias = layers.pop(0)
        return conv2d(x, weight, None, stride, weight.shape[-1] // 2) + bias

    x = rounded(normalised(x))
    x = rounded(relu(convolve(torch.cat([x, torch.zeros(len(x), 13, 32, 32)], 1))))
    for group in (network.layer1, network.layer2, network.layer3):
        for block in group:
            side = x if isinstance(block.shortcut, torch.nn.Identity) else rounded(convolve(x, 2))
            x = rounded(relu(convolve(x, x.shape[-1] // side.shape[-1])))
            x = rounded(relu(convolve(x) + side))
    return network.linear(x.mean((2, 3)))  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("depth", "shortcut", "images", "planar", "limit"),
    [(8, "projection", 3, True, 0.01), (14, "pad", 1, False, 0.05)],  # .0046 and .026 were seen
)
def test_gradients_in_the_images_are_the_networks(
    kernels: Any, depth: int, shortcut: Shortcut, images: int, planar: bool, limit: float
) -> None:
    """With every relu as it was in the pass forward; a sum in another order may round across zero, in few places."""
    network, x = made(depth, shortcut), torch.rand(images, 3, 32, 32).to(torch.bfloat16)
    slopes = torch.randn(images, 7)
    scores, found = gradients(kernels, network, x, slopes, planar, late=planar)
    images_32 = x.float().requires_grad_()
    expected, exact = in_half_precision(network, images_32), network(normalised(images_32))
    assert (scores - expected).abs().max() < 0.006 * expected.abs().max()
    for answers, largest in ((expected, limit), (exact, 0.2)):
        (wanted,) = torch.autograd.grad((answers * slopes).sum(), images_32)
        off = (found - wanted).flatten(1).norm(dim=1) / wanted.flatten(1).norm(dim=1)
        assert off.max() < largest
