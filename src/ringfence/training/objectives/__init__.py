"""Training objectives; registered below, in the order in which they are listed to users."""

from ringfence.training.objectives.adversarial import SmoothAdv, SmoothMix
from ringfence.training.objectives.attacked_noise import Catrs, Reweight
from ringfence.training.objectives.base import LossTerms, Objective, SingleObjective
from ringfence.training.objectives.denoise import DenoiseMse, DenoiseStability
from ringfence.training.objectives.diversity import Adp, Gal
from ringfence.training.objectives.drt import Drt
from ringfence.training.objectives.gaussian import Consistency, Gaussian, Stability
from ringfence.training.objectives.macer import Macer
from ringfence.training.objectives.registry import (
    OBJECTIVES,
    bases_of,
    build_objective,
    default_objective,
    register_objective,
    stored_objective,
)
from ringfence.training.objectives.select import Select

_ALONE = (Gaussian, SmoothAdv, Consistency, Macer, Stability, SmoothMix, Catrs, Reweight)
_TOGETHER, _FOR_CLASSIFIERS = (Drt, Adp, Gal), (DenoiseMse, DenoiseStability, Select)
for _kind in (*_ALONE, *_TOGETHER, *_FOR_CLASSIFIERS):
    register_objective(_kind)

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
    "bases_of",
    "build_objective",
    "default_objective",
    "register_objective",
    "stored_objective",
]
