"""Lifts: each noise mode's map, factor and settings; the paper form says what it leaves out."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ringfence.errors import ArgumentError
from ringfence.lift import MODES, Identity, Linear, Paper, RandomPatches, WithStrip, noise_place
from ringfence.operators import Crops, SubVideos, clips, resize

CROPS = Crops(size=8, resize=11, count=4)
SHAPE = (2, 10, 10)


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_shows_the_network_the_same_patches_when_there_is_no_noise(mode: str) -> None:
    x = torch.rand(SHAPE)
    lift, rest = noise_place(mode, CROPS, SHAPE)
    torch.testing.assert_close(rest(lift(x)[None])[0], CROPS(x), atol=1e-5, rtol=0)
    assert lift(x).dtype == torch.float32
    assert lift.sound


def test_factors_are_the_norms_of_the_maps_before_the_noise() -> None:
    found = {mode: noise_place(mode, CROPS, SHAPE).lift for mode in MODES}
    assert found["input"] == Identity()
    for mode in MODES:
        jacobian = torch.autograd.functional.jacobian(found[mode], torch.zeros(1, 10, 10)).flatten(1)
        jacobian = jacobian.reshape(-1, 100).double()
        true = float(torch.linalg.matrix_norm(jacobian, 2))
        assert true - 1e-5 <= found[mode].norm_bound <= true + 1e-5
    # One draw for all < one draw on the larger image < k draws, which cost about sqrt(k).
    ordered = [found[mode].norm_bound for mode in ("input", "resized", "per-patch-input", "patch")]
    assert ordered == sorted(ordered)


def test_settings_are_plain_and_name_the_factor() -> None:
    settings = noise_place("patch", CROPS, SHAPE).lift.settings()
    assert settings["name"] == "patch"
    assert settings["norm_bound"] == CROPS.on(10, 10).norm_bound
    assert settings["operator"]["positions"] == [[0, 0], [0, 3], [3, 0], [3, 3]]


def test_the_paper_form_keeps_the_map_and_drops_the_factor() -> None:
    x = torch.rand(SHAPE)
    sound, paper = (noise_place("patch", CROPS, SHAPE, form).lift for form in ("sound", "paper"))
    assert isinstance(paper, Paper)
    assert paper.norm_bound == 1
    assert not paper.sound
    assert torch.equal(paper(x), sound(x))
    assert torch.equal(paper.at(x, 3), sound(x))
    assert paper.settings()["form"] == "paper"
    assert paper.settings()["norm_left_out"] == sound.norm_bound


def test_random_patches_are_drawn_once_per_input() -> None:
    crops = Crops(size=8, resize=20, count=3, sampling="random", seed=5)
    lift = noise_place("patch", crops, SHAPE).lift
    x = torch.rand(SHAPE)
    assert isinstance(lift, RandomPatches)
    assert torch.equal(lift(x), lift.at(x, 0))
    assert not torch.equal(lift.at(x, 1), lift.at(x, 2))
    torch.testing.assert_close(lift.at(x, 7), crops.on(10, 10, 7)(x))
    for key in range(20):
        assert crops.on(10, 10, key).norm_bound <= lift.norm_bound


RANDOM = [
    Crops(size=8, resize=20, count=3, sampling="random", seed=5),
    Crops(size=8, pad=3, count=5, sampling="random"),
    Crops(size=9, crop=4, count=2, kind="bicubic", sampling="random", seed=1),
    Crops(size=6, resize=11, count=1, sampling="random"),
    Crops(size=10, count=3, sampling="random"),  # nowhere to move: the places take no bits
]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("crops", RANDOM, ids=str)
def test_every_row_of_a_batch_is_cut_where_its_own_input_says(mode: str, crops: Crops) -> None:
    if mode == "resized" and crops.on(10, 10).before is None:
        pytest.skip("nothing is resized")
    lift, rest = noise_place(mode, crops, SHAPE)
    x = torch.rand(7, *SHAPE)
    ids = [4, 9, 4, 0, 123, 9, 10_000]
    lifted = torch.stack([lift.at(one, key) for one, key in zip(x, ids, strict=True)])
    expected = torch.stack([crops.on(10, 10, key)(one) for one, key in zip(x, ids, strict=True)])
    torch.testing.assert_close(rest(lifted), expected, atol=1e-5, rtol=0)
    torch.testing.assert_close(lift(x[0]), lift.at(x[0], 0))
    settings = lift.settings()
    assert settings["name"] == mode
    assert settings["operator"] == crops.settings()


@pytest.mark.parametrize("mode", MODES)
def test_the_random_factor_covers_every_draw(mode: str) -> None:
    crops = Crops(size=8, resize=11, count=5, sampling="random")
    lift = noise_place(mode, crops, (1, 10, 10)).lift
    for key in range(20):
        jacobian = torch.autograd.functional.jacobian(lambda x, key=key: lift.at(x, key), torch.zeros(1, 10, 10))
        true = float(torch.linalg.matrix_norm(jacobian.reshape(-1, 100).double(), 2))
        assert true <= lift.norm_bound * (1 + 1e-6)
    resizing = resize((10, 10), (11, 11)).norm_bound
    factors = {"input": 1, "resized": resizing, "patch": 5**0.5 * resizing, "per-patch-input": 5**0.5}
    assert lift.norm_bound == pytest.approx(factors[mode], rel=1e-9)


@pytest.mark.parametrize("mode", ["input", "resized", "per-patch-input"])
def test_a_perturbed_input_keeps_its_patches(mode: str) -> None:
    """The places are a constant of the id: what an adversary adds to x moves by A and nothing else."""
    crops = Crops(size=8, resize=20, count=3, sampling="random", seed=5)
    lift, rest = noise_place(mode, crops, SHAPE)
    assert isinstance(lift, WithStrip)
    x, delta = torch.rand(SHAPE), torch.rand(SHAPE) - 0.5
    moved = lift.at(x + delta, 7) - lift.at(x, 7)
    assert float(moved.norm()) <= lift.norm_bound * float(delta.norm()) * (1 + 1e-5)
    torch.testing.assert_close(rest(lift.at(x + delta, 7)[None])[0], crops.on(10, 10, 7)(x + delta), atol=1e-5, rtol=0)


@pytest.mark.parametrize("mode", ["patch", "per-patch-input"])
def test_sub_videos(mode: str) -> None:
    cut = clips(12, 8, 3)
    x = torch.rand(12, 1, 2, 2)
    lift, rest = noise_place(mode, cut, tuple(x.shape))
    assert torch.equal(rest(lift(x)[None])[0], cut(x))
    assert lift.norm_bound == pytest.approx(3**0.5)
    assert noise_place("input", cut, tuple(x.shape)).lift == Identity()
    with pytest.raises(ArgumentError, match="sub-videos are not resized"):
        noise_place("resized", cut, tuple(x.shape))


@pytest.mark.parametrize(("mode", "crops", "form", "message"), [
    ("image", CROPS, "sound", "mode: must be one of input, resized, patch, per-patch-input"),
    ("patch", CROPS, "published", "form: must be sound or paper"),
    ("resized", Crops(size=8, crop=6), "sound", "needs a resize or padding before the crops"),
    ("input", Crops(size=11), "sound", "must not be larger than the image"),
    ("patch", Crops(size=11), "sound", "must not be larger than the image"),
])  # fmt: skip
def test_bad_modes(mode: str, crops: Crops, form: str, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        noise_place(mode, crops, SHAPE, form)


def test_the_lifted_input_is_rounded_once() -> None:
    x = torch.rand(3, 32, 32)
    matrix = resize((32, 32), (36, 36))
    exact = np.einsum("ih,chw,jw->cij", matrix.rows, x.double().numpy(), matrix.columns)
    assert np.array_equal(Linear(matrix, "resized")(x).numpy(), exact.astype(np.float32)) or (
        np.abs(Linear(matrix, "resized")(x).numpy() - exact).max() <= 6e-8
    )


def test_lifting_needs_frames() -> None:
    with pytest.raises(ArgumentError, match="must be videos"):
        Linear(SubVideos(4, [0, 2]), "patch")(torch.rand(3, 5, 5))
