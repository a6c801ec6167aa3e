"""Explicit linear maps on images and videos, each with a certified upper bound on its norm."""

from ringfence.operators.choose import Crops as Crops
from ringfence.operators.choose import check_clips as check_clips
from ringfence.operators.choose import clips as clips
from ringfence.operators.norms import Operator as Operator
from ringfence.operators.separable import Separable as Separable
from ringfence.operators.separable import Stack as Stack
from ringfence.operators.separable import pad as pad
from ringfence.operators.separable import resize as resize
from ringfence.operators.windows import AlreadyCut as AlreadyCut
from ringfence.operators.windows import CropsFromStrip as CropsFromStrip
from ringfence.operators.windows import PositionStrip as PositionStrip
from ringfence.operators.windows import SubVideos as SubVideos
from ringfence.operators.windows import Windows as Windows
