"""Motion clips: rendered from real digits, deterministic, and moving the way their class says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from ringfence.class_names import MOTIONS
from ringfence.data import load_dataset
from ringfence.data.video import SIDE, motion_dataset, render
from ringfence.errors import ArgumentError


@pytest.fixture(scope="module")
def mnist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty of the embedded digits, as an MNIST file."""
    embedded = load_dataset("default", limit=40)
    x = np.stack([(item.x[0] * 255).round().numpy().astype(np.uint8) for item in embedded])
    path = tmp_path_factory.mktemp("mnist") / "mnist.npz"
    np.savez(path, x_test=x, y_test=np.zeros(40, np.int64), x_train=x[::-1], y_train=np.zeros(40, np.int64))
    return path


def digit(mnist: Path) -> NDArray[np.uint8]:
    with np.load(mnist) as arrays:
        return np.asarray(arrays["x_test"][0])


def step(clip: NDArray[np.uint8]) -> tuple[float, float]:
    """Median motion per frame (rows, columns), from the phase of the lowest frequency: the canvas wraps around."""
    spectrum = np.fft.fft2(clip.astype(np.float64))
    phases = [np.angle(part[1:] * np.conj(part[:-1])) for part in (spectrum[:, 1, 0], spectrum[:, 0, 1])]
    rows, columns = (float(np.median(-phase) * SIDE / (2 * np.pi)) for phase in phases)
    return rows, columns


@pytest.mark.parametrize(("motion", "rows", "columns"), [
    ("left", 0, -1), ("right", 0, 1), ("up", -1, 0), ("down", 1, 0), ("rotating", 0, 0),
])  # fmt: skip
def test_digits_move_as_their_class_says(mnist: Path, motion: str, rows: float, columns: float) -> None:
    found = step(render(digit(mnist), motion, 64, seed=3))
    assert found == pytest.approx((rows, columns), abs=0.15)


def test_growing_and_shrinking_change_the_size(mnist: Path) -> None:
    for motion, sign in (("growing", 1), ("shrinking", -1)):
        mass = render(digit(mnist), motion, 64, seed=3).reshape(64, -1).sum(1).astype(float)
        assert np.median(np.diff(mass)) * sign > 0


def test_bouncing_stays_inside_and_turns(mnist: Path) -> None:
    clip = render(digit(mnist), "bouncing", 64, seed=5).astype(float)
    centre = (clip.sum(2) * np.arange(SIDE)).sum(1) / clip.sum((1, 2))
    assert 5 < centre.min() < centre.max() < 27
    assert (np.diff(centre) > 0.5).any()
    assert (np.diff(centre) < -0.5).any()


def test_a_dataset_of_motions(mnist: Path) -> None:
    dataset = motion_dataset(mnist, frames=64, count=24)
    assert dataset.shape == (64, 1, 32, 32)
    assert dataset.class_names == MOTIONS
    assert dataset.labels == [index % 8 for index in range(24)]
    item = dataset[10]
    assert (item.id, item.label, item.name) == (10, 2, "up/10")
    assert item.x.shape == (64, 1, 32, 32)
    assert 0 <= float(item.x.min()) < float(item.x.max()) <= 1
    assert torch.equal(item.x, motion_dataset(mnist, frames=64, count=24)[10].x)
    assert dataset.every(5, 3).ids == [0, 5, 10]


def test_the_digest_knows_digits_frames_and_split(mnist: Path) -> None:
    digests = {
        motion_dataset(mnist, split, frames, count).digest
        for split, frames, count in (("test", 64, 24), ("test", 128, 24), ("test", 64, 16), ("train", 64, 24))
    }
    assert len(digests) == 4
    assert motion_dataset(mnist, count=24).digest in digests


def test_bad_input(mnist: Path) -> None:
    with pytest.raises(ArgumentError, match="frames: must be 16, 32, 64 or 128; got 60"):
        motion_dataset(mnist, frames=60)
    with pytest.raises(ArgumentError, match="count: must be between 1 and 40 clips; got 41"):
        motion_dataset(mnist, count=41)


def test_the_shared_clips_are_videos(shared: Path) -> None:
    dataset = load_dataset(str(shared / "data" / "video_colored_shapes.npz"), skip=5)
    assert dataset.shape == (16, 3, 64, 64)
    assert len(dataset) == 27
    assert dataset.num_classes == 3
    assert dataset[0].x.shape == (16, 3, 64, 64)
