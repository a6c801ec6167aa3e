"""Draws: chunks of them, each with a key of its own, and requests of many inputs packed into full batches.

A key is a function of (run seed, input id, stage, chunk) and of nothing else. In packing only the
indices of draws matter, never the order in which they are complete.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Sequence
from hashlib import blake2b
from numbers import Integral
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ringfence.errors import ArgumentError
from ringfence.settings import LARGEST
from ringfence.types import IntArray

Keys = NDArray[np.uint64]

CHUNK = 100
"""Draws per key. Fixed for ever: it is part of what a seed means."""


def check_seed(seed: int) -> None:
    """A run's seed is one signed 64-bit number, as it is stored."""
    remedy = "Any number up to 9223372036854775807 will do."
    if isinstance(seed, bool) or not isinstance(seed, Integral):
        raise ArgumentError("seed", "must be a whole number", repr(seed), remedy)
    if not -LARGEST <= seed < LARGEST:
        raise ArgumentError("seed", "must fit into 64 bits", seed, remedy)


def chunk_key(seed: int, input_id: int, stage: int, chunk: int) -> int:
    """64-bit key of draws [chunk*CHUNK, (chunk+1)*CHUNK) of one stage of one input."""
    return int(keys_of(np.array([(seed, input_id, stage, chunk)], "<i8"))[0])


def keys_of(places: IntArray) -> Keys:
    """Keys (n,) of places (n, 4): seed, input, stage and chunk; a large batch has hundreds."""
    told = []
    for (packed,) in _PACKED.iter_unpack(places.astype("<i8").tobytes()):
        one = _UNUSED.copy()  # in a third of the time that making one takes
        one.update(packed)
        told.append(one.digest())
    return np.frombuffer(b"".join(told), "<u8").astype(np.uint64)


_PACKED, _UNUSED = struct.Struct("32s"), blake2b(digest_size=8)


PADDING = 8
"""Slots behind those of the inputs, for the rows that fill up a batch: they hold rows that are asked again."""


class Segment(NamedTuple):
    """Draws [start, start+rows) of a stage of the input in a slot; last: they complete what was asked for."""

    slot: int
    input_id: int
    stage: int
    start: int
    rows: int
    last: bool = True


class Pieces(NamedTuple):
    """Segments, cut where chunks end, each (n,): slot, key of the chunk, first row of it and how many."""

    slots: IntArray
    keys: Keys
    first: IntArray
    rows: IntArray


def pieces(seed: int, segments: Sequence[Segment]) -> Pieces:
    """In the order of their draws."""
    columns = np.array([one[:5] for one in segments], np.int64).reshape(-1, 5).T
    chunks = columns[3] // CHUNK
    counts = -(-(columns[3] + columns[4]) // CHUNK) - chunks
    which = np.arange(len(counts)).repeat(counts)
    slot, input_id, stage, start, rows = columns[:, which]
    chunk = np.arange(len(which)) + (chunks + counts - counts.cumsum())[which]
    zero = chunk * CHUNK
    begin, end = np.maximum(start, zero), np.minimum(start + rows, zero + CHUNK)
    places = np.array([np.full_like(chunk, seed), input_id, stage, chunk]).T
    return Pieces(slot, keys_of(places), begin - zero, end - begin)


class Packer:
    """A first-in first-out queue of requests, cut only as batches take them: memory is flat in n."""

    def __init__(self) -> None:
        self._queue: deque[Segment] = deque()
        self.pending = 0

    def add(self, request: Segment) -> None:
        """Queue a request."""
        self._queue.append(request)
        self.pending += request.rows

    def take(self, batch: int) -> list[Segment]:
        """At most batch rows from the front, one segment per request they touch."""
        taken: list[Segment] = []
        room = batch
        while room and self._queue:
            asked = self._queue.popleft()
            rows = min(asked.rows, room)
            rest = asked.rows - rows
            taken.append(asked._replace(rows=rows, last=asked.last and not rest))
            if rest:
                self._queue.appendleft(asked._replace(start=asked.start + rows, rows=rest))
            room -= rows
        self.pending -= batch - room
        return taken

    def put_back(self, segments: list[Segment]) -> None:
        """Undo take, for a batch that did not fit into memory."""
        self._queue.extendleft(reversed(segments))
        self.pending += sum(segment.rows for segment in segments)
