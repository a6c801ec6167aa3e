"""Conditions at inputs of members whose robustness is known."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from ringfence.analysis.conditions import judge, largest_cosine, summary
from ringfence.data import Input
from ringfence.errors import ArgumentError, DataError


class Constant(nn.Module):
    """The same scores everywhere: robust to everything, or wrong everywhere."""

    def __init__(self, scores: list[float]) -> None:
        super().__init__()
        self.scores = torch.tensor(scores)

    def forward(self, x: Tensor) -> Tensor:
        return self.scores + 0.0 * x.flatten(1).sum(1, keepdim=True)


def inputs(labels: list[int | None]) -> list[Input]:
    return [Input(place, torch.zeros(1, 2, 2), label, str(place)) for place, label in enumerate(labels)]


def test_a_ball_is_robust_exactly_where_the_vote_cannot_change() -> None:
    sure = [Constant([9.0, 0.0, 0.0]), Constant([7.0, 0.0, 0.0])]
    right, wrong = judge(sure, inputs([0, 1]), sigma=0.5, radius=0.3, draws=4)
    assert (right.softmax, right.max_margin, right.all_right) == ("robust", "robust", True)
    assert (wrong.softmax, wrong.max_margin, wrong.all_right) == ("not_robust", "undecided", False)
    assert right.cosine == 0.0, "constant members have no gradients"
    (open_question,) = judge(sure, inputs([0]), sigma=0.5, radius=3.0, draws=4)
    assert open_question.softmax == "undecided", "smoothness allows a change at three units"
    found = summary([right, wrong])
    assert found["softmax"] == {"robust": 1, "not_robust": 1}
    assert found["all_right"] == 0.5


def test_the_cosine_is_the_largest_over_pairs_of_members() -> None:
    gradients = np.array([[[1.0, 0.0]], [[0.0, 2.0]], [[3.0, 3.0]]])
    assert largest_cosine(gradients) == pytest.approx(np.sqrt(0.5))


def test_labels_and_two_members_are_needed() -> None:
    pair = [Constant([1.0, 0.0]), Constant([1.0, 0.0])]
    with pytest.raises(DataError, match="need labels"):
        judge(pair, inputs([None]), sigma=0.5, radius=0.1)
    with pytest.raises(ArgumentError, match="at least two members"):
        judge(pair[:1], inputs([0]), sigma=0.5, radius=0.1)
    with pytest.raises(DataError, match="at least one input"):
        summary([])
