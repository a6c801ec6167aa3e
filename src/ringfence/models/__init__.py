"""Model specs: the embedded default, architectures with weights, factories, exported programs, checkpoints."""

from ringfence.models.load import LoadedModel, load_model
from ringfence.models.weights import Weights, model_digest, read_weights, state_digest

__all__ = ["LoadedModel", "Weights", "load_model", "model_digest", "read_weights", "state_digest"]
