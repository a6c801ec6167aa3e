"""Placed: lifts for patches drawn once per input, where the network behind the noise has to know the places."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, final

import torch
from torch import Tensor

from ringfence.lift.base import Lift
from ringfence.operators import Crops, Places, Separable
from ringfence.operators.norms import root


@final
@dataclass(frozen=True)
class Placed(Lift):
    """x -> A x, below it a strip of pixels that says where this input's patches lie (``operators.Places``).

    The places come from the crops' seed and the input's id. The strip is a constant that no perturbation of x
    touches, so the factor is ||A||: A is the identity, a resize (before), or so many copies of x, one a patch.
    """

    crops: Crops
    shape: tuple[int, int]
    places: Places
    mode: str
    before: Separable | None = None
    copies: int = 1
    name: ClassVar[str] = "placed"

    @property
    def norm_bound(self) -> float:
        """||Rz|| or 1, times the square root of the number of copies."""
        norm = 1.0 if self.before is None else self.before.norm_bound
        return norm if self.copies == 1 else root(self.copies * norm**2)

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
