"""Packing: requests of many inputs become full batches. Only draw indices matter, never completion order."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from ringfence.sampling.seeds import CHUNK

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


@dataclass(frozen=True)
class Segment:
    """rows consecutive draws of one chunk, beginning at its row first; last: they complete their request."""

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
            chunk, first = divmod(r.start, CHUNK)
            rows = min(CHUNK - first, r.draws, room)
            rest = r.draws - rows
            taken.append(Segment(r.slot, r.input_id, r.stage, chunk, first, rows, r.last and not rest))
            if rest:
                self._queue.appendleft(Request(r.slot, r.input_id, r.stage, r.start + rows, rest, r.last))
            room -= rows
        self.pending -= batch - room
        return taken

    def put_back(self, segments: list[Segment]) -> None:
        """Undo take, for a batch that did not fit into memory."""
        for s in reversed(segments):
            start = s.chunk * CHUNK + s.first
            self._queue.appendleft(Request(s.slot, s.input_id, s.stage, start, s.rows, s.last))
            self.pending += s.rows
