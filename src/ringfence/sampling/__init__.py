"""Sampling: noisy forwards of many inputs in full batches, counted on the device."""

from ringfence.sampling.answers import Answered as Answered
from ringfence.sampling.answers import Question as Question
from ringfence.sampling.as_given import check_rounding as check_rounding
from ringfence.sampling.as_given import remembered_answers as remembered_answers
from ringfence.sampling.classes import count_classes as count_classes
from ringfence.sampling.device_counts import Finished as Finished
from ringfence.sampling.devices import in_front as in_front
from ringfence.sampling.devices import one_thread as one_thread
from ringfence.sampling.devices import pick_device as pick_device
from ringfence.sampling.draws import CHUNK as CHUNK
from ringfence.sampling.draws import check_seed as check_seed
from ringfence.sampling.draws import chunk_key as chunk_key
from ringfence.sampling.forward import Forward as Forward
from ringfence.sampling.plan import ForwardPlan as ForwardPlan
from ringfence.sampling.plan import Precision as Precision
from ringfence.sampling.plan import check_memory as check_memory
from ringfence.sampling.preparing import on_device as on_device
from ringfence.sampling.probe import fastest_plan as fastest_plan
from ringfence.sampling.probe import forward_rate as forward_rate
from ringfence.sampling.probe import measures as measures
from ringfence.sampling.readout import Readout as Readout
from ringfence.sampling.readout import Selection as Selection
from ringfence.sampling.readout import Votes as Votes
from ringfence.sampling.readout import readouts as readouts
from ringfence.sampling.remembered import Facts as Facts
from ringfence.sampling.sampler import Sampler as Sampler
