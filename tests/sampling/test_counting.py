"""Votes counted without a procedure are those of the draws that the seed, the id and the stage name."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from toys import BucketLanes, Buckets, SomeInvalid, draws_of, votes_of

from ringfence.errors import ArgumentError, ClassifierError
from ringfence.noise import Gaussian
from ringfence.sampling import ForwardPlan, count_classes
from ringfence.training.answers import vote_counts

NOISE = Gaussian(0.5)
X = torch.tensor([[0.2, 0.0], [0.6, 1.0], [0.9, 0.5], [-0.3, 0.0], [0.5, 0.5]])


@pytest.mark.parametrize("draws", [1, 30, 100, 250])
@pytest.mark.parametrize("batch", [7, 100, 1000])
def test_counts_are_those_by_hand_whatever_the_batch(draws: int, batch: int) -> None:
    ids = [3, 14, 15, 92, 65]
    pairs = zip(ids, X, strict=True)
    found = dict(vote_counts(Buckets(), pairs, NOISE, draws, stage=-3, seed=5, plan=ForwardPlan(batch)))
    assert sorted(found) == sorted(ids)
    for number, x in zip(ids, X, strict=True):
        noisy = x + draws_of(NOISE, (2,), 5, number, -3, 0, draws)
        assert found[number].tolist() == [votes_of(Buckets(), noisy, 4).tolist()]


def test_lanes_and_invalid_scores_are_counted() -> None:
    plan = ForwardPlan(100)
    lanes = dict(vote_counts(BucketLanes(), enumerate(X), NOISE, 200, stage=-3, plan=plan))
    assert {votes.shape for votes in lanes.values()} == {(2, 5)}
    assert all((votes.sum(1) == 200).all() for votes in lanes.values())
    invalid = dict(vote_counts(SomeInvalid(), enumerate(X), NOISE, 200, stage=-3, plan=plan))
    assert invalid[2][0, 4] > 100
    assert invalid[2].sum() == 200


def test_the_shape_of_the_forward_is_measured_if_none_is_given() -> None:
    noisy = X[0] + draws_of(NOISE, (2,), 0, 0, -3, 0, 150)
    [(number, votes)] = vote_counts(Buckets(), [(0, X[0])], NOISE, 150, stage=-3)
    assert number == 0
    assert votes.tolist() == [votes_of(Buckets(), noisy, 4).tolist()]


def test_nothing_to_count_and_what_cannot_be_counted() -> None:
    assert list(vote_counts(Buckets(), [], NOISE, 10, stage=-3)) == []
    with pytest.raises(ArgumentError, match="draws: must be at least 1"):
        next(vote_counts(Buckets(), enumerate(X), NOISE, 0, stage=-3))
    with pytest.raises(ClassifierError, match=r"must accept a batch of shape \(1, 2\)"):
        next(vote_counts(nn.Linear(3, 2), enumerate(X), NOISE, 10, stage=-3))


def test_the_users_tensor_stays_as_it_is() -> None:
    class InPlace(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.sub_(0.5).sign_()

    x = X[0].clone()
    assert count_classes(InPlace(), x, torch.device("cpu")) == 2
    assert torch.equal(x, X[0])


def test_one_score_and_lanes_without_names_are_refused() -> None:
    def classes(shape: tuple[int, ...], lanes: tuple[str, ...] = ()) -> int:
        class Shaped(nn.Module):
            def forward(self, x: Tensor) -> Tensor:
                return torch.zeros(len(x), *shape)

        return count_classes(Shaped(), X[0], torch.device("cpu"), lanes)

    with pytest.raises(ClassifierError, match=r"at least two scores per input.*one score for each class"):
        classes((4, 1))
    assert classes((1,)) == classes(()) == 2, "one logit is two classes"
    for lanes in ((), ("a",), ("a", "b", "c")):
        with pytest.raises(ClassifierError, match=f"as many names of lanes.*and {len(lanes)} names"):
            classes((2, 4), lanes)
    assert classes((2, 4), ("a", "b")) == 4
    assert count_classes(BucketLanes(), X[0], torch.device("cpu")) == 4, "a classifier of ours says what its lanes are"


def network(channels: int) -> nn.Module:
    return nn.Sequential(nn.Conv2d(channels, 2, 3), nn.Flatten(), nn.Linear(2 * 6 * 6, 3))


@pytest.mark.parametrize(
    ("channels", "shape", "told"),
    [
        (3, (1, 8, 8), r"take 3 channels where 1 come\. .*rf\.Data\(\.\.\., channels=3\)"),
        (1, (3, 8, 8), r"take 1 channels where 3 come\. Give grey pictures"),
        (3, (4, 8, 8), r"take 3 channels where 4 come\. Leave out the fourth channel"),
        (3, (5, 8, 8), r"take 3 channels where 5 come\. Give inputs of 3 channels, or a network for 5"),
        (3, (3, 9, 9), r"a layer for 72 numbers where pictures of this size give 98\. Give `size`.*resized\("),
        (3, (8, 8), r"a network for pictures.*x\[None\] is a batch of a single picture, x\[:, None\] adds a channel"),
        (1, (64,), r"a network for pictures.*x\.reshape"),
    ],
)
def test_what_does_not_fit_is_told_in_pictures_not_in_convolutions(
    channels: int, shape: tuple[int, ...], told: str
) -> None:
    with pytest.raises(ClassifierError, match=rf"must accept a batch of shape \(1, .*got .*{told}"):
        count_classes(network(channels), torch.rand(shape), torch.device("cpu"))


@pytest.mark.parametrize(
    ("first", "shape", "told"),
    [
        (nn.BatchNorm2d(3), (4, 8, 8), r"take 3 channels where 4 come\. Leave out the fourth channel"),
        (nn.BatchNorm2d(3), (1, 8, 8), r"take 3 channels where 1 come\. .*rf\.Data\(\.\.\., channels=3\)"),
        (nn.BatchNorm2d(3), (8, 8), r"a network for pictures.*x\[:, None\] adds a channel"),
        (
            nn.GroupNorm(1, 3),
            (5, 8, 8),
            r"take 3 channels where 5 come\. Give inputs of 3 channels, or a network for 5",
        ),
        (nn.BatchNorm1d(7), (9,), r"for inputs of 7 numbers where 9 come\. Give 7, or a network for 9"),
        (nn.Linear(7, 2), (9,), r"for inputs of 7 numbers where 9 come\. Give 7, or a network for 9"),
        (nn.BatchNorm1d(9, track_running_stats=False), (9,), r"takes statistics .* running statistics"),
        (nn.LayerNorm(5), (8, 8), r"Of a single picture x give x\[None\], a batch of one"),
        (nn.LayerNorm(5), (3, 8, 8), r"normalized_shape.*net\.eval\(\)\(torch\.rand\(1, 3, 8, 8\)\) must work"),
    ],
)
def test_a_first_layer_that_cannot_take_the_input_is_told_with_its_remedy(
    first: nn.Module, shape: tuple[int, ...], told: str
) -> None:
    network = nn.Sequential(first, nn.Flatten(), nn.Linear(2, 3)).eval()
    with pytest.raises(ClassifierError, match=rf"must accept a batch of shape \(1, .*got .*{told}"):
        count_classes(network, torch.rand(shape), torch.device("cpu"))


def test_a_vector_is_told_to_be_no_batch() -> None:
    with pytest.raises(ClassifierError, match=r"single numbers.*Of a single input x of 7 numbers give x\[None\]"):
        count_classes(nn.Linear(7, 2), torch.tensor(0.5), torch.device("cpu"))
