"""Model specs: the embedded default, architectures with weights, factories, exported programs, checkpoints."""

from ringfence.models.grammar import as_tree
from ringfence.models.identity import model_digest
from ringfence.models.load import load_members, load_model
from ringfence.models.registry import NodeKind, Source
from ringfence.models.resolve import LoadedModel, lanes_of, lift_of, procedure_for, root_is_sound
from ringfence.models.weights import read_weights

__all__ = [
    "LoadedModel",
    "NodeKind",
    "Source",
    "as_tree",
    "lanes_of",
    "lift_of",
    "load_members",
    "load_model",
    "model_digest",
    "procedure_for",
    "read_weights",
    "root_is_sound",
]
