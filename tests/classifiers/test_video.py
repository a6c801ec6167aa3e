"""Chunks and clips are plain loops over frames; (T, C, H, W) inputs go through noise, engine and store."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import ringfence as rf
from ringfence.classifiers.patches import Chunks, Clips, Patches
from ringfence.data import load_dataset
from ringfence.engines.into_folder import thumbnail
from ringfence.errors import ArgumentError, DataError
from ringfence.lift import noise_place
from ringfence.operators import clips


class FrameMean(nn.Module):
    """Two scores per clip from its mean pixel; remembers the shapes it saw."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[int, ...]] = []

    def forward(self, x: Tensor) -> Tensor:
        self.seen.append(tuple(x.shape))
        value = x.flatten(1).mean(1) - 0.4
        return torch.stack([-value, value], 1)


@pytest.fixture
def video() -> Tensor:
    return torch.rand(3, 12, 1, 4, 4, generator=torch.Generator().manual_seed(0))


def test_chunks_average_consecutive_frames(video: Tensor) -> None:
    net = FrameMean()
    scored = Chunks(net, 4).score(video)
    assert net.seen == [(9, 4, 1, 4, 4)]
    assert scored.work == 3
    expected = torch.stack([net(video[:, start : start + 4]) for start in (0, 4, 8)]).mean(0)
    torch.testing.assert_close(scored.scores, expected)


@pytest.mark.parametrize("reduce", ["mean", "max"])
def test_clips_reduce_over_overlapping_sub_videos(reduce: str, video: Tensor) -> None:
    base = Chunks(FrameMean(), 4)
    scored = Clips(base, frames=8, count=3, reduce=reduce).score(video)  # type: ignore[arg-type]
    parts = [base(video[:, start : start + 8]) for start in (0, 2, 4)]
    expected = torch.stack(parts).mean(0) if reduce == "mean" else torch.stack(parts).softmax(-1).amax(0)
    torch.testing.assert_close(scored.scores, expected)
    assert scored.work == 6
    assert Clips(base, frames=8, stride=4).score(video).work == 4


@pytest.mark.parametrize(("build", "message"), [
    (lambda: Chunks(FrameMean(), 0), "a chunk has at least one frame"),
    (lambda: Chunks(FrameMean(), 5)(torch.rand(1, 12, 1, 4, 4)), "chunks of 5 frames must divide the video; got 12"),
    (lambda: Chunks(FrameMean(), 4)(torch.rand(1, 1, 4, 4)), "must be videos"),
    (lambda: Clips(FrameMean(), 0), "frames must be at least 1"),
    (lambda: Clips(FrameMean(), 4, 0), "count must be at least 1"),
    (lambda: Clips(FrameMean(), 13)(torch.rand(1, 12, 1, 4, 4)), "must not be longer than the video, 12 frames"),
    (lambda: Clips(FrameMean(), 4, reduce="sum"), "reduce: must be mean or max"),
])  # fmt: skip
def test_bad_input(build, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ArgumentError, match=message):
        build()


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    x = np.zeros((4, 12, 1, 6, 6), np.uint8)
    x[2:] = 200
    path = tmp_path / "videos.npz"
    np.savez(path, x=x, y=np.array([0, 0, 1, 1]))
    return path


@pytest.mark.parametrize(("mode", "factor"), [("input", 1.0), ("patch", 3**0.5)])
def test_videos_go_through_the_engine(stored: Path, mode: str, factor: float) -> None:
    dataset = load_dataset(str(stored))
    lift, rest = noise_place(mode, clips(12, 8, 3), dataset.shape)
    classifier = Patches(Chunks(FrameMean(), 4), rest)
    records = list(rf.certify(classifier, dataset, noise=rf.Gaussian(0.5), procedure=rf.Fixed(n=200, n0=10), lift=lift))
    assert [record.prediction for record in sorted(records, key=lambda one: one.input_id)] == [0, 0, 1, 1]
    for record in records:
        assert record.lift_norm == pytest.approx(factor)
        assert record.forwards == 6 * record.draws
        assert record.radius > 0


def test_mixed_frame_counts_are_refused() -> None:
    videos = [torch.rand(12, 1, 4, 4), torch.rand(8, 1, 4, 4)]
    with pytest.raises(DataError, match="all inputs of a run have one shape"):
        list(rf.certify(Chunks(FrameMean(), 4), videos, noise=rf.Gaussian(0.5), procedure=rf.Fixed(n=100)))


def test_the_thumbnail_of_a_video_is_a_strip_of_frames() -> None:
    video = torch.zeros(9, 3, 64, 48)
    video[-1] = 1
    strip = thumbnail(video)
    assert strip is not None
    assert strip.shape == (32, 4 * 24, 3)
    assert strip[:, :72].max() == 0
    assert strip[:, 72:].min() == 255
    assert thumbnail(torch.zeros(2, 1, 8, 8)).shape == (8, 16, 1)  # type: ignore[union-attr]
    assert thumbnail(torch.zeros(3, 5, 8, 8)) is None
    assert thumbnail(torch.zeros(1, 28, 28)).shape == (28, 28, 1)  # type: ignore[union-attr]
