"""The CUDA kernels' own source, run on the CPU: the float kernel draws its references, the exact one the integers."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import numpy as np
import pytest
import torch
from emulated_triton import Block, memory_of, modules
from numpy.typing import NDArray
from scipy.special import ndtr
from torch import Tensor

from ringfence.noise import exact as exact_noise
from ringfence.noise import philox
from ringfence.noise.philox import signed
from ringfence.stats.lattice import Thresholds

KERNELS = ("ringfence.noise.kernel", "ringfence.noise.exact_kernel")
FAMILIES = ("gaussian", "uniform", "laplace")
CPU = torch.device("cpu")


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Any, Any]]:
    """Both modules with the emulation in the place of Triton."""
    for name, module in modules().items():
        monkeypatch.setitem(sys.modules, name, module)
    for name in KERNELS:
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield import_module(KERNELS[0]), import_module(KERNELS[1])
    for name in KERNELS:
        sys.modules.pop(name, None)


@pytest.mark.filterwarnings("ignore:overflow encountered")
def test_the_float_kernel_draws_every_family(kernels: tuple[Any, Any]) -> None:
    kernel, _ = kernels
    assert set(kernel.FAMILIES) == set(philox.REFERENCES) == set(FAMILIES)
    for family in FAMILIES:
        assert philox.are_drawn_by(kernel.add_noise, CPU, family)
    assert all(kernel.is_right(CPU, family) for family in FAMILIES)

    def another(out: Tensor, clean: Tensor, table: Tensor, sigma: float, family: str) -> None:
        kernel.add_noise(out, clean, table, 1.001 * sigma, family)

    assert not any(philox.are_drawn_by(another, CPU, family) for family in FAMILIES)


@pytest.mark.filterwarnings("ignore:overflow encountered")
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("family", FAMILIES)
def test_both_kernels_add_in_any_layout(kernels: tuple[Any, Any], layout: torch.memory_format, family: str) -> None:
    kernel, exact = kernels
    keys, places, slots = [3, 3, (1 << 64) - 5, 0], [0, 99, 7, -1], [1, 0, 2, 1]
    steps = torch.randint(0, 256, (3, 3, 5, 7), generator=torch.Generator().manual_seed(1)).float()
    table = torch.tensor([slots, [signed(key) for key in keys], places])
    law = exact_noise.Law(family, 0.25, 255)
    out = torch.empty(4, 3, 5, 7, memory_format=layout)
    drawn = torch.empty(100, 105)
    exact.add_integers(out, steps, table, law)
    for row, key, place, slot in zip(out, keys, places, slots, strict=True):
        exact_noise.fill_integers(drawn, key, law)
        wanted = steps[slot] + (drawn[place].view(3, 5, 7) if place >= 0 else 0)
        assert torch.equal(row, wanted.mul(1 / 255))
    kernel.add_noise(out, steps, table, 0.25, family)
    for row, key, place, slot in zip(out, keys, places, slots, strict=True):
        float_draw = torch.from_numpy(philox.REFERENCES[family](key, place, 105)).view(3, 5, 7) if place >= 0 else 0
        assert (row - (steps[slot] + 0.25 * float_draw)).abs().max() < 1e-4


@pytest.mark.filterwarnings("ignore:overflow encountered")
def test_the_exact_kernel_passes_the_check_of_a_device(kernels: tuple[Any, Any]) -> None:
    _, exact = kernels
    assert all(exact.is_right(CPU, family) for family in exact.FAMILIES)


def told(exact: Any, words: NDArray[np.int64], law: exact_noise.Law) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """What the kernel makes of words: integers, and where it leaves them to a search."""
    edges, _, far = exact.tables_on("cpu", law)
    at_zero = memory_of(edges) + (1 - exact_noise.guide(*law).table.lowest)
    steps = np.float32(law.steps)
    found, left = exact._decided(words.astype(np.uint32).view(Block), at_zero, steps, far, exact.FAMILIES[law.family])
    return np.asarray(found), np.asarray(left)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("sigma", [0.1, 0.25, 0.5, 1.0, 2.0])
def test_words_are_decided_rightly_or_left_to_a_search(kernels: tuple[Any, Any], family: str, sigma: float) -> None:
    _, exact = kernels
    law = exact_noise.Law(family, sigma, 255)
    guide = exact_noise.guide(*law)
    beside = (guide.upper[:, None] + np.arange(-3, 4)).reshape(-1)
    ends = np.arange(exact.FAR - 2, exact.FAR + 5)
    some = np.random.default_rng(7).integers(0, 1 << 32, 700_000)
    words = np.clip(np.concatenate([beside, ends, (1 << 32) - 1 - ends, some]), 0, (1 << 32) - 1)
    found, left = told(exact, words, law)
    assert exact.tables_on("cpu", law)[2] == exact.FAR
    assert np.array_equal(found[~left], guide.integers(words)[0][~left])
    assert left[np.isin(words, guide.upper)].all()
    from_end = np.minimum(words, (1 << 32) - 1 - words)
    assert np.array_equal(left, np.isin(words, guide.upper) | (from_end <= exact.FAR))


def test_guesses_beyond_a_quarter_of_a_step_are_noticed(kernels: tuple[Any, Any]) -> None:
    guide = exact_noise.guide("gaussian", 0.25, 255)
    words = guide.landmarks(kernels[1].FAR)
    exactly = np.searchsorted(guide.upper, words) + guide.table.lowest + 0.5
    assert guide.surrounds(words, exactly + np.float32(0.24))
    assert guide.surrounds(words, exactly - np.float32(0.24))
    for place in (0, len(words) // 2, len(words) - 1):
        for off in (-1.26, 0.26):  # the outermost words lie between two thresholds, and may be guessed anywhere there
            assert not guide.surrounds(words, exactly + off * (np.arange(len(words)) == place))


def test_where_guesses_are_not_good_enough_every_word_is_searched_for(
    kernels: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lattice of a twenty thousandth of sigma; thresholds in double precision are good enough to look among."""
    _, exact = kernels
    tails = ndtr(-(np.arange(20_000 * 7) + 0.5) / 20_000)[::-1]
    below = [int(one * 2**64) for one in tails]
    values = np.array(below + [2**64 - one for one in reversed(below)], np.uint64)
    table = Thresholds(-len(below), values)
    made = exact_noise.Guide(
        np.full(1 << exact_noise.TOP, np.nan, np.float32), (values >> np.uint64(32)).astype(np.int64), table
    )
    monkeypatch.setattr(exact_noise, "guide", lambda *law: made)
    law, out = exact_noise.Law("gaussian", 20.0, 1000), torch.empty(3, 105)
    assert exact.tables_on("cpu", law)[2] == exact.EVERYWHERE
    assert told(exact, np.arange(0, 1 << 32, 99_991), law)[1].all()
    rows = torch.arange(3)
    exact.add_integers(out, torch.zeros(1, 105), torch.stack([rows * 0, rows * 0 + 5, rows]), law)
    blocks = np.arange(27, dtype=np.uint64)
    for place, row in enumerate(out):
        upper, lower = (philox.words(5, blocks, place, third).reshape(-1)[:105] for third in (0, 1))
        wanted = table.of_words((upper << np.uint64(32)) | lower).astype(np.float32)
        assert np.array_equal(row.numpy(), wanted * np.float32(1 / 1000))


def test_the_check_of_a_device_meets_words_that_32_bits_do_not_tell(kernels: tuple[Any, Any]) -> None:
    _, exact = kernels
    for family in FAMILIES:
        upper, seen = exact_noise.guide(family, 0.25, 255).upper, []

        def see(out: Tensor, clean: Tensor, table: Tensor, law: exact_noise.Law, seen: list[Any] = seen) -> None:
            for key, place in zip(table[1].tolist(), table[2].tolist(), strict=True):
                blocks = np.arange(-(-out.shape[1] // 4), dtype=np.uint64)
                seen.append(philox.words(key % (1 << 64), blocks, place).reshape(-1)[: out.shape[1]].astype(np.int64))

        exact_noise.are_drawn_by(see, CPU, family)
        words = np.concatenate(seen)
        inner = (words > exact.FAR) & (words < (1 << 32) - 1 - exact.FAR)
        assert (words <= exact.FAR).any()
        assert (words >= (1 << 32) - 1 - exact.FAR).any()
        assert np.isin(words[inner], upper).any()
