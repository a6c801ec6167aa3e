"""Sweeps: many trainings and certifications from one file, in one go or in many sittings."""

from ringfence.sweep.job import Checked, Commands, Job, SweepFolder
from ringfence.sweep.packing import Limits, Packing
from ringfence.sweep.read import Sweep, asked_for, read_sweep
from ringfence.sweep.schedule import Estimates, Schedule, State, Watch, known_sum, seconds_of
from ringfence.sweep.unpacking import unpack
from ringfence.sweep.worker import Worker

__all__ = [
    "Checked",
    "Commands",
    "Estimates",
    "Job",
    "Limits",
    "Packing",
    "Schedule",
    "State",
    "Sweep",
    "SweepFolder",
    "Watch",
    "Worker",
    "asked_for",
    "known_sum",
    "read_sweep",
    "seconds_of",
    "unpack",
]
