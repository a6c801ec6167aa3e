"""Explicit linear maps on images and videos, each with a certified upper bound on its norm."""

from ringfence.operators.choose import Crops, check_clips, clips
from ringfence.operators.norms import Operator
from ringfence.operators.separable import Separable, Stack, pad, resize
from ringfence.operators.windows import AlreadyCut, CropsFromStrip, PositionStrip, SubVideos, Windows

__all__ = [
    "AlreadyCut",
    "Crops",
    "CropsFromStrip",
    "Operator",
    "PositionStrip",
    "Separable",
    "Stack",
    "SubVideos",
    "Windows",
    "check_clips",
    "clips",
    "pad",
    "resize",
]
