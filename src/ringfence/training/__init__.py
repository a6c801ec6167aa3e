"""Training: one file per objective, one loop on Lightning Fabric."""

from ringfence.training.course import Status
from ringfence.training.data_on_device import DeviceData, load_device_data
from ringfence.training.loop import train
from ringfence.training.noise import TrainingNoise
from ringfence.training.plan import TrainingPlan
from ringfence.training.schedule import Schedule

__all__ = ["DeviceData", "Schedule", "Status", "TrainingNoise", "TrainingPlan", "load_device_data", "train"]
