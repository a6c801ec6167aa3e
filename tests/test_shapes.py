"""The named axes in signatures are really checked while tests run."""

from __future__ import annotations

import pytest
import torch
from jaxtyping import TypeCheckError

from ringfence.classifiers.votes import soft, valid_only
from ringfence.sampling import Votes


def test_wrong_ranks_and_axes_are_caught() -> None:
    with pytest.raises(TypeCheckError):
        soft(torch.zeros(4, 3))
    with pytest.raises(TypeCheckError):
        valid_only(torch.zeros(4, 3), torch.zeros(5, 2, 3))
    with pytest.raises(TypeCheckError):
        Votes().cells(torch.zeros(4, 3))


def test_right_ones_pass() -> None:
    assert soft(torch.zeros(4, 2, 3)).shape == (4, 3)
    assert Votes().cells(torch.zeros(4, 1, 3)).shape == (4, 1, 1)
