"""Data: which inputs are certified, named by a source or given by the program itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from typing import Any, Literal, final

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from ringfence.data.dataset import Dataset, Input
from ringfence.data.load import load_dataset
from ringfence.digests import hashed, write_digest
from ringfence.errors import ArgumentError, DataError

IN_MEMORY = "in-memory:"
"""How a config names data that no text reads."""


@final
@dataclass(frozen=True, eq=False)
class Data:
    """A source and the choice from it: every skip-th input, at most limit of those, none from index stop on.

    source: what ``load_dataset`` reads, or a Dataset, a DataLoader, a tensor (N, *shape), or inputs, tensors or
    (tensor, label) pairs in any order they come. size: pixels that images are resized and cropped to.
    """

    source: Any = "default"
    split: Literal["test", "train"] | str = "test"
    skip: int = 1
    limit: int | None = None
    stop: int | None = None
    size: int | None = None

    @classmethod
    def of(cls, source: Any) -> Data:
        """Itself, or all inputs of a source."""
        return source if isinstance(source, cls) else cls(source)

    def check(self) -> None:
        """Refuse what no source could be asked for."""
        for name, value in (("skip", self.skip), ("limit", self.limit), ("stop", self.stop), ("size", self.size)):
            if value is not None and (type(value) is not int or not 1 <= value < 2**63):
                raise ArgumentError(name, "must be at least 1", value, "Leave it out to take everything.")
        if self.split not in ("test", "train"):
            raise ArgumentError("split", "must be test or train", repr(self.split), "Choose one of those.")
        if isinstance(self.source, str | Dataset | Tensor | Iterable):
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
    def choice(self) -> dict[str, Any]:
        """What is chosen from the source."""
        return {"split": self.split, "skip": self.skip, "limit": self.limit, "stop": self.stop, "size": self.size}

    def load(self, num_classes: int | None = None) -> Dataset:
        """The chosen inputs; labels outside the classes are refused."""
        if isinstance(self.source, str):
            split: Any = self.split
            return load_dataset(
                self.source, skip=self.skip, limit=self.most, split=split, size=self.size, num_classes=num_classes
            )
        whole = self.source if isinstance(self.source, Dataset) else self._kept()
        chosen = whole.every(self.skip, self.most)
        if num_classes is not None:
            chosen.check_labels(num_classes)
        return chosen

    def stream(self) -> Iterator[Input]:
        """The chosen inputs one after the other, also where their source can be read only once."""
        if isinstance(self.source, str | Dataset):
            yield from self.load()
        else:
            chosen = islice(_inputs(self.source), 0, None, self.skip)
            yield from chosen if self.most is None else islice(chosen, self.most)

    def _kept(self) -> Dataset:
        """Inputs of the program as a Dataset; what can be read only once is refused."""
        if isinstance(self.source, Iterator):
            rule, remedy = "must be readable more than once here", "Give a list, a tensor, a DataLoader or a Dataset."
            raise DataError("data", rule, f"a {type(self.source).__name__}", remedy)
        # Copies: whoever changes his tensors meanwhile must not change what the digest was taken of.
        items = [replace(one, x=one.x.detach().clone()) for one in _inputs(self.source)]
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
        )


def _digest(items: list[Input]) -> str:
    values = (one.x.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data for one in items)
    labels, index = (repr([getattr(one, name) for one in items]).encode() for name in ("label", "id"))
    return write_digest({"inputs": hashed(values), "labels": hashed([labels]), "index": hashed([index])})


def _inputs(source: Any) -> Iterator[Input]:
    """Whatever was given, as Inputs; tensors are numbered 0, 1, 2, ..., the batches of a loader taken apart."""
    items = _rows(source) if isinstance(source, DataLoader) else source
    for number, item in enumerate(items):
        if isinstance(item, Input):
            yield item
        elif isinstance(item, Tensor):
            yield Input(number, item, None, str(number))
        elif isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], Tensor):
            yield Input(number, item[0], int(item[1]), str(number))
        else:
            rule = "each must be an Input, a tensor or a (tensor, label) pair"
            raise DataError("inputs", rule, type(item).__name__, "Wrap your data accordingly.")


def _rows(loader: DataLoader[Any]) -> Iterator[Any]:
    """Single inputs, with their labels where the loader has any."""
    for batch in loader:
        if isinstance(batch, Tensor):
            yield from batch
        elif isinstance(batch, list | tuple) and len(batch) == 2 and all(isinstance(one, Tensor) for one in batch):
            yield from zip(batch[0], batch[1].tolist(), strict=True)
        else:
            rule, remedy = "must give batches of inputs, or of inputs and labels", "Write a collate_fn for it."
            raise DataError("data", rule, f"a {type(batch).__name__}", remedy)
