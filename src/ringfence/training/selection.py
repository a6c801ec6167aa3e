"""Labels of ACES's selection network: which training inputs are worth certifying (paper 002, D.3.2; METHODS 7).

The certification network's right answers among n noisy copies of every input are counted once, by the sampling
engine, and kept beside the checkpoints: a training that goes on counts nothing anew, and all members share them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from typing import final

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


@final
class RightAnswers:
    """hits (N,): right answers of a classifier among n noisy copies of each input, UNKNOWN where not counted yet."""

    def __init__(
        self, classifier: LoadedModel, data: DeviceData, sigma: float, n: int, folder: Path, seed: int = 0
    ) -> None:
        self._classifier, self._data, self._noise, self._n, self._seed = classifier, data, Gaussian(sigma), n, seed
        self._path = folder / COUNTS_FILE
        self._key = _identity(classifier, data, sigma, n, seed)
        self.hits: IntArray = self._stored()

    @property
    def done(self) -> int:
        """Inputs counted so far."""
        return int((self.hits != UNKNOWN).sum())

    def count(self, device: torch.device, report: Report = lambda inputs, draws, seconds: None) -> None:
        """Count what is not known yet; interrupted, it goes on from there."""
        todo = np.flatnonzero(self.hits == UNKNOWN).tolist()
        if not todo:
            return
        begin = stored = time.monotonic()
        inputs = ((at, self._data.x[at]) for at in todo)
        counts = vote_counts(
            self._classifier.module,
            inputs,
            self._noise,
            self._n,
            stage=SELECTION_STAGE,
            seed=self._seed,
            device=device,
        )
        try:
            for number, (at, votes) in enumerate(counts, start=1):
                self.hits[at] = _votes_for(int(self._data.y[at]), votes)
                report(number, number * self._n, time.monotonic() - begin)
                if time.monotonic() - stored > STORE_SECONDS:
                    self._store()
                    stored = time.monotonic()
        finally:
            self._store()

    def labels(self, eta: float) -> DeviceData:
        """The same inputs with label 1[hits / n >= eta]; both labels must occur."""
        worth = self.hits / self._n >= eta
        if worth.all() or not worth.any():
            rule = "must part the training inputs in two"
            remedy = "Raise eta or sigma." if worth.all() else "Lower eta or sigma, or train the classifier further."
            received = f"{eta:g}, with which {'every' if worth.all() else 'no'} input is worth certifying"
            raise ArgumentError("--set eta", rule, received, remedy)
        return DeviceData(self._data.x, torch.from_numpy(worth.astype(np.int64)).to(self._data.y.device), 2)

    def _stored(self) -> IntArray:
        """What an earlier session counted of exactly this; nothing otherwise."""
        unknown = np.full(len(self._data), UNKNOWN, np.int64)
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
        write_atomically(self._path, save({self._key: torch.from_numpy(self.hits)}))


def _votes_for(label: int, votes: IntArray) -> int:
    """Votes (1, K+1) for the label; the last cell holds invalid scores and is no class."""
    classes = votes.shape[1] - 1
    if len(votes) != 1 or label >= classes:
        received = f"{len(votes)} classifiers" if len(votes) != 1 else f"{classes} classes and the label {label}"
        raise ArgumentError("--classifier", "must have the data's classes", received, "Use the network for this data.")
    return int(votes[0, label])


def _identity(classifier: LoadedModel, data: DeviceData, sigma: float, n: int, seed: int) -> str:
    """What the counts depend on, in one word."""
    digest = blake2b(f"{classifier.digest}|{sigma!r}|{n}|{seed}|{tuple(data.x.shape)}".encode(), digest_size=16)
    for part in (data.x, data.y):
        digest.update(part.cpu().contiguous().numpy().data)
    return digest.hexdigest()
