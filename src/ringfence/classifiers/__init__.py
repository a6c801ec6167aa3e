"""Everything that turns a batch into scores: modules that wrap one another, and the architectures inside."""

from ringfence.classifiers.normalize import Normalize

__all__ = ["Normalize"]
