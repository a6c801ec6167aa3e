"""Every 32-bit word there is: what the kernel of exact noise decides is what a search among the thresholds finds."""

from __future__ import annotations

import pytest
import torch

if not torch.cuda.is_available():
    pytest.skip("no CUDA device is visible", allow_module_level=True)

import triton
import triton.language as tl

from ringfence.noise import exact as exact_noise
from ringfence.noise import exact_kernel

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore")]  # the compiler's own
CHUNK = 1 << 26


@triton.jit
def _decide(out, open_, edges, first, steps, far, lowest, FAMILY: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    word = (first + i.to(tl.int64)).to(tl.uint32)
    found, undecided = exact_kernel._decided(word, edges + (1 - lowest), steps, far, FAMILY)
    tl.store(out + i, found)
    tl.store(open_ + i, undecided.to(tl.int8))


@pytest.mark.parametrize(
    "law",
    [
        exact_noise.Law("gaussian", 0.25, 255),
        exact_noise.Law("uniform", 0.5, 255),
        exact_noise.Law("laplace", 0.25, 255),
    ],
    ids=str,
)
def test_every_word_is_decided_rightly_or_left_to_a_search(law: exact_noise.Law) -> None:
    edges, _, far = exact_kernel.tables_on("cuda", law)
    assert far == exact_kernel.FAR
    guide = exact_noise.guide(*law)
    upper = torch.from_numpy(guide.upper).cuda()
    found = torch.empty(CHUNK, device="cuda")
    undecided = torch.empty(CHUNK, dtype=torch.int8, device="cuda")
    left = 0
    for first in range(0, 1 << 32, CHUNK):
        arguments = (edges, first, law.steps, far, guide.table.lowest, exact_kernel.FAMILIES[law.family])
        _decide[(CHUNK // 1024,)](found, undecided, *arguments, BLOCK=1024)
        words = torch.arange(first, first + CHUNK, device="cuda")
        below = torch.searchsorted(upper, words)
        told = undecided == 0
        assert not bool((told & (torch.searchsorted(upper, words, right=True) != below)).any())
        assert torch.equal(found[told], (below + guide.table.lowest).float()[told])
        left += CHUNK - int(told.sum())
    assert left <= 2 * (far + 1) + len(upper)
