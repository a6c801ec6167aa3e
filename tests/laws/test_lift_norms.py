"""Every lift's factor against a dense singular value decomposition: never below it, and above it by at most 1e-6."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st
from torch import Tensor

from ringfence.errors import ArgumentError
from ringfence.lift import MODES, Identity, Lift, Linear, Paper, RandomPatches, WithStrip, noise_place
from ringfence.operators import Crops, Separable, Stack, SubVideos

Shape = tuple[int, int]


@st.composite
def patches(draw: st.DrawFn) -> tuple[Crops, Shape]:
    """Any way to cut patches from a small image: resize, pad, both, neither, or crop and upsample; dense or random."""
    shape = (draw(st.integers(4, 9)), draw(st.integers(4, 9)))
    how = draw(st.sampled_from(["resize", "pad", "resize and pad", "crop", "nothing"]))
    chosen = {
        "size": draw(st.integers(1, 9)),
        "resize": draw(st.integers(2, 13)) if "resize" in how else None,
        "pad": draw(st.integers(1, 3)) if "pad" in how else 0,
        "crop": draw(st.integers(1, 7)) if how == "crop" else None,
        "kind": draw(st.sampled_from(["bilinear", "bicubic"])),
        "sampling": draw(st.sampled_from(["dense", "random"])),
        "seed": draw(st.integers(0, 99)),
    }
    on_stride = chosen["sampling"] == "dense" and draw(st.booleans())
    crops = Crops(**chosen, **{"stride" if on_stride else "count": draw(st.integers(1, 6))})  # type: ignore[arg-type]
    try:
        crops.on(*shape)
    except ArgumentError:
        assume(False)
    event(f"{how}, {crops.sampling}")
    return crops, shape


def before_the_noise(lift: Lift, shape: Shape, input_id: int) -> Tensor:
    """The linear part of a lift as a dense float64 matrix (lifted pixels, H W)."""
    unit = torch.eye(shape[0] * shape[1], dtype=torch.float64).view(-1, 1, *shape)
    if isinstance(lift, Linear):
        columns = lift.operator(unit)
    elif isinstance(lift, RandomPatches):
        columns = lift.crops.on(*shape, input_id)(unit)
    elif isinstance(lift, WithStrip) and lift.before is not None:
        columns = lift.before(unit)
    else:
        nothing = lift.at(torch.zeros(1, *shape), input_id)
        columns = torch.stack([lift.at(one, input_id) - nothing for one in unit.float()]).double()
    return columns.flatten(1).T


@given(patches(), st.sampled_from(MODES), st.integers(0, 10**6))
@settings(max_examples=300, deadline=None)
def test_factors_are_dense_norms(case: tuple[Crops, Shape], mode: str, input_id: int) -> None:
    crops, shape = case
    windows = crops.on(*shape)
    assume(mode != "resized" or windows.before is not None)
    lift = noise_place(mode, crops, (1, *shape)).lift
    true = float(torch.linalg.svdvals(before_the_noise(lift, shape, input_id))[0])
    assert true * (1 - 1e-14) <= lift.norm_bound
    if isinstance(lift, RandomPatches):
        # Random patches share one factor, that of the worst draw: all at one place.
        assert lift.norm_bound <= windows.norm_of_any
        assert true * (1 - 1e-14) <= crops.on(*shape, input_id).norm_bound <= true + 1e-6
    else:
        assert lift.norm_bound <= true + 1e-6
    if isinstance(lift, Identity):
        assert lift.norm_bound == 1


@given(patches(), st.sampled_from(MODES), st.integers(0, 10**6))
@settings(max_examples=200, deadline=None)
def test_l1_factors_are_the_largest_column_sums(case: tuple[Crops, Shape], mode: str, input_id: int) -> None:
    crops, shape = case
    windows = crops.on(*shape)
    assume(mode != "resized" or windows.before is not None)
    lift = noise_place(mode, crops, (1, *shape)).lift
    bound = lift.bound_in("l1")
    if mode == "per-patch-input" and crops.sampling == "dense":
        assert bound is None  # the noise is rotated, which makes it another
        return
    assert bound is not None
    true = float(before_the_noise(lift, shape, input_id).abs().sum(0).max())
    assert true * (1 - 1e-14) <= bound
    if isinstance(lift, RandomPatches):
        (one,) = {lift.bound_in("l1"), windows.l1_bound_of_any}
        assert true <= crops.on(*shape, input_id).l1_bound * (1 + 1e-12) <= one * (1 + 1e-9)
    else:
        assert bound <= true * (1 + 1e-9)
    assert lift.bound_in("linf") is None or isinstance(lift, Identity)
    paper = Paper(lift)
    assert paper.bound_in("l1") == 1
    assert paper.settings_in("l1")["norm_left_out"] == bound
    assert lift.settings_in("l1")["norm_bound"] == bound


def test_copies_count_once_each_in_l1_and_by_their_root_in_l2() -> None:
    """Four patches at one place, and sub-videos that share a frame."""
    crops = Crops(size=6, count=4, sampling="random", seed=1)
    for mode in ("patch", "per-patch-input"):
        lift = noise_place(mode, crops, (1, 6, 6)).lift
        assert lift.norm_bound == pytest.approx(2.0)
        assert lift.bound_in("l1") == pytest.approx(4.0)
    clips = noise_place("patch", SubVideos(2, (0, 1, 1)), (3, 1, 4, 4)).lift
    assert clips.bound_in("l1") == 3.0
    assert clips.norm_bound == pytest.approx(3**0.5)
    rows = [[0.5, -2.0], [1.0, 0.25]]
    matrix = Separable(np.array(rows), np.eye(3))
    assert matrix.l1_bound == pytest.approx(2.25)
    assert Stack([np.array(rows)] * 2, [np.eye(3)], [(0, 0), (1, 0)]).l1_bound == pytest.approx(4.5)
