"""Votes counted without a procedure: a fixed number of draws of every input, from which nothing is certified."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

import torch
from torch import Tensor, nn

from ringfence.errors import ArgumentError
from ringfence.noise import Noise
from ringfence.sampling.forward import on_device
from ringfence.sampling.plan import ForwardPlan
from ringfence.sampling.probe import count_classes, fastest_plan
from ringfence.sampling.readout import Votes
from ringfence.sampling.sampler import Sampler
from ringfence.types import IntArray


def vote_counts(
    classifier: nn.Module,
    inputs: Iterable[tuple[int, Tensor]],
    noise: Noise,
    draws: int,
    *,
    stage: int,
    seed: int = 0,
    device: torch.device | None = None,
    plan: ForwardPlan | None = None,
    lanes: Sequence[str] = (),
) -> Iterator[tuple[int, IntArray]]:
    """(id, votes (lanes, K+1)) of every input as it is complete; the last cell counts invalid scores.

    inputs: ids and tensors (*shape), all of one shape. stage: the stream of the draws, negative, so that what is
    counted here never takes part in a certificate, whose stages count from 0. lanes: as in certify().
    """
    if draws < 1:
        raise ArgumentError("draws", "must be at least 1", draws, "Usual values are 10 to 1000.")
    queue, device = iter(inputs), device or torch.device("cpu")
    first = next(queue, None)
    if first is None:
        return
    queue, shape = chain([first], queue), tuple(first[1].shape)
    classifier = on_device(classifier, device)
    classes = count_classes(classifier, first[1], device, lanes)
    keep = plan is not None
    plan = plan or fastest_plan(classifier, shape, classes, device)
    engine = Sampler(classifier, noise, (Votes(),), classes, plan, device, shape, seed, None, [first[1]], keep)
    ids: dict[int, int] = {}
    waiting: deque[tuple[int, int, IntArray]] = deque()  # batch, id, votes: until the classifier was seen unchanged
    while True:
        while engine.hungry and (item := next(queue, None)) is not None:
            slot = engine.admit(*item)
            ids[slot] = item[0]
            engine.submit(slot, stage, 0, draws)
        finished = engine.step()
        if finished is None:
            engine.confirm()
        else:
            votes = finished.tally.cells["votes"].reshape(len(finished.slots), engine.lanes, classes + 1)
            for slot, counted in zip(finished.slots.tolist(), votes, strict=True):
                engine.release(slot)
                waiting.append((engine.batches, ids.pop(slot), counted))
        while waiting and waiting[0][0] <= engine.confirmed:
            yield waiting.popleft()[1:]
        if finished is None:
            return
