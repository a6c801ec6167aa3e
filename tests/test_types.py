"""Tally: counts of two parts of the draws are the counts of all of them."""

from __future__ import annotations

import numpy as np

from ringfence.types import BINS, Tally


def test_tallies_add_cell_by_cell() -> None:
    one = Tally({"votes": np.array([[3, 4, 1], [0, 2, 5]])}, np.array([8, 7]))
    two = Tally({"votes": np.array([[10, 0, 2], [6, 6, 0]])}, np.array([12, 12]))
    both = one + two
    assert both.cells["votes"].tolist() == [[13, 4, 3], [6, 8, 5]]
    assert both.draws.tolist() == [20, 19]
    # The last cell counts invalid scores, which are no class.
    assert both.votes.tolist() == [[13, 4], [6, 8]]


def test_an_invalid_draw_is_one_draw_although_it_fills_a_cell_for_every_class() -> None:
    cells = np.zeros((1, 3 * BINS + 1), np.int64)
    cells[0, -1] = 3 * 7
    histograms, invalid = Tally({"scores": cells}, np.array([7])).score_histograms
    assert histograms.shape == (1, 3, BINS)
    assert invalid.tolist() == [7]
