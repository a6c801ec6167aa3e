"""Packing: requests of many inputs become full batches. Only draw indices matter, never completion order."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from ringfence.sampling.seeds import CHUNK


@dataclass(frozen=True)
class Request:
    """Draws [start, start+draws) of a stage of the input in a slot."""

    slot: int
    input_id: int
    stage: int
    start: int
    draws: int


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
    """A first-in first-out queue of segments, cut to fit batches."""

    def __init__(self) -> None:
        self._queue: deque[Segment] = deque()
        self.pending = 0

    def add(self, request: Request) -> None:
        """Queue a request, one segment per chunk it touches."""
        at, end = request.start, request.start + request.draws
        while at < end:
            first = at % CHUNK
            rows = min(CHUNK - first, end - at)
            last = at + rows == end
            self._queue.append(Segment(request.slot, request.input_id, request.stage, at // CHUNK, first, rows, last))
            at += rows
        self.pending += request.draws

    def take(self, batch: int) -> list[Segment]:
        """At most batch rows from the front; the segment that does not fit is cut in two."""
        taken: list[Segment] = []
        room = batch
        while room and self._queue:
            segment = self._queue.popleft()
            if segment.rows > room:
                head, tail = _cut(segment, room)
                self._queue.appendleft(tail)
                segment = head
            taken.append(segment)
            room -= segment.rows
        self.pending -= batch - room
        return taken

    def put_back(self, segments: list[Segment]) -> None:
        """Undo take, for a batch that did not fit into memory."""
        self._queue.extendleft(reversed(segments))
        self.pending += sum(segment.rows for segment in segments)


def _cut(s: Segment, rows: int) -> tuple[Segment, Segment]:
    head = Segment(s.slot, s.input_id, s.stage, s.chunk, s.first, rows, last=False)
    tail = Segment(s.slot, s.input_id, s.stage, s.chunk, s.first + rows, s.rows - rows, s.last)
    return head, tail
