"""Draws: chunks of them, each with a key of its own, and requests of many inputs packed into full batches.

A key is a function of (run seed, input id, stage, chunk) and of nothing else. In packing only the
indices of draws matter, never the order in which they are complete.
"""

from __future__ import annotations

import struct
from collections import deque
from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple

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


PADDING = 8
"""Slots behind those of the inputs, for the rows that fill up a batch: they hold rows that are asked again."""


@dataclass(frozen=True)
class Request:
    """Draws [start, start+draws) of a stage of the input in a slot; last: they complete what was asked for."""

    slot: int
    input_id: int
    stage: int
    start: int
    draws: int
    last: bool = True


class Segment(NamedTuple):
    """rows consecutive draws of one chunk, beginning at its row first; last: they complete their request.

    A tuple, because a large batch has hundreds.
    """

    slot: int
    input_id: int
    stage: int
    chunk: int
    first: int
    rows: int
    last: bool

    @property
    def whole(self) -> bool:
        """Whether the segment is its entire chunk, which can then be drawn in place."""
        return self.rows == CHUNK


class Packer:
    """A first-in first-out queue of requests, cut into segments only as batches take them: memory is flat in n."""

    def __init__(self) -> None:
        self._queue: deque[Request] = deque()
        self.pending = 0

    def add(self, request: Request) -> None:
        """Queue a request."""
        self._queue.append(request)
        self.pending += request.draws

    def take(self, batch: int) -> list[Segment]:
        """At most batch rows from the front, one segment per chunk they touch."""
        taken: list[Segment] = []
        room = batch
        while room and self._queue:
            r = self._queue.popleft()
            at, end, stop = r.start, r.start + r.draws, r.start + min(r.draws, room)
            room -= stop - at
            while at < stop:
                chunk, first = divmod(at, CHUNK)
                rows = min(CHUNK - first, stop - at)
                at += rows
                taken.append(Segment(r.slot, r.input_id, r.stage, chunk, first, rows, r.last and at == end))
            if stop < end:
                self._queue.appendleft(Request(r.slot, r.input_id, r.stage, stop, end - stop, r.last))
        self.pending -= batch - room
        return taken

    def put_back(self, segments: list[Segment]) -> None:
        """Undo take, for a batch that did not fit into memory."""
        for s in reversed(segments):
            start = s.chunk * CHUNK + s.first
            self._queue.appendleft(Request(s.slot, s.input_id, s.stage, start, s.rows, s.last))
            self.pending += s.rows
