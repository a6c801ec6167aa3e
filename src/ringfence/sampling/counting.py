"""Votes counted without a procedure: a fixed number of draws of every input, from which nothing is certified."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

import torch
from torch import Tensor, nn

from ringfence.classifiers.base import is_classifier
from ringfence.errors import ArgumentError, ClassifierError, RingfenceError
from ringfence.noise import Noise
from ringfence.sampling.engine import Engine
from ringfence.sampling.forward import left_early
from ringfence.sampling.plan import ForwardPlan
from ringfence.sampling.prepared import placed
from ringfence.sampling.probe import fastest_plan
from ringfence.sampling.readout import Votes
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
    classifier = placed(classifier, device)
    classes = count_classes(classifier, first[1], device, lanes)
    keep = plan is not None
    plan = plan or fastest_plan(classifier, shape, classes, device)
    engine = Engine(classifier, noise, (Votes(),), classes, plan, device, shape, seed, None, [first[1]], keep)
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


@torch.inference_mode()
def count_classes(classifier: nn.Module, x: Tensor, device: torch.device, lanes: Sequence[str] = ()) -> int:
    """K, read off the scores of one input. lanes: their names, without which only a Ringfence classifier has any."""
    batch = x.unsqueeze(0).to(device, torch.float32, copy=True)  # the user's stays as it is
    try:
        scores = placed(classifier, device)(batch)
    except RingfenceError:
        raise
    except (SystemExit, GeneratorExit) as error:
        raise left_early(error) from error
    except Exception as error:
        if isinstance(error, torch.OutOfMemoryError):
            raise
        rule, raised = f"must accept a batch of shape {tuple(batch.shape)}", f"{type(error).__name__}: {error}"
        raise ClassifierError("classifier", rule, raised, "Check that model and data belong together.") from error
    if not isinstance(scores, Tensor) or scores.dim() not in (2, 3):
        received = tuple(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
        raise ClassifierError("classifier", "must map (B, *shape) to scores (B, K)", received, "Return logits.")
    if scores.shape[-1] < 2:
        rule, remedy = "must return at least two scores per input", "From one logit z make two: torch.cat([-z, z], 1)."
        raise ClassifierError("classifier", rule, f"scores of shape {tuple(scores.shape)}", remedy)
    if scores.dim() == 3 and not is_classifier(classifier) and scores.shape[1] != len(lanes):
        rule = "must map (B, *shape) to scores (B, K), or to (B, lanes, K) with as many names of lanes"
        received = f"scores of shape {tuple(scores.shape)} and {len(lanes)} names"
        raise ClassifierError("classifier", rule, received, "Return (B, K), or name the lanes: certify(..., lanes=).")
    return int(scores.shape[-1])
