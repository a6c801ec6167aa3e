"""Votes: the argmax, or the extra cell where a score is not finite."""

from __future__ import annotations

import pytest
import torch

from ringfence.errors import ArgumentError
from ringfence.sampling import Votes, readouts


def test_votes_and_the_invalid_outcome() -> None:
    nan, inf = float("nan"), float("inf")
    scores = torch.tensor(
        [[[0.1, 0.9, 0.0]], [[nan, 5.0, 1.0]], [[0.0, inf, 1.0]], [[-inf, 1.0, 0.0]], [[2.0, 2.0, 1.0]]]
    )
    cells = Votes().cells(scores)
    assert cells.shape == (5, 1, 1)
    assert cells.flatten().tolist() == [1, 3, 3, 3, 0]
    assert Votes().width(3) == 4


def test_lanes_are_read_apart() -> None:
    scores = torch.tensor([[[0.0, 1.0], [1.0, 0.0]], [[1.0, 0.0], [float("nan"), 0.0]]])
    assert Votes().cells(scores)[..., 0].tolist() == [[1, 0], [0, 2]]


def test_readouts_are_found_by_name() -> None:
    assert readouts(("votes",)) == (Votes(),)
    with pytest.raises(ArgumentError, match="readout: must be one of"):
        readouts(("votes", "entropy"))
