"""Data: which inputs are certified, named by a source or given by the program itself."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sized
from dataclasses import dataclass, fields, replace
from functools import cache
from itertools import chain, islice
from os import PathLike, fspath
from typing import Any, final

import torch
from torch.utils.data import DataLoader

from ringfence.data.adapters import all_eight_bit, inputs_of, shuffles
from ringfence.data.dataset import EIGHT_BIT, SPLITS, Dataset, Input, in_form, span
from ringfence.data.load import load_dataset
from ringfence.digests import hashed, write_digest
from ringfence.errors import ArgumentError, DataError, check_word
from ringfence.settings import LARGEST

IN_MEMORY = "in-memory:"
"""How a config names data that no text reads."""


class OrderWarning(UserWarning):
    """Inputs that come in another order every time: their numbers say nothing."""


class ChannelsWarning(UserWarning):
    """Grey inputs repeated in three channels unasked: radii are measured there, where a change of them is larger."""


@final
@dataclass(frozen=True, eq=False)
class Data:
    """A source and the choice from it: every skip-th input, at most limit of those, none from index stop on.

    source: what ``load_dataset`` reads, or a Dataset, a DataLoader, a tensor or array (N, *shape), a pair (inputs,
    labels) of those, or rows in any order they come (data/adapters.py). size: pixels that images are resized and
    cropped to. range: what the values range over where that is not 0..1, such as ``0..255``: they are mapped to
    [0, 1]. channels: 3 repeats the one of grey pictures, None does so if the model takes no others. kept: inputs that
    stand in for the chosen ones, so that the source, which the config names all the same, is not read.
    """

    source: Any = "default"
    split: str = "test"
    skip: int = 1
    limit: int | None = None
    stop: int | None = None
    size: int | None = None
    range: str | None = None
    channels: int | None = None
    kept: Dataset | None = None

    def __post_init__(self) -> None:
        if isinstance(self.source, PathLike):
            object.__setattr__(self, "source", fspath(self.source))

    def __repr__(self) -> str:
        """As it would be written; what a program gave by its type alone."""
        source = repr(self.source) if isinstance(self.source, str) else f"<{type(self.source).__name__}>"
        usual = Data()
        chosen = (f"{key}={value!r}" for key, value in self.choice.items() if value != getattr(usual, key))
        return f"Data({', '.join([source, *chosen])})"

    @classmethod
    def of(cls, source: Any) -> Data:
        """Itself, or all inputs of a source."""
        return source if isinstance(source, cls) else cls(source)

    def check(self) -> None:
        """Refuse what no source could be asked for."""
        for name, value in (("skip", self.skip), ("limit", self.limit), ("stop", self.stop), ("size", self.size)):
            if value is not None and (type(value) is not int or not 1 <= value < LARGEST):
                raise ArgumentError(name, "must be at least 1", value, "Leave it out.")
        check_word("split", self.split, SPLITS, "Choose one of those.")
        if self.range is not None:
            span(self.range)
        if self.channels not in (None, 1, 3):
            raise ArgumentError("channels", "must be 1 or 3", self.channels, "Leave it out.")
        rows = hasattr(self.source, "__getitem__") and hasattr(self.source, "__len__")
        if isinstance(self.source, str | Dataset | Iterable) or rows:
            return
        rule = "must be a source, a Dataset, a DataLoader, a tensor, or inputs"
        raise ArgumentError("data", rule, type(self.source).__name__, "Name e.g. default, or give a list of tensors.")

    @property
    def name(self) -> str:
        """What a config says of the source."""
        return self.source if isinstance(self.source, str) else f"{IN_MEMORY}{type(self.source).__name__}"

    @property
    def most(self) -> int | None:
        """How many inputs at most: limit, and those below stop."""
        if self.stop is None:
            return self.limit
        reached = -(-self.stop // self.skip)
        return reached if self.limit is None else min(self.limit, reached)

    @property
    def count(self) -> int:
        """How many inputs are to come, 0 where that is not known without reading them; what a loader drops counts."""
        x = self.source[0] if isinstance(self.source, tuple) and len(self.source) == 2 else self.source
        x = x.dataset if isinstance(x, DataLoader) else x
        there = -(-len(x) // self.skip) if isinstance(x, Sized) and not isinstance(x, Mapping | str) else 0
        return there if self.most is None else min(there, self.most)

    @property
    def choice(self) -> dict[str, Any]:
        """What is chosen from the source."""
        return {one.name: getattr(self, one.name) for one in fields(self) if one.name not in ("source", "kept")}

    def load(self, num_classes: int | None = None) -> Dataset:
        """The chosen inputs; labels outside the classes are refused."""
        if self.kept is not None:
            return self.kept
        if isinstance(self.source, str):
            return load_dataset(
                self.source,
                skip=self.skip,
                limit=self.most,
                split=self.split,
                size=self.size,
                num_classes=num_classes,
                range=self.range,
                channels=self.channels,
            )
        whole = self.source if isinstance(self.source, Dataset) else self._kept()
        chosen = whole.every(self.skip, self.most).within(self.range, self.channels)
        if num_classes is not None:
            chosen.check_labels(num_classes)
        return chosen

    def framed(self, dataset: Dataset, side: int | None) -> Data:
        """The same; pictures of several sizes, or larger ones, brought to so many pixels, where nobody has said any."""
        wanted = side is not None and self.size is None and dataset.misfits(side)
        return replace(self, size=side) if wanted else self

    def stream(self) -> Iterator[Input]:
        """The chosen inputs one after the other, also where their source can be read only once."""
        if isinstance(self.source, str | Dataset):
            yield from self.load()
        else:
            if shuffles(self.source):
                warnings.warn(
                    "the DataLoader shuffles: inputs are numbered as they come, so that `input_id` is no index into its"
                    " data set and another run gives other numbers. Give a loader with shuffle=False.",
                    OrderWarning,
                    stacklevel=2,
                )
            chosen = islice(inputs_of(self.source, self.range), 0, None, self.skip)
            for one in chosen if self.most is None else islice(chosen, self.most):
                yield replace(one, x=in_form(one.x, self.range, self.channels))

    def on_lattice(self) -> tuple[Iterator[Input], int | None]:
        """The stream, and the lattice of its inputs, bytes: known of arrays and lists as a whole, of what is read one
        after the other by the first."""
        inputs, known = self.stream(), all_eight_bit(self.source)
        first = list(islice(inputs, 1)) if known is None else []
        return chain(first, inputs), EIGHT_BIT if known or any(one.eight_bit for one in first) else None

    def _kept(self) -> Dataset:
        """Inputs of the program as a Dataset; what can be read only once is refused."""
        if isinstance(self.source, Iterator):
            rule, remedy = "must be readable more than once here", "Give a list, a tensor, a DataLoader or a Dataset."
            raise DataError("data", rule, f"a {type(self.source).__name__}", remedy)
        if shuffles(self.source):
            rule, remedy = "must come in the same order whenever a run goes on", "Give a loader with shuffle=False."
            raise DataError("data", rule, "a DataLoader that shuffles", remedy)
        # What has no length may have no end either. Of the others the digest is that of all, whatever is chosen.
        last = None if self.most is None or _sized(self.source) else self.skip * self.most
        # They are copies: whoever changes his tensors meanwhile must not change what the digest was taken of.
        items = list(islice(inputs_of(self.source, self.range), last))
        shape = tuple(items[0].x.shape) if items else ()
        return Dataset(
            name=self.name,
            ids=[one.id for one in items],
            labels=[one.label for one in items],
            positions=list(range(len(items))),
            read=lambda position: items[position].x,
            name_of=lambda position: items[position].name,
            shape=shape,
            identify=cache(lambda: _digest(items)),
            lattice=EIGHT_BIT if items and all(one.eight_bit for one in items) else None,
        )


def _digest(items: list[Input]) -> str:
    def values() -> Iterator[bytes | memoryview]:
        for one in items:
            yield f"{one.x.dtype}|{tuple(one.x.shape)}|".encode()
            yield one.x.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data

    labels, index = (repr([getattr(one, name) for one in items]).encode() for name in ("label", "id"))
    return write_digest({"inputs": hashed(values()), "labels": hashed([labels]), "index": hashed([index])})


def _sized(source: Any) -> bool:
    try:
        return len(source) >= 0
    except TypeError:  # a loader has a length only if its data have one
        return False
