"""Training: a job is one value, objectives declare themselves, one loop on Lightning Fabric runs them."""

from ringfence.training.data import Batch, DeviceData, TrainingNoise
from ringfence.training.job import Schedule, TrainingJob
from ringfence.training.loop import train
from ringfence.training.objectives import register_objective
from ringfence.training.run import TrainingRun
from ringfence.training.side_by_side import run_together, run_training

__all__ = [
    "Batch",
    "DeviceData",
    "Schedule",
    "TrainingJob",
    "TrainingNoise",
    "TrainingRun",
    "register_objective",
    "run_together",
    "run_training",
    "train",
]
