"""Fixed linear maps before the noise, with a certified bound on how much they stretch."""

from ringfence.lift.base import LIFTS, Identity, Lift
from ringfence.lift.linear import MODES, Form, Linear, Mode, Paper, RandomPatches, WithStrip, noise_place

__all__ = [
    "LIFTS",
    "MODES",
    "Form",
    "Identity",
    "Lift",
    "Linear",
    "Mode",
    "Paper",
    "RandomPatches",
    "WithStrip",
    "noise_place",
]
