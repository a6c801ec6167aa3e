"""Facts: what a classifier says of clean inputs, asked when they come and once more before their records leave."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from itertools import islice
from typing import final

import torch
from torch import Tensor, nn

from ringfence.classifiers import Classifier
from ringfence.data import Input
from ringfence.sampling.agreement import Tolerance, tolerance
from ringfence.sampling.forward import left_early
from ringfence.sampling.remembered import ROWS_FOR_ONE, changed
from ringfence.sampling.supply import beside_batches

ASKED_AT_ONCE = 16
"""Inputs that are asked about together: one by one their many small kernels wait for the batches."""
REMEMBERED = 4
"""Of the run's first inputs, asked again beside those whose records are ready."""


@final
class Facts:
    """Every input with what the classifier knows of it before any noise; classifiers that tell none are asked nothing.

    Always so many rows at once, the last one repeated: what a network says of an input may depend on the size of its
    batch, and must not on where a run began.
    """

    def __init__(self, classifier: nn.Module, device: torch.device) -> None:
        self._classifier = classifier if isinstance(classifier, Classifier) and classifier.tells_facts else None
        self._apart = beside_batches(device) if self._classifier else nullcontext()
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

    def _ask(self, inputs: list[Tensor]) -> Tensor:
        """Scores (n, 1, K) of at most ASKED_AT_ONCE clean inputs, on the host."""
        assert self._classifier is not None
        rows = inputs + inputs[-1:] * (ASKED_AT_ONCE - len(inputs))
        with self._apart:
            try:
                scores = self._classifier.clean_scores(torch.stack(rows))
            except (SystemExit, GeneratorExit) as error:
                raise left_early(error) from error
            return scores[: len(inputs)].unsqueeze(1).float().cpu()
