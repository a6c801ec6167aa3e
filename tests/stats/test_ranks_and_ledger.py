"""Rank tests against exact sums, and the budget that cannot be overdrawn."""

from __future__ import annotations

from math import comb

import numpy as np
import pytest

from ringfence.errors import AlphaError, ArgumentError
from ringfence.stats import AlphaLedger, rank_test, rank_test_one_sided


@pytest.mark.parametrize(("n_a", "n_b"), [(0, 0), (0, 5), (1, 0), (10, 0), (7, 3), (60, 40), (500, 300), (5, 5)])
def test_the_p_value_is_the_binomial_tail(n_a: int, n_b: int) -> None:
    total = n_a + n_b
    exact = sum(comb(total, i) for i in range(n_a, total + 1)) / 2**total
    one_sided = float(rank_test_one_sided(n_a, n_b))
    assert exact <= one_sided <= exact * (1 + 1e-10)
    assert float(rank_test(n_a, n_b)) == pytest.approx(min(2 * exact, 1.0), rel=1e-10)


def test_arrays_broadcast() -> None:
    assert rank_test(np.array([[3], [9]]), np.array([1, 2, 3])).shape == (2, 3)
    with pytest.raises(ArgumentError, match="counts"):
        rank_test(-1, 2)


def test_the_ledger_pays_until_the_budget_is_spent() -> None:
    ledger = AlphaLedger(0.001)
    assert ledger.take("lower", 0.0005) == 0.0005
    assert ledger.left == pytest.approx(0.0005)
    ledger.take("upper", 0.00025)
    ledger.take("upper", 0.00025)
    assert dict(ledger.spent) == {"lower": 0.0005, "upper": 0.0005}
    with pytest.raises(AlphaError, match=r"at most alpha=0\.001"):
        ledger.take("rank", 1e-9)
    assert "rank" not in ledger.spent


def test_thirds_of_alpha_fit_despite_rounding() -> None:
    for parts in range(1, 200):
        ledger = AlphaLedger(0.001)
        for i in range(parts):
            ledger.take(f"stage {i}", 0.001 / parts)


def test_the_ledger_refuses_nothing_and_nonsense() -> None:
    ledger = AlphaLedger(0.1)
    for amount in (0.0, -0.1, float("nan")):
        with pytest.raises(AlphaError, match="positive"):
            ledger.take("x", amount)
    with pytest.raises(ArgumentError, match="alpha"):
        AlphaLedger(1.5)
    with pytest.raises(TypeError):
        ledger.spent["x"] = 0.0  # type: ignore[index]
