"""Which foreign code a model spec would run: what must be asked before a stranger's run folder names the model."""

from __future__ import annotations

from pathlib import Path

from ringfence.models.denoised_spec import split_denoised
from ringfence.models.weights import split_weights

OURS = "ringfence.classifiers.architectures."
"""Factories of this package, which a spec may name like anybody's."""


def foreign_code(spec: str) -> list[str]:
    """What loading the spec would execute, in words; empty for weights of known architectures, which are only read."""
    if spec.partition(":")[0] == "denoised":
        return [told for part in split_denoised(spec) for told in foreign_code(part)]
    name, _ = split_weights(spec)
    place, colon, factory = name.rpartition(":")
    if name.partition(":")[0] in ("default", "zoo"):
        return []
    if Path(name).suffix == ".pt2":
        return [f"the program in {name}"]
    if not colon or place.startswith(OURS):
        return []
    return [
        f"{place}, and {factory}() in it" if place.endswith(".py") else f"the module {place}, and {factory}() in it"
    ]
