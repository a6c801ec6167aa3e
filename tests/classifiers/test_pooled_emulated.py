"""``pooled.cu`` itself, on a CPU: compiled by a C++ compiler against an emulation of a block."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
from pretended_cuda import without_words_of_cuda
from torch import Tensor
from torch.nn.functional import conv2d, max_pool2d, relu

import ringfence.classifiers.fused
from ringfence.classifiers.pooling import Layers

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler is installed")

SOURCE = Path(ringfence.classifiers.fused.__file__).with_name("pooled.cu")
WARPS, MARGIN = 2, 64
"""Of a block; numbers before and behind every tensor: NaN, so that what is read or written there shows."""
WIDE = Layers((1, 28, 28), (5, 0, 20), (5, 0, 50))
SHAPES = {
    "wide LeNet": WIDE,
    "LeNet-5": Layers((1, 28, 28), (5, 2, 6), (5, 0, 16)),
    "three channels": Layers((3, 10, 12), (3, 1, 9), (3, 1, 24)),
    "three channels last": Layers((3, 10, 12), (3, 1, 9), (3, 1, 24), last=True),
    "odd sizes": Layers((2, 13, 11), (4, 1, 7), (2, 0, 5)),
}
LAUNCH = """
extern "C" int run(const char* images, const u16* w1, const u16* b1, const u16* w2, const u16* b2, u16* out, int count,
                   int blocks, bool late) {
  return launch(blocks, late, [=] { pooled_twice(images, w1, b1, w2, b2, out, count); }) - crowded;
}
extern "C" int waited() { return crowded; }
extern "C" int bytes() { return AT_WARPS + WARPS * WARP_BYTES; }
"""


def translated(source: str) -> str:
    """The kernel as C++: what the hardware does is in emulated_cuda.hpp, everything else is as it stands."""
    first, last = source.index("// NaN if one of them is."), source.index("// The rest is C++.")
    source = source[:first] + source[last:]
    assert "asm" not in source
    source = source.replace("extern __shared__ __align__(128) char room[];", "char* room = shared_memory;")
    return without_words_of_cuda(source)


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    place, found = tmp_path_factory.mktemp("emulated"), {}
    header = (Path(__file__).parent / "emulated_cuda.hpp").read_text()
    (place / "kernel.cpp").write_text(header + translated(SOURCE.read_text()) + LAUNCH)
    for number, (name, layers) in enumerate(SHAPES.items()):
        sizes = [f"-DTHREADS_OF_BLOCK={32 * WARPS}", f"-DBYTES_OF_BLOCK={layers.shared_bytes(WARPS)}"]
        words = ["g++", "-std=c++20", "-O1", "-w", "-shared", "-fPIC", *sizes, *layers.options(WARPS), "kernel.cpp"]
        subprocess.run([*words, "-o", f"{number}.so"], cwd=place, check=True)
        found[name] = ctypes.CDLL(str(place / f"{number}.so"))
    return found


def surrounded(value: Tensor) -> tuple[Tensor, Tensor]:
    """A tensor in the midst of NaN, and all of that memory."""
    memory = torch.full((value.numel() + 2 * MARGIN,), torch.nan, dtype=value.dtype)
    return memory[MARGIN:-MARGIN].view(value.shape).copy_(value), memory


def drawn(layers: Layers, rows: int) -> list[Tensor]:
    """Images, and weight and bias of both layers."""
    torch.manual_seed(rows)
    shapes = ((rows, *layers.image), *layers.weights)
    x, *weights = (surrounded(torch.randn(shape).bfloat16())[0] for shape in shapes)
    x = surrounded(x.permute(0, 2, 3, 1))[0].permute(0, 3, 1, 2) if layers.last else x
    return [x, *weights]


def plainly(layers: Layers, x: Tensor, *weights: Tensor) -> Tensor:
    """In float64, what stands between the layers in bf16."""
    for (_, edge, _), weight, bias in ((layers.first, *weights[:2]), (layers.second, *weights[2:])):
        x = max_pool2d(relu(conv2d(x.double(), weight.double(), bias.double(), padding=edge)), 2).bfloat16()
    return x.contiguous()


def run(kernel: Any, given: list[Tensor], out: Tensor, blocks: int, late: bool) -> int:
    found: int = kernel.run(*(ctypes.c_void_p(one.data_ptr()) for one in (*given, out)), len(out), blocks, late)
    return found


@pytest.mark.parametrize("late", [False, True], ids=["at once", "late"])
@pytest.mark.parametrize(("rows", "blocks"), [(5, 1), (3, 3)])
@pytest.mark.parametrize("name", SHAPES)
def test_the_kernel_is_torchs_layers_of_float64(
    kernels: dict[str, Any], name: str, rows: int, blocks: int, late: bool
) -> None:
    layers = SHAPES[name]
    given = drawn(layers, rows)
    wanted = plainly(layers, *given)
    out, memory = surrounded(torch.full_like(wanted, torch.nan))
    assert run(kernels[name], given, out, blocks, late) == 0
    assert (out.double() - wanted.double()).norm() <= 2e-3 * wanted.double().norm()
    assert int(memory.isnan().sum()) == 2 * MARGIN
    assert name != "wide LeNet" or kernels[name].waited() == 0  # for banks, where it matters most


def test_shared_memory_is_what_the_kernel_uses(kernels: dict[str, Any]) -> None:
    assert {name: kernel.bytes() for name, kernel in kernels.items()} == {
        name: layers.shared_bytes(WARPS) for name, layers in SHAPES.items()
    }


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("name", SHAPES)
def test_what_is_no_number_is_where_torch_has_it(kernels: dict[str, Any], name: str, bad: float) -> None:
    """Every pixel in turn of the corners, and one inside: in windows that see it alone, and in its image alone."""
    layers = SHAPES[name]
    high, wide = layers.image[1:]
    given = drawn(layers, 6)
    for row, (y, x) in enumerate([(0, 0), (0, wide - 1), (high - 1, 0), (high - 1, wide - 1), (high // 2, wide // 2)]):
        given[0][row, 0, y, x] = bad
    wanted = plainly(layers, *given)
    out = torch.full_like(wanted, 7)
    assert run(kernels[name], given, out, 1, late=True) == 0
    assert torch.equal(out.isnan(), wanted.isnan())
    assert torch.equal(out.isinf(), wanted.isinf())
