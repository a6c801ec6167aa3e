"""Explicit linear maps on images and videos, each with a certified upper bound on its norm."""

from ringfence.operators.base import Operator
from ringfence.operators.choose import Crops, check_clips, clips
from ringfence.operators.places import PlacedCrops, Places
from ringfence.operators.separable import Colour, Separable, Stack, pad, resize
from ringfence.operators.windows import Given, SubVideos, Windows

__all__ = [
    "Colour",
    "Crops",
    "Given",
    "Operator",
    "PlacedCrops",
    "Places",
    "Separable",
    "Stack",
    "SubVideos",
    "Windows",
    "check_clips",
    "clips",
    "pad",
    "resize",
]
