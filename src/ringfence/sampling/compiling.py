"""torch.compile, told what it must know before its first use. No earlier: loading it takes longer than all the rest."""

from __future__ import annotations

from functools import lru_cache
from inspect import unwrap
from typing import Any

import torch

from ringfence.classifiers import KConsensus, Members
from ringfence.sampling import readout

RECOMPILATIONS = 64


def compiled(run: Any, mode: str | None = None) -> Any:
    """A function or a network, compiled for fixed shapes."""
    prepare_compiler()
    return torch.compile(run, dynamic=False, mode=mode)


@lru_cache(maxsize=1)
def prepare_compiler() -> None:
    """Once: what is compiled apart, and that one code may be compiled often."""
    # For every Forward of a process, member, mode and frozen parameter anew.
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, RECOMPILATIONS)
    # What these call is compiled, each call by itself. Members of one architecture then share one forward, whose
    # weights are arguments, and ten of them compile (and autotune) in the time of one. The undecided rows of a
    # K-consensus differ in number from batch to batch: as part of one graph they would be compiled for each number.
    apart: Any = torch.compiler.disable
    for owner, name in ((Members, "each"), (KConsensus, "score")):
        setattr(owner, name, apart(unwrap(getattr(owner, name)), recursive=False))  # tests wrap it to check its types
    # Traced, a grid of thresholds would be copied to the device for every batch.
    readout.grid_of = apart(readout.grid_of)
