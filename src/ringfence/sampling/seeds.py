"""The key of a chunk of draws: a function of (run seed, input id, stage, chunk) and of nothing else."""

from __future__ import annotations

import struct
from hashlib import blake2b

from ringfence.errors import ArgumentError

CHUNK = 100
"""Draws per key. Fixed for ever: it is part of what a seed means."""


def check_seed(seed: int) -> None:
    """A run's seed is one signed 64-bit number, as it is stored."""
    if not -(2**63) <= seed < 2**63:
        raise ArgumentError("seed", "must fit into 64 bits", seed, "Any number up to 9223372036854775807 will do.")


def chunk_key(seed: int, input_id: int, stage: int, chunk: int) -> int:
    """64-bit key of draws [chunk*CHUNK, (chunk+1)*CHUNK) of one stage of one input."""
    packed = struct.pack("<4q", seed, input_id, stage, chunk)
    return int.from_bytes(blake2b(packed, digest_size=8).digest(), "little")
