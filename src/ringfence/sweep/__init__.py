"""Sweeps: many trainings and certifications from one file, in one go or in many sittings."""

from ringfence.sweep.job import Checked, Commands, Job, SweepFolder, pack, unpack
from ringfence.sweep.read import Sweep, read_sweep
from ringfence.sweep.schedule import Estimates, Schedule, State, Watch, seconds_of
from ringfence.sweep.worker import Worker

__all__ = [
    "Checked",
    "Commands",
    "Estimates",
    "Job",
    "Schedule",
    "State",
    "Sweep",
    "SweepFolder",
    "Watch",
    "Worker",
    "pack",
    "read_sweep",
    "seconds_of",
    "unpack",
]
