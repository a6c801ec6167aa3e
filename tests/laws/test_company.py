"""Laws of company: a classifier whose scores of a row depend on the other rows of its batch is refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from noisy_votes import INPUTS, SHAPE, SIGMA, votes
from torch import Tensor, nn

import ringfence as rf
from ringfence.errors import ClassifierError
from ringfence.sampling import ForwardPlan


class ByCompany(nn.Module):
    """The class is decided by the mean of the batch; a common offset is far larger than the scores."""

    def __init__(self, offset: float, share: float = 1.0) -> None:
        super().__init__()
        self.offset, self.share = offset, share

    def forward(self, x: Tensor) -> Tensor:
        own = x.flatten(1).mean(1, keepdim=True)
        level = self.share * own.mean() + (1 - self.share) * own
        return self.offset + torch.cat([level - 0.5, 0.5 - level], 1).expand(len(x), 2)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("offset", [0.0, 1000.0, -1000.0])
@pytest.mark.parametrize("share", [1.0, 0.1])
def test_an_offset_hides_no_company(precision: str, offset: float, share: float) -> None:
    with pytest.raises(ClassifierError, match="every row alone"):
        votes(ByCompany(offset, share), ForwardPlan(64, precision))  # type: ignore[arg-type]


@pytest.mark.parametrize(("offset", "size"), [(0.0, 0.4), (1e6, 0.4), (1e3, 4e-4), (100.0, 4e-5)])
def test_an_offset_hides_no_company_that_decides_by_a_small_gap(offset: float, size: float) -> None:
    class Sign(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            level = size * torch.sign(x.mean() - 0.5).expand(len(x), 1)
            return offset + torch.cat([level, -level], 1)

    with pytest.raises(ClassifierError, match="every row alone"):
        votes(Sign(), ForwardPlan(64))


def test_a_loud_input_hides_no_company_of_the_others() -> None:
    class Loud(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            own = x.flatten(1).mean(1, keepdim=True)
            level = torch.where(own > 2, 1e6, own.clamp(max=1).mean() - 0.5)
            return torch.cat([level, -level], 1)

    inputs = [torch.full(SHAPE, value) for value in (3.0, 0.9, 0.8, 0.1, 0.2, 0.85, 0.15, 0.9)]
    with pytest.raises(ClassifierError, match="every row alone"):
        next(rf.certify(Loud(), inputs, noise=rf.Gaussian(SIGMA), procedure=rf.Fixed(n=100), check=False))


def test_a_score_far_below_the_others_hides_no_company() -> None:
    class Masked(ByCompany):
        def forward(self, x: Tensor) -> Tensor:
            return torch.cat([super().forward(x), torch.full((len(x), 2), -1e9)], 1)

    with pytest.raises(ClassifierError, match="every row alone"):
        votes(Masked(0.0, 0.1), ForwardPlan(64))
    assert len(votes(Masked(0.0, 0.0), ForwardPlan(64))) == len(INPUTS)
    assert len(votes(ByCompany(1000.0, 0.0), ForwardPlan(64))) == len(INPUTS), "an offset alone is nothing wrong"


def test_company_that_makes_a_row_invalid_is_refused() -> None:
    class Infects(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            scores = x.flatten(1)[:, :4].clone()
            scores[0] = torch.where(x[-1].mean() > 1.2, torch.nan, scores[0])
            return scores

    with pytest.raises(ClassifierError, match="every row alone"):
        votes(Infects(), ForwardPlan(64))


@pytest.mark.parametrize("place", [0, 1, 31, 63])
def test_one_row_that_looks_at_its_neighbour_is_found(place: int) -> None:
    class Looks(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            scores = x.flatten(1)[:, :4].clone()
            scores[place % len(x)] += scores[place % len(x) - 1]
            return scores

    with pytest.raises(ClassifierError, match="every row alone"):
        votes(Looks(), ForwardPlan(64))


def in_large_batches(place: int, change: Callable[[Tensor], Tensor]) -> nn.Module:
    """One row in 128, few enough to be excused where forms are compared, changes with the batch; in small ones none."""

    class Large(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            scores = x.flatten(1)[:, :4].clone()
            if len(x) == 128:
                scores[place] += change(x)
            return scores

    return Large()


COMPANY: dict[str, Callable[[Tensor], Tensor]] = {
    "none, but its place": lambda x: torch.arange(4.0).expand(len(x), 4),
    "the row before it": lambda x: x.flatten(1)[:, :4].roll(1, 0),
    "anything loud": lambda x: (x.amax() > 3) * torch.arange(4.0).expand(len(x), 4),
    "anything empty": lambda x: (x == 0).any() * torch.arange(4.0).expand(len(x), 4),
}


@pytest.mark.parametrize("place", [0, 1, 62, 63, 64, 65, 126, 127])
@pytest.mark.parametrize("company", COMPANY)
def test_one_row_of_a_large_batch_that_changes_with_its_company_is_found(place: int, company: str) -> None:
    with pytest.raises(ClassifierError, match="every row alone"):
        votes(in_large_batches(place, lambda x: COMPANY[company](x)[place]), ForwardPlan(128))


def test_a_row_of_a_large_batch_that_is_another_every_time_is_told_so() -> None:
    with pytest.raises(ClassifierError, match="asked twice"):
        votes(in_large_batches(5, lambda x: torch.rand(4)), ForwardPlan(128))
