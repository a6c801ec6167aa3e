"""``attention.cu`` itself, on a CPU: compiled by a C++ compiler against an emulation of a block."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

import ringfence.classifiers.fused

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler is installed")

SOURCE = Path(ringfence.classifiers.fused.__file__).with_name("attention.cu")
KEYS, MARGIN = 208, 64
"""Rows that are fetched; numbers before and behind every tensor: NaN, so that what is read or written there shows."""
LAUNCH = """
extern "C" long run(const Map* query, const Map* key, const Map* value, const Map* out, int rows, int heads, int images,
                    int blocks, bool late) {
  return launch(blocks, late, [=] { attention(*query, *key, *value, *out, rows, heads, images); });
}
"""


def translated(source: str, header: str) -> str:
    """The kernel as C++: what the hardware does is in emulated_hopper.hpp, everything else is as it stands."""
    first, last = source.index("// What the hardware does"), source.index("// The rest is C++.")
    source = source[:first] + header + source[last:]
    assert "asm" not in source
    source = source.replace("extern __shared__ __align__(1024) char memory[];", "char* memory = shared;")
    words = (r"__device__", r"__global__", r"__forceinline__", r"__grid_constant__", r"__launch_bounds__\([^)]*\)")
    for word in (*words, r"#pragma unroll.*"):
        source = re.sub(word, "", source)
    return source


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> Any:
    place = tmp_path_factory.mktemp("emulated")
    header = (Path(__file__).parent / "emulated_hopper.hpp").read_text()
    (place / "kernel.cpp").write_text(translated(SOURCE.read_text(), header) + LAUNCH)
    sizes = [
        f"-DKEYS={KEYS}",
        f"-DBYTES_OF_BLOCK={6 * 128 * KEYS + 2 * 64 * 128 + 32}",
    ]  # as attention_kernel.py has it
    words = ["g++", "-std=c++20", "-O2", "-w", "-ffp-contract=off", "-shared", "-fPIC", *sizes]
    subprocess.run([*words, "kernel.cpp", "-o", "kernel.so"], cwd=place, check=True)
    return ctypes.CDLL(str(place / "kernel.so"))


def surrounded(value: Tensor) -> tuple[Tensor, Tensor]:
    """A tensor in the midst of NaN, and all of that memory."""
    memory = torch.full((value.numel() + 2 * MARGIN,), torch.nan, dtype=value.dtype)
    return memory[MARGIN:-MARGIN].view(value.shape).copy_(value), memory


def as_map(value: Tensor, rows: int) -> Any:
    """How TMA sees a tensor in boxes of so many rows, as the emulation has it."""
    steps = (2 * step for step in reversed(value.stride()))
    return (ctypes.c_uint64 * 16)(value.data_ptr(), *reversed(value.shape), *steps, rows)


def run(kernel: Any, query: Tensor, key: Tensor, value: Tensor, out: Tensor, blocks: int, late: bool) -> int:
    images, heads, rows, _ = query.shape
    maps = [as_map(one, KEYS) for one in (query, key, value)]
    found: int = kernel.run(*maps, as_map(out, 64), rows, heads, images, blocks, late)
    return found


def drawn(images: int, rows: int, heads: int) -> tuple[list[Tensor], Tensor, Tensor]:
    """Query, key and value as one layer of a transformer makes them, and where to write to."""
    torch.manual_seed(rows)
    every = surrounded(2 * torch.randn(images, rows, 3, heads, 64).bfloat16())[0]
    out, memory = surrounded(torch.full((images, rows, heads, 64), torch.nan).bfloat16())
    return [*every.permute(2, 0, 3, 1, 4)], out.transpose(1, 2), memory


@pytest.mark.parametrize("late", [False, True], ids=["at once", "late"])
@pytest.mark.parametrize(
    ("images", "rows", "heads", "blocks"), [(2, 197, 3, 1), (1, 193, 2, 3), (1, 208, 1, 1), (3, 200, 2, 2)]
)
def test_the_kernel_is_torchs_attention_of_float64(
    emulated: Any, images: int, rows: int, heads: int, blocks: int, late: bool
) -> None:
    (query, key, value), out, memory = drawn(images, rows, heads)
    wanted = scaled_dot_product_attention(query.double(), key.double(), value.double())
    assert run(emulated, query, key, value, out, blocks, late) == 0
    assert (out.double() - wanted).norm() <= 4e-3 * wanted.norm()
    torch.testing.assert_close(out.double(), wanted, rtol=0.02, atol=0.02)
    assert int(memory.isnan().sum()) == 2 * MARGIN


@pytest.mark.parametrize("size", [-30.0, 30.0])
def test_scores_far_from_nought_are_no_trouble(emulated: Any, size: float) -> None:
    """What lies beyond the last key counts as nothing, however far below nought all others are."""
    (query, key, value), out, _ = drawn(1, 197, 1)
    query[..., 0], key[..., 0] = abs(size), size
    wanted = scaled_dot_product_attention(query.double(), key.double(), value.double())
    assert run(emulated, query, key, value, out, 1, late=True) == 0
    assert (out.double() - wanted).norm() <= 2e-2 * wanted.norm()


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_what_is_no_number_stays_in_its_row_or_image(emulated: Any, bad: float) -> None:
    (query, key, value), out, _ = drawn(3, 197, 1)
    query[0, 0, 5, 3], value[1, 0, 7, 9] = bad, bad
    assert run(emulated, query, key, value, out, 1, late=True) == 0
    invalid = ~torch.isfinite(out)
    assert invalid[0, 0].any(1).nonzero().flatten().tolist() == [5]
    assert invalid[0, 0, 5].all()
    assert invalid[1, 0].any(0).nonzero().flatten().tolist() == [9]
    assert invalid[1, 0, :, 9].all()
    assert not invalid[2].any()
