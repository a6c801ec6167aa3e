"""Agreement: rounding is excused, nothing else is."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from ringfence.sampling.agreement import tolerance

SCORES = torch.randn(64, 2, 5, generator=torch.Generator().manual_seed(0))


def off(found: Tensor, wanted: Tensor = SCORES) -> int:
    return int(tolerance(wanted).off(found, wanted).sum())


@pytest.mark.parametrize("offset", [0.0, 1e3, -1e3])
def test_an_offset_neither_hides_nor_matters(offset: float) -> None:
    assert off(SCORES + offset, SCORES + offset) == 0
    assert off(SCORES + 1e-6 + offset, SCORES + offset) == 0
    assert off(SCORES + 3.0, SCORES + offset) == 0, "of no class more than of another"
    swapped = SCORES[..., [1, 0, 2, 3, 4]]
    assert off(swapped + offset, SCORES + offset) == 64


def test_one_class_of_one_lane_of_one_row_is_enough() -> None:
    found = SCORES.clone()
    found[5, 1, 3] += 0.5
    assert tolerance(SCORES).off(found, SCORES).nonzero().flatten().tolist() == [5]


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_valid_and_invalid_are_different_and_two_invalid_ones_are_not(bad: float) -> None:
    broken = SCORES.clone()
    broken[3, 0, 2] = bad
    assert off(broken) == 1
    assert off(SCORES, broken) == 1
    assert off(broken, broken) == 0


def test_scores_far_below_the_top_neither_hide_nor_matter() -> None:
    masked = torch.cat([SCORES, torch.full((64, 2, 3), -1e9)], -1)
    found = masked.clone()
    found[..., 5:] += 64.0  # one unit in the last place
    assert off(found, masked) == 0
    found[7, 0, 0] += 0.5
    assert off(found, masked) == 1


def test_a_lane_that_says_the_same_of_every_class_is_compared_as_it_is() -> None:
    value = torch.rand(64, 1, 1, generator=torch.Generator().manual_seed(1)).expand(64, 1, 5)
    both = torch.cat([SCORES[:, :1], value], 1)
    assert off(both.clone(), both) == 0
    found = both.clone()
    found[9, 1] += 0.2
    assert off(found, both) == 1


def test_rounding_that_was_measured_is_excused_and_no_more() -> None:
    rounded = SCORES + 0.01 * torch.randn(SCORES.shape, generator=torch.Generator().manual_seed(2))
    other = SCORES + 0.01 * torch.randn(SCORES.shape, generator=torch.Generator().manual_seed(3))
    within = tolerance(SCORES, rounded)
    assert int(within.off(other, rounded).sum()) <= within.excused * 64
    assert within.excused < 0.05
    assert int(within.off(SCORES.roll(1, 2), rounded).sum()) > 60
    assert int(tolerance(SCORES).off(other, SCORES).sum()) > 30, "in float32 it would not be rounding"


@pytest.mark.parametrize("loud", [1, 32, 56, 63])
@pytest.mark.parametrize("lanes", [1, 2])
def test_loud_rows_hide_nothing_in_the_others(loud: int, lanes: int) -> None:
    scores = SCORES[:, :lanes].clone()
    scores[:loud] *= 1e6
    found = scores.clone()
    found[-1] = found[-1].roll(1, -1)
    within = tolerance(scores)
    assert within.off(found, scores).nonzero().flatten().tolist() == [63]
    assert not within.off(scores * (1 + 2e-7), scores).any(), "rounding is excused in each by its own measure"


def test_loud_rows_hide_nothing_in_half_precision() -> None:
    scores = SCORES.clone()
    scores[:16] *= 1e6
    rounded = scores * (1 + 0.004 * torch.randn(SCORES.shape, generator=torch.Generator().manual_seed(2)))
    other = scores * (1 + 0.004 * torch.randn(SCORES.shape, generator=torch.Generator().manual_seed(3)))
    within = tolerance(scores, rounded)
    assert int(within.off(other, rounded).sum()) <= within.excused * 64
    assert int(within.off(rounded.roll(1, 2), rounded)[16:].sum()) > 40


@pytest.mark.parametrize("offset", [100.0, -1e3, 1e6])
def test_the_class_is_the_same_where_one_form_resolves_it(offset: float) -> None:
    unit = abs(offset) * 2.0**-23
    wanted = offset + torch.tensor([[[8 * unit, 0.0]]]).expand(16, 1, 2)
    assert tolerance(wanted).alone.off(wanted.flip(-1), wanted).all()
    tied = offset + torch.tensor([[[unit, 0.0]]]).expand(16, 1, 2)
    assert not tolerance(tied).alone.off(tied.flip(-1), tied).any()
