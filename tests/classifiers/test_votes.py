"""Votes: ties, weights and what is refused. That each is its plain loop is a law (tests/laws/test_wrappers.py)."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from ringfence.classifiers import VOTES, HardVote, MaxMargin, SoftmaxVote, SoftVote, Weighted
from ringfence.classifiers.votes import hard, max_margin
from ringfence.errors import ArgumentError


def test_hard_votes_tie_by_mean_softmax_and_majorities_win_whatever_it_is() -> None:
    tied = torch.tensor([[[2.0, 0.0, 0.0], [0.0, 3.0, 0.0]]])
    assert hard(tied).argmax(-1).tolist() == [1]
    majority = torch.tensor([[[0.1, 0.0, 0.0]] * 51 + [[0.0, 50.0, 0.0]] * 50])
    assert hard(majority).argmax(-1).tolist() == [0]


def test_max_margin_ties_go_to_the_lowest_index() -> None:
    same = torch.tensor([[[0.0, 2.0, 0.0], [2.0, 0.0, 0.0], [0.0, 0.0, 2.0]]])
    assert max_margin(same).argmax(-1).tolist() == [1]
    sure = torch.tensor([[[500.0, 0.0, 0.0], [0.0, 0.0, 900.0]]])
    assert max_margin(sure).argmax(-1).tolist() == [0], "both gaps are 1 in float32"


def test_weights_are_normalised_and_can_leave_a_member_out() -> None:
    members = [nn.Linear(3, 4) for _ in range(3)]
    x = torch.randn(5, 3)
    torch.testing.assert_close(Weighted(members, [3, 3, 3])(x), SoftVote(members)(x))
    torch.testing.assert_close(Weighted(members, [1, 1, 1], "softmax")(x), SoftmaxVote(members)(x))
    torch.testing.assert_close(Weighted(members, [0, 2, 0])(x), members[1](x))


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        ([1.0], "one weight per member"),
        ([1.0, 2.0, 3.0], "one weight per member"),
        ([0.0, 0.0], "not all zero"),
        ([1.0, -0.5], "at least 0"),
        ([1.0, float("nan")], "finite"),
        ([1.0, float("inf")], "finite"),
    ],
)
def test_wrong_weights_are_refused(weights: list[float], words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        Weighted([nn.Linear(3, 4), nn.Linear(3, 4)], weights)


def test_other_bad_input_is_refused() -> None:
    with pytest.raises(ArgumentError, match="logits or softmax"):
        Weighted([nn.Linear(3, 4)], [1.0], "scores")  # type: ignore[arg-type]
    for kind in (SoftVote, SoftmaxVote, HardVote, MaxMargin):
        with pytest.raises(ArgumentError, match="empty ensemble"):
            kind([])
    assert set(VOTES) == {"soft", "softmax", "hard", "max-margin"}
