"""Dataset: inputs with the indices the literature gives them, read one at a time."""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from ringfence.digests import hashed
from ringfence.errors import ArgumentError, DataError, RingfenceError
from ringfence.noise.exact import onto_lattice
from ringfence.stats.noise_law import STEPS

SPLITS: Final = {
    "test": ("test", "val", "validation", "valid"),
    "train": ("train",),
    "val": ("val", "validation", "valid"),
}
"""Split -> what it may be called; many data sets publish no labelled test pictures, and their val is one."""

EIGHT_BIT: Final = STEPS
"""Steps per unit of the lattice of 8-bit images in [0, 1]."""

UNREADABLE: Final = (RingfenceError, OSError, ValueError)
"""What reading an input may raise where it cannot be read."""


class InputRangeWarning(UserWarning):
    """Inputs outside [0, 1]: sigma and radii are then not in the usual pixel units."""


@dataclass(frozen=True, eq=False)
class Input:
    """One input: x is float32 of shape (C, H, W), in [0, 1] unless a warning said otherwise; equal to itself alone.

    range_told: whoever made it has looked at its range already, or means it to be what it is. eight_bit: it was given
    as bytes or as a picture of such, and so is in whole steps of 1/255.
    """

    id: int
    x: Tensor
    label: int | None
    name: str
    range_told: bool = False
    eight_bit: bool = False


@dataclass(frozen=True)
class Dataset:
    """Inputs in order.

    ids: their indices in the literature's numbering; labels: one per id, None where unknown;
    read: position in the source -> x; name_of: position in the source -> name; positions: one per id.
    num_classes is None where the source does not say; identify finds the digest, which may mean to read every file.
    lattice: steps per unit of the lattice that all inputs are known to lie on, 255 for 8-bit ones; None: not known.
    misfits: whether pictures, as they are stored, have several sizes or are larger than so many pixels; asked only by
    whoever can do something about it.
    """

    name: str
    ids: list[int]
    labels: list[int | None]
    positions: list[int]
    read: Callable[[int], Tensor]
    name_of: Callable[[int], str]
    shape: tuple[int, ...]
    identify: Callable[[], str]
    num_classes: int | None = None
    class_names: Sequence[str] | None = None
    lattice: int | None = None
    misfits: Callable[[int], bool] = lambda side: False

    def __post_init__(self) -> None:
        if len(set(self.ids)) < len(self.ids):
            twice, count = Counter(self.ids).most_common(1)[0]
            remedy = "Number the inputs anew: records are kept by this number."
            raise DataError(self.name, "every input must have an id of its own", f"id {twice} {count} times", remedy)

    @property
    def digest(self) -> str:
        """What identifies the whole source (ringfence/digests.py); ids are the choice from it."""
        return self.identify()

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: int) -> Input:
        """A copy: ``read`` may write the next input over it, and a few are always read ahead."""
        position, label = self.positions[index], self.labels[index]
        return Input(self.ids[index], self.read(position).clone(), label, self.name_of(position), range_told=True)

    def __iter__(self) -> Iterator[Input]:
        for index in range(len(self)):
            yield self[index]

    @property
    def first_readable(self) -> Tensor:
        """The first input that can be read, to see what fits; refused where there is none."""
        told: list[tuple[str, str]] = []
        for index in range(len(self)):
            try:
                return self[index].x
            except RingfenceError as error:
                told.append((f"{error.argument}: {error.rule}, got {error.received}", error.remedy))
            except (OSError, ValueError) as error:
                told.append((str(error).rstrip("."), "Mend the data."))
        raise DataError("data", "must have inputs that can be read", *(told[0] if told else ("none", "Mend the data.")))

    def every(self, skip: int, limit: int | None = None, first: int = 0) -> Dataset:
        """Every skip-th input from position first on, and at most limit of those."""
        if skip < 1:
            raise ArgumentError("skip", "must be at least 1", skip, "1 takes every input, 20 every 20th.")
        if limit is not None and limit < 1:
            raise ArgumentError("limit", "must be at least 1", limit, "Leave it away to take all inputs.")
        if not 0 <= first < max(len(self), 1):
            rule = f"must be one of the {len(self)} inputs, counted from 0"
            raise ArgumentError("first", rule, first, "0 begins with the first input.")
        stop = None if limit is None else first + skip * limit
        chosen = slice(first, stop, skip)
        return replace(self, ids=self.ids[chosen], labels=self.labels[chosen], positions=self.positions[chosen])

    def on_lattice(self, lattice: int) -> Dataset:
        """The same inputs; those that do not lie on this lattice cannot be read."""
        return replace(self, read=lambda place: onto_lattice(self.name_of(place), self.read(place), lattice))

    def within(self, range: str | None = None, channels: int | None = None) -> Dataset:
        """Values mapped from this range (``0..255``) to [0, 1]; the one channel of grey pictures repeated."""
        if range is None and channels is None:
            return self
        if self.lattice is not None:
            refuse_range(self.name, range)
        before, first = self.read, self.shape
        shape = (channels, *first[1:]) if channels is not None and len(first) == 3 and first[0] == 1 else first
        form = hashed([f"{range}|{channels}".encode()])
        digest = cache(lambda: f"{self.digest} form:{form}")
        read = lambda at: in_form(before(at), range, channels)  # noqa: E731
        return replace(self, read=read, shape=shape, identify=digest)

    def check_labels(self, num_classes: int) -> None:
        """Refuses labels outside 0 .. num_classes - 1."""
        refuse_labels(self.name, zip(self.ids, self.labels, strict=True), num_classes)


def tensor_of(values: np.ndarray[Any, Any]) -> Tensor:
    """A copy as a tensor; torch knows neither the byte order of other machines nor floats of more than 64 bits."""
    wide = values.dtype.kind == "f" and values.dtype.itemsize > 8
    return torch.from_numpy(np.array(values, np.float64 if wide else values.dtype.newbyteorder("=")))


def split_among(split: str, there: Collection[str]) -> str | None:
    """What the split is called among the names that are there."""
    return next((name for name in SPLITS[split] if name in there), None)


def refuse_labels(name: str, labelled: Iterable[tuple[int, int | None]], classes: int) -> None:
    """Refuse labels outside 0 .. classes - 1, of pairs (id, label), and say what is probably meant."""
    known = [(one, label) for one, label in labelled if label is not None]
    outside = next(((one, label) for one, label in known if not 0 <= label < classes), None)
    if outside is None:
        return
    from_one = min(label for _, label in known) == 1 and max(label for _, label in known) == classes
    usual = "Correct the labels (unknown ones are None), or choose the model that belongs to this data."
    remedy = "Labels seem to count from 1: subtract 1." if from_one else usual
    rule = f"labels must be 0 to {classes - 1} ({classes} classes)"
    raise DataError(name, rule, f"label {outside[1]} at index {outside[0]}", remedy)


def span(range: str) -> tuple[float, float]:
    """Lowest and highest value of what is written ``0..255``."""
    low, dots, high = range.partition("..")
    try:
        ends = float(low), float(high)
    except ValueError:
        ends = (0.0, 0.0)
    if not dots or not ends[0] < ends[1] or not all(map(math.isfinite, ends)):
        rule, remedy = "must be LOW..HIGH, the values that become 0 and 1", "Write e.g. 0..255 or -1..1."
        raise ArgumentError("range", rule, repr(range), remedy)
    return ends


def refuse_range(name: str, range: str | None) -> None:
    """Refuse a range of bytes, which are divided by 255 by themselves: mapped once more, radii would be in no unit."""
    if range is not None:
        rule = "is for floating numbers: bytes and pictures lie in [0, 1] already"
        raise ArgumentError("range", rule, f"{range} for {name}", "Leave it out.")


def in_form(x: Tensor, range: str | None, channels: int | None) -> Tensor:
    """Values of the range mapped to [0, 1]; the one channel of a grey picture (1, H, W) repeated."""
    if range is not None:
        low, high = span(range)
        x = (x - low) / (high - low)
    return x.repeat(channels, 1, 1) if channels is not None and x.dim() == 3 and x.shape[0] == 1 else x


def refuse_channels_last(name: str, shape: Sequence[int]) -> None:
    """Refuse pictures (H, W, C), or clips of them: networks take (C, H, W)."""
    if len(shape) in (3, 4) and shape[-3] > 4 and shape[-1] in (1, 3, 4):
        received, remedy = f"inputs of shape {tuple(shape)}", "Use x.transpose(0, 3, 1, 2), or permute a tensor so."
        raise DataError(name, "channels must come first: (N, C, H, W)", received, remedy)


def warn_of_range(name: str, low: float, high: float) -> None:
    """Warns once, naming the range, when values leave [0, 1]."""
    if low < 0 or high > 1:
        warnings.warn(
            f"{name}: inputs range over [{low:g}, {high:g}], not [0, 1]; sigma and radii are in these units.",
            InputRangeWarning,
            stacklevel=2,
        )


def warn_of_inputs(items: Sequence[Input]) -> None:
    """The same for inputs of a program of one's own, of which the first ones are looked at; features have own units."""
    untold = [item.x for item in items if not item.range_told and item.x.dim() > 1 and item.x.numel()]
    if untold:
        warn_of_range("inputs", min(float(x.min()) for x in untold), max(float(x.max()) for x in untold))
