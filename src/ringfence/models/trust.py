"""Which foreign code a model spec would run: what must be asked before a stranger's run folder names the model."""

from __future__ import annotations

import re
from pathlib import Path

from ringfence.models.grammar import Node, as_tree
from ringfence.models.registry import named_models, settle
from ringfence.models.weights import split_weights

_OUR_MODULES = re.compile(r"ringfence\.classifiers\.architectures(\.[a-z_]+)*")
"""Modules of this package, whose networks a spec may name like anybody's."""


def foreign_code(spec: str) -> list[str]:
    """What loading the spec would execute, in words; empty for weights of known architectures, which are only read."""
    tree = as_tree(spec)
    if isinstance(tree, Node):
        parts = (*tree.models, *named_models(settle(tree)).values())
        return [told for part in parts for told in foreign_code(str(part))]
    name, _ = split_weights(tree.text)
    place, colon, factory = name.rpartition(":")
    if name.partition(":")[0] in ("default", "zoo"):
        return []
    if Path(name).suffix == ".pt2":
        return [f"the program in {name}"]
    if place.endswith(".py"):  # a file, whatever its name looks like
        return [f"{place}, and {factory}() in it"]
    if not colon or _OUR_MODULES.fullmatch(place):
        return []
    return [f"the module {place}, and {factory}() in it"]
