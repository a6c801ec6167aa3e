"""Requests become full batches that cover every draw once, in order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ringfence.sampling import CHUNK
from ringfence.sampling.draws import Packer, Request, Segment

requests = st.lists(
    st.builds(
        Request,
        slot=st.integers(0, 5),
        input_id=st.integers(0, 5),
        stage=st.integers(0, 2),
        start=st.integers(0, 350),
        draws=st.integers(1, 450),
    ),
    max_size=8,
)


def expanded(segments: list[Segment]) -> list[tuple[int, int, int, int]]:
    """(slot, id, stage, draw index) of every row."""
    return [(s.slot, s.input_id, s.stage, s.chunk * CHUNK + s.first + row) for s in segments for row in range(s.rows)]


def wanted(asked: list[Request]) -> list[tuple[int, int, int, int]]:
    return [(r.slot, r.input_id, r.stage, r.start + i) for r in asked for i in range(r.draws)]


@given(requests, st.integers(1, 300))
def test_batches_are_full_and_cover_every_draw_once_in_order(asked: list[Request], batch: int) -> None:
    packer = Packer()
    for request in asked:
        packer.add(request)
    total = sum(request.draws for request in asked)
    assert packer.pending == total
    batches = []
    while packer.pending:
        batches.append(packer.take(batch))
    assert packer.take(batch) == []
    sizes = [sum(segment.rows for segment in one) for one in batches]
    assert all(size == batch for size in sizes[:-1])
    assert sum(sizes) == total
    segments = [segment for one in batches for segment in one]
    assert expanded(segments) == wanted(asked)
    for segment in segments:
        assert segment.first >= 0
        assert 1 <= segment.rows <= CHUNK - segment.first
        assert segment.whole == (segment.rows == CHUNK)
    # Exactly the row that completes a request says so.
    ends = [(s.slot, s.chunk * CHUNK + s.first + s.rows) for s in segments if s.last]
    assert ends == [(r.slot, r.start + r.draws) for r in asked]


@given(requests, st.integers(1, 300), st.integers(1, 300), st.integers(1, 3))
def test_putting_back_restores_the_queue(asked: list[Request], batch: int, smaller: int, taken: int) -> None:
    packer = Packer()
    for request in asked:
        packer.add(request)
    held = [packer.take(batch) for _ in range(taken)]
    for segments in reversed(held):
        packer.put_back(segments)
    assert packer.pending == sum(request.draws for request in asked)
    again = []
    while packer.pending:
        again += packer.take(smaller)
    assert expanded(again) == wanted(asked)
    assert sum(segment.last for segment in again) == len(asked)
