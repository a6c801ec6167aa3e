"""Where the noise of Smooth-Reduce enters: a mode is a lift before the noise and what is left to do after it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor

from ringfence.errors import ArgumentError
from ringfence.lift.base import Identity, Lift
from ringfence.lift.linear import Linear, Paper, RandomPatches, WithStrip
from ringfence.operators import AlreadyCut, Crops, CropsFromStrip, PositionStrip, SubVideos, Windows

MODES = ("input", "resized", "patch", "per-patch-input")
FORMS = ("sound", "paper")


class NoisePlace(NamedTuple):
    """The lift (x -> where noise is added) and the rest (noisy lifted batch -> patches (B, k, ...))."""

    lift: Lift
    rest: Callable[[Tensor], Tensor]


def noise_place(
    mode: str, patches: Crops | SubVideos, shape: tuple[int, ...], form: str = "sound", strict: bool = False
) -> NoisePlace:
    """How a mode splits the way from the input (C, H, W) or (T, C, H, W) to its patches.

    input: one draw on the image, factor 1. resized: one draw after the resize, ||Rz||. patch: independent draws
    on every patch, ||[M_1; ...; M_k]||. per-patch-input: f(M_i (x + z_i)), sqrt(lambda_max(sum_i M_i^+ M_i)).
    The paper form leaves the factor out; strict refuses it.
    """
    if mode not in MODES:
        raise ArgumentError("mode", f"must be one of {', '.join(MODES)}", repr(mode), "Use input.")
    if form not in FORMS:
        raise ArgumentError("form", f"must be one of {', '.join(FORMS)}", repr(form), "Use sound.")
    if form == "paper" and strict:
        rule = "refuses the paper form, which leaves out the factor and so proves nothing"
        raise ArgumentError("strict", rule, "form paper", "Use the sound form, or do without `strict`.")
    place = _videos(mode, patches) if isinstance(patches, SubVideos) else _images(mode, patches, shape)
    return place if form == "sound" else NoisePlace(Paper(place.lift), place.rest)


def _images(mode: str, crops: Crops, shape: tuple[int, ...]) -> NoisePlace:
    if len(shape) != 3:
        raise ArgumentError("patches", "are cut from images (C, H, W)", tuple(shape), "Use clips for videos.")
    size = (shape[-2], shape[-1])
    windows = crops.on(*size)  # refuses what does not fit, in every mode
    if mode == "resized" and windows.before is None:
        rule = "resized noise needs a resize or padding before the crops"
        raise ArgumentError("mode", rule, "neither", "Give a resize, or use input.")
    if crops.sampling == "random":
        return _scattered(mode, crops, windows)
    if mode == "input":
        return NoisePlace(Identity(), windows)
    if mode == "resized" and windows.before is not None:
        return NoisePlace(Linear(windows.before, mode), windows.crops_alone())
    if mode == "patch":
        return NoisePlace(Linear(windows, mode), AlreadyCut())
    isometries, colour = windows.explicit.polar()
    # S (U x + w) has the law of M (x + z) for Gaussian w and z alone: a rotation makes other noise another one.
    return NoisePlace(Linear(isometries, mode, norms=("l2",)), colour)


def _scattered(mode: str, crops: Crops, windows: Windows) -> NoisePlace:
    """Patches drawn once per input: behind the noise every row is cut where the strip below it says."""
    if mode == "patch":
        return NoisePlace(RandomPatches(crops, windows.shape), AlreadyCut())
    count = len(windows.positions)
    copies = count if mode == "per-patch-input" else 1
    before, rest = (windows.before, windows.crops_alone()) if mode == "resized" else (None, windows)
    places = PositionStrip(rest.shape, rest.room)
    lift = WithStrip(crops, windows.shape, places, mode, before, copies)
    return NoisePlace(lift, CropsFromStrip(places, rest, count // copies))


def _videos(mode: str, subvideos: SubVideos) -> NoisePlace:
    """Sub-videos are coordinates of the video: noise on a copy of the video and noise on the clip are one thing."""
    if mode == "input":
        return NoisePlace(Identity(), subvideos)
    if mode == "resized":
        raise ArgumentError("mode", "sub-videos are not resized", repr(mode), "Use input or patch.")
    return NoisePlace(Linear(subvideos, mode), AlreadyCut())
