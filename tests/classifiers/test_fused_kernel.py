"""The fused kernel itself, on a CPU: resnet.cu compiled by a C++ compiler against an emulation of a block."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ringfence.classifiers.architectures import resnet
from ringfence.classifiers.architectures.resnet import ResNet, Shortcut
from ringfence.classifiers.fused import SHARED_BYTES, THREADS, FusedResNet, places

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler is installed"),
]

LAUNCH = """
extern "C" void launch(const unsigned short* x, const char* packed, const float* bias, const float* head,
                       const float* norm, float* scores, int images, int blocks, int classes, int planar, bool late) {
  at_once = !late;
  warps.clear();
  for (int warp = 0; warp < BLOCK / 32; warp++) warps.push_back(std::make_unique<std::barrier<>>(32));
  for (blockIdx.x = 0; blockIdx.x * IMAGES < images; blockIdx.x++) {
    std::memset(shared_memory, 0x7f, sizeof shared_memory);  // nothing may rely on what was there
    std::vector<std::thread> threads;
    for (int i = 0; i < BLOCK; i++)
      threads.emplace_back([=] {
        threadIdx.x = i;
        fused_resnet(x, packed, bias, head, norm, scores, images, blocks, classes, planar);
      });
    for (auto& one : threads) one.join();
  }
}
"""


def translated(source: str) -> str:
    """The kernel as C++: its few primitives are those of emulated_cuda.hpp, everything else is as it stands."""
    begin, end = (
        source.index("__device__ __forceinline__ void ldmatrix"),
        source.index("__device__ __forceinline__ float low_of"),
    )
    source = source[:begin] + source[end:]
    begin, end = source.index("__device__ __forceinline__ void fetch"), source.index("// x = relu(conv(x)")
    source = source[:begin] + source[end:]
    assert "asm" not in source
    source = source.replace("extern __shared__ __align__(128) char memory[];", "char* memory = shared_memory;")
    for word in (r"__device__", r"__global__", r"__forceinline__", r"__launch_bounds__\([^)]*\)", r"#pragma unroll.*"):
        source = re.sub(word, "", source)
    return source.replace("typedef unsigned int u32;", "")


@pytest.fixture(scope="module")
def launch(tmp_path_factory: pytest.TempPathFactory) -> Any:
    place = tmp_path_factory.mktemp("emulated")
    kernel = (files("ringfence.classifiers.fused") / "resnet.cu").read_text()
    header = Path(__file__).with_name("emulated_cuda.hpp").read_text()
    (place / "kernel.cpp").write_text(header + translated(kernel) + LAUNCH)
    sizes = [f"-DTHREADS_OF_BLOCK={THREADS}", f"-DBYTES_OF_BLOCK={SHARED_BYTES}"]
    words = ["g++", "-std=c++20", "-O2", "-shared", "-fPIC", "-pthread", *sizes, "kernel.cpp", "-o", "kernel.so"]
    subprocess.run(words, cwd=place, check=True)
    return ctypes.CDLL(str(place / "kernel.so")).launch


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


def by_kernel(
    launch: Any, network: ResNet, x: torch.Tensor, planar: bool = True, late: bool = True
) -> np.ndarray[Any, np.dtype[np.float32]]:
    fused = FusedResNet(network, MEAN, STD)
    pixels = (x if planar else x.permute(0, 2, 3, 1)).contiguous().view(torch.int16)
    scores = np.full((len(x), 7), -1, np.float32)
    numbers = [ctypes.c_void_p(fused.numbers.data_ptr() + 4 * at) for at in places(len(fused.numbers), 7)]
    pointers = [ctypes.c_void_p(pixels.data_ptr()), ctypes.c_void_p(fused.weights.data_ptr()), *numbers]
    launch(*pointers, scores.ctypes.data_as(ctypes.c_void_p), len(x), fused.blocks, 7, planar, late)
    return scores


@torch.inference_mode()
def by_network(network: ResNet, x: torch.Tensor) -> np.ndarray[Any, np.dtype[np.float32]]:
    return network((x.float() - MEAN.view(3, 1, 1)) / STD.view(3, 1, 1)).numpy()  # type: ignore[no-any-return]


@pytest.mark.parametrize(("depth", "shortcut", "images"), [(8, "projection", 3), (20, "pad", 2)])
@pytest.mark.parametrize("late", [False, True])
def test_the_kernel_computes_the_networks_scores(
    launch: Any, depth: int, shortcut: Shortcut, images: int, late: bool
) -> None:
    """Weights may arrive as soon as they are sent for, or no sooner than they are waited for."""
    network, x = made(depth, shortcut), torch.rand(images, 3, 32, 32).to(torch.bfloat16)
    scores, wanted = by_kernel(launch, network, x, not late, late), by_network(network, x)
    assert np.abs(scores - wanted).max() < 0.006 * np.abs(wanted).max()  # .002 was seen: rounding to half precision


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_an_invalid_row_comes_out_as_one_and_spoils_no_other(launch: Any, bad: float) -> None:
    network, x = made(8, "projection"), torch.rand(4, 3, 32, 32).to(torch.bfloat16)
    x[1, 2, 17, 5] = bad
    scores, wanted = by_kernel(launch, network, x), by_network(network, x)
    assert np.isfinite(wanted).all(1).tolist() == [True, False, True, True]
    assert np.isfinite(scores).all(1).tolist() == [True, False, True, True]
    whole = np.isfinite(wanted).all(1)
    assert np.abs(scores[whole] - wanted[whole]).max() < 0.006 * np.abs(wanted[whole]).max()


def test_weights_that_are_nan_give_no_class(launch: Any) -> None:
    network, x = made(8, "projection"), torch.rand(2, 3, 32, 32).to(torch.bfloat16)
    with torch.no_grad():
        network.layer2[0].conv1.weight[3, 5, 1, 1] = torch.nan
    assert np.isnan(by_kernel(launch, network, x)).all()
