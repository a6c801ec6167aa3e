"""MNIST and CIFAR-10 from whichever of their usual forms lies in the place the user names: .npz or the original files.

Those are idx files (MNIST) and python or binary batches (CIFAR-10), read without running code.
"""

from __future__ import annotations

import gzip
import pickle
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringfence.data.arrays import Array, read_npz
from ringfence.errors import DataError

Bytes = NDArray[np.uint8]

_ARRAY_PARTS = {(f"numpy.{core}.multiarray", "_reconstruct"): "_reconstruct" for core in ("core", "_core")} | {
    ("numpy", "ndarray"): "ndarray",
    ("numpy", "dtype"): "dtype",
}


def read_idx(path: Path) -> Bytes:
    """An idx file of unsigned bytes, gzipped or not: magic 0, 0, 8, dimensions, then their big-endian sizes."""
    try:
        raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error, MemoryError) as error:
        raise DataError(path, "must be a readable idx file", error, "Fetch the file again.") from error
    dimensions = raw[3] if len(raw) >= 4 and raw[:3] == b"\0\0\x08" else 0
    shape = (
        tuple(int(size) for size in np.frombuffer(raw, ">u4", dimensions, 4)) if len(raw) >= 4 + 4 * dimensions else ()
    )
    if not shape or len(raw) != 4 + 4 * dimensions + int(np.prod(shape, dtype=np.int64)):
        raise DataError(path, "must be a complete idx file of bytes", f"{len(raw)} bytes", "Fetch the file again.")
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * dimensions).reshape(shape)


def read_cifar_binary(path: Path) -> tuple[Bytes, Bytes]:
    """Images (N, 3, 32, 32) and labels (N,) of a CIFAR-10 binary batch: rows of 1 + 3072 bytes."""
    raw = np.fromfile(path, np.uint8)
    if not len(raw) or len(raw) % 3073:
        raise DataError(path, "must hold rows of 3073 bytes", f"{len(raw)} bytes", "Fetch the file again.")
    rows = raw.reshape(-1, 3073)
    return rows[:, 1:].reshape(-1, 3, 32, 32), rows[:, 0]


class _PlainUnpickler(pickle.Unpickler):
    """Builds NumPy arrays and plain values; any other name in the pickle is refused, so no code can run."""

    def find_class(self, module: str, name: str) -> Any:
        part = _ARRAY_PARTS.get((module, name))
        if part == "_reconstruct":
            return _reconstruct
        if part is None:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return getattr(np, part)


def _reconstruct(kind: type, shape: tuple[int, ...], _: bytes) -> Bytes:
    if kind is not np.ndarray or shape != (0,):
        raise pickle.UnpicklingError("it builds something other than an array")
    return np.ndarray((0,), np.uint8)


def read_cifar_python(path: Path) -> tuple[Bytes, Bytes]:
    """Images (N, 3, 32, 32) and labels (N,) of a CIFAR-10 python batch."""
    try:
        with path.open("rb") as file:
            content = _PlainUnpickler(file, encoding="bytes").load()
        plain = {key.decode() if isinstance(key, bytes) else key: value for key, value in content.items()}
        images, labels = plain["data"], plain["labels"]
        if not isinstance(images, np.ndarray) or images.dtype != np.uint8:
            raise ValueError("'data' is not an array of bytes")
        return images.reshape(-1, 3, 32, 32), np.asarray(labels, dtype=np.uint8)
    # A damaged or hostile pickle can raise nearly anything.
    except Exception as error:
        raise DataError(
            path, "must be a CIFAR-10 batch of plain arrays", error, "Fetch the official file again."
        ) from error


Pair = tuple[Array, Array]


def read_mnist(path: Path, split: str) -> Pair:
    """Images (N, 28, 28) and labels from an npz, or a folder with ``mnist.npz`` or the idx files, gzipped or not."""
    files = mnist_files(path, split)
    return _labelled(files[0], split) if len(files) == 1 else (read_idx(files[0]), read_idx(files[1]))


def mnist_files(path: Path, split: str) -> list[Path]:
    """What read_mnist reads: an npz, or the images and the labels."""
    npz = path if path.is_file() else path / "mnist.npz"
    if npz.is_file():
        return [npz]
    stem = "t10k" if split == "test" else "train"
    for folder in (path, path / "raw", path / "MNIST" / "raw"):
        images, labels = (_idx(folder, stem, kind) for kind in ("images", "labels"))
        if images is not None and labels is not None:
            return [images, labels]
    raise _nothing(path, f"mnist.npz or {stem}-images-idx3-ubyte and {stem}-labels-idx1-ubyte")


def _idx(folder: Path, stem: str, kind: str) -> Path | None:
    dimensions = 3 if kind == "images" else 1
    names = (f"{stem}-{kind}{joint}idx{dimensions}-ubyte{end}" for joint in "-." for end in ("", ".gz"))
    return next((folder / name for name in names if (folder / name).is_file()), None)


def read_cifar10(path: Path, split: str) -> Pair:
    """Images (N, 3, 32, 32) and labels from an npz or a single batch, or a folder with npz files or such batches."""
    if path.is_file():
        return _single(path, split)
    files, reader = _cifar10(path, split)
    return _concatenated(reader(file) for file in files)


def cifar10_files(path: Path, split: str) -> list[Path]:
    """What read_cifar10 reads."""
    return [path] if path.is_file() else _cifar10(path, split)[0]


def _cifar10(path: Path, split: str) -> tuple[list[Path], Callable[[Path], Pair]]:
    """The first whole set of files that is there, and what reads each of them."""
    batches = ["test_batch"] if split == "test" else [f"data_batch_{i}" for i in range(1, 6)]
    parts = ["test"] if split == "test" else [f"train_part{i}" for i in range(1, 6)]
    for folder in (path, path / "cifar-10-batches-py", path / "cifar-10-batches-bin"):
        for names, reader in (
            (["cifar10.npz"], lambda file: _labelled(file, split)),
            ([f"cifar10_{part}.npz" for part in parts], lambda file: _labelled(file, split)),
            (batches, read_cifar_python),
            ([f"{batch}.bin" for batch in batches], read_cifar_binary),
        ):
            if all((folder / name).is_file() for name in names):
                return [folder / name for name in names], reader
    raise _nothing(path, f"cifar10_{parts[0]}.npz, {batches[0]} or {batches[0]}.bin")


def _single(path: Path, split: str) -> Pair:
    """One file: whatever split it is, the user says so by naming it."""
    if path.suffix == ".bin":
        return read_cifar_binary(path)
    return _labelled(path, split) if path.suffix == ".npz" else read_cifar_python(path)


def _labelled(path: Path, split: str) -> Pair:
    arrays = read_npz(path, split)
    if "y" not in arrays:
        raise DataError(path, "must hold labels", "no y", "Save x and y.")
    return arrays["x"], arrays["y"]


def _concatenated(pairs: Iterable[Pair]) -> Pair:
    images, labels = zip(*pairs, strict=True)
    return np.concatenate(images), np.concatenate(labels)


def _nothing(path: Path, wanted: str) -> DataError:
    return DataError(
        str(path), f"must hold {wanted}", "none of them", "Check the path and that the files are unpacked."
    )
