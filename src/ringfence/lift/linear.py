"""Lifts by explicit operators: noise on a resized image, on every patch, on every patch's own copy of the input; and
the modes of Smooth-Reduce, each a lift before the noise and what is left to do after it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, final, get_args

import torch
from torch import Tensor

from ringfence.errors import ArgumentError, check_word
from ringfence.lift.base import Identity, Lift
from ringfence.operators import (
    AlreadyCut,
    Crops,
    CropsFromStrip,
    Operator,
    PositionStrip,
    Separable,
    SubVideos,
    Windows,
)
from ringfence.operators.norms import root, up


@final
@dataclass(frozen=True)
class Linear(Lift):
    """x -> A x for an operator, computed in float64. norms: in which it is certified."""

    operator: Operator
    mode: str
    norms: tuple[str, ...] = ("l1", "l2")
    name: ClassVar[str] = "linear"

    @property
    def norm_bound(self) -> float:
        """The certified norm of the operator."""
        return self.operator.norm_bound

    def bound_in(self, norm: str) -> float | None:
        """The operator's bound in l1 or l2."""
        if norm not in self.norms:
            return None
        return self.operator.l1_bound if norm == "l1" else super().bound_in(norm)

    def __call__(self, x: Tensor) -> Tensor:
        """A x, rounded once: the norm is that of the float64 matrices."""
        return self.operator(x.to(torch.float64)).to(torch.float32)

    def settings(self) -> dict[str, Any]:
        """Mode, norm and operator."""
        return {"name": self.mode, "norm_bound": self.norm_bound, "operator": self.operator.settings()}


@final
@dataclass(frozen=True)
class RandomPatches(Lift):
    """Noise on patches drawn with replacement, once per input from the crops' seed and the input's id.

    The factor holds for every possible draw: sqrt(k) max_i ||M_i||.
    """

    crops: Crops
    shape: tuple[int, int]
    name: ClassVar[str] = "patch"

    @property
    def norm_bound(self) -> float:
        """sqrt(k) ||A|| ||B||, at least sqrt(k) max_i ||A P_i B||."""
        return self.crops.on(*self.shape).norm_of_any

    def bound_in(self, norm: str) -> float | None:
        """In l1 k ||A|| ||B||."""
        return self.crops.on(*self.shape).l1_bound_of_any if norm == "l1" else super().bound_in(norm)

    def __call__(self, x: Tensor) -> Tensor:
        """The patches of input 0."""
        return self.at(x, 0)

    def at(self, x: Tensor, input_id: int) -> Tensor:
        """The patches (k, C, h, w) of this input."""
        return self.crops.on(*self.shape, input_id)(x.to(torch.float64)).to(torch.float32)

    def settings(self) -> dict[str, Any]:
        """Norm and description of the patches."""
        return {"name": self.name, "norm_bound": self.norm_bound, "operator": self.crops.settings()}


@final
@dataclass(frozen=True)
class Paper(Lift):
    """The published form of a lift: the same map, its factor left out. Its radii are not certificates."""

    lift: Lift
    name: ClassVar[str] = "paper"

    @property
    def norm_bound(self) -> float:
        """1, whatever the map does."""
        return 1.0

    def bound_in(self, norm: str) -> float | None:
        """1 where the lift has a bound that can be left out."""
        return None if self.lift.bound_in(norm) is None else 1.0

    @property
    def sound(self) -> bool:
        """Never."""
        return False

    def __call__(self, x: Tensor) -> Tensor:
        """As the lift."""
        return self.lift(x)

    def at(self, x: Tensor, input_id: int) -> Tensor:
        """As the lift."""
        return self.lift.at(x, input_id)

    def settings(self) -> dict[str, Any]:
        """Those of the lift, with the factor that was left out under another name."""
        inner = self.lift.settings()
        return {**inner, "norm_bound": 1.0, "form": "paper", "norm_left_out": inner["norm_bound"]}

    def settings_in(self, norm: str) -> dict[str, Any]:
        """What was left out is the bound in this norm."""
        return {**super().settings_in(norm), "norm_left_out": self.lift.bound_in(norm)}


@final
@dataclass(frozen=True)
class WithStrip(Lift):
    """x -> A x, below it a strip of pixels that says where this input's patches lie (``operators.PositionStrip``).

    The places come from the crops' seed and the input's id. The strip is a constant that no perturbation of x
    touches, so the factor is ||A||: A is the identity, a resize (before), or so many copies of x, one a patch.
    """

    crops: Crops
    shape: tuple[int, int]
    places: PositionStrip
    mode: str
    before: Separable | None = None
    copies: int = 1
    name: ClassVar[str] = "placed"

    @property
    def norm_bound(self) -> float:
        """||Rz|| or 1, times the square root of the number of copies."""
        norm = 1.0 if self.before is None else self.before.norm_bound
        return norm if self.copies == 1 else root(self.copies * norm**2)

    def bound_in(self, norm: str) -> float | None:
        """In l1 the number of copies times that of the resize, or 1."""
        if norm != "l1":
            return super().bound_in(norm)
        return up(self.copies * (1.0 if self.before is None else self.before.l1_bound))

    def __call__(self, x: Tensor) -> Tensor:
        """The lifted input of id 0."""
        return self.at(x, 0)

    def at(self, x: Tensor, input_id: int) -> Tensor:
        """(C, H + r, W) with all places below it, or (k, C, H + r, W) with one below every copy."""
        image = x.to(torch.float32) if self.before is None else self.before(x.to(torch.float64)).to(torch.float32)
        positions = self.crops.on(*self.shape, input_id).positions
        if self.copies == 1:
            return self.places.write(image, positions)
        return torch.stack([self.places.write(image, [one]) for one in positions])

    def settings(self) -> dict[str, Any]:
        """Mode, norm and description of the patches."""
        return {"name": self.mode, "norm_bound": self.norm_bound, "operator": self.crops.settings()}


Mode = Literal["input", "resized", "patch", "per-patch-input"]
Form = Literal["sound", "paper"]
MODES: tuple[Mode, ...] = get_args(Mode)
FORMS: tuple[Form, ...] = get_args(Form)


class NoisePlace(NamedTuple):
    """The lift (x -> where noise is added) and the rest (noisy lifted batch -> patches (B, k, ...))."""

    lift: Lift
    rest: Callable[[Tensor], Tensor]


def noise_place(mode: str, patches: Crops | SubVideos, shape: tuple[int, ...], form: str = "sound") -> NoisePlace:
    """How a mode splits the way from the input (C, H, W) or (T, C, H, W) to its patches.

    input: one draw on the image, factor 1. resized: one draw after the resize, ||Rz||. patch: independent draws
    on every patch, ||[M_1; ...; M_k]||. per-patch-input: f(M_i (x + z_i)), sqrt(lambda_max(sum_i M_i^+ M_i)).
    The paper form leaves the factor out.
    """
    check_word("mode", mode, MODES, "Use input.")
    check_word("form", form, FORMS, "Use sound.")
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
