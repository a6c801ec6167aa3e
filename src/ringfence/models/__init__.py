"""Model specs: the embedded default, architectures with weights, factories, exported programs, checkpoints."""

from ringfence.models.grammar import as_tree as as_tree
from ringfence.models.identity import model_digest as model_digest
from ringfence.models.load import load_members as load_members
from ringfence.models.load import load_model as load_model
from ringfence.models.registry import NodeKind as NodeKind
from ringfence.models.registry import Source as Source
from ringfence.models.resolve import LoadedModel as LoadedModel
from ringfence.models.resolve import lanes_of as lanes_of
from ringfence.models.resolve import lift_of as lift_of
from ringfence.models.resolve import procedure_for as procedure_for
from ringfence.models.resolve import root_is_sound as root_is_sound
from ringfence.models.weights import read_weights as read_weights
