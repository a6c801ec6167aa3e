"""K-consensus: that work is truly skipped, in fixed shapes. Its answers are a law (tests/laws/test_wrappers.py)."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from ringfence.classifiers import KConsensus
from ringfence.classifiers.consensus import micro_batch_size
from ringfence.errors import ArgumentError


class Watched(nn.Module):
    """Class by the sign of one coordinate; remembers the shapes it was asked for."""

    def __init__(self, coordinate: int) -> None:
        super().__init__()
        self.coordinate = coordinate
        self.rows: list[int] = []
        self.layouts: set[bool] = set()

    def forward(self, x: Tensor) -> Tensor:
        self.rows.append(len(x))
        self.layouts.add(x.is_contiguous(memory_format=torch.channels_last))
        return torch.eye(2)[(x.flatten(1)[:, self.coordinate] > 0).long()]


def test_only_undecided_rows_reach_the_rest_in_one_shape() -> None:
    members = [Watched(k) for k in range(4)]
    x = torch.randn(64, 4, 3, 3, generator=torch.Generator().manual_seed(0)).contiguous(
        memory_format=torch.channels_last
    )
    undecided = int((torch.sign(x[:, 0, 0, 0]) != torch.sign(x[:, 0, 0, 1])).sum())
    members[1].coordinate = 1
    KConsensus(members, 2, micro_batch=10)(x)
    assert members[0].rows == members[1].rows == [64]
    assert members[2].rows == members[3].rows == [10] * -(-undecided // 10)
    assert members[3].layouts == {True}, "the gathered rows keep the layout of the batch"


def test_in_waves_all_undecided_rows_go_at_once_and_are_hardly_padded() -> None:
    x = torch.randn(64, 4, generator=torch.Generator().manual_seed(0))
    undecided = int((torch.sign(x[:, 0]) != torch.sign(x[:, 1])).sum())
    members = [Watched(0), Watched(1), Watched(2)]
    ensemble = KConsensus(members, 2)
    whole = ensemble.score(x)
    members[2].rows.clear()
    ensemble.wave = 5
    again = ensemble.score(x)
    assert undecided > 10
    assert undecided % 5 != 0  # so that there is something to pad
    assert members[2].rows == [-(-undecided // 5) * 5]
    assert torch.equal(again.scores, whole.scores)
    assert torch.equal(torch.as_tensor(again.work), torch.as_tensor(whole.work))


def test_the_first_members_see_slices_and_the_rest_what_all_slices_left() -> None:
    members = [Watched(0), Watched(1), Watched(2)]
    ensemble = KConsensus(members, 2, micro_batch=64)
    ensemble.parts = 4
    ensemble(torch.randn(64, 4, generator=torch.Generator().manual_seed(0)))
    assert members[0].rows == [16] * 4
    assert members[2].rows == [64]


@pytest.mark.parametrize("parts", [2, 3, 4, 5])
@pytest.mark.parametrize("wave", [0, 5])
def test_the_first_half_is_asked_about_in_full_steps_and_what_is_left_goes_with_the_second(
    parts: int, wave: int
) -> None:
    """By halves, so that the device always has work before it; answers and padding are those of the whole."""
    x = torch.randn(60, 4, generator=torch.Generator().manual_seed(0))
    undecided = (torch.sign(x[:, 0]) != torch.sign(x[:, 1])).int()
    members = [Watched(0), Watched(1), Watched(2)]
    ensemble = KConsensus(members, 2, micro_batch=None if wave else 5)
    ensemble.wave = wave
    whole = ensemble.score(x)
    members[2].rows.clear()
    ensemble.parts = parts
    again = ensemble.score(x)
    first = int(undecided[: sum(map(len, x.chunk(parts)[: parts // 2]))].sum()) // 5
    every = -(-int(undecided.sum()) // 5)
    assert 0 < first < every
    assert members[2].rows == ([5 * first, 5 * (every - first)] if wave else [5] * every)
    assert torch.equal(again.scores, whole.scores)
    assert torch.equal(torch.as_tensor(again.work), torch.as_tensor(whole.work))


def test_a_nested_consensus_keeps_its_work_through_slices() -> None:
    x = torch.randn(40, 4, generator=torch.Generator().manual_seed(0))
    outer = KConsensus([KConsensus([Watched(0), Watched(1), Watched(2)], 2), Watched(0), Watched(3)], 2)
    whole = outer.score(x)
    outer.parts = 3
    again = outer.score(x)
    assert torch.equal(again.scores, whole.scores)
    assert torch.equal(torch.as_tensor(again.work), torch.as_tensor(whole.work))


def test_nothing_is_run_where_all_agree() -> None:
    members = [Watched(0), Watched(0), Watched(1)]
    KConsensus(members, 2)(torch.randn(16, 4))
    assert members[2].rows == []


def test_the_micro_batch_follows_the_share_left_undecided() -> None:
    sizes = [micro_batch_size(8192, share, "cuda") for share in (0.01, 0.05, 0.15, 0.5)]
    assert sizes == sorted(sizes)
    assert 800 <= sizes[2] <= 1024, "an eighth of the batch at the published shares, as measured on an H200"
    assert micro_batch_size(4, 0.5, "cpu") == 4
    assert micro_batch_size(400, 0.04, "cpu") % 4 == 0


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"agree": 3}, "between 1 and the number of members"),
        ({"agree": 0}, "between 1 and the number of members"),
        ({"agree": 1, "micro_batch": 0}, "at least 1"),
        ({"agree": 1, "undecided": 0.0}, "above 0"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, float], words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        KConsensus([nn.Linear(3, 4), nn.Linear(3, 4)], **settings)  # type: ignore[arg-type]


def test_an_empty_ensemble_is_refused() -> None:
    with pytest.raises(ArgumentError, match="empty ensemble"):
        KConsensus([], 1)
