"""Where work runs; every engine gives the same records."""

from ringfence.engines.local import certify_into

__all__ = ["certify_into"]
