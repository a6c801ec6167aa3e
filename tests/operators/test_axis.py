"""One-dimensional matrices do what torch's interpolation does, and refuse what is no linear map or does not fit."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn.functional import interpolate

from ringfence.errors import ArgumentError
from ringfence.operators import pad, resize
from ringfence.operators.separable import crop_matrix, pad_matrix, resize_matrix


@pytest.mark.parametrize("kind", ["bilinear", "bicubic"])
@pytest.mark.parametrize(("source", "target"), [(32, 36), (28, 40), (9, 5), (7, 7), (5, 17), (1, 3), (12, 1)])
def test_resizing_is_torchs(kind: str, source: int, target: int) -> None:
    x = torch.rand(2, 3, source, source + 2, dtype=torch.float64)
    ours = resize((source, source + 2), (target, target + 1), kind)(x)
    theirs = interpolate(x, size=(target, target + 1), mode=kind, align_corners=False)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)


def test_padding_and_cropping_are_entries_of_the_identity() -> None:
    x = np.arange(5.0)
    assert (pad_matrix(5, 2) @ x).tolist() == [0, 0, 0, 1, 2, 3, 4, 0, 0]
    assert (crop_matrix(5, 1, 3) @ x).tolist() == [1, 2, 3]
    assert pad((4, 3), 1)(torch.ones(1, 4, 3)).shape == (1, 6, 5)


@pytest.mark.parametrize("kind", ["lanczos", "median", "nearest-exact", ""])
def test_a_resize_that_is_not_linear_is_refused(kind: str) -> None:
    with pytest.raises(ArgumentError, match="must be a linear resize, bilinear or bicubic"):
        resize_matrix(8, 9, kind)


def test_sizes_are_checked() -> None:
    with pytest.raises(ArgumentError, match="at least one pixel"):
        resize_matrix(8, 0)
    with pytest.raises(ArgumentError, match="must not be negative"):
        pad_matrix(8, -1)
    for start, size in ((0, 9), (-1, 3), (6, 3), (0, 0)):
        with pytest.raises(ArgumentError, match="must lie within the 8 pixels"):
            crop_matrix(8, start, size)
