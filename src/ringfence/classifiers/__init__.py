"""Everything that turns a batch into scores: modules that wrap one another, and the architectures inside."""

from ringfence.classifiers.aces import Aces, EntropySelector, NetworkSelector, Selector, check_thetas, theta_names
from ringfence.classifiers.base import Classifier, Scored, facts, score
from ringfence.classifiers.consensus import KConsensus
from ringfence.classifiers.denoised import Denoised
from ringfence.classifiers.folding import fold_batch_norm
from ringfence.classifiers.lanes import Lanes, lane_names
from ringfence.classifiers.members import Members
from ringfence.classifiers.normalize import Normalize
from ringfence.classifiers.patches import Crops, Patches
from ringfence.classifiers.video import Chunks, Clips
from ringfence.classifiers.votes import VOTES, HardVote, MaxMargin, SoftmaxVote, SoftVote, Weighted

__all__ = [
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
    "Lanes",
    "MaxMargin",
    "Members",
    "NetworkSelector",
    "Normalize",
    "Patches",
    "Scored",
    "Selector",
    "SoftVote",
    "SoftmaxVote",
    "Weighted",
    "check_thetas",
    "facts",
    "fold_batch_norm",
    "lane_names",
    "score",
    "theta_names",
]
