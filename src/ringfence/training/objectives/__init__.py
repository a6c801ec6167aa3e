"""Training objectives, one file each; ``OBJECTIVES`` holds them by the name the command line uses."""

from ringfence.training.objectives.adp import Adp
from ringfence.training.objectives.base import LossTerms, Objective, SingleObjective
from ringfence.training.objectives.catrs import Catrs
from ringfence.training.objectives.consistency import Consistency
from ringfence.training.objectives.denoise import DenoiseMse, DenoiseStability
from ringfence.training.objectives.drt import Drt
from ringfence.training.objectives.gal import Gal
from ringfence.training.objectives.gaussian import Gaussian
from ringfence.training.objectives.macer import Macer
from ringfence.training.objectives.registry import OBJECTIVES, build_objective
from ringfence.training.objectives.reweight import Reweight
from ringfence.training.objectives.select import Select
from ringfence.training.objectives.smoothadv import SmoothAdv
from ringfence.training.objectives.smoothmix import SmoothMix
from ringfence.training.objectives.stability import Stability

__all__ = [
    "OBJECTIVES",
    "Adp",
    "Catrs",
    "Consistency",
    "DenoiseMse",
    "DenoiseStability",
    "Drt",
    "Gal",
    "Gaussian",
    "LossTerms",
    "Macer",
    "Objective",
    "Reweight",
    "Select",
    "SingleObjective",
    "SmoothAdv",
    "SmoothMix",
    "Stability",
    "build_objective",
]
