"""What programs already have, as Inputs: tensors, arrays, loaders, data sets, rows of Hugging Face, WebDataset samples.

A batch is taken apart; a row is an Input, a picture, (picture, label, ...) or a mapping that names both. Bytes mean
0 to 255, as they do in files; Pillow's pictures and encoded ones become (C, H, W).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from io import BytesIO
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, RandomSampler, SubsetRandomSampler, WeightedRandomSampler

from ringfence.data.dataset import Input, refuse_range, tensor_of
from ringfence.data.images import is_image, mode_of, open_image, pixels_of
from ringfence.errors import DataError

PICTURES = (
    "pixel_values",
    "image",
    "img",
    "x",
    "input",
    "inputs",
    "picture",
    "png",
    "jpg",
    "jpeg",
    "webp",
    "pth",
    "npy",
)
LABELS = ("label", "labels", "fine_label", "y", "target", "targets", "class", "cls")
NAMES = ("name", "file_name", "filename", "file", "__key__")
ENCODED = bytes | bytearray


def inputs_of(source: Any, range: str | None = None) -> Iterator[Input]:
    """Whatever was given, one input at a time; those that bring no id are numbered 0, 1, 2, ... range: what numbers are
    said to range over, which is refused of bytes."""
    number, batched = 0, isinstance(source, DataLoader) and source.batch_sampler is not None
    listed: set[bool] = set()
    for item in _items(source):
        for row in _rows(item, batched):
            found = _input(number, row, range)
            if isinstance(_parts(row)[0], list):
                listed.add(found.eight_bit)
            if len(listed) > 1:  # what JSON writes as 1 is 1.0 in one row, and was a 255th in another
                rule = "lists must hold whole numbers in all inputs, which are bytes, or in none"
                remedy = "Convert all of them: np.array(x, np.float32), or np.uint8 of pixels from 0 to 255."
                raise DataError(f"input {found.id}", rule, "both", remedy)
            yield found
            number += 1


def shuffles(source: Any) -> bool:
    """Whether it is a loader that gives its inputs in another order every time."""
    sampler = getattr(getattr(source, "batch_sampler", None), "sampler", getattr(source, "sampler", None))
    at_random = isinstance(sampler, RandomSampler | SubsetRandomSampler | WeightedRandomSampler)
    return isinstance(source, DataLoader) and (at_random or getattr(sampler, "shuffle", False) is True)


def all_eight_bit(source: Any) -> bool | None:
    """Whether all inputs were given as bytes; None where nobody knows before they are read, one after the other."""
    if not isinstance(source, list | tuple | Tensor | np.ndarray | Mapping):
        return None
    rows = (_parts(row)[0] for item in _items(source) for row in _rows(item, batched=False))
    return eight_bit(next(rows, None)) and all(map(eight_bit, rows))


def eight_bit(x: Any) -> bool:
    """Whether an input, as it is given, has 8 bits a value: bytes, a picture, or a file's content with one."""
    if isinstance(x, Tensor | np.ndarray):
        return str(x.dtype).endswith("uint8")
    listed = isinstance(x, list) and str(_array("input", x).dtype) == "uint8"
    return listed or is_image(x) or isinstance(x, ENCODED) or (isinstance(x, Mapping) and "bytes" in x)


def _items(source: Any) -> Iterable[Any]:
    """The rows or batches of a source."""
    source = tuple(map(_untabled, source)) if type(source) is tuple and len(source) == 2 else _untabled(source)
    if isinstance(source, Mapping):  # of columns, as load_dataset of Hugging Face gives splits
        if all(isinstance(one, Tensor | np.ndarray) for one in source.values()):
            return _rows(source, batched=True)
        rule, remedy = "must be one data set, not a mapping of several", "Choose a split of it: data[name]."
        raise DataError("data", rule, f"{', '.join(map(str, list(source)[:4]))}", remedy)
    if isinstance(source, tuple) and len(source) == 2 and (_arrays(*source) or _pair(*source)):
        return _together([_column(f"part {place}", one) for place, one in enumerate(source)])
    if hasattr(source, "__iter__"):
        return source  # type: ignore[no-any-return]
    return (source[index] for index in range(len(source)))  # a map-style Dataset of torch


def _untabled(source: Any) -> Any:
    """Tables and columns of pandas or polars as arrays: their own iteration gives names of columns, or has no shape."""
    return source.to_numpy() if hasattr(source, "to_numpy") else source


def _arrays(x: Any, y: Any) -> bool:
    """Whether they are all inputs and all labels."""
    both = isinstance(x, Tensor | np.ndarray) and isinstance(y, Tensor | np.ndarray)
    return both and y.ndim == 1 and x.ndim >= 2 and len(x) == len(y)


def _pair(x: Any, y: Any) -> bool:
    """Whether they can only be inputs and their labels, if perhaps not as many: numbers and words are no input."""
    inputs = x.ndim >= 2 if isinstance(x, Tensor | np.ndarray) else isinstance(x, list) and all(map(_is_input, x))
    if isinstance(y, Tensor | np.ndarray):
        one_hot = y.ndim == 2 and isinstance(x, Tensor | np.ndarray) and x.ndim == 4  # told of where labels are read
        return inputs and (one_hot or (y.ndim == 1 and str(y.dtype).removeprefix("torch.").startswith("int")))
    return inputs and isinstance(y, list | tuple) and all(isinstance(one, int | np.integer | str | None) for one in y)


def _rows(item: Any, batched: bool) -> Iterator[Any]:
    """The rows of a batch; a single row as it is."""
    if isinstance(item, Input) or not (batched or _is_batch(item)):
        yield item
    elif isinstance(item, Tensor | np.ndarray):
        yield from item
    elif isinstance(item, Mapping) and item:
        columns = [_column(str(name), column) for name, column in item.items()]
        yield from (dict(zip(item, row, strict=True)) for row in _together(columns))
    elif isinstance(item, Sequence) and len(item) and not isinstance(item, str | ENCODED):
        if all(isinstance(one, tuple | list | Mapping) or is_image(one) for one in item) and not _columns(item):
            yield from item  # a collate_fn that makes no arrays
        else:
            yield from _together([_column(f"part {place}", one) for place, one in enumerate(item)])
    else:
        rule, remedy = "must give batches of inputs, or of inputs and labels", "Write a collate_fn for it."
        raise DataError("data", rule, f"a {type(item).__name__}", remedy)


def _is_batch(item: Any) -> bool:
    """Whether a row of an iterable is several: labels beside as many pictures (``webdataset.batched``)."""
    return isinstance(item, tuple | list) and len(item) >= 2 and _arrays(item[0], item[1]) and item[0].ndim >= 4


def _columns(batch: Sequence[Any]) -> bool:
    """Whether the parts of a batch are columns: pictures, then labels, each a list."""
    return len(batch) >= 2 and isinstance(batch[1], list | tuple) and all(isinstance(one, int) for one in batch[1])


def _column(name: str, column: Any) -> Sequence[Any]:
    if isinstance(column, list | tuple) or (isinstance(column, Tensor | np.ndarray) and column.ndim):
        return column  # type: ignore[return-value]
    rule = "must be columns of equal length: inputs, labels, names"
    raise DataError("data", rule, f"{name}, a {type(column).__name__}", "Write a collate_fn that makes them.")


def _together(columns: Sequence[Sequence[Any]]) -> Iterator[tuple[Any, ...]]:
    lengths = [len(one) for one in columns]
    if len(set(lengths)) > 1:
        rule = "must have one label for each input"
        raise DataError("data", rule, f"columns of {', '.join(map(str, lengths))} rows", "Make them equally long.")
    return zip(*columns, strict=True)


def _input(number: int, row: Any, range: str | None) -> Input:
    """A row as an Input."""
    x, label, name = _parts(row)
    if isinstance(row, Input):
        return replace(row, x=pixels(f"input {row.id}", x, range), eight_bit=row.eight_bit or eight_bit(x))
    found = pixels(f"input {number}", x, range)
    named = str(number if name is None else name)
    return Input(number, found, _label(number, label), named, eight_bit=eight_bit(x))


def _parts(row: Any) -> tuple[Any, Any, Any]:
    """Picture, label and name of a row, as they are given."""
    if isinstance(row, Input):
        return row.x, row.label, row.name
    if isinstance(row, Mapping):
        x, label, name = (_first_value(row, keys) for keys in (PICTURES, LABELS, NAMES))
        if x is None:
            rule = f"rows that are mappings must name the input: {', '.join(PICTURES[:4])}, ..."
            raise DataError("data", rule, f"the keys {', '.join(map(str, row))}", "Rename its column.")
    elif isinstance(row, tuple | list) and 1 <= len(row) <= 4 and _is_input(row[0]):
        x, label = row[0], row[1] if len(row) > 1 else None
        name = next((one for one in row[2:] if isinstance(one, str)), None)
    elif _is_input(row):
        x, label, name = row, None, None
    else:
        rule = "each must be an Input, a picture, a (picture, label) pair or a mapping with both"
        remedy = "Give rows of features as an array, np.array(rows, dtype='float32'), or (rows, labels) of two arrays."
        if isinstance(row, np.generic | float | int):
            remedy = "Of a single input x of several numbers give x[None], a batch of one."
        raise DataError("inputs", rule, type(row).__name__, remedy)
    return x, label, name


def _first_value(row: Mapping[Any, Any], keys: Sequence[str]) -> Any:
    return next((row[key] for key in keys if key in row), None)


def _is_input(x: Any) -> bool:
    return isinstance(x, Tensor | np.ndarray | ENCODED) or is_image(x)


def pixels(where: str, x: Any, range: str | None = None) -> Tensor:
    """(*shape) as floats; bytes are divided by 255, pictures decoded. where: its name in messages.

    A copy: its owner may write the next input over it, and a few are always read ahead.
    """
    if isinstance(x, Mapping) and isinstance(x.get("bytes"), bytes):  # Hugging Face's picture that nobody decoded
        x = open_image(BytesIO(x["bytes"]), where, turned=True)
    if isinstance(x, ENCODED):
        x = open_image(BytesIO(x), where)
    if is_image(x):
        refuse_range(where, range)
        return pixels_of(x, where, mode_of(x))
    if isinstance(x, list):  # Hugging Face's rows without a format
        x = _array(where, x)
    if not isinstance(x, Tensor | np.ndarray):
        raise DataError(where, "must be a tensor, an array or a picture", type(x).__name__, "Convert it.")
    if (missing := _without_values(x)) is not None:
        remedy = "Fill it (x.filled(0)), or make it dense (x.to_dense())."
        raise DataError(where, "must hold all its values", missing, remedy)
    values = tensor_of(x) if isinstance(x, np.ndarray) and x.dtype.kind in "uif" else x
    if not isinstance(values, Tensor) or not (values.dtype == torch.uint8 or values.is_floating_point()):
        rule = "must be uint8 (0 to 255) or floating (0 to 1)"
        raise DataError(where, rule, f"dtype {x.dtype}", "Convert it: x.byte() of pixels, x.float() of features.")
    if values.dtype != torch.uint8:
        return values.detach().clone() if values is x else values
    refuse_range(where, range)
    return values.float() / 255


def _without_values(x: Tensor | np.ndarray[Any, Any]) -> str | None:
    """What holds its values elsewhere, or hides them."""
    if isinstance(x, np.ndarray):
        return "masked values" if np.any(getattr(x, "mask", False)) else None
    if x.is_meta:
        return "meta"
    return None if x.layout == torch.strided else str(x.layout).removeprefix("torch.")


def _array(where: str, values: list[Any]) -> np.ndarray[Any, Any]:
    try:
        found = np.array(values)
    except ValueError as error:
        raise DataError(where, "must be an array", error, "Give rows of equal length.") from error
    # Of pictures, which are nested; features are counts and ages, too, and nobody divides those by 255.
    pixels = found.ndim > 1 and found.dtype.kind == "i"
    whole = pixels and found.size and found.min() >= 0 and found.max() <= 255
    return found.astype(np.uint8) if whole else found


def _label(number: int, label: Any) -> int | None:
    """A class number; None stays None."""
    if label is None:
        return None
    if isinstance(label, ENCODED) and bytes(label).strip().isdigit():
        return int(label)
    if isinstance(label, Tensor | np.ndarray | np.generic):
        several = int(np.prod(label.shape))
        if several != 1:
            rule = "must be a class number"
            raise DataError(f"label of input {number}", rule, f"{several} numbers", "Give labels.argmax(1).")
        label = label.item()
    if isinstance(label, bool | int) or (isinstance(label, float) and label.is_integer()):
        return int(label)
    rule, remedy = "must be a class number", "Number the classes from 0."
    raise DataError(f"label of input {number}", rule, repr(label)[:80], remedy)
