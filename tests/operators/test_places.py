"""PositionStrip survive noise and half precision, always name a patch within the image, and let gradients through."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ringfence.errors import ArgumentError
from ringfence.operators import Crops, CropsFromStrip, PositionStrip


@st.composite
def strips(draw: st.DrawFn) -> tuple[PositionStrip, int, list[tuple[int, int]]]:
    room = (draw(st.integers(0, 300)), draw(st.integers(0, 300)))
    position = st.tuples(st.integers(0, room[0]), st.integers(0, room[1]))
    places = draw(st.lists(position, min_size=1, max_size=20))
    shape = (draw(st.integers(1, 12)), draw(st.integers(1, 12)))
    return PositionStrip(shape, room), draw(st.integers(1, 3)), places


@given(strips(), st.floats(0, 4), st.sampled_from([torch.float32, torch.bfloat16]))
@settings(max_examples=100, deadline=None)
def test_what_is_written_is_read(
    case: tuple[PositionStrip, int, list[tuple[int, int]]], sigma: float, dtype: torch.dtype
) -> None:
    places, channels, positions = case
    image = torch.rand(channels, *places.shape, generator=torch.Generator().manual_seed(0))
    written = places.write(image, positions)
    noise = sigma * torch.randn(3, *written.shape, generator=torch.Generator().manual_seed(1))
    images, tops, lefts = places.read((written + noise).to(dtype), len(positions))
    assert torch.equal(images, (image + noise[:, :, : places.shape[0]]).to(dtype))
    for axis, found in enumerate((tops, lefts)):
        assert found.tolist() == [[place[axis] for place in positions]] * 3


def test_pixels_that_are_no_strip_still_name_patches_within_the_image() -> None:
    places = PositionStrip((5, 4), (5, 2))
    _, tops, lefts = places.read(torch.full((2, 1, 9, 4), 100.0), 2)
    assert tops.tolist() == [[5, 5], [5, 5]]
    assert lefts.tolist() == [[2, 2], [2, 2]]


def test_gradients_reach_the_image_and_not_the_strip() -> None:
    windows = Crops(size=3, count=4, sampling="random", seed=2).on(6, 6, 1)
    places = PositionStrip(windows.shape, windows.room)
    x = places.write(torch.rand(1, 6, 6), windows.positions)[None].requires_grad_()
    CropsFromStrip(places, windows, 4)(x).sum().backward()
    assert x.grad is not None
    expected = torch.zeros(6, 6)
    for top, left in windows.positions:
        expected[top : top + 3, left : left + 3] += 1
    assert torch.equal(x.grad[0, 0, :6], expected)
    assert not x.grad[0, 0, 6:].any()


def test_random_patches_without_a_lift_are_refused() -> None:
    with pytest.raises(ArgumentError, match="random patches are drawn once per input"):
        Crops(size=3, count=4, sampling="random")(torch.rand(2, 1, 6, 6))
