"""Answers of a fixed classifier under noise: what labels of some objectives are made from.

Its answers to n noisy copies of every training input are counted once, by the sampler, and kept beside the
checkpoints: a training that goes on counts nothing anew, and all members share them, as do trainings in folders beside
it that ask the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from typing import NoReturn, final

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from ringfence.driver import batches
from ringfence.errors import ArgumentError, StoreError
from ringfence.models import LoadedModel
from ringfence.noise import Gaussian, Noise, noise_with
from ringfence.sampling import (
    Finished,
    ForwardPlan,
    Precision,
    Sampler,
    Votes,
    count_classes,
    fastest_plan,
    on_device,
)
from ringfence.store.atomic import reading_errors, write_atomically, writing_errors
from ringfence.training.data import DeviceData
from ringfence.training.objectives.base import Questions
from ringfence.types import IntArray

LABELLING_STAGE = -3
"""The stream of these draws: certification counts stages from 0, so what labels a training never certifies."""

ANSWERS_FILE = "answers.safetensors"
STORE_SECONDS = 30.0
"""Between two writes while counting: a killed process loses no more than that."""

UNKNOWN = -1

Report = Callable[[int, int, float], None]
"""Takes how far a session is: inputs counted, draws so far, seconds since its start."""


@final
class Answers:
    """votes (N, K): how many of the noisy copies of each input got each class; UNKNOWN where not counted yet."""

    def __init__(
        self,
        classifier: LoadedModel,
        data: DeviceData,
        questions: Questions,
        folder: Path,
        seed: int = 0,
        family: str = Gaussian.name,
        precision: Precision = "fp32",
        compile: bool = False,
    ) -> None:
        classes, top = _classes(classifier, data), int(data.y.max())
        if questions.every_class and classes != data.num_classes:
            _refuse(f"{classes} classes where the data has {data.num_classes}")
        if classes <= top:
            _refuse(f"{classes} classes and the label {top}")
        self._classifier, self._data, self._questions, self._seed = classifier, data, questions, seed
        self._family, self._precision, self._compile = family, precision, compile
        self._path, self._classes = folder / ANSWERS_FILE, classes
        self._key = _identity(classifier, data, questions, seed, family, precision)
        self.votes: IntArray = self._stored()

    @property
    def done(self) -> int:
        """Inputs counted so far."""
        return int((self.votes[:, 0] != UNKNOWN).sum())

    def count(self, device: torch.device, report: Report = lambda inputs, draws, seconds: None) -> None:
        """Count what is not known yet; interrupted, it goes on from there."""
        todo = np.flatnonzero(self.votes[:, 0] == UNKNOWN).tolist()
        if not todo:
            if not self._path.exists():  # they came from beside it, and its folder may travel alone
                self._store()
            return
        begin = stored = time.monotonic()
        inputs = ((at, self._data.x[at]) for at in todo)
        noise, draws = noise_with(self._family, self._questions.sigma), self._questions.draws
        counts = vote_counts(
            self._classifier.at_input,
            inputs,
            noise,
            draws,
            stage=LABELLING_STAGE,
            seed=self._seed,
            device=device,
            precision=self._precision,
            compile=self._compile,
        )
        try:
            for number, (at, votes) in enumerate(counts, start=1):
                if len(votes) != 1:
                    _refuse(f"{len(votes)} classifiers")
                self.votes[at] = votes[0, :-1]  # the last cell holds invalid scores, which are no class
                report(number, number * draws, time.monotonic() - begin)
                if time.monotonic() - stored > STORE_SECONDS:
                    self._store()
                    stored = time.monotonic()
        finally:
            self._store()

    def _stored(self) -> IntArray:
        """What was counted of exactly this by an earlier session, else for a training beside it; nothing otherwise."""
        if self._path.exists() and (own := self._counts_in(self._path)) is not None:
            return own
        beside = list[IntArray]()
        for path in self._path.parent.parent.glob(f"*/{ANSWERS_FILE}"):
            with suppress(StoreError):  # of a damaged one its own training tells
                if (found := self._counts_in(path)) is not None:
                    beside.append(found)
        unknown = np.full((len(self._data), self._classes), UNKNOWN, np.int64)
        return max(beside, key=lambda one: int((one[:, 0] != UNKNOWN).sum()), default=unknown)

    def _counts_in(self, path: Path) -> IntArray | None:
        with reading_errors(path):
            content = path.read_bytes()
        try:
            found = load(content)
        except (SafetensorError, ValueError) as error:
            rule, remedy = "must be readable counts", "Delete this file; they are counted anew."
            raise StoreError(path, rule, error, remedy) from error
        return found[self._key].numpy().copy() if self._key in found else None

    def _store(self) -> None:
        with writing_errors(self._path):
            self._path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self._path, save({self._key: torch.from_numpy(self.votes)}))


@torch.no_grad()
def _classes(classifier: LoadedModel, data: DeviceData) -> int:
    """How many it has; asked with an input where only a forward pass can tell."""
    return classifier.num_classes or int(classifier.at_input(data.x[:1].cpu()).shape[-1])


def _refuse(received: str) -> NoReturn:
    raise ArgumentError("classifier", "must have the data's classes", received, "Use the network for this data.")


def _identity(
    classifier: LoadedModel, data: DeviceData, questions: Questions, seed: int, family: str, precision: Precision
) -> str:
    """What the counts depend on, in one word."""
    about = f"{classifier.digest}|{questions.sigma!r}|{questions.draws}|{seed}|{tuple(data.x.shape)}"
    about += "" if family == Gaussian.name else f"|{family}"
    about += "" if precision == "fp32" else f"|{precision}"
    digest = blake2b(about.encode(), digest_size=16)
    for part in (data.x, data.y):
        digest.update(part.cpu().contiguous().numpy().data)
    return digest.hexdigest()


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
    precision: Precision = "fp32",
    compile: bool = False,
) -> Iterator[tuple[int, IntArray]]:
    """(id, votes (lanes, K+1)) of every input as it is complete; the last cell counts invalid scores.

    inputs: ids and tensors (*shape), all of one shape. stage: the stream of the draws, negative, so that what is
    counted here never takes part in a certificate, whose stages count from 0. precision, compile: of a plan that is
    not given.
    """
    if draws < 1:
        raise ArgumentError("draws", "must be at least 1", draws, "Usual values are 10 to 1000.")
    queue, device = iter(inputs), device or torch.device("cpu")
    first = next(queue, None)
    if first is None:
        return
    queue, shape = chain([first], queue), tuple(first[1].shape)
    classifier = on_device(classifier, device)
    classes = count_classes(classifier, first[1], device)
    keep = plan is not None
    plan = plan or fastest_plan(classifier, shape, classes, device, precision, compile)
    sampler = Sampler(classifier, noise, (Votes(),), classes, plan, device, shape, seed, None, [first[1]], keep)
    ids: dict[int, int] = {}

    def begin(item: tuple[int, Tensor]) -> None:
        slot = sampler.admit(*item)
        ids[slot] = item[0]
        sampler.submit(slot, stage, 0, draws)

    def settle(finished: Finished) -> Iterator[tuple[int, IntArray]]:
        votes = finished.tally.cells["votes"].reshape(len(finished.slots), sampler.lanes, classes + 1)
        for slot, counted in zip(finished.slots.tolist(), votes, strict=True):
            sampler.release(slot)
            yield ids.pop(slot), counted

    for _, counts in batches(sampler, queue, begin, settle):
        yield from counts
