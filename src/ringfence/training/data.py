"""Training data as tensors on the device, and what a step hands to an objective: a batch and the noise of the moment.

Batches, crops and flips never leave the device.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import final

import torch
from torch import Tensor

from ringfence.data import Dataset
from ringfence.errors import DataError
from ringfence.noise import Gaussian, Noise


@final
@dataclass(frozen=True)
class Batch:
    """Inputs x (B, *shape) in [0, 1], labels y (B,) int64, and soft labels (B, K) for objectives that ask for them."""

    x: Tensor
    y: Tensor
    soft: Tensor | None = None

    def __len__(self) -> int:
        return len(self.x)

    def under(self, draws: Tensor) -> Tensor:
        """The inputs under draws (m, B, *shape) as rows (m*B, *shape), copies outermost."""
        return rows(self.x, draws)

    def labels(self, copies: int) -> Tensor:
        """The labels of those rows: (m*B,)."""
        return self.y.repeat(copies)

    def copied(self, copies: int) -> Tensor:
        """The inputs of those rows without the noise: (m*B, *shape)."""
        return self.x.repeat(copies, *[1] * (self.x.dim() - 1))


def rows(x: Tensor, draws: Tensor) -> Tensor:
    """x (B, *shape) under draws (m, B, *shape) as one batch (m*B, *shape), copies outermost."""
    return (x + draws).flatten(0, 1)


def _one() -> Tensor:
    return torch.ones(())


@final
@dataclass(frozen=True)
class TrainingNoise:
    """Noise of standard deviation sigma * reached, of the family of ``unit``, whose own scale is 1.

    reached, attack: 0-dimensional tensors on the device, shares in [0, 1] of the noise and attack warm-up; as
    tensors they can change without waiting for the device.
    """

    sigma: float
    reached: Tensor = field(default_factory=_one)
    attack: Tensor = field(default_factory=_one)
    unit: Noise = field(default_factory=partial(Gaussian, 1.0))

    def draw(self, batch: Batch, copies: int, generator: torch.Generator) -> Tensor:
        """Independent draws (m, B, *shape) for the inputs of a batch, float32."""
        return self.unit.standard((copies, *batch.x.shape), generator) * (self.sigma * self.reached)


@final
@dataclass(frozen=True)
class DeviceData:
    """Images x (N, C, H, W) float32 in [0, 1] and labels y (N,) int64, on one device.

    soft: class shares (N, K) for objectives that learn from soft labels too.
    """

    x: Tensor
    y: Tensor
    num_classes: int
    soft: Tensor | None = None

    def __len__(self) -> int:
        return len(self.y)

    def to(self, device: torch.device) -> DeviceData:
        """The same data elsewhere."""
        return self._each(lambda part: part.to(device))

    def batch(self, numbers: Tensor) -> Batch:
        """The inputs of these numbers (B,)."""
        return Batch(self.x[numbers], self.y[numbers], None if self.soft is None else self.soft[numbers])

    def split(self, held_out: int) -> tuple[DeviceData, DeviceData | None]:
        """All but every k-th input for training, and ``held_out`` inputs spread evenly; 0 holds none out."""
        if held_out == 0:
            return self, None
        if not 0 < held_out < len(self):
            rule = f"must leave inputs to train on, of {len(self)}"
            raise DataError("holdout", rule, held_out, "Hold out fewer.")
        chosen = torch.zeros(len(self), dtype=torch.bool, device=self.y.device)
        chosen[torch.arange(held_out, device=self.y.device) * len(self) // held_out] = True
        return self._each(lambda part: part[~chosen]), self._each(lambda part: part[chosen])

    def _each(self, change: Callable[[Tensor], Tensor]) -> DeviceData:
        soft = None if self.soft is None else change(self.soft)
        return DeviceData(change(self.x), change(self.y), self.num_classes, soft)


def load_device_data(dataset: Dataset, num_classes: int | None = None) -> DeviceData:
    """A data set as two tensors on the host; labels must exist, lie in range and name at least two classes."""
    labels = [label for label in dataset.labels if label is not None]
    if len(labels) < len(dataset) or not labels:
        rule = "training needs a label for every input"
        raise DataError(dataset.name, rule, f"{len(labels)} labels for {len(dataset)} inputs", "Save x and y.")
    classes = num_classes or dataset.num_classes or max(labels) + 1
    dataset.check_labels(classes)
    if len(set(labels)) < 2:
        rule = "training needs at least two classes"
        raise DataError(dataset.name, rule, f"label {labels[0]} only", "Use data with several classes.")
    x = torch.stack([dataset.read(position) for position in dataset.positions])
    return DeviceData(x, torch.tensor(labels), classes)


def augment(x: Tensor, crop: int, flip: bool, generator: torch.Generator) -> Tensor:
    """Random crops after ``crop`` pixels of zero padding, random mirror images: (B, C, H, W) -> the same shape."""
    rows, device = len(x), x.device
    if crop:
        height, width = x.shape[-2:]
        padded = torch.nn.functional.pad(x, (crop, crop, crop, crop))
        corner = torch.randint(2 * crop + 1, (2, rows, 1), generator=generator, device=device)
        down = (corner[0] + torch.arange(height, device=device)).view(rows, 1, height, 1)
        across = (corner[1] + torch.arange(width, device=device)).view(rows, 1, 1, width)
        image = torch.arange(rows, device=device).view(rows, 1, 1, 1)
        channel = torch.arange(x.shape[1], device=device).view(1, -1, 1, 1)
        x = padded[image, channel, down, across]
    if flip:
        mirrored = torch.rand(rows, 1, 1, 1, generator=generator, device=device) < 0.5
        x = torch.where(mirrored, x.flip(-1), x)
    return x
