"""MNIST and CIFAR-10 from whichever of their usual forms lies in the place the user names."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from ringfence.data.arrays import Array, read_npz
from ringfence.data.formats import read_cifar_binary, read_cifar_python, read_idx
from ringfence.errors import DataError

Pair = tuple[Array, Array]


def read_mnist(path: Path, split: str) -> Pair:
    """Images (N, 28, 28) and labels from an npz, or a folder with ``mnist.npz`` or the idx files, gzipped or not."""
    npz = path if path.is_file() else path / "mnist.npz"
    if npz.is_file():
        return _labelled(npz, split)
    stem = "t10k" if split == "test" else "train"
    for folder in (path, path / "raw", path / "MNIST" / "raw"):
        images, labels = (_idx(folder, stem, kind) for kind in ("images", "labels"))
        if images is not None and labels is not None:
            return read_idx(images), read_idx(labels)
    raise _nothing(path, f"mnist.npz or {stem}-images-idx3-ubyte and {stem}-labels-idx1-ubyte")


def _idx(folder: Path, stem: str, kind: str) -> Path | None:
    dimensions = 3 if kind == "images" else 1
    names = (f"{stem}-{kind}{joint}idx{dimensions}-ubyte{end}" for joint in "-." for end in ("", ".gz"))
    return next((folder / name for name in names if (folder / name).is_file()), None)


def read_cifar10(path: Path, split: str) -> Pair:
    """Images (N, 3, 32, 32) and labels from an npz, or a folder with npz files or the python or binary batches."""
    if path.is_file():
        return _labelled(path, split)
    npz = path / "cifar10.npz"
    if npz.is_file():
        return _labelled(npz, split)
    batches = ["test_batch"] if split == "test" else [f"data_batch_{i}" for i in range(1, 6)]
    parts = ["test"] if split == "test" else [f"train_part{i}" for i in range(1, 6)]
    for folder in (path, path / "cifar-10-batches-py", path / "cifar-10-batches-bin"):
        for names, reader in (
            ([f"cifar10_{part}.npz" for part in parts], lambda file: _labelled(file, split)),
            (batches, read_cifar_python),
            ([f"{batch}.bin" for batch in batches], read_cifar_binary),
        ):
            if all((folder / name).is_file() for name in names):
                return _joined(reader(folder / name) for name in names)
    raise _nothing(path, f"cifar10_{parts[0]}.npz, {batches[0]} or {batches[0]}.bin")


def _labelled(path: Path, split: str) -> Pair:
    arrays = read_npz(path, split)
    if "y" not in arrays:
        raise DataError(str(path), "must hold labels", "no y", "Save x and y.")
    return arrays["x"], arrays["y"]


def _joined(pairs: Iterable[Pair]) -> Pair:
    images, labels = zip(*pairs, strict=True)
    return np.concatenate(images), np.concatenate(labels)


def _nothing(path: Path, wanted: str) -> DataError:
    return DataError(
        str(path), f"must hold {wanted}", "none of them", "Check the path and that the files are unpacked."
    )
