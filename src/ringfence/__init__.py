"""Ringfence: certified robustness for PyTorch classifiers by randomized smoothing.

Names are imported when first used, so that ``import ringfence`` and ``ringfence --help`` stay fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ringfence.version import __version__

if TYPE_CHECKING:
    from ringfence.certification import Certification as Certification
    from ringfence.certifying import Smoothed as Smoothed
    from ringfence.certifying import certify as certify
    from ringfence.classifiers import Aces as Aces
    from ringfence.classifiers import Chunks as Chunks
    from ringfence.classifiers import Classifier as Classifier
    from ringfence.classifiers import Clips as Clips
    from ringfence.classifiers import Crops as Crops
    from ringfence.classifiers import Denoised as Denoised
    from ringfence.classifiers import EntropySelector as EntropySelector
    from ringfence.classifiers import HardVote as HardVote
    from ringfence.classifiers import KConsensus as KConsensus
    from ringfence.classifiers import Lanes as Lanes
    from ringfence.classifiers import MaxMargin as MaxMargin
    from ringfence.classifiers import NetworkSelector as NetworkSelector
    from ringfence.classifiers import Normalize as Normalize
    from ringfence.classifiers import Patches as Patches
    from ringfence.classifiers import SoftmaxVote as SoftmaxVote
    from ringfence.classifiers import SoftVote as SoftVote
    from ringfence.classifiers import Weighted as Weighted
    from ringfence.data import Data as Data
    from ringfence.data import load_dataset as load_dataset
    from ringfence.driver import Progress as Progress
    from ringfence.engines import certify_into as certify_into
    from ringfence.engines.ray import Ray as Ray
    from ringfence.extending import load_plugins as load_plugins
    from ringfence.extending import register as register
    from ringfence.lift import Identity as Identity
    from ringfence.lift import Lift as Lift
    from ringfence.mechanisms import Mechanism as Mechanism
    from ringfence.mechanisms import neyman_pearson as neyman_pearson
    from ringfence.mechanisms import neyman_pearson_l1 as neyman_pearson_l1
    from ringfence.models import NodeKind as NodeKind
    from ringfence.models import Source as Source
    from ringfence.models import load_model as load_model
    from ringfence.models.compose import aces as aces
    from ringfence.models.compose import chunks as chunks
    from ringfence.models.compose import clips as clips
    from ringfence.models.compose import consensus as consensus
    from ringfence.models.compose import denoised as denoised
    from ringfence.models.compose import hard as hard
    from ringfence.models.compose import lanes as lanes
    from ringfence.models.compose import lifted as lifted
    from ringfence.models.compose import max_margin as max_margin
    from ringfence.models.compose import normalize as normalize
    from ringfence.models.compose import patches as patches
    from ringfence.models.compose import resized as resized
    from ringfence.models.compose import soft as soft
    from ringfence.models.compose import softmax as softmax
    from ringfence.models.compose import weighted as weighted
    from ringfence.noise import Gaussian as Gaussian
    from ringfence.noise import Laplace as Laplace
    from ringfence.noise import Noise as Noise
    from ringfence.noise import Uniform as Uniform
    from ringfence.procedures import AcesCertify as AcesCertify
    from ringfence.procedures import AcesPredict as AcesPredict
    from ringfence.procedures import AcesSequential as AcesSequential
    from ringfence.procedures import Anytime as Anytime
    from ringfence.procedures import EnsembleAfterSmoothing as EnsembleAfterSmoothing
    from ringfence.procedures import Fixed as Fixed
    from ringfence.procedures import Multinomial as Multinomial
    from ringfence.procedures import Predict as Predict
    from ringfence.procedures import Procedure as Procedure
    from ringfence.procedures import Sequential as Sequential
    from ringfence.procedures import Softmax as Softmax
    from ringfence.procedures import Staged as Staged
    from ringfence.procedures import TwoSided as TwoSided
    from ringfence.record import Record as Record
    from ringfence.runs import Run as Run
    from ringfence.runs import load as load
    from ringfence.sampling import Readout as Readout
    from ringfence.serve.client import Client as Client
    from ringfence.store import RunFolder as RunFolder
    from ringfence.training.objectives import Objective as Objective
    from ringfence.types import ABSTAIN as ABSTAIN
    from ringfence.verification import verify as verify
    from ringfence.work import Engine as Engine
    from ringfence.work import Execution as Execution
    from ringfence.work import Work as Work

_HOMES = {
    "certification": "Certification",
    "certifying": "Smoothed certify",
    "driver": "Progress",
    "classifiers": (
        "Aces Chunks Classifier Clips Crops Denoised EntropySelector HardVote KConsensus Lanes MaxMargin "
        "NetworkSelector Normalize Patches SoftVote SoftmaxVote Weighted"
    ),
    "data": "Data load_dataset",
    "engines": "certify_into",
    "engines.ray": "Ray",
    "extending": "load_plugins register",
    "lift": "Identity Lift",
    "mechanisms": "Mechanism neyman_pearson neyman_pearson_l1",
    "models": "NodeKind Source load_model",
    "models.compose": (
        "aces chunks clips consensus denoised hard lanes lifted max_margin normalize patches resized soft "
        "softmax weighted"
    ),
    "noise": "Gaussian Laplace Noise Uniform",
    "procedures": (
        "AcesCertify AcesPredict AcesSequential Anytime EnsembleAfterSmoothing Fixed Multinomial Predict "
        "Procedure Sequential Softmax Staged TwoSided"
    ),
    "record": "Record",
    "runs": "Run load",
    "sampling": "Readout",
    "serve.client": "Client",
    "store": "RunFolder",
    "training.objectives": "Objective",
    "types": "ABSTAIN",
    "verification": "verify",
    "work": "Engine Execution Work",
}
"""Module -> the names that it offers here."""
_MODULE_OF = {name: home for home, names in _HOMES.items() for name in names.split()}
_ROOMS = ("analysis", "attacks", "errors", "laws", "loggers", "mechanisms", "stats")

__all__ = ["__version__", *sorted(_MODULE_OF), *_ROOMS]


def __getattr__(name: str) -> Any:
    if name in _MODULE_OF:
        return getattr(import_module(f"ringfence.{_MODULE_OF[name]}"), name)
    if name in _ROOMS:
        return import_module(f"ringfence.{name}")
    raise AttributeError(f"module 'ringfence' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
