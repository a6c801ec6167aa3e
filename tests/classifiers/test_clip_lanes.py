"""ClipLanes: each lane is what Clips of Chunks gives on its own, and no chunk runs twice."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from ringfence.classifiers.patches import Chunks, ClipLane, ClipLanes, Clips
from ringfence.errors import ArgumentError

LANES = (
    ClipLane(2),
    ClipLane(4),
    ClipLane(4, 8),
    ClipLane(4, 8, reduce="max"),
    ClipLane(2, 6, 2),
    ClipLane(3, 6, 4, "max"),
)


class Spy(nn.Module):
    """A small network of a chunk that depends on the order of its frames; remembers the chunks it saw."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = torch.randn(12, 5, generator=torch.Generator().manual_seed(0))
        self.seen: list[tuple[int, ...]] = []

    def forward(self, x: Tensor) -> Tensor:
        self.seen.append(tuple(x.shape))
        return x.mean((2, 3, 4)).square() @ self.weights[: x.shape[1]]


@pytest.fixture
def video() -> Tensor:
    return torch.randn(3, 12, 1, 4, 4, generator=torch.Generator().manual_seed(1))


def alone(lane: ClipLane, network: nn.Module) -> Chunks | Clips:
    chunks = Chunks(network, lane.chunk)
    return chunks if lane.frames is None else Clips(chunks, lane.frames, lane.count, reduce=lane.reduce)


def test_every_lane_is_the_classifier_it_names(video: Tensor) -> None:
    network = Spy()
    together = ClipLanes(network, LANES).score(video)
    assert together.scores.shape == (3, len(LANES), 5)
    assert isinstance(together.work, Tensor)
    for number, lane in enumerate(LANES):
        scored = alone(lane, network).score(video)
        torch.testing.assert_close(together.scores[:, number], scored.scores)
        assert together.work[:, number].tolist() == [scored.work] * 3


def test_a_chunk_that_lanes_share_runs_once(video: Tensor) -> None:
    network = Spy()
    ClipLanes(network, (ClipLane(4), ClipLane(4, 8), ClipLane(4, 8, reduce="max")))(video)
    # Sub-videos begin at 0, 2 and 4, so chunks at 0, 2, 4, 6 and 8 serve all three.
    assert network.seen == [(3 * 5, 4, 1, 4, 4)]


def test_names() -> None:
    assert ClipLanes(Spy(), LANES).names[1:4] == ("plain m=4", "(8,4) mean k=3", "(8,4) max k=3")


def test_an_invalid_chunk_makes_every_lane_that_sees_it_invalid(video: Tensor) -> None:
    video[1, 11] = torch.inf
    scores = ClipLanes(Spy(), (ClipLane(4), ClipLane(4, 8), ClipLane(4, 8, 1)))(video)
    assert torch.isfinite(scores).all(-1).tolist() == [[True] * 3, [False, False, True], [True] * 3]


@pytest.mark.parametrize(("build", "message"), [
    (lambda: ClipLane(0), "chunk: has at least one frame; got 0"),
    (lambda: ClipLane(4, 8, 0), "count must be at least 1"),
    (lambda: ClipLane(4, 8, reduce="sum"), "reduce: must be mean or max"),
    (lambda: ClipLanes(Spy(), ()), "at least one"),
    (lambda: ClipLanes(Spy(), (ClipLane(4), ClipLane(4))), "need different names"),
    (lambda: ClipLanes(Spy(), (ClipLane(4, 6),))(torch.rand(1, 12, 1, 2, 2)), "must divide what they are cut from"),
    (lambda: ClipLanes(Spy(), (ClipLane(4, 16),))(torch.rand(1, 12, 1, 2, 2)), "must not be longer than the video"),
    (lambda: ClipLanes(Spy(), (ClipLane(5),))(torch.rand(1, 12, 1, 2, 2)), "must divide what they are cut from"),
])  # fmt: skip
def test_bad_input(build, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ArgumentError, match=message):
        build()
