"""Where work runs; every engine gives the same records."""

from ringfence.engines.into_folder import Started, certify_into, start

__all__ = ["Started", "certify_into", "start"]
