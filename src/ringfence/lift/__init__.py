"""Fixed linear maps before the noise, with a certified bound on how much they stretch."""

from ringfence.lift.base import LIFTS, Identity, Lift
from ringfence.lift.linear import FORMS, MODES, Linear, NoisePlace, Paper, RandomPatches, WithStrip, noise_place

__all__ = [
    "FORMS",
    "LIFTS",
    "MODES",
    "Identity",
    "Lift",
    "Linear",
    "NoisePlace",
    "Paper",
    "RandomPatches",
    "WithStrip",
    "noise_place",
]
