"""Where work runs; every engine gives the same records."""

from ringfence.engines.into_folder import certify_into

__all__ = ["certify_into"]
