"""Softmax: bounds on mean scores, on histograms whose means are known."""

from __future__ import annotations

import numpy as np
import pytest
from simulated_runs import constant_scores

from ringfence.errors import ArgumentError
from ringfence.mechanisms import neyman_pearson
from ringfence.procedures import Given, Softmax
from ringfence.procedures.base import Decisions
from ringfence.types import BINS, SCORE_EDGES, IntArray, Tally

N0, N, ALPHA = 50, 2000, 0.01
P = np.array([[0.2, 0.65, 0.15]])


def decide(procedure: Softmax, first: IntArray, second: IntArray | None = None) -> Decisions:
    """first: the selecting draws' cells, or the only ones for the paper's form."""
    given = Given(3, 1.0, neyman_pearson)
    state = procedure.start(1, given)
    tallies = [first] if second is None else [first, second]
    for cells in tallies:
        state = procedure.update(state, Tally({"scores": cells}, procedure.request(state)), given)
    assert not procedure.request(state).any()
    return procedure.conclude(state, given)


@pytest.mark.parametrize("bound", ["betting", "bernstein", "hoeffding"])
def test_bounds_enclose_the_means(bound: str) -> None:
    procedure = Softmax(ALPHA, N0, N, bound)  # type: ignore[arg-type]
    found = decide(procedure, constant_scores(P, np.array([N0])), constant_scores(P, np.array([N])))
    assert found.prediction[0] == 1
    assert 0.55 < found.p_a[0] < 0.65
    assert 0.20 < found.p_b[0] < 0.30


def test_betting_is_the_tightest_where_scores_hardly_vary() -> None:
    widths = {}
    for bound in ("betting", "bernstein", "hoeffding"):
        procedure = Softmax(ALPHA, N0, N, bound)  # type: ignore[arg-type]
        found = decide(procedure, constant_scores(P, np.array([N0])), constant_scores(P, np.array([N])))
        widths[bound] = found.p_b[0] - found.p_a[0]
    assert widths["betting"] < widths["bernstein"] < widths["hoeffding"]


def test_paper_form_is_hoeffding_on_the_same_draws() -> None:
    procedure = Softmax(ALPHA, N0, N, "hoeffding", "paper")
    assert procedure.request(procedure.start(1, Given(3, 1.0, neyman_pearson))).tolist() == [N]
    found = decide(procedure, constant_scores(P, np.array([N])))
    margin = np.sqrt(np.log(2 / ALPHA) / (2 * N))
    assert found.p_a[0] == pytest.approx(0.65 - margin, abs=1e-3)
    assert found.p_b[0] == pytest.approx(0.20 + margin, abs=1e-3)
    assert not procedure.sound


def test_the_class_is_chosen_by_the_first_draws_alone() -> None:
    misled = np.array([[0.6, 0.3, 0.1]])
    found = decide(Softmax(ALPHA, N0, N), constant_scores(misled, np.array([N0])), constant_scores(P, np.array([N])))
    assert found.prediction[0] == 0
    assert found.p_a[0] < 0.2
    assert found.p_b[0] >= 0.65  # the true top class is a rival now


def test_histograms_are_read_on_the_safe_side() -> None:
    """All draws at the upper edge of a bin for the rivals, at the lower for the class: no bound may cross."""
    cells = constant_scores(P, np.array([N]))
    where = np.flatnonzero(cells[0])
    low, high = SCORE_EDGES[where % BINS], SCORE_EDGES[where % BINS + 1]
    assert ((low <= P[0]) & (P[0] < high)).all()
    found = decide(Softmax(ALPHA, N0, N), constant_scores(P, np.array([N0])), cells)
    assert found.p_a[0] < low[1]
    assert found.p_b[0] > high[0]


def test_scores_are_rounded_against_the_claim() -> None:
    """By Hoeffding, whose margin is known: the class from the lower edges of its bins, the others from the upper."""
    cells = constant_scores(P, np.array([N]))
    where = np.flatnonzero(cells[0]) % BINS
    found = decide(Softmax(ALPHA, N0, N, "hoeffding"), constant_scores(P, np.array([N0])), cells)
    margin = np.sqrt(np.log(2 / ALPHA) / (2 * N))
    assert found.p_a[0] == pytest.approx(SCORE_EDGES[where[1]] - margin, abs=1e-10)
    assert found.p_b[0] == pytest.approx(SCORE_EDGES[where[0] + 1] + margin, abs=1e-10)


def test_an_invalid_draw_is_a_one_for_every_other_class() -> None:
    invalid = N // 20
    cells = constant_scores(P, np.array([N - invalid]))
    cells[0, -1] = 3 * invalid
    found = decide(Softmax(ALPHA, N0, N, "hoeffding"), constant_scores(P, np.array([N0])), cells)
    margin = np.sqrt(np.log(2 / ALPHA) / (2 * N))
    assert 0.65 * 0.95 - margin - 0.002 <= found.p_a[0] <= 0.65 * 0.95 - margin
    assert 0.20 * 0.95 + 0.05 + margin <= found.p_b[0] <= 0.20 * 0.95 + 0.05 + margin + 0.002


def test_settings_are_checked() -> None:
    with pytest.raises(ArgumentError, match="the paper's form uses hoeffding"):
        Softmax(form="paper")
    with pytest.raises(ArgumentError, match="Did you mean bernstein"):
        Softmax(bound="bernstien")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="must be one of sound, paper"):
        Softmax(form="exact")  # type: ignore[arg-type]
