"""Tables of batches for kernels: what they hold, and that no room is written while it is still copied."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import ringfence as rf
from ringfence.sampling import CHUNK, chunk_key, supply
from ringfence.sampling.draws import Segment, pieces
from ringfence.sampling.remembered import Filling
from ringfence.sampling.supply import QUEUED, Supply, Tables

CPU = torch.device("cpu")


class Event:
    """Of a copy; it has been made once somebody has waited for it."""

    def __init__(self) -> None:
        self.waited = False

    def synchronize(self) -> None:
        self.waited = True


@pytest.fixture(autouse=True)
def plain_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supply, "_pinned", lambda batch: torch.empty(3, batch, dtype=torch.int64))


def test_a_table_has_every_rows_slot_key_and_place() -> None:
    made = Supply(rf.Gaussian(0.25), 7, (2,), CPU, 9)
    made._stream = SimpleNamespace(record_event=Event)  # type: ignore[assignment]
    segments = [Segment(3, 40, 1, 150, 130, True), Segment(5, 41, 0, 0, 60, False)]
    found = made._table(pieces(7, segments), 200, Filling((2, 4))).numpy()
    draws = [(3, 40, 1, 150 + i) for i in range(130)] + [(5, 41, 0, i) for i in range(60)]
    keys = np.array([chunk_key(7, one, stage, draw // CHUNK) for _, one, stage, draw in draws], np.uint64)
    assert found[0].tolist() == [*(slot for slot, *_ in draws), *[9 + 2, 9 + 4] * 5]
    assert found[1].tolist() == [*keys.view(np.int64).tolist(), *[0] * 10]
    assert found[2].tolist() == [*(draw % CHUNK for *_, draw in draws), *[-1] * 10]


def test_a_room_is_written_again_only_after_its_copy() -> None:
    tables, copies = Tables(), dict[int, Any]()
    kept: list[Tensor] = []  # so that no two have one address
    for batch in [8] * 20 + [4] * 20:
        room = tables.room(batch)
        assert room.shape == (3, batch)
        if room.data_ptr() in copies:
            assert copies[room.data_ptr()].waited
        kept.append(room)
        copies[room.data_ptr()] = event = Event()
        tables.sent(room, event)  # type: ignore[arg-type]
    assert len(copies) == 2 * (QUEUED + 1)
