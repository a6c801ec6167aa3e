"""Where things of a user are kept from one process to the next. Nothing heavy is imported here."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder(variable: str, kind: str) -> Path:
    """The folder that an environment variable names, else one of this kind in the user's cache."""
    if named := os.environ.get(variable):
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ringfence" / kind
