"""Settings of schema 1 as settings of schema 2: the one place that knows both."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MIGRATED = {"from": 1, "weights": "state-v1"}
"""Left in the settings of a migrated run: its digest of the weights is the one that schema 1 knew."""


def upgrade(content: Mapping[str, Any]) -> dict[str, Any]:
    """config.json of schema 2 from that of schema 1."""
    extra = content.get("extra", {})
    marked = {**extra, "migrated": MIGRATED} if isinstance(extra, Mapping) else extra
    return {**content, "schema_version": 2, "extra": marked}
