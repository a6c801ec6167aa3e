"""Votes: the argmax, or the extra cell where a score is not finite."""

from __future__ import annotations

import pytest
import torch

from ringfence.errors import ArgumentError
from ringfence.sampling import Votes, readouts
from ringfence.sampling.readout import MemberVotes, Scores
from ringfence.types import BINS, SCORE_EDGES


def test_votes_and_the_invalid_outcome() -> None:
    nan, inf = float("nan"), float("inf")
    scores = torch.tensor(
        [[[0.1, 0.9, 0.0]], [[nan, 5.0, 1.0]], [[0.0, inf, 1.0]], [[-inf, 1.0, 0.0]], [[2.0, 2.0, 1.0]]]
    )
    cells = Votes().cells(scores)
    assert cells.shape == (5, 1, 1)
    assert cells.flatten().tolist() == [1, 3, 3, 3, 0]
    assert Votes().width(3, 2) == 4


def test_a_row_has_its_vote_in_any_company() -> None:
    """Where all sums are finite nothing is looked at row by row; sums of finite scores may be infinite."""
    nan, inf, huge = float("nan"), float("inf"), 3e38
    rows = [[1.0, 2.0], [nan, 0.0], [inf, 0.0], [0.0, -inf], [inf, -inf], [huge, huge], [-huge, -huge], [huge, -huge]]
    scores = torch.tensor(rows)[:, None]
    wanted = [1, 2, 2, 2, 2, 0, 0, 0]
    assert Votes().cells(scores).flatten().tolist() == wanted
    assert [Votes().cells(row[None]).item() for row in scores] == wanted


def test_lanes_are_read_apart() -> None:
    scores = torch.tensor([[[0.0, 1.0], [1.0, 0.0]], [[1.0, 0.0], [float("nan"), 0.0]]])
    assert Votes().cells(scores)[..., 0].tolist() == [[1, 0], [0, 2]]


def test_score_histograms_enclose_every_score() -> None:
    torch.manual_seed(0)
    scores = 3 * torch.randn(200, 1, 3)
    scores[7, 0, 1] = float("nan")
    cells = Scores().cells(scores)
    assert cells.shape == (200, 1, 3)
    assert (cells[7] == Scores().width(3, 1) - 1).all()
    valid = torch.arange(200) != 7
    bins = cells[valid, 0] - torch.arange(3) * BINS
    edges, share = torch.as_tensor(SCORE_EDGES), scores[valid, 0].softmax(-1).double()
    assert ((edges[bins] <= share) & (share <= edges[bins + 1])).all()


def test_member_votes_stand_side_by_side() -> None:
    scores = torch.tensor([[[0.0, 1.0], [1.0, 0.0]], [[1.0, 0.0], [float("nan"), 0.0]]])
    assert MemberVotes().cells(scores).tolist() == [[[1, 3]], [[0, 5]]]
    assert MemberVotes().width(2, 2) == 6


def test_readouts_are_found_by_name() -> None:
    assert readouts(("votes",)) == (Votes(),)
    with pytest.raises(ArgumentError, match="readout: must be one of"):
        readouts(("votes", "entropy"))
