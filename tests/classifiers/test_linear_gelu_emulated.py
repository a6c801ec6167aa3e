"""``linear_gelu.cu`` itself, on a CPU: compiled by a C++ compiler against an emulation of a cluster."""

from __future__ import annotations

import ctypes
import shutil
from typing import Any

import numpy as np
import pytest
import torch
from hopper_on_a_cpu import MARGIN, as_map, compiled, surrounded
from scipy.special import ndtr
from torch import Tensor
from torch.nn.functional import gelu, linear

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler is installed")

WIDE, STAGES, CLUSTER = 192, 4, 2
BYTES = STAGES * 128 * (128 + WIDE) + 2 * 128 * WIDE + 8 * WIDE + 16 * (STAGES + 1)
LAUNCH = """
extern "C" long run(const Map* x, const Map* weight, const Map* out, const u32* bias, int rows, int columns, int depth,
                    int blocks, bool late) {
  return launch(blocks, late, [=] { linear_gelu(*x, *weight, *out, bias, rows, columns, depth); });
}
extern "C" void gelus(const float* x, float* out, long count) {
  for (long i = 0; i < count; i++) out[i] = gelu(x[i]);
}
"""


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> Any:
    sizes = {"WIDE": WIDE, "STAGES": STAGES, "CLUSTER": CLUSTER, "BYTES_OF_BLOCK": BYTES}
    return compiled("linear_gelu", tmp_path_factory.mktemp("emulated"), LAUNCH, sizes)


def run(kernel: Any, x: Tensor, weight: Tensor, bias: Tensor, out: Tensor, blocks: int, late: bool) -> int:
    maps = as_map(x, 128), as_map(weight, WIDE // CLUSTER), as_map(out, 64)
    found: int = kernel.run(*maps, ctypes.c_void_p(bias.data_ptr()), len(x), len(weight), x.shape[1], blocks, late)
    return found


@pytest.mark.parametrize("late", [False, True], ids=["at once", "late"])
@pytest.mark.parametrize(
    ("rows", "columns", "depth", "blocks"), [(300, 200, 72, 2), (520, 392, 328, 4), (1, 8, 8, 2), (257, 1160, 136, 2)]
)
def test_the_kernel_is_torchs_layer_and_gelu_of_float64(
    emulated: Any, rows: int, columns: int, depth: int, blocks: int, late: bool
) -> None:
    """Tiles that are not full, more of them than stages and blocks; copies that arrive at once or at the very last."""
    torch.manual_seed(rows)
    x, weight = torch.randn(rows, depth).bfloat16(), (torch.randn(columns, depth) / depth**0.5).bfloat16()
    x, weight, bias = (surrounded(one)[0] for one in (x, weight, torch.randn(columns).bfloat16()))
    wanted = gelu(linear(x.double(), weight.double(), bias.double()))
    out, memory = surrounded(torch.full_like(wanted, torch.nan, dtype=x.dtype))
    assert run(emulated, x, weight, bias, out, blocks, late) == 0
    # Half a unit in the last place of bf16, and what float32 sums are off.
    torch.testing.assert_close(out.double(), wanted, rtol=2**-8, atol=1e-5)
    assert int(memory.isnan().sum()) == 2 * MARGIN


def test_what_is_no_number_stays_in_its_row(emulated: Any) -> None:
    torch.manual_seed(0)
    x, weight, bias = torch.randn(20, 64).bfloat16(), torch.randn(64, 64).bfloat16(), torch.randn(64).bfloat16()
    x[3, 5], x[11, 7] = torch.nan, torch.inf
    out = torch.zeros(20, 64).bfloat16()
    assert run(emulated, x, weight, bias, out, 2, late=True) == 0
    assert out[3].isnan().all()
    assert torch.equal(out[11].isposinf(), weight[:, 7] > 0)
    assert torch.equal(out[11].isnan(), weight[:, 7] < 0)  # -inf times 0
    assert torch.isfinite(out[[row for row in range(20) if row not in (3, 11)]]).all()


def gelus(kernel: Any, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    out = np.empty_like(x)
    kernel.gelus(x.ctypes.data_as(ctypes.c_void_p), out.ctypes.data_as(ctypes.c_void_p), len(x))
    return out.astype(np.float64)


def test_gelu_is_exact_to_a_fiftieth_of_what_bf16_resolves(emulated: Any) -> None:
    """On every number of bf16 and a fine grid; where all that is left is 1e-15, it may be 0."""
    numbers = (np.arange(2**16, dtype=np.uint32) << 16).view(np.float32)
    x = np.concatenate([numbers[np.isfinite(numbers)], np.linspace(-12, 12, 2_000_001, dtype=np.float32)])
    wanted = x.astype(np.float64) * ndtr(x.astype(np.float64))
    off = np.abs(gelus(emulated, x) - wanted)
    unit = 2.0 ** (np.floor(np.log2(np.maximum(np.abs(wanted), 2.0**-126))) - 7)
    large = np.abs(wanted) > 1e-15
    assert (off / unit)[large].max() < 0.02
    assert off[~large].max() < 1e-18


def test_gelu_of_what_is_no_number_is_torchs_on_cuda(emulated: Any) -> None:
    x = np.array([np.nan, np.inf, -np.inf, 3e38, -3e38, 0.0, -0.0], np.float32)
    found = gelus(emulated, x)
    np.testing.assert_array_equal(found, [np.nan, np.inf, np.nan, x[3], -0.0, 0.0, -0.0])
    assert np.signbit(found[4:]).tolist() == [True, False, True]
