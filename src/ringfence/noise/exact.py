"""Exact noise in use: inputs as whole steps of a lattice, integers added to them, on whichever device.

Whole numbers below 2^24 are exact in float32, and so are their sums: nothing is rounded before the network.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor

from ringfence.errors import DataError
from ringfence.noise.checked import checked_kernel
from ringfence.noise.inversion import Law, fill_integers
from ringfence.noise.philox import signed

FARTHEST: Final = 1 << 20
"""Steps that an input may lie from 0: with noise of at most 2^20 steps on top every sum is exact, and float32's three
roundings on the way to input units and back, of 2^-24 each, never lead to another step."""

STILL: Final = 1e-3
"""Steps by which float32's own rounding moves a lattice point at most; what moves farther was off the lattice."""


def in_steps(x: Tensor, lattice: int) -> Tensor:
    """The lattice point next to x (any shape) as whole numbers of steps, float32."""
    return torch.round(x.to(torch.float32) * lattice)


def onto_lattice(name: str, x: Tensor, lattice: int) -> Tensor:
    """x, as the network would see it without noise; refused where it is no lattice point, up to float32's rounding.

    A certificate about a point nearby would be none about x.
    """
    steps = in_steps(x, lattice)
    if not bool((steps.abs() <= FARTHEST).all()):
        rule = f"exact noise needs finite inputs between -{FARTHEST / lattice:g} and {FARTHEST / lattice:g}"
        received = f"values from {float(x.min()):g} to {float(x.max()):g}"
        raise DataError(name, rule, received, "Scale the inputs to [0, 1], or use float noise.")
    off = (x.double() * lattice - steps).abs()
    outside = off > STILL + 2.0**-23 * steps.abs()
    if bool(outside.any()):
        rule = f"exact noise needs inputs on the lattice of step 1/{lattice}"
        worst = float(x.flatten()[int(off.argmax())])
        received = f"{int(outside.sum())} of {x.numel()} values off it, such as {worst:.9g}"
        raise DataError(name, rule, received, "Give 8-bit images or another lattice, or use float noise.")
    return steps * (1 / lattice)


def inside(point: Tensor, centre: Tensor, radius: float, lattice: int, order: int = 2) -> Tensor:
    """A lattice point near point (*shape) that lies in the ball around centre, a lattice point: the nearest one, or
    where that is outside the one with every step rounded towards the centre, which is nearer than point itself."""
    middle = in_steps(centre, lattice)
    away = point.to(torch.float32) * lattice - middle
    nearest = torch.round(away)
    steps = nearest if float(nearest.double().norm(order)) <= radius * lattice else torch.trunc(away)
    return (middle + steps) * (1 / lattice)


def fill_steps(out: Tensor, key: int, law: Law) -> None:
    """Overwrite out (rows, *shape), float32 and contiguous, with the integers of this 64-bit key."""
    flat = out.view(len(out), -1)
    kernel = _kernel(out.device, law)
    if out.device.type == "cpu":
        fill_integers(flat, key, law)
    elif kernel is None:  # slow, and the same integers
        host = torch.empty(flat.shape)
        fill_integers(host, key, law)
        flat.copy_(host)
    else:
        rows = torch.arange(len(out))
        table = torch.stack([torch.zeros_like(rows), torch.full_like(rows, signed(key)), rows]).to(out.device)
        kernel.add_integers(flat, torch.zeros_like(flat[:1]), table, law)
        flat.mul_(law[2]).round_()


def add_steps(out: Tensor, clean: Tensor, table: Tensor, law: Law) -> bool:
    """Noise.add in one kernel: clean (slots, *shape) in steps, out in input units; False where there is no kernel."""
    kernel = _kernel(out.device, law)
    if kernel is not None:
        kernel.add_integers(out, clean, table, law)
    return kernel is not None


def _kernel(device: torch.device, law: Law) -> Any:
    """Checked for the family of this law alone: every other takes a fraction of a second of a start."""
    return checked_kernel("ringfence.noise.exact_kernel", device, law[0])
