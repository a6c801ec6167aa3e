"""A draw's noise is a function of (seed, input, stage, index), of all 64 bits, and Gaussian."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2, kstest

from ringfence import Gaussian, Laplace, Uniform
from ringfence.errors import ArgumentError
from ringfence.noise import philox
from ringfence.noise.base import LARGEST, SMALLEST
from ringfence.sampling import CHUNK, chunk_key
from ringfence.sampling.draws import check_seed
from ringfence.stats import NoiseLaw

integers = st.integers(-(2**63), 2**63 - 1)
places = st.tuples(integers, integers, integers, integers)


def noise_of(key: int, rows: int = CHUNK, sigma: float = 1.0, width: int = 3) -> torch.Tensor:
    out = torch.empty(rows, width)
    Gaussian(sigma).fill(out, key)
    return out


@given(places, places)
def test_keys_are_a_function_of_place_and_differ_between_places(one: tuple[int, ...], other: tuple[int, ...]) -> None:
    assert chunk_key(*one) == chunk_key(*one)
    assert 0 <= chunk_key(*one) < 2**64
    assert (chunk_key(*one) == chunk_key(*other)) == (one == other)


def test_the_key_of_a_place_never_changes() -> None:
    # Stored runs are continued with these keys: a change here breaks every run folder there is.
    assert chunk_key(0, 0, 0, 0) == 11619761522075635141
    assert chunk_key(1, 20, 1, 7) == 17431226821247361890
    assert CHUNK == 100


def test_the_noise_of_a_key_never_changes() -> None:
    first = noise_of(chunk_key(0, 0, 0, 0))[0].tolist()
    assert first == pytest.approx([-1.2392470, 1.1666455, 0.1075317], abs=1e-6)


def test_many_places_give_no_key_twice() -> None:
    keys = {
        chunk_key(seed, one, stage, chunk)
        for seed in (0, 1)
        for one in range(50)
        for stage in range(3)
        for chunk in range(100)
    }
    assert len(keys) == 2 * 50 * 3 * 100


@pytest.mark.parametrize("bit", range(64))
def test_every_bit_of_a_key_matters(bit: int) -> None:
    # torch's CPU generator keeps 32 bits: two chunks whose keys differ above them would share a stream.
    key = 0x0123_4567_89AB_CDEF
    one, other = noise_of(key), noise_of(key ^ (1 << bit))
    assert not torch.equal(one, other)
    assert abs(np.corrcoef(one.flatten(), other.flatten())[0, 1]) < 0.35  # 6 deviations for 300 numbers


def test_a_shorter_fill_is_not_relied_upon_but_the_whole_chunk_is() -> None:
    assert torch.equal(noise_of(5), noise_of(5))
    assert torch.equal(noise_of(5, sigma=2.0), 2.0 * noise_of(5, sigma=1.0))


def test_noise_is_gaussian() -> None:
    sigma = 0.25
    values = np.concatenate([noise_of(chunk_key(3, 1, 1, c), sigma=sigma, width=50).flatten() for c in range(40)])
    size = len(values)
    assert kstest(values / sigma, "norm").pvalue > 1e-6
    assert abs(values.mean()) < 5 * sigma / np.sqrt(size)
    low, high = chi2.ppf([1e-7, 1 - 1e-7], size)
    assert low < (values**2).sum() / sigma**2 < high
    # Neither neighbouring numbers nor neighbouring chunks go together.
    assert abs(np.corrcoef(values[:-1], values[1:])[0, 1]) < 5 / np.sqrt(size)
    assert abs(np.corrcoef(values[: size // 2], values[size // 2 :])[0, 1]) < 5 / np.sqrt(size / 2)


def test_no_two_numbers_of_a_chunk_go_together() -> None:
    """Autocorrelation at every distance, of the numbers and of their squares: a pair made from one angle, or a stretch
    that is repeated, would stand out at its own."""
    chunks, total = 40, 0.0
    for chunk in range(chunks):
        flat = noise_of(chunk_key(3, 1, 1, chunk), width=50).flatten().double().numpy()
        both = np.stack([flat, (flat**2 - 1) / np.sqrt(2)])
        size = both.shape[1]
        total = total + np.fft.irfft(np.abs(np.fft.rfft(both)) ** 2, size) / size
    deviations = total[:, 1 : size // 2 + 1] / np.sqrt(chunks / size)
    assert np.abs(deviations).max() < 7  # of 5,000; the distance of half a chunk counts each pair twice
    assert np.abs(total[:, 0] / chunks - 1).max() < 0.05


@pytest.mark.parametrize("sigma", [0.0, -1.0, float("nan"), float("inf")])
def test_sigma_must_be_positive(sigma: float) -> None:
    with pytest.raises(ArgumentError, match=r"sigma: must be a positive number; got .*\[0,1\] pixel units"):
        Gaussian(sigma)


@pytest.mark.parametrize("family", [Gaussian, Laplace, Uniform])
def test_the_noise_drawn_is_of_the_sigma_that_is_claimed_however_small_or_written(family: type[Gaussian]) -> None:
    out = torch.empty(20_000)
    for sigma in (SMALLEST, np.float16(2e-4), Fraction(1, 3), LARGEST):
        noise = family(sigma)  # type: ignore[arg-type]
        noise.fill(out, 5)
        assert float(out.double().std()) == pytest.approx(noise.law.scale, rel=0.03)
    for sigma in (SMALLEST / 2, 1e-25, 2 * LARGEST):  # float32 draws nothing but zeros at 1e-25
        with pytest.raises(ArgumentError, match="sigma: must be at least 1e-12 and at most 1e"):
            family(sigma)


def test_a_truth_value_is_no_sigma() -> None:
    for make in (Gaussian, lambda sigma: NoiseLaw("gaussian", sigma)):
        with pytest.raises(ArgumentError, match=r"sigma: must be .*positive.*got True"):
            make(True)


def test_seeds_beyond_64_bits_and_other_things_are_refused() -> None:
    check_seed(2**63 - 1)
    check_seed(np.int64(7))  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="seed: must fit into 64 bits"):
        check_seed(2**63)
    for odd in (0.5, True, "1", None):
        with pytest.raises(ArgumentError, match="seed: must be a whole number; got"):
            check_seed(odd)  # type: ignore[arg-type]


def test_philox_is_the_published_one() -> None:
    """The known answer of its authors for a key and a counter of zeros."""
    assert [int(word[0]) for word in philox.words(0, np.zeros(1, np.uint64), 0)] == [
        0x6627E8D5,
        0xE169C58D,
        0xBC57AC4C,
        0x9B00DBD8,
    ]


def test_the_draws_of_the_cuda_kernel_are_normal_and_differ_between_keys_and_places() -> None:
    found = np.stack([philox.normals(key, place, 4_001) for key in (1, 2, (1 << 64) - 1) for place in (0, 1, 99)])
    assert kstest(found.ravel(), "norm").pvalue > 1e-6
    correlation = np.corrcoef(found)
    assert np.abs(correlation - np.eye(len(found))).max() < 6 / 4_001**0.5
    assert np.array_equal(found[0], philox.normals(1, 0, 4_001))


def test_a_kernel_is_checked_with_keys_of_all_64_bits() -> None:
    def kernel(key_of: Callable[[int], int]) -> Callable[..., None]:
        def add_noise(out: torch.Tensor, clean: torch.Tensor, table: torch.Tensor, sigma: float, family: str) -> None:
            for row, slot, number, place in zip(out, *table.tolist(), strict=True):
                row[:] = clean[slot] + sigma * torch.from_numpy(philox.normals(key_of(number), place, len(row)))

        return add_noise

    cpu = torch.device("cpu")
    assert philox.are_drawn_by(kernel(lambda number: number % 2**64), cpu)
    assert not philox.are_drawn_by(kernel(abs), cpu)
    assert not philox.are_drawn_by(kernel(lambda number: number % 2**63), cpu)
    assert not philox.are_drawn_by(kernel(lambda number: max(number, 0)), cpu)
    assert not philox.are_drawn_by(kernel(lambda number: number % 2**32), cpu)
