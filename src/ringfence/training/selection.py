"""Labels that a fixed network's answers under noise give: ACES's selection (Horvath et al. 2022), CAT-RS's soft labels.

Its answers to n noisy copies of every training input are counted once, by the sampling engine, and kept beside the
checkpoints: a training that goes on counts nothing anew, and all members share them.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import ClassVar, NoReturn, final

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load, save

from ringfence.errors import ArgumentError, StoreError
from ringfence.models import LoadedModel
from ringfence.noise import Gaussian
from ringfence.sampling import vote_counts
from ringfence.store.atomic import reading_errors, write_atomically, writing_errors
from ringfence.training.data_on_device import DeviceData
from ringfence.types import IntArray

SELECTION_STAGE = -3
"""The stream of these draws: certification counts stages from 0, so what trains a selector never certifies."""

COUNTS_FILE = "selection.safetensors"
STORE_SECONDS = 30.0
"""Between two writes while counting: a killed process loses no more than that."""

UNKNOWN = -1

Report = Callable[[int, int, float], None]
"""Takes how far a session is: inputs counted, draws so far, seconds since its start."""


class Answers(ABC):
    """counts (N, ...): of a classifier's answers to n noisy copies of each input; UNKNOWN where not counted yet."""

    file: ClassVar[str]

    def __init__(
        self, classifier: LoadedModel, data: DeviceData, sigma: float, n: int, folder: Path, seed: int = 0
    ) -> None:
        self._classifier, self._data, self._noise, self._n, self._seed = classifier, data, Gaussian(sigma), n, seed
        self._path = folder / self.file
        self._key = _identity(classifier, data, sigma, n, seed)
        self.counts: IntArray = self._stored()

    @abstractmethod
    def row(self, label: int, votes: IntArray) -> IntArray | int:
        """What is kept of an input's votes (K,)."""

    @property
    @abstractmethod
    def width(self) -> tuple[int, ...]:
        """The shape of it."""

    @property
    def done(self) -> int:
        """Inputs counted so far."""
        return int((self.counts.reshape(len(self.counts), -1)[:, 0] != UNKNOWN).sum())

    def count(self, device: torch.device, report: Report = lambda inputs, draws, seconds: None) -> None:
        """Count what is not known yet; interrupted, it goes on from there."""
        todo = np.flatnonzero(self.counts.reshape(len(self.counts), -1)[:, 0] == UNKNOWN).tolist()
        if not todo:
            return
        begin = stored = time.monotonic()
        inputs = ((at, self._data.x[at]) for at in todo)
        counts = vote_counts(
            self._classifier.at_input,
            inputs,
            self._noise,
            self._n,
            stage=SELECTION_STAGE,
            seed=self._seed,
            device=device,
        )
        try:
            for number, (at, votes) in enumerate(counts, start=1):
                self.counts[at] = self.row(int(self._data.y[at]), _checked(votes))
                report(number, number * self._n, time.monotonic() - begin)
                if time.monotonic() - stored > STORE_SECONDS:
                    self._store()
                    stored = time.monotonic()
        finally:
            self._store()

    def _stored(self) -> IntArray:
        """What an earlier session counted of exactly this; nothing otherwise."""
        unknown = np.full((len(self._data), *self.width), UNKNOWN, np.int64)
        if not self._path.exists():
            return unknown
        with reading_errors(self._path):
            content = self._path.read_bytes()
        try:
            found = load(content)
        except (SafetensorError, ValueError) as error:
            rule, remedy = "must be readable counts", "Delete this file; they are counted anew."
            raise StoreError(str(self._path), rule, error, remedy) from error
        return found[self._key].numpy().copy() if self._key in found else unknown

    def _store(self) -> None:
        with writing_errors(self._path):
            self._path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self._path, save({self._key: torch.from_numpy(self.counts)}))


@final
class RightAnswers(Answers):
    """hits (N,): right answers among n; from them the labels of ACES's selection network."""

    file = COUNTS_FILE

    @property
    def width(self) -> tuple[int, ...]:
        """One number per input."""
        return ()

    @property
    def hits(self) -> IntArray:
        """Right answers of each input."""
        return self.counts

    def row(self, label: int, votes: IntArray) -> int:
        """Votes for the label."""
        if label >= len(votes):
            _refuse(f"{len(votes)} classes and the label {label}")
        return int(votes[label])

    def labels(self, eta: float) -> DeviceData:
        """The same inputs with label 1[hits / n >= eta]; both labels must occur."""
        worth = self.hits / self._n >= eta
        if worth.all() or not worth.any():
            rule = "must part the training inputs in two"
            remedy = "Raise eta or sigma." if worth.all() else "Lower eta or sigma, or train the classifier further."
            received = f"{eta:g}, with which {'every' if worth.all() else 'no'} input is worth certifying"
            raise ArgumentError("--set eta", rule, received, remedy)
        return DeviceData(self._data.x, torch.from_numpy(worth.astype(np.int64)).to(self._data.y.device), 2)


@final
class ClassVotes(Answers):
    """counts (N, K): votes for every class; as shares, the soft labels of CAT-RS."""

    file = "soft-labels.safetensors"

    @property
    def width(self) -> tuple[int, ...]:
        """A number for each class."""
        return (self._data.num_classes,)

    def row(self, label: int, votes: IntArray) -> IntArray:
        """All of them."""
        if len(votes) != self._data.num_classes:
            _refuse(f"{len(votes)} classes where the data has {self._data.num_classes}")
        return votes

    def labelled(self) -> DeviceData:
        """The same data with the class shares as soft labels; invalid scores are no class, and leave the rest."""
        counted = torch.from_numpy(self.counts).to(self._data.x.dtype)
        return replace(self._data, soft=counted / counted.sum(1, keepdim=True).clamp_min(1))


def _checked(votes: IntArray) -> IntArray:
    """Votes (1, K+1) of one classifier without the last cell, which holds invalid scores and is no class: (K,)."""
    if len(votes) != 1:
        _refuse(f"{len(votes)} classifiers")
    return votes[0, :-1]


def _refuse(received: str) -> NoReturn:
    raise ArgumentError("--classifier", "must have the data's classes", received, "Use the network for this data.")


def _identity(classifier: LoadedModel, data: DeviceData, sigma: float, n: int, seed: int) -> str:
    """What the counts depend on, in one word."""
    digest = blake2b(f"{classifier.digest}|{sigma!r}|{n}|{seed}|{tuple(data.x.shape)}".encode(), digest_size=16)
    for part in (data.x, data.y):
        digest.update(part.cpu().contiguous().numpy().data)
    return digest.hexdigest()
