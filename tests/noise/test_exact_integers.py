"""Exact noise: thresholds to the last bit, integers that are those of the definition, frequencies that fit."""

from __future__ import annotations

import itertools
from fractions import Fraction

import mpmath
import numpy as np
import pytest
import torch
from frequencies import assert_frequencies

from ringfence.errors import ArgumentError
from ringfence.noise import philox
from ringfence.noise.exact import TELLING, Law, fill_integers, guide
from ringfence.stats import lattice
from ringfence.stats.lattice import WORD, thresholds

LAW = Law("gaussian", 0.25, 255)
LAWS = [LAW, Law("uniform", 0.25, 255), Law("laplace", 0.25, 255), Law("laplace", 1.0, 100)]
every_law = pytest.mark.parametrize("law", LAWS, ids=str)


@pytest.mark.parametrize("sigma", [0.12, 0.25, 1.0])
def test_thresholds_are_the_floors_of_the_distribution_function(sigma: float) -> None:
    table = thresholds("gaussian", sigma, 255)
    with mpmath.workprec(400):
        for place in (0, 1, len(table.values) // 3, len(table.values) // 2, len(table.values) - 2):
            k = table.lowest + place
            at = (k + mpmath.mpf(1) / 2) / 255 / mpmath.mpf(sigma)
            assert int(table.values[place]) == int(mpmath.floor(WORD * mpmath.ncdf(at)))
        below = (table.lowest - mpmath.mpf(1) / 2) / 255 / mpmath.mpf(sigma)
        assert mpmath.ncdf(below) < mpmath.mpf(1) / WORD
    assert int(table.values[-1]) == WORD - 1
    assert int(table.values[-2]) < WORD - 1


def test_what_is_drawn_differs_from_the_law_by_less_than_half_of_eta() -> None:
    table = thresholds(*LAW)
    ends = [0, *map(int, table.values), WORD]
    drawn = {
        table.lowest + i: Fraction(after - before, WORD) for i, (before, after) in enumerate(itertools.pairwise(ends))
    }
    with mpmath.workprec(300):
        scale = 255 * mpmath.mpf(0.25)

        def law(k: int) -> mpmath.mpf:
            tail = mpmath.ncdf(-(abs(k) - mpmath.mpf(1) / 2) / scale)
            return tail - mpmath.ncdf(-(abs(k) + mpmath.mpf(1) / 2) / scale) if k else 1 - 2 * mpmath.ncdf(-0.5 / scale)

        inside = mpmath.fsum(abs(law(k) - mpmath.mpf(p.numerator) / p.denominator) for k, p in drawn.items())
        outside = 2 * mpmath.ncdf((table.lowest - mpmath.mpf(1) / 2) / scale)
        assert (inside + outside) / 2 < table.eta / 2


@every_law
def test_integers_are_those_of_their_64_bit_words(law: Law) -> None:
    rows, size, untold = 25, 1003, 0
    out, blocks = torch.empty(rows, size), np.arange(-(-size // 4), dtype=np.uint64)
    for key in TELLING:
        fill_integers(out, key, law)
        for place in range(rows):
            upper = philox.words(key, blocks, place).reshape(-1)[:size]
            lower = philox.words(key, blocks, place, 1).reshape(-1)[:size]
            wanted = thresholds(*law).of_words((upper << np.uint64(32)) | lower)
            assert np.array_equal(out[place].numpy(), wanted)
            untold += int(np.isin(upper, guide(*law).upper).sum())
    assert untold > 0 or law[1:] != (0.25, 255)  # the keys are for these laws


@every_law
def test_words_at_and_beside_every_threshold_are_told_apart(law: Law) -> None:
    found = guide(*law)
    upper = np.unique((found.table.values >> np.uint64(32)).astype(np.int64))
    words = np.unique(np.clip(np.concatenate([upper - 1, upper, upper + 1]), 0, 2**32 - 1))
    integers, undecided = found.integers(words)
    sure = np.setdiff1d(np.arange(len(words)), undecided)
    shifted = words.astype(np.uint64) << np.uint64(32)
    smallest, largest = found.table.of_words(shifted), found.table.of_words(shifted | np.uint64(0xFFFFFFFF))
    assert np.array_equal(smallest[sure], largest[sure])
    assert np.array_equal(integers[sure], smallest[sure])
    assert set(np.flatnonzero(smallest != largest)) <= set(undecided.tolist())


def test_a_draw_depends_on_its_key_and_place_alone() -> None:
    whole, part = torch.empty(100, 3000), torch.empty(7, 3000)
    fill_integers(whole, 11, LAW)
    fill_integers(part, 11, LAW)
    assert torch.equal(whole[:7], part)


@pytest.mark.parametrize("threads", [1, 3])
def test_threads_share_rows_and_change_nothing(threads: int) -> None:
    before, wanted, out = torch.get_num_threads(), torch.empty(101, 785), torch.empty(101, 785)
    fill_integers(wanted, 5, LAW)
    try:
        torch.set_num_threads(threads)
        fill_integers(out, 5, LAW)
    finally:
        torch.set_num_threads(before)
    assert torch.equal(out, wanted)


@every_law
@pytest.mark.parametrize("keys", [5, pytest.param(50, marks=pytest.mark.slow)])
def test_frequencies_fit_the_law(keys: int, law: Law) -> None:
    """2 million draws each: 10 million; the slow one 100 million."""
    out = torch.empty(100, 20_000)
    counts = np.zeros(thresholds(*law).highest - thresholds(*law).lowest + 1)
    for key in range(keys):
        fill_integers(out, key, law)
        counts += np.bincount(out.view(-1).long().numpy() - thresholds(*law).lowest, minlength=len(counts))
    expected = thresholds(*law).probabilities() * counts.sum()
    assert_frequencies(counts, expected)


@pytest.mark.parametrize("lattice", [0, -1, 1 << 20, 2.5])
def test_a_lattice_is_a_number_of_steps(lattice: int) -> None:
    with pytest.raises(ArgumentError, match="lattice"):
        thresholds("gaussian", 0.25, lattice)


@pytest.mark.parametrize("family", ["gaussian", "uniform", "laplace"])
@pytest.mark.parametrize("scale", [1e4, 1e300])
def test_more_thresholds_than_a_table_holds_are_refused_before_the_first_is_found(
    family: str, scale: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder from elsewhere may name any sigma: whoever verifies it must not wait for minutes."""
    asked: list[object] = []
    tail = lattice.TAILS[family]
    monkeypatch.setitem(lattice.TAILS, family, lambda x: asked.append(x) or tail(x))
    with pytest.raises(ArgumentError, match="must need at most 2097152 thresholds"):
        thresholds(family, scale, 65536)
    assert len(asked) <= 1


@pytest.mark.parametrize("family", ["gaussian", "uniform", "laplace"])
def test_noise_far_smaller_than_a_step_never_moves_an_input(family: str) -> None:
    table = thresholds(family, 1e-300, 255)
    assert table.lowest == table.highest == 0 or table.probabilities()[-table.lowest] == 1.0
    assert table.of_words(np.array([1 << 63], np.uint64)).tolist() == [0]
