"""The kernels of ``narrow.cu`` themselves, on a CPU: compiled by a C++ compiler against an emulation of a block."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
from pretended_cuda import without_words_of_cuda
from torch import Tensor
from torch.nn.grad import conv2d_input, conv2d_weight

import ringfence.training
from ringfence.training.narrow import SIDES

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler is installed")

TESTS = Path(__file__).parents[1]
SOURCE = Path(ringfence.training.__file__).with_name("narrow.cu")
IMAGES, THREADS = {16: 1, 32: 2}, 256
MARGIN = 64
"""Numbers before and behind every tensor: NaN, so that what is read there shows, and what is written there too."""

LAUNCH = """
extern "C" int convolved(const char* x, const char* weight, char* out, int images, int blocks, bool back, bool late) {
  return launch(blocks, late,
                [=] { back ? narrow_back(x, weight, out, images) : narrow_forward(x, weight, out, images); });
}
extern "C" int to_weight(const char* x, const char* g, float* found, u32* out, int images, int blocks, bool late) {
  const int astray = launch(blocks, late, [=] { narrow_weight(x, g, found, images); });
  return astray + launch(9 * C * C / 64, late, [=] { narrow_sum((const float2*)found, out, blocks); });
}
"""


def translated(source: str) -> str:
    """The kernels as C++: their few primitives are those of emulated_cuda.hpp, everything else is as it stands."""
    first, behind = "// 16 bytes on their way", "__device__ __forceinline__ void arrived"
    source = source[: source.index(first)] + source[source.index(behind) :]
    source, count = re.subn(
        r'asm volatile\("cp.async.commit_group;[^\n]*\n[^\n]*wait_group 0;[^\n]*', "land();", source
    )
    assert count == 1
    assert "asm" not in source
    source = source.replace("extern __shared__ __align__(128) char room[];", "char* room = shared_memory;")
    source = source.replace("__shared__", "static")
    return without_words_of_cuda(source)


def shared_bytes(channels: int) -> int:
    """The most that a kernel asks for (narrow_kernel.py, whose numbers test_narrow_kernel.py checks)."""
    side = SIDES[channels]
    return 2 * channels * IMAGES[channels] * ((side + 2) ** 2 + side**2)


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Any]:
    place, found = tmp_path_factory.mktemp("emulated"), {}
    header = (TESTS / "classifiers" / "emulated_cuda.hpp").read_text()
    (place / "kernel.cpp").write_text(header + translated(SOURCE.read_text()) + LAUNCH)
    for channels in SIDES:
        sizes = [f"-DC={channels}", f"-DTHREADS_OF_BLOCK={THREADS}", f"-DBYTES_OF_BLOCK={shared_bytes(channels)}"]
        words = ["g++", "-std=c++20", "-O1", "-shared", "-fPIC", *sizes, "kernel.cpp", "-o"]
        subprocess.run([*words, f"{channels}.so"], cwd=place, check=True)
        found[channels] = ctypes.CDLL(str(place / f"{channels}.so"))
    return found


def surrounded(value: Tensor) -> tuple[Tensor, Tensor]:
    """A tensor with channels last in the midst of NaN, and all of that memory."""
    memory = torch.full((value.numel() + 2 * MARGIN,), torch.nan, dtype=value.dtype)
    inside = memory[MARGIN:-MARGIN].view(len(value), *value.shape[2:], value.shape[1]).permute(0, 3, 1, 2)
    return inside.copy_(value), memory


def pointer(tensor: Tensor) -> ctypes.c_void_p:
    return ctypes.c_void_p(tensor.data_ptr())


def drawn(*shape: int) -> Tensor:
    return surrounded(torch.randn(shape).bfloat16())[0]


@pytest.mark.parametrize("late", [False, True], ids=["at once", "late"])
@pytest.mark.parametrize(("channels", "rows"), [(16, 2), (32, 3)])
def test_the_kernels_are_torchs_convolutions_of_float64(
    kernels: dict[int, Any], channels: int, rows: int, late: bool
) -> None:
    """Whether what is sent for arrives at once or no sooner than it is waited for; blocks that are not full, too."""
    torch.manual_seed(rows)
    side, blocks = SIDES[channels], -(-rows // IMAGES[channels])
    images = (rows, channels, side, side)
    x, weight, g = drawn(*images), drawn(channels, channels, 3, 3), drawn(*images)
    wide = [one.double() for one in (x, weight, g)]
    wanted = (
        torch.conv2d(wide[0], wide[1], padding=1),
        conv2d_input(x.shape, wide[1], wide[2], padding=1),  # type: ignore[no-untyped-call]
        conv2d_weight(wide[0], weight.shape, wide[2], padding=1),  # type: ignore[no-untyped-call]
    )
    found, memories = zip(*(surrounded(torch.full_like(one, torch.nan, dtype=x.dtype)) for one in wanted), strict=True)
    run = kernels[channels]
    assert run.convolved(*map(pointer, (x, weight, found[0])), rows, blocks, False, late) == 0
    assert run.convolved(*map(pointer, (g, weight, found[1])), rows, blocks, True, late) == 0
    shares = torch.full((blocks, 9 * channels**2), torch.nan)
    assert run.to_weight(*map(pointer, (x, g, shares, found[2])), rows, blocks, late) == 0
    for ours, exactly, memory in zip(found, wanted, memories, strict=True):
        # Half a unit in the last place of bf16, and what float32 sums are off.
        torch.testing.assert_close(ours.double(), exactly, rtol=2**-8, atol=1e-4)
        assert int(memory.isnan().sum()) == 2 * MARGIN
