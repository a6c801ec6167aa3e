"""Sampling: noisy forwards of many inputs in full batches, counted on the device."""

from ringfence.sampling.answers import Answered, Question
from ringfence.sampling.as_given import check_rounding, remembered_answers
from ringfence.sampling.classes import count_classes
from ringfence.sampling.device_counts import Finished
from ringfence.sampling.devices import in_front, multiplies_in_bf16, one_thread, pick_device
from ringfence.sampling.draws import CHUNK, check_seed, chunk_key
from ringfence.sampling.forward import Forward
from ringfence.sampling.plan import ForwardPlan, Precision, check_memory
from ringfence.sampling.preparing import on_device
from ringfence.sampling.probe import fastest_plan, forward_rate, measures
from ringfence.sampling.readout import Readout, Selection, Votes, readouts
from ringfence.sampling.remembered import Facts
from ringfence.sampling.sampler import Sampler

__all__ = [
    "CHUNK",
    "Answered",
    "Facts",
    "Finished",
    "Forward",
    "ForwardPlan",
    "Precision",
    "Question",
    "Readout",
    "Sampler",
    "Selection",
    "Votes",
    "check_memory",
    "check_rounding",
    "check_seed",
    "chunk_key",
    "count_classes",
    "fastest_plan",
    "forward_rate",
    "in_front",
    "measures",
    "multiplies_in_bf16",
    "on_device",
    "one_thread",
    "pick_device",
    "readouts",
    "remembered_answers",
]
