"""Rows and clean inputs are asked again now and then: only a network that does not change can be certified."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import islice
from typing import final

import torch
from torch import Tensor, nn

from ringfence.classifiers import Classifier
from ringfence.data import Input
from ringfence.errors import ClassifierError
from ringfence.sampling.agreement import Tolerance, tolerance
from ringfence.sampling.check import ALONE, SINGLE
from ringfence.sampling.devices import beside_batches, without_autocast
from ringfence.sampling.draws import PADDING
from ringfence.sampling.forward import left_early

LEAST_BATCHES = 8
"""Between two times: comparing takes a few small operations, which would be felt in every batch."""
ROWS_FOR_ONE = 200
"""Draws for every row that is asked again: half a percent at most."""
FIRST = PADDING // 2
"""Rows from before the run, in which nothing may change; the rest are rows of the run itself, ever newer ones."""
MOST_LATER = 3
"""Rows of the run that must differ at once to mean a change: one alone may be a vote that rounding decides."""


@dataclass(frozen=True)
class Filling:
    """What stands behind the draws of a batch: remembered rows, by their places, in turn.

    asked: how many of them are to be compared, the batch leaving room for them; kept: the place that the batch's last
    draw takes from then on.
    """

    places: tuple[int, ...]
    asked: int = 0
    kept: int | None = None


@dataclass(frozen=True)
class _Told:
    """On its way from the device: the scores that rows got in a batch, before them those of the row to keep."""

    batch: int
    filling: Filling
    scores: Tensor
    arrived: torch.cuda.Event | None


@final
class Remembered:
    """Noisy rows of the run's inputs and the scores they got; ``confirmed`` is the last batch known to be sound.

    They stand where a batch is filled up. What was counted in a batch may be used once rows asked in that batch or in
    a later one had their old scores. All comparing is done by the host: the device only sends the few scores.
    keeps: whether rows of the run are remembered too; so where no row's scores ever jumped in other company.
    """

    def __init__(self, rows: Tensor, scores: Tensor, within: Tolerance, keeps: bool = True) -> None:
        self.rows = rows[:FIRST].clone()
        self._first, self._keeps = len(self.rows), keeps
        self._scores = torch.zeros(PADDING, *scores.shape[1:], dtype=torch.float32)
        self._scores[: self._first] = scores[:FIRST].cpu()
        self._within = within.to(torch.device("cpu"))
        self.confirmed = 0
        self._told: deque[_Told] = deque()
        self._unread: tuple[int, Filling, Tensor] | None = None
        self._since = self._turn = self._kept = 0

    def next(self, batch: int, now: bool = False) -> Filling:
        """What fills up the next batch, of so many rows; nothing is asked unless it is time, or is to be now."""
        self._since += 1
        affordable = batch if now else max(1, batch * LEAST_BATCHES // ROWS_FOR_ONE)  # few of small batches, as often
        places = self._places(affordable)
        if not now and self._since < max(LEAST_BATCHES, -(-ROWS_FOR_ONE * len(places) // batch)):
            return Filling(places)
        self._since, self._turn = self._since if now else 0, self._turn + 1  # being asked early is no reason to wait
        if now or not self._keeps or affordable <= MOST_LATER:
            return Filling(places, len(places))
        kept = FIRST + self._kept % (PADDING - FIRST)
        self._kept += 1
        return Filling(places, len(places), kept)

    def _places(self, room: int) -> tuple[int, ...]:
        """So many at most: those of the run where enough of them fit in, and at least one from before it."""
        later = min(self._kept, PADDING - FIRST, room - 1)
        later = later if later >= MOST_LATER else 0
        first = [(self._turn + number) % self._first for number in range(min(self._first, room - later))]
        return (*first, *range(FIRST, FIRST + later))

    def forget_later(self) -> None:
        """Rows of the run that were to be kept may never have got scores."""
        self._kept = 0

    def note(self, scores: Tensor, drawn: int, filling: Filling, batch: int) -> None:
        """Take the scores (B, lanes, K) of a batch with so many draws; nothing waits for the device."""
        if not filling.asked:
            whole = drawn + len(filling.places) <= len(scores)
            self._unread = (batch, filling, scores[drawn : drawn + len(filling.places)]) if whole else None
            return
        self._unread = None
        self._send(batch, filling, scores[drawn - (filling.kept is not None) : drawn + filling.asked])

    def catch_up(self, batch: int) -> bool:
        """Compare the rows that filled up this batch though nobody asked; False where there were too few."""
        unread, self._unread = self._unread, None
        if unread is None or unread[0] != batch:
            return False
        self._send(*unread)
        return True

    def _send(self, batch: int, filling: Filling, scores: Tensor) -> None:
        arrived = None
        if scores.is_cuda:
            host = torch.empty(scores.shape, dtype=scores.dtype, pin_memory=True)
            stream = torch.cuda.current_stream(scores.device)
            scores, arrived = host.copy_(scores, non_blocking=True), torch.cuda.Event()  # type: ignore[no-untyped-call]
            arrived.record(stream)
        self._told.append(_Told(batch, filling, scores, arrived))

    def listen(self, wait: bool = False) -> None:
        """Take in what has arrived, or wait for all of it; a network that changed ends the run."""
        while self._told:
            told = self._told[0]
            if told.arrived is not None:
                if wait:
                    told.arrived.synchronize()
                elif not told.arrived.query():  # type: ignore[no-untyped-call]
                    return
            self._told.popleft()
            if self._changed(told):
                raise changed("rows that were asked again")
            if told.filling.kept is not None:
                self._scores[told.filling.kept] = told.scores[0]
            self.confirmed = told.batch

    def _changed(self, told: _Told) -> bool:
        found = told.scores[told.filling.kept is not None :]
        places = torch.tensor(told.filling.places)
        wanted = self._scores[places]
        if torch.equal(found, wanted):
            return False
        off = self._within.off(found, wanted)
        return bool(off[places < FIRST].any()) or int(off[places >= FIRST].sum()) >= MOST_LATER


def changed(rows: str) -> ClassifierError:
    """The refusal of a classifier of which these rows had other scores than before."""
    return ClassifierError(
        "classifier",
        "must stay the same while it is certified",
        f"{rows} had other scores than before",
        "Records since it was last seen unchanged are dropped. Find what changes the model (weights that "
        "are still trained, state kept between calls) and run again with the same seed.",
    )


ASKED_AT_ONCE = 16
"""Inputs that are asked about together: one by one their many small kernels wait for the batches."""
REMEMBERED = 4
"""Of the run's first inputs, asked again beside those whose records are ready."""


@final
class Facts:
    """Every input with what the classifier knows of it before any noise; classifiers that tell none are asked nothing.

    Always so many rows at once, the last one repeated: the last digits of what a network says of an input may depend on
    the size of its batch, and must not on where a run began.
    """

    def __init__(self, classifier: nn.Module, device: torch.device) -> None:
        self._classifier = classifier if isinstance(classifier, Classifier) and classifier.tells_facts else None
        self._apart = beside_batches(device) if self._classifier else nullcontext()
        self._device = device
        self._said: dict[int, tuple[Tensor, Tensor]] = {}  # id -> x and its scores (1, 1, K), until it is confirmed
        self._first: list[tuple[Tensor, Tensor]] = []
        self._within: Tolerance | None = None
        self._asked_at = 0

    def of(self, items: Iterator[Input]) -> Iterator[tuple[Input, Mapping[str, int]]]:
        """The inputs, each with its facts."""
        if self._classifier is None:
            yield from ((item, {}) for item in items)
            return
        while group := list(islice(items, ASKED_AT_ONCE)):
            if len({one.x.shape for one in group}) > 1:  # refused where it is opened
                yield from ((item, {}) for item in group)
                continue
            scores = self._ask([one.x for one in group])
            said = [(one.x, row[None]) for one, row in zip(group, scores, strict=True)]
            if self._within is None:
                self._first, self._within = said[:REMEMBERED], tolerance(scores).alone
                self._check_alone([x for x, _ in said], scores, self._within)
            self._said |= {one.id: each for one, each in zip(group, said, strict=True)}
            yield from zip(group, self._classifier.facts(scores.squeeze(1)), strict=True)

    def due(self, drawn: int) -> bool:
        """Whether asking again is cheap by now, after so many draws of the run."""
        return self._within is None or drawn - self._asked_at >= ASKED_AT_ONCE * ROWS_FOR_ONE

    def confirm(self, ids: Sequence[int], drawn: int) -> None:
        """Ask again about inputs whose records are ready, and about the run's first: all must have their old scores."""
        if self._within is None:
            return
        self._asked_at = drawn
        size = ASKED_AT_ONCE - len(self._first)
        for begin in range(0, len(ids), size):
            again = [*self._first, *(self._said.pop(one) for one in ids[begin : begin + size])]
            found = self._ask([x for x, _ in again])
            if bool(self._within.off(found, torch.cat([scores for _, scores in again])).any()):
                raise changed("clean inputs that were asked about again")

    def _check_alone(self, inputs: list[Tensor], scores: Tensor, within: Tolerance) -> None:
        """Refuse what says of most of a few inputs, each by itself, something else than in their group, as of the noisy
        rows of a run."""
        alone = torch.cat([self._ask([x], rows=1) for x in inputs[:ALONE]])
        if bool(within.off(alone, scores[:ALONE]).float().mean() > 0.5):
            if bool(within.off(self._ask(inputs), scores).any()):
                raise changed("clean inputs that were asked about again")
            rule, received = "must give one row the same scores in every batch", f"clean inputs: {SINGLE}"
            remedy = "Check the core network for what depends on its batch, or on the size of it."
            raise ClassifierError("classifier", rule, received, remedy)

    def _ask(self, inputs: list[Tensor], rows: int = ASKED_AT_ONCE) -> Tensor:
        """Scores (n, 1, K) of clean inputs, at most so many rows of them, on the host."""
        assert self._classifier is not None
        batch = inputs + inputs[-1:] * (rows - len(inputs))
        with self._apart, without_autocast(self._device):
            try:
                scores = self._classifier.clean_scores(torch.stack(batch))
            except (SystemExit, GeneratorExit) as error:
                raise left_early(error) from error
            return scores[: len(inputs)].unsqueeze(1).float().cpu()
