"""Everything that turns a batch into scores: modules that wrap one another, and the architectures inside."""

from ringfence.classifiers.aces import Aces, EntropySelector, NetworkSelector, theta_lanes
from ringfence.classifiers.base import Classifier, Scored, facts, kinds_of, score
from ringfence.classifiers.consensus import KConsensus
from ringfence.classifiers.denoised import Denoised
from ringfence.classifiers.folding import fold_batch_norm
from ringfence.classifiers.kinds import LOGITS, PROBABILITIES, Kinds, as_logits, log_probabilities, probabilities
from ringfence.classifiers.lanes import Lanes, vote_lanes
from ringfence.classifiers.members import Members
from ringfence.classifiers.normalize import Normalize
from ringfence.classifiers.patches import Chunks, Clips, Crops, Patches
from ringfence.classifiers.resized import Resized
from ringfence.classifiers.votes import VOTES, HardVote, MaxMargin, SoftmaxVote, SoftVote, Weighted

__all__ = [
    "LOGITS",
    "PROBABILITIES",
    "VOTES",
    "Aces",
    "Chunks",
    "Classifier",
    "Clips",
    "Crops",
    "Denoised",
    "EntropySelector",
    "HardVote",
    "KConsensus",
    "Kinds",
    "Lanes",
    "MaxMargin",
    "Members",
    "NetworkSelector",
    "Normalize",
    "Patches",
    "Resized",
    "Scored",
    "SoftVote",
    "SoftmaxVote",
    "Weighted",
    "as_logits",
    "facts",
    "fold_batch_norm",
    "kinds_of",
    "log_probabilities",
    "probabilities",
    "score",
    "theta_lanes",
    "vote_lanes",
]
