"""Patches and sub-videos: the quick way equals the explicit matrices, and what does not fit is refused."""

from __future__ import annotations

import pytest
import torch

from ringfence.errors import ArgumentError
from ringfence.operators import AlreadyCut, Crops, SubVideos, Windows, clips

CROPS = [
    Crops(size=8, resize=11, count=4),
    Crops(size=8, resize=11, count=4, kind="bicubic"),
    Crops(size=10, pad=2, count=6),
    Crops(size=10, crop=7, count=4),
    Crops(size=6, stride=2),
    Crops(size=8, resize=11, count=5, sampling="random", seed=4),
]


@pytest.mark.parametrize("crops", CROPS, ids=str)
def test_patches_are_the_explicit_matrices(crops: Crops) -> None:
    x = torch.rand(3, 2, 10, 10, dtype=torch.float64)
    windows = crops.on(10, 10)
    patches = windows(x)
    assert patches.shape == (3, len(windows.positions), 2, crops.size, crops.size)
    torch.testing.assert_close(patches, windows.explicit(x))
    dense = torch.from_numpy(windows.explicit.dense())
    torch.testing.assert_close(patches[1, :, 1].flatten(), dense @ x[1, 1].flatten())


@pytest.mark.parametrize("crops", CROPS, ids=str)
def test_polar_parts_compose_and_colour_the_noise_as_the_patch_does(crops: Crops) -> None:
    x = torch.rand(2, 1, 10, 10, dtype=torch.float64)
    explicit = crops.on(10, 10).explicit
    isometries, colour = explicit.polar()
    torch.testing.assert_close(colour(isometries(x)), explicit(x), atol=1e-7, rtol=0)
    for matrices, whitened in ((explicit.rows, isometries.rows), (explicit.columns, isometries.columns)):
        for matrix, isometry in zip(matrices, whitened, strict=True):
            m, u = torch.from_numpy(matrix), torch.from_numpy(isometry)
            torch.testing.assert_close(u.T @ u, torch.linalg.pinv(m) @ m, atol=1e-7, rtol=0)
    h, w = explicit.rows[0].shape[0], explicit.columns[0].shape[0]
    unit = torch.eye(h * w, dtype=torch.float64).view(-1, 1, 1, h, w).expand(-1, len(explicit.pairs), 1, h, w)
    coloured = colour(unit.contiguous())[:, 0, 0].reshape(h * w, h * w)
    first = torch.from_numpy(explicit.dense())[: h * w]
    torch.testing.assert_close(coloured.T @ coloured, first @ first.T, atol=1e-7, rtol=0)


def test_tensors_follow_precision_and_gradients() -> None:
    crops = Crops(size=8, resize=11, count=4)
    with torch.inference_mode():
        crops(torch.rand(1, 1, 10, 10))
    x = torch.rand(1, 1, 10, 10, requires_grad=True)
    crops(x).sum().backward()
    assert x.grad is not None
    assert crops(x.detach().bfloat16()).dtype == torch.bfloat16


def test_random_patches_depend_on_seed_and_key_alone() -> None:
    crops = Crops(size=8, count=6, resize=32, sampling="random", seed=1)
    assert crops.on(10, 10, 3).positions == Crops(**crops.settings()).on(10, 10, 3).positions
    assert crops.on(10, 10, 3).positions != crops.on(10, 10, 4).positions
    assert (
        crops.on(10, 10).positions != Crops(size=8, count=6, resize=32, sampling="random", seed=2).on(10, 10).positions
    )


@pytest.mark.parametrize(("arguments", "message"), [
    ({"size": 11}, "must not be larger than the image, 10 x 10; got 11"),
    ({"size": 8, "crop": 12}, "must not be larger than the image"),
    ({"size": 12, "resize": 11}, "must not be larger than the image, 11 x 11"),
    ({"size": 8, "count": 0}, "needs at least one patch; got 0"),
    ({"size": 8, "count": -2}, "needs at least one patch"),
    ({"size": 8, "resize": 12, "kind": "lanczos"}, "must be a linear resize"),
    ({"size": 8, "crop": 6, "kind": "maximum"}, "must be a linear resize"),
    ({"size": 8, "crop": 6, "resize": 12}, "does not resize or pad first"),
    ({"size": 8, "sampling": "sobol"}, "must be dense or random"),
    ({"size": 8, "stride": 2, "count": 4}, "stands instead of a count"),
    ({"size": 8, "stride": 0}, "must be at least 1"),
    ({"size": 0}, "sides must be at least 1"),
    ({"size": 8, "count": 100}, "at most 3 different patches fit along an axis; got 10"),
])  # fmt: skip
def test_bad_patches(arguments: dict[str, int], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        Crops(**arguments).on(10, 10)  # type: ignore[arg-type]


def test_windows_refuse_other_images_and_places() -> None:
    windows = Windows((10, 10), [(0, 0)], (8, 8))
    with pytest.raises(ArgumentError, match="must be images of 10 x 10 pixels"):
        windows(torch.rand(1, 1, 9, 10))
    with pytest.raises(ArgumentError, match="must lie within the 10 pixels"):
        Windows((10, 10), [(3, 0)], (8, 8))
    with pytest.raises(ArgumentError, match="at least one patch"):
        Windows((10, 10), [], (8, 8))


def test_sub_videos() -> None:
    x = torch.arange(12.0).view(12, 1, 1, 1)
    cut = clips(12, frames=6, count=3)
    assert cut.starts == (0, 3, 6)
    assert cut(x).flatten(1).tolist() == [list(range(s, s + 6)) for s in (0, 3, 6)]
    assert cut(x.expand(2, 12, 1, 1, 1)).shape == (2, 3, 6, 1, 1, 1)
    assert clips(12, frames=6, stride=2).starts == (0, 2, 4, 6)
    assert clips(12, frames=6, count=2, stride=4).starts == (0, 4)


@pytest.mark.parametrize(("cut", "shared"), [
    (clips(12, 6, 3), 2), (clips(12, 12, 1), 1), (clips(16, 8, stride=1), 8), (SubVideos(2, [0, 4]), 1),
])  # fmt: skip
def test_the_norm_of_sub_videos_counts_who_shares_a_frame(cut: SubVideos, shared: int) -> None:
    dense = cut(torch.eye(16).view(16, 16, 1, 1)).flatten(0, 1).flatten(1)
    assert float(torch.linalg.matrix_norm(dense.double(), 2)) == pytest.approx(shared**0.5)
    assert shared**0.5 <= cut.norm_bound <= shared**0.5 + 1e-12


@pytest.mark.parametrize(("arguments", "message"), [
    ((12, 13), "must not be longer than the video, 12 frames; got 13"),
    ((12, 0), "frames must be at least 1"),
    ((12, 4, 0), "count must be at least 1"),
    ((12, 4, 3, 5), "at most 2 clips of 4 frames, 5 apart"),
    ((12, 4, None, 0), "stride must be at least 1"),
    ((12, 10, 5), "at most 3 different patches"),
])  # fmt: skip
def test_bad_clips(arguments: tuple[int, ...], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        clips(*arguments)


def test_clips_of_a_shorter_video_than_they_were_made_for() -> None:
    with pytest.raises(ArgumentError, match="of at least 12 frames"):
        clips(12, 6, 3)(torch.rand(11, 1, 2, 2))


def test_given_patches_stay() -> None:
    x = torch.rand(2, 3)
    assert AlreadyCut()(x) is x
    assert AlreadyCut().norm_bound == 1
