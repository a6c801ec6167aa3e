"""YAML that people and strangers write: nothing of it is run, no key stands twice, and no alias blows it up."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import yaml

from ringfence.errors import RingfenceError

MOST = 50_000
"""Values of a file at most, aliases counted wherever they stand."""


class EachOnce(yaml.SafeLoader):  # type: ignore[misc]
    """YAML's plain values, of which every key of a mapping stands once: of two the last would win without a word.

    Nothing is merged by <<, which an alias could make as long as it likes.
    """

    def compose_mapping_node(self, anchor: str | None) -> yaml.MappingNode:
        """As it stands in the file."""
        node = super().compose_mapping_node(anchor)
        keys = Counter(key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode))
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and keys[key.value] > 1:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key.value!r} stands twice", node.start_mark
                )
        return node

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Never."""
        for key, _ in node.value:
            if key.tag == "tag:yaml.org,2002:merge":
                told = "<< is not followed: write out what it would merge"
                raise yaml.constructor.ConstructorError(None, None, told, key.start_mark)


def refuse_too_many(file: Path, found: Any, error: type[RingfenceError]) -> None:
    """Aliases of aliases cost nothing to read, and may be too many values to walk through, or without end."""
    waiting, seen = [found], 0
    while waiting and seen <= MOST:
        one = waiting.pop()
        seen += 1
        waiting += (
            [*one, *one.values()] if isinstance(one, dict) else one if isinstance(one, list | tuple | set) else ()
        )
    if seen > MOST:
        remedy = "Aliases count wherever they stand."
        raise error(file, f"must hold at most {MOST:,} values", "more than that", remedy)
