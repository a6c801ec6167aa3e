"""Data sets from arrays: ``.npz`` files and what originals.py reads."""

from __future__ import annotations

import lzma
import zipfile
import zlib
from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ringfence.data.again import unpacked
from ringfence.data.dataset import EIGHT_BIT, Dataset, refuse_channels_last, tensor_of, warn_of_range
from ringfence.digests import EARLIER, hashed, write_digest
from ringfence.errors import DataError

Array = NDArray[Any]


def read_npz(path: Path, split: str) -> dict[str, Array]:
    """x and, where there, y, classes, names, index; a file of several splits has ``x_test``, ``x_train``, ..."""
    if not path.is_file():  # opening a pipe would wait for its writer
        raise DataError(path, "must be a file", "a folder, a pipe or a device", "Write it with np.savez.")
    try:
        with path.open("rb") as stream:
            return unpacked(stream, split, lambda: _members(path, np.load(stream, allow_pickle=False), split))
    except MemoryError as error:  # a header may claim any size
        rule, remedy = "must hold arrays that fit into the memory", "Write it again with np.savez, in parts if need be."
        raise DataError(path, rule, error or "too many bytes", remedy) from error
    except (ValueError, OSError, EOFError, KeyError, zipfile.BadZipFile, zlib.error, lzma.LZMAError) as error:
        received = error if zipfile.is_zipfile(path) else "other bytes"  # which numpy takes for pickled ones
        remedy = "Write it again with np.savez."
        raise DataError(path, "must be a readable .npz of plain arrays", received, remedy) from error


def _members(path: Path, file: Any, split: str) -> dict[str, Array]:
    if not isinstance(file, np.lib.npyio.NpzFile):
        raise DataError(path, "must be an .npz archive", "a single array", "Use np.savez(path, x=x, y=y).")
    suffix = f"_{split}" if f"x_{split}" in file.files else ""
    if f"x{suffix}" not in file.files:
        raise DataError(path, f"must hold x or x_{split}", sorted(file.files), "Use np.savez(path, x=x, y=y).")
    chosen = {"x": f"x{suffix}", "y": f"y{suffix}", "classes": "classes", "names": "names", "index": "index"}
    return {name: file[key] for name, key in chosen.items() if key in file.files}


def _as_ids(index: np.ndarray[Any, Any]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The index as ids; other numbers where its own are none."""
    if index.dtype.kind not in "iuf":
        return np.zeros(0, np.int64)
    with np.errstate(invalid="ignore"):
        return index.astype(np.int64)


def dataset_from_arrays(
    name: str,
    x: Array,
    y: Array | None = None,
    *,
    index: Array | None = None,
    num_classes: int | None = None,
    class_names: Sequence[str] | None = None,
    names: Sequence[str] | None = None,
    fixed_index: bool = False,
) -> Dataset:
    """x: (N, H, W), (N, C, H, W), video (N, T, C, H, W) or features (N, D), uint8 or floating; y: (N,) integers.

    fixed_index: the index belongs to the name, as that of the embedded digits does.
    """
    x = _with_channels(name, x)
    if len(x) and not x.size:
        raise DataError(name, "inputs must have at least one value", f"shape {x.shape}", "Save x anew.")
    labels = _labels(name, y, len(x))
    if x.dtype != np.uint8 and len(x):
        _check_values(name, x)
    if index is not None and index.shape != (len(x),):
        raise DataError(
            name, f"index must hold one number for each of the {len(x)} inputs", index.shape, "Save it anew."
        )

    if index is not None and not np.array_equal(index, _as_ids(index)):
        raise DataError(name, "index must hold whole numbers of at most 64 bits", index.dtype, "Save it as integers.")

    def read(position: int) -> Tensor:
        values = tensor_of(x[position])
        return values.float() / 255 if x.dtype == np.uint8 else values.float()

    def name_of(position: int) -> str:
        return str(names[position]) if names is not None else f"{name}/{ids[position]}"

    ids: list[int] = list(range(len(x))) if index is None else [int(i) for i in index]
    return Dataset(
        name=name,
        ids=ids,
        labels=labels,
        positions=list(range(len(x))),
        read=read,
        name_of=name_of,
        shape=tuple(x.shape[1:]),
        identify=cache(partial(_digest, x, y, index, fixed_index)),
        num_classes=num_classes if class_names is None else len(class_names),
        class_names=class_names,
        lattice=EIGHT_BIT if x.dtype == np.uint8 else None,
    )


def _with_channels(name: str, x: Array) -> Array:
    if not (x.dtype == np.uint8 or np.issubdtype(x.dtype, np.floating)):
        raise DataError(
            name, "x must be uint8 (0 to 255) or floating (0 to 1)", f"dtype {x.dtype}", "Convert it before saving."
        )
    if not 2 <= x.ndim <= 5:
        raise DataError(
            name, "x must have shape (N, H, W), (N, C, H, W) or (N, T, C, H, W)", x.shape, "Reshape it before saving."
        )
    refuse_channels_last(name, x.shape[1:] if x.ndim == 4 else ())
    return x[:, None] if x.ndim == 3 else x


def _labels(name: str, y: Array | None, count: int) -> list[int | None]:
    if y is None:
        return [None] * count
    if y.shape not in ((count,), (count, 1)):
        one_hot = y.ndim == 2 and len(y) == count
        remedy = "Save class numbers: y.argmax(1), if each row is one-hot." if one_hot else "Save x and y anew."
        raise DataError(name, f"y must hold one label for each of the {count} inputs", y.shape, remedy)
    if not np.issubdtype(y.dtype, np.integer):
        raise DataError(name, "y must be integers", f"dtype {y.dtype}", "Save class numbers.")
    labels = y.reshape(-1).astype(np.int64)
    if count and labels.min() < 0:
        first = int(np.argmax(labels < 0))
        raise DataError(name, "labels start at 0", f"label {labels[first]} at index {first}", "Correct the labels.")
    return [int(label) for label in labels]


def _check_values(name: str, x: Array) -> None:
    broken = ~np.isfinite(x).reshape(len(x), -1).all(1)
    if broken.any():
        raise DataError(
            name, "inputs must be finite", f"NaN or infinity at index {int(np.argmax(broken))}", "Remove that input."
        )
    if x.ndim > 2:  # features are in units of their own
        warn_of_range(name, float(x.min()), float(x.max()))


def _digest(x: Array, y: Array | None, index: Array | None, fixed_index: bool) -> str:
    parts = {"inputs": hashed(_chunks(x))}
    if y is not None:
        parts["labels"] = hashed(_chunks(y))
    if index is not None:
        parts["index"] = hashed(_chunks(index))
    if index is None or fixed_index:  # the scheme before knew no index
        parts[EARLIER] = hashed(chunk for array in (x, y) if array is not None for chunk in _chunks(array))
    return write_digest(parts)


def _chunks(array: Array) -> tuple[bytes, memoryview]:
    return f"{array.dtype}|{array.shape}|".encode(), np.ascontiguousarray(array).data
