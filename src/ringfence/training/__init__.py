"""Training: a job is one value, objectives declare themselves, one loop on Lightning Fabric runs them."""

from ringfence.training.data import Batch as Batch
from ringfence.training.data import DeviceData as DeviceData
from ringfence.training.data import TrainingNoise as TrainingNoise
from ringfence.training.job import Schedule as Schedule
from ringfence.training.job import TrainingJob as TrainingJob
from ringfence.training.loop import train as train
from ringfence.training.run import TrainingRun as TrainingRun
from ringfence.training.side_by_side import run_together as run_together
from ringfence.training.side_by_side import run_training as run_training
