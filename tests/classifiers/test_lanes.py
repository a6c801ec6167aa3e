"""Lanes: names and what is refused. That they are the separate classifiers is a law (tests/laws/test_wrappers.py)."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from ringfence.classifiers import KConsensus, Lanes, score, vote_lanes
from ringfence.errors import ArgumentError, ClassifierError

with torch.random.fork_rng():
    torch.manual_seed(0)
    MEMBERS = [nn.Linear(3, 4) for _ in range(3)]


def test_names_stand_in_the_order_of_the_scores() -> None:
    lanes = Lanes(MEMBERS, ("soft", "weighted"), prefixes=True, singles=True, consensus=(2,), weights=(1, 1, 1))
    expected = ["member-1", "member-2", "member-3", "soft-1", "soft-2", "soft-3", "weighted-3", "consensus-2"]
    assert list(lanes.names) == expected == [one.name for one in vote_lanes(3, ("soft", "weighted"), True, True, (2,))]
    assert lanes(torch.ones(5, 3)).shape == (5, 8, 4)


def test_work_is_what_each_lane_alone_would_cost_even_if_members_skip_work() -> None:
    inner = KConsensus(MEMBERS, 2, micro_batch=2)
    lanes = Lanes([MEMBERS[0], inner], ("soft",), singles=True)
    x = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
    work = torch.as_tensor(score(lanes, x).work)
    alone = torch.as_tensor(score(inner, x).work)
    assert 2 in alone
    assert 3 in alone
    assert (work == torch.stack([torch.ones_like(alone), alone, alone + 1], dim=1)).all()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"votes": ("loud",)}, "must be one of"),
        ({"votes": ("soft", "soft")}, "every lane once"),
        ({"votes": ()}, "at least one lane"),
        ({"consensus": (4,)}, "between 1 and 3"),
        ({"votes": ("weighted",)}, "go together"),
        ({"weights": (1, 1, 1)}, "go together"),
        ({"votes": ("weighted",), "weights": (1, 1)}, "one weight per member"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, object], words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        Lanes(MEMBERS, **settings)  # type: ignore[arg-type]


def test_lanes_cannot_vote() -> None:
    with pytest.raises(ClassifierError, match="one K"):
        KConsensus([Lanes(MEMBERS), Lanes(MEMBERS)], 1)(torch.ones(2, 3))
