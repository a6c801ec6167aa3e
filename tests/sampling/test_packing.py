"""Requests become full batches that cover every draw once, in order."""

from __future__ import annotations

import struct
from hashlib import blake2b

from hypothesis import given
from hypothesis import strategies as st

from ringfence.sampling import CHUNK
from ringfence.sampling.draws import Packer, Segment, pieces

requests = st.lists(
    st.builds(
        Segment,
        slot=st.integers(0, 5),
        input_id=st.integers(0, 5),
        stage=st.integers(0, 2),
        start=st.integers(0, 350),
        rows=st.integers(1, 450),
        last=st.just(True),
    ),
    max_size=8,
)


def expanded(segments: list[Segment]) -> list[tuple[int, int, int, int]]:
    """(slot, id, stage, draw index) of every row."""
    return [(s.slot, s.input_id, s.stage, s.start + row) for s in segments for row in range(s.rows)]


@given(requests, st.integers(1, 300))
def test_batches_are_full_and_cover_every_draw_once_in_order(asked: list[Segment], batch: int) -> None:
    packer = Packer()
    for request in asked:
        packer.add(request)
    total = sum(request.rows for request in asked)
    assert packer.pending == total
    batches = []
    while packer.pending:
        batches.append(packer.take(batch))
    assert packer.take(batch) == []
    sizes = [sum(segment.rows for segment in one) for one in batches]
    assert all(size == batch for size in sizes[:-1])
    assert sum(sizes) == total
    segments = [segment for one in batches for segment in one]
    assert expanded(segments) == expanded(asked)
    assert all(segment.rows >= 1 for segment in segments)
    # Exactly the row that completes a request says so.
    ends = [(s.slot, s.start + s.rows) for s in segments if s.last]
    assert ends == [(r.slot, r.start + r.rows) for r in asked]


@given(requests, st.integers(1, 300), st.integers(-(2**63), 2**63 - 1))
def test_pieces_have_every_draw_at_its_place_under_the_key_of_its_chunk(
    asked: list[Segment], batch: int, seed: int
) -> None:
    """The keys as they are defined, one by one."""
    packer = Packer()
    for request in asked:
        packer.add(request)
    while packer.pending:
        segments = packer.take(batch)
        found = pieces(seed, segments)
        assert all(1 <= rows <= CHUNK - first for first, rows in zip(found.first, found.rows, strict=True))
        rows = [
            (slot, key, first + row)
            for slot, key, first, count in zip(*(one.tolist() for one in found), strict=True)
            for row in range(count)
        ]
        assert rows == [
            (slot, defined(seed, input_id, stage, draw // CHUNK), draw % CHUNK)
            for slot, input_id, stage, draw in expanded(segments)
        ]


def defined(seed: int, input_id: int, stage: int, chunk: int) -> int:
    packed = struct.pack("<4q", seed, input_id, stage, chunk)
    return int.from_bytes(blake2b(packed, digest_size=8).digest(), "little")


def test_no_segments_are_no_pieces() -> None:
    assert [len(one) for one in pieces(0, [])] == [0, 0, 0, 0]


@given(requests, st.integers(1, 300), st.integers(1, 300), st.integers(1, 3))
def test_putting_back_restores_the_queue(asked: list[Segment], batch: int, smaller: int, taken: int) -> None:
    packer = Packer()
    for request in asked:
        packer.add(request)
    held = [packer.take(batch) for _ in range(taken)]
    for segments in reversed(held):
        packer.put_back(segments)
    assert packer.pending == sum(request.rows for request in asked)
    again = []
    while packer.pending:
        again += packer.take(smaller)
    assert expanded(again) == expanded(asked)
    assert sum(segment.last for segment in again) == len(asked)
