"""Supply: noisy batches; on CUDA drawn on a second stream while the network works on the one before."""

from __future__ import annotations

from collections import deque
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import groupby
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from ringfence.noise import Noise
from ringfence.noise.exact import in_steps
from ringfence.sampling.draws import CHUNK, PADDING, Pieces, Segment, chunk_key, pieces
from ringfence.sampling.forward import Forward
from ringfence.sampling.remembered import Filling

QUEUED = 4
"""Batches that the device may have before it; more would only take memory, in which nothing may grow with n."""


@dataclass(frozen=True)
class Prepared:
    """A batch on its way: its segments, the slot of every row (B,), and the noisy inputs (B, *shape).

    drawn: rows that are draws; those behind them fill up the batch.
    On CUDA ``wait`` comes before either tensor is used.
    """

    segments: list[Segment]
    rows: Tensor
    noisy: Tensor
    ready: torch.cuda.Event | None
    drawn: int
    filling: Filling

    def wait(self) -> Tensor:
        """The noisy inputs, usable on the current stream."""
        if self.ready is None:
            return self.noisy
        stream = torch.cuda.current_stream(self.noisy.device)
        # This batch's event, not the whole second stream: the next batch's noise is already queued there.
        stream.wait_event(self.ready)
        self.noisy.record_stream(stream)
        self.rows.record_stream(stream)
        return self.noisy


@final
class Supply:
    """Holds the admitted inputs, draws the noise of segments and adds it to the inputs they belong to.

    On CUDA all of that happens on a stream of its own, which never waits for the network's: so the noise of the next
    batch fills the multiprocessors that the last blocks of a forward leave idle.
    On a lattice inputs are held, and noise is added, in its steps: whole numbers, exact in float32.
    """

    def __init__(self, noise: Noise, seed: int, shape: tuple[int, ...], device: torch.device, slots: int) -> None:
        self._noise, self._seed, self._shape, self._device = noise, seed, shape, device
        self._lattice = noise.law.lattice
        self._room: Tensor | None = None
        self._kept: tuple[int, Tensor] | None = None
        self._queued: deque[torch.cuda.Event] = deque()
        self._tables = Tables()
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]
        with self._aside():
            self._clean = torch.zeros(slots + PADDING, *shape, dtype=torch.float32, device=device)
        self._slots = slots
        self._coming: dict[int, Tensor] = {}  # inputs on the host, for the next batch to take along

    @property
    def ahead(self) -> bool:
        """Whether the next batch may be drawn while the network still works on this one."""
        return self._stream is not None

    def _aside(self) -> AbstractContextManager[Any]:
        return nullcontext() if self._stream is None else torch.cuda.stream(self._stream)

    def admit(self, slot: int, lifted: Tensor) -> None:
        """Place an input (*shape); batches prepared before still see the one that was there."""
        held = self._held(lifted.to(torch.float32))
        if self._stream is None:
            self._clean[slot] = held
        elif not lifted.is_cuda:
            self._coming[slot] = held.detach().clone()  # its owner may write over it
        else:
            self._coming.pop(slot, None)
            self._stream.wait_stream(torch.cuda.current_stream(self._device))  # where it was made
            held.record_stream(self._stream)
            with self._aside():
                self._clean[slot] = held

    def _place_coming(self) -> None:
        """Copy the inputs that were admitted since the last batch, all at once: each alone takes as many calls."""
        if self._coming:
            slots, inputs = torch.tensor(list(self._coming)), torch.stack(list(self._coming.values()))
            self._clean.index_copy_(0, self._sent(slots), self._sent(inputs))
            self._coming.clear()

    def _held(self, x: Tensor) -> Tensor:
        """Inputs in the unit that noise is added in."""
        return x if self._lattice is None else in_steps(x, self._lattice)

    def fill_up_with(self, rows: Tensor) -> None:
        """These rows (n, *shape) fill up batches, n at most PADDING; their places count from 0."""
        for place, row in enumerate(rows):
            self.admit(self._slots + place, row)

    def used(self) -> None:
        """The network's work on the last batch is queued."""
        if self._stream is not None:
            self._queued.append(torch.cuda.current_stream(self._device).record_event())

    def prepare(self, segments: list[Segment], forward: Forward, filling: Filling) -> Prepared:
        """Start drawing; rows beyond the segments are what fills up the batch, in turn."""
        drawn = sum(one.rows for one in segments)
        while len(self._queued) >= QUEUED:
            self._queued.popleft().synchronize()
        cut = pieces(self._seed, segments)
        with self._aside():
            self._place_coming()
            table = self._table(cut, forward.plan.batch, filling)
            noisy = self._draw(cut, table, forward, self._clean)
            if filling.kept is not None:  # here, where it was drawn: nothing has to wait for anything
                self._clean[self._slots + filling.kept] = self._again(noisy[drawn - 1])
            ready = torch.cuda.Event() if self._stream else None  # type: ignore[no-untyped-call]
            if ready:
                ready.record(self._stream)
        return Prepared(segments, table[0], noisy, ready, drawn, filling)

    def _again(self, row: Tensor) -> Tensor:
        """A row as the network saw it (*shape), in the unit of ``_clean``, so that it will see the very same.

        Half precision has left the lattice and keeps its own numbers: times the lattice and back errs far less than
        it resolves.
        """
        if self._lattice is None:
            return row
        return in_steps(row, self._lattice) if row.dtype == torch.float32 else row.to(torch.float32) * self._lattice

    def _sent(self, value: Tensor) -> Tensor:
        """The value on the device, without waiting for the copy."""
        if self._stream is None or value.device.type != "cpu":
            return value.to(self._device)
        return value.pin_memory().to(self._device, non_blocking=True)

    @torch.inference_mode()
    def _draw(self, cut: Pieces, table: Tensor, forward: Forward, clean: Tensor) -> Tensor:
        """clean[slots] + e (B, *shape), ready for the network; rows beyond the pieces get no noise."""
        if self.ahead and self._noise.add(out := forward.room(self._shape), clean, table):
            return out
        noise, at = self._buffer(forward.plan.batch), 0
        every = zip(cut.keys.tolist(), cut.first.tolist(), cut.rows.tolist(), strict=True)
        for whole, some in groupby(every, lambda one: one[2] == CHUNK):
            if whole:
                keys = [key for key, _, _ in some]
                out = noise[at : (at := at + len(keys) * CHUNK)]
                self._noise.fill_chunks(out.view(len(keys), CHUNK, *self._shape), keys)
                continue
            # A draw's noise may not depend on how its chunk was cut: draw the whole chunk, use the rows wanted.
            for key, first, rows in some:
                noise[at : (at := at + rows)] = self._chunk(key)[first : first + rows]
        noise[at:] = 0
        return forward.merge(noise, clean, table[0], self._lattice)

    def _buffer(self, batch: int) -> Tensor:
        """Room for a batch of noise. On the CPU it is the same each time, because fresh pages cost as much as drawing:
        a batch must be used up before the next one is drawn."""
        if self.ahead:
            return torch.empty(batch, *self._shape, dtype=torch.float32, device=self._device)
        if self._room is None or len(self._room) != batch:
            self._room = torch.empty(batch, *self._shape, dtype=torch.float32)
        return self._room

    def _chunk(self, key: int) -> Tensor:
        """All draws of a key (CHUNK, *shape); the last one is kept, because the rest of a cut chunk comes next."""
        if self._kept is None or self._kept[0] != key:
            chunk = torch.empty(CHUNK, *self._shape, dtype=torch.float32, device=self._device)
            self._noise.fill_steps(chunk, key)
            self._kept = (key, chunk)
        return self._kept[1]

    @torch.inference_mode()
    def probe(self, inputs: list[Tensor], rows: int) -> Tensor:
        """Noisy copies (rows, *shape) of the inputs in turn, from keys that no certificate uses (stage -1)."""
        drawn = torch.empty(rows, *self._shape, dtype=torch.float32, device=self._device)
        for chunk, part in enumerate(torch.split(drawn, CHUNK)):
            self._noise.fill_steps(part, chunk_key(self._seed, -1, -1, chunk))
        clean = torch.stack([self._held(one.to(self._device, torch.float32)) for one in inputs])
        drawn.add_(clean[torch.arange(rows, device=self._device) % len(inputs)])
        return drawn if self._lattice is None else drawn.mul_(1 / self._lattice)

    def _table(self, cut: Pieces, batch: int, filling: Filling) -> Tensor:
        """Slot, key and place in its chunk of every row (3, B); where a batch is short: padding slots, no place.

        On the CPU the slots alone (1, B): there noise is drawn piece by piece.
        """
        total = int(cut.rows.sum())
        room = torch.empty(1, batch, dtype=torch.int64) if self._stream is None else self._tables.room(batch)
        table = room.numpy()
        table[0, :total] = cut.slots.repeat(cut.rows)
        if total < batch:
            table[0, total:] = np.resize(self._slots + np.array(filling.places), batch - total)
        if self._stream is None:
            return room
        table[1, :total], table[1, total:] = np.repeat(cut.keys.view(np.int64), cut.rows), 0
        starts = cut.first - (np.cumsum(cut.rows) - cut.rows)
        np.add(np.repeat(starts, cut.rows), np.arange(total), out=table[2, :total])
        table[2, total:] = -1
        sent = room.to(self._device, non_blocking=True)
        self._tables.sent(room, self._stream.record_event())
        return sent


def _pinned(batch: int) -> Tensor:
    return torch.empty(3, batch, dtype=torch.int64, pin_memory=True)


@final
class Tables:
    """Pinned rooms for tables (3, B), each used again once it was copied: pinning takes longer than all else."""

    def __init__(self) -> None:
        self._sent: deque[tuple[Tensor, torch.cuda.Event]] = deque()

    def room(self, batch: int) -> Tensor:
        """One that nobody reads any more."""
        while len(self._sent) > QUEUED:
            room, copied = self._sent.popleft()
            copied.synchronize()
            if room.shape[1] == batch:
                return room
        return _pinned(batch)

    def sent(self, room: Tensor, copied: torch.cuda.Event) -> None:
        """A copy of it is on its way, until this event."""
        self._sent.append((room, copied))
