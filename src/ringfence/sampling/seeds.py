"""The key of a chunk of draws: a function of (run seed, input id, stage, chunk) and of nothing else."""

from __future__ import annotations

import struct
from hashlib import blake2b

CHUNK = 100
"""Draws per key. Fixed for ever: it is part of what a seed means."""


def chunk_key(seed: int, input_id: int, stage: int, chunk: int) -> int:
    """64-bit key of draws [chunk*CHUNK, (chunk+1)*CHUNK) of one stage of one input."""
    packed = struct.pack("<4q", seed, input_id, stage, chunk)
    return int.from_bytes(blake2b(packed, digest_size=8).digest(), "little")
