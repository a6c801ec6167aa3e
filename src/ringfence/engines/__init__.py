"""Where work runs; every engine gives the same records."""

from ringfence.engines.local import Started, certify_into, start

__all__ = ["Started", "certify_into", "start"]
