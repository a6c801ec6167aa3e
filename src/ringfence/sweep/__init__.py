"""Sweeps: many trainings and certifications from one file, in one go or in many sittings."""

from ringfence.sweep.job import Checked as Checked
from ringfence.sweep.job import Commands as Commands
from ringfence.sweep.job import Job as Job
from ringfence.sweep.job import SweepFolder as SweepFolder
from ringfence.sweep.packing import Limits as Limits
from ringfence.sweep.packing import Packing as Packing
from ringfence.sweep.read import Sweep as Sweep
from ringfence.sweep.read import asked_for as asked_for
from ringfence.sweep.read import read_sweep as read_sweep
from ringfence.sweep.schedule import Estimates as Estimates
from ringfence.sweep.schedule import Schedule as Schedule
from ringfence.sweep.schedule import State as State
from ringfence.sweep.schedule import Watch as Watch
from ringfence.sweep.schedule import known_sum as known_sum
from ringfence.sweep.schedule import seconds_of as seconds_of
from ringfence.sweep.unpacking import unpack as unpack
from ringfence.sweep.worker import Worker as Worker
