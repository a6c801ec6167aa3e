"""Sampling: noisy forwards of many inputs in full batches, counted on the device."""

from ringfence.sampling.counting import count_classes, vote_counts
from ringfence.sampling.counts import Finished
from ringfence.sampling.engine import Engine
from ringfence.sampling.facts import Facts
from ringfence.sampling.forward import Forward
from ringfence.sampling.plan import ForwardPlan, Precision, check_memory
from ringfence.sampling.prepared import placed
from ringfence.sampling.probe import fastest_plan, forward_rate, pick_device
from ringfence.sampling.readout import MemberVotes, Readout, Scores, Selection, Votes, readouts
from ringfence.sampling.seeds import CHUNK, check_seed, chunk_key

__all__ = [
    "CHUNK",
    "Engine",
    "Facts",
    "Finished",
    "Forward",
    "ForwardPlan",
    "MemberVotes",
    "Precision",
    "Readout",
    "Scores",
    "Selection",
    "Votes",
    "check_memory",
    "check_seed",
    "chunk_key",
    "count_classes",
    "fastest_plan",
    "forward_rate",
    "pick_device",
    "placed",
    "readouts",
    "vote_counts",
]
