"""ACES on counts made by hand: every test and bound at its own share of alpha, invalid draws against both bits."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import ndtri
from scipy.stats import binom

from ringfence.mechanisms import neyman_pearson
from ringfence.procedures import AcesCertify, AcesPredict, AcesSequential, Given, Procedure
from ringfence.stats import clopper_pearson_lower
from ringfence.types import ABSTAIN, IntArray, Tally

ALPHA, N = 0.02, 400
COUNTS = np.arange(N // 2, N + 1)
"""Every majority among N draws."""
TAIL = binom.sf(COUNTS - 1, N, 0.5)
"""P(Bin(N, 1/2) >= count)."""
CORE, TOP, OTHER = 2, 0, 1
CERTIFY, TO_CORE = 1, 0


def tally(top: IntArray, core_bits: IntArray, certify_bits: IntArray, draws: int) -> Tally:
    """Votes for TOP, the rest for OTHER; what is neither bit is invalid."""
    none = np.zeros_like(top)
    bits = np.stack([core_bits, certify_bits, draws - core_bits - certify_bits], 1)
    return Tally({"votes": np.stack([top, draws - top, none, none], 1), "bits": bits}, np.full(len(top), draws))


def answers(procedure: Procedure, core: int, *tallies: Tally) -> list[int]:
    rows = len(tallies[-1])
    given = Given(3, 0.5, neyman_pearson, facts={"core": np.full(rows, core)})
    state = procedure.start(rows, given)
    for one in tallies:
        state = procedure.update(state, one, given)
    return procedure.conclude(state, given).prediction.tolist()


def chosen(bit: int, rows: int = len(COUNTS)) -> Tally:
    """Ten draws that choose TOP and this bit."""
    ten, none = np.full(rows, 10), np.zeros(rows, np.int64)
    return tally(ten, none if bit else ten, ten if bit else none, 10)


def between(level: float, tail: np.ndarray = TAIL) -> bool:
    """Whether some count would be judged otherwise at twice the level: without one a test shows nothing."""
    return bool(((tail > level) & (tail <= 2 * level)).any())


def where(passes: np.ndarray, answer: int) -> list[int]:
    return np.where(passes, answer, ABSTAIN).tolist()


ALL, NONE = np.full(len(COUNTS), N), np.zeros(len(COUNTS), np.int64)


@pytest.mark.parametrize("form", ["sharp", "paper"])
def test_predict_tests_class_and_bits_at_their_shares(form: str) -> None:
    test = AcesPredict(ALPHA, N, form)  # type: ignore[arg-type]
    level = {"sharp": ALPHA, "paper": ALPHA / 2}[form]
    assert between(level)
    assert between(ALPHA / 2)
    assert between(ALPHA / 2, 2 * TAIL)
    # The bit is clear, the class is tested on both sides at alpha / 2.
    assert answers(test, CORE, tally(COUNTS, NONE, ALL, N)) == where(2 * TAIL <= ALPHA / 2, TOP)
    # The class is clear, bit 1 is tested on one side: at alpha where the truth is 0 only it could mislead.
    assert answers(test, CORE, tally(ALL, N - COUNTS, COUNTS, N)) == where(level >= TAIL, TOP)
    # No class leads, bit 0 is tested at alpha / 2.
    assert answers(test, CORE, tally(ALL // 2, COUNTS, N - COUNTS, N)) == where(TAIL <= ALPHA / 2, CORE)


@pytest.mark.parametrize("bit", [CERTIFY, TO_CORE])
def test_predict_counts_invalid_draws_against_both_bits(bit: int) -> None:
    """A bit that no draw contradicts but half of them do not give: it is not known to be the more probable one."""
    kept = np.array([N // 2 + 1, 3 * N // 4])
    bits = (0 * kept, kept) if bit else (kept, 0 * kept)
    found = answers(AcesPredict(ALPHA, N), CORE, tally(np.full(2, N), *bits, N))
    assert found == [ABSTAIN, TOP if bit else CORE]


def lower(level: float) -> np.ndarray:
    return clopper_pearson_lower(COUNTS, N, level)


@pytest.mark.parametrize("form", ["sharp", "paper"])
def test_certify_bounds_class_and_bit_at_their_shares(form: str) -> None:
    test = AcesCertify(ALPHA, n0=10, n=N, form=form)  # type: ignore[arg-type]
    level = {"sharp": ALPHA, "paper": ALPHA / 2}[form]
    clear = tally(COUNTS, NONE, ALL, N), tally(ALL, N - COUNTS, COUNTS, N), tally(ALL // 2, COUNTS, N - COUNTS, N)
    # Bit 1: either bound alone could be the false one, never both: each may have all of alpha.
    assert answers(test, CORE, chosen(CERTIFY), clear[0]) == where(lower(level) > 0.5, TOP)
    assert answers(test, CORE, chosen(CERTIFY), clear[1]) == where(lower(level) > 0.5, TOP)
    # Bit 0, the core says something else: the bit alone decides.
    assert answers(test, CORE, chosen(TO_CORE), clear[2]) == where(lower(level) > 0.5, CORE)
    # Bit 0, the core says the class: bit or class, one of them is enough, so that they share alpha.
    assert answers(test, TOP, chosen(TO_CORE), clear[2]) == where(lower(ALPHA / 2) > 0.5, TOP)
    tied = tally(COUNTS, ALL // 2, ALL // 2, N)
    assert answers(test, TOP, chosen(TO_CORE), tied) == where(lower(ALPHA / 2) > 0.5, TOP)
    assert ((lower(ALPHA) > 0.5) & (lower(ALPHA / 2) <= 0.5)).any()


def test_certify_answers_with_the_smaller_radius() -> None:
    """The claim is false as soon as either smoothed component changes."""
    test, rows = AcesCertify(ALPHA, n0=10, n=N), len(COUNTS)
    given = Given(3, 0.5, neyman_pearson, facts={"core": np.full(rows, CORE)})
    for one in (tally(COUNTS, NONE, ALL, N), tally(ALL, N - COUNTS, COUNTS, N)):
        found = test.conclude(
            test.update(test.update(test.start(rows, given), chosen(CERTIFY), given), one, given), given
        )
        assert found.radius is not None
        np.testing.assert_allclose(found.radius, np.maximum(0.5 * ndtri(lower(ALPHA)), 0.0), rtol=1e-6, atol=1e-12)


def test_invalid_scores_are_rivals_of_every_class() -> None:
    """45% of the draws gave no scores: class 0 with 50% is not known to be ahead of whatever they hide."""
    spoiled = Tally({"votes": np.array([[200, 20, 0, 180]]), "bits": np.array([[0, N, 0]])}, np.array([N]))
    ten = chosen(CERTIFY, rows=1)
    assert answers(AcesPredict(ALPHA, N), CORE, spoiled) == [ABSTAIN]
    assert answers(AcesCertify(ALPHA, n0=10, n=N, lower_share=0.5), CORE, ten, spoiled) == [ABSTAIN]


@pytest.mark.parametrize("form", ["sharp", "paper"])
def test_sequential_tests_share_alpha_where_either_is_enough(form: str) -> None:
    """One look, so that the design is one binomial test: least counts with P(Bin(N, 1/2) >= count) <= level."""
    test = AcesSequential(0.0, ALPHA, n0=10, n=N, look=N, form=form)  # type: ignore[arg-type]
    level = {"sharp": ALPHA, "paper": ALPHA / 2}[form]
    bit = tally(ALL // 2, COUNTS, N - COUNTS, N)
    assert answers(test, CORE, chosen(TO_CORE), bit) == where(level >= TAIL, CORE)
    assert answers(test, TOP, chosen(TO_CORE), bit) == where(TAIL <= ALPHA / 2, TOP)
    assert answers(test, TOP, chosen(TO_CORE), tally(COUNTS, ALL // 2, ALL // 2, N)) == where(TAIL <= ALPHA / 2, TOP)
    # Bit 1: bit and class must both cross.
    assert answers(test, CORE, chosen(CERTIFY), tally(COUNTS, NONE, ALL, N)) == where(level >= TAIL, TOP)
    assert answers(test, CORE, chosen(CERTIFY), tally(ALL, N - COUNTS, COUNTS, N)) == where(level >= TAIL, TOP)
