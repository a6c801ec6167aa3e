"""load_dataset: from what the user writes after ``--data`` to a Dataset."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from importlib.resources import as_file, files
from os import PathLike
from pathlib import Path
from typing import Any

from ringfence.class_names import CIFAR10_CLASSES, DIGITS
from ringfence.data.arrays import dataset_from_arrays, read_npz
from ringfence.data.dataset import SPLITS, Dataset, InputRangeWarning, split_among
from ringfence.data.images import Framing, image_folder
from ringfence.data.originals import cifar10_files, mnist_files, read_cifar10, read_mnist
from ringfence.data.saved import is_saved, saved_dataset
from ringfence.data.video import motion_dataset
from ringfence.errors import ArgumentError, DataError, check_word, did_you_mean

TABLES = (".csv", ".tsv", ".parquet", ".feather", ".xlsx")
NAMED = ("mnist", "cifar10", "imagenet")
"""Public data sets, read from a place the user names: ``mnist:PATH`` or root=PATH."""


def load_dataset(
    spec: str | PathLike[str],
    *,
    root: str | Path | None = None,
    skip: int = 1,
    limit: int | None = None,
    split: str = "test",
    size: int | None = None,
    num_classes: int | None = None,
    first: int = 0,
    range: str | None = None,
    channels: int | None = None,
) -> Dataset:
    """The inputs a spec names: every skip-th from position first on, at most limit of those.

    ``default``: 500 embedded MNIST test digits, ids 0, 20, ..., 9980; ``file.npz`` with x and optionally y;
    an image folder, also with train/, val/ and test/ in it; ``hf-data:FOLDER``, a saved data set of Hugging Face;
    ``mnist``, ``cifar10``, ``imagenet`` or ``mnist-motion`` (clips of moving digits) with a place.
    size resizes and crops images; num_classes refuses labels outside the model's classes; range and channels: see
    ``Data``.
    """
    spec = os.fspath(spec)
    check_word("split", split, SPLITS, "Choose one of those.")
    with warnings.catch_warnings():
        if range is not None:  # it is about to be mapped to [0, 1]
            warnings.simplefilter("ignore", InputRangeWarning)
        whole = _source_inputs(spec, root, split, size, channels)
    if size is not None and tuple(whole.shape[-2:]) != (size, size):
        rule, received = (
            "resizes image files alone: arrays stay as they are",
            f"{size} for inputs of {tuple(whole.shape)}",
        )
        raise ArgumentError("size", rule, received, f"Leave it out, or write resized(MODEL, size={size}).")
    chosen = whole.every(skip, limit, first).within(range, channels)
    classes = num_classes if num_classes is not None else chosen.num_classes
    if classes is not None:
        chosen.check_labels(classes)
    return chosen


def _source_inputs(spec: str, root: str | Path | None, split: str, size: int | None, channels: int | None) -> Dataset:
    """All inputs of a source."""
    head, colon, place = spec.partition(":")
    framing, mode = None if size is None else Framing(size, size), "RGB" if channels == 3 else None
    if spec == "default":
        return _embedded()
    if head == "mnist-motion" and colon:
        _refuse_val(head, split)
        return motion_dataset(_existing(Path(place)), split)
    if head == "hf-data" and colon:
        return saved_dataset(_existing(Path(place)), split, framing, mode)
    if head in NAMED:
        if not colon and root is None:
            raise DataError(spec, "needs the place of the files", "none", f"Write {spec}:PATH.")
        return _public_data_set(head, _existing(Path(place) if colon else Path(root or "")), split, size)
    if Path(spec).suffix == ".npz":
        path = _existing(Path(spec))
        return _from_npz(path.stem, read_npz(path, split))
    if os.path.isdir(spec):
        if is_saved(Path(spec)):
            return saved_dataset(Path(spec), split, framing, mode)
        return image_folder(_split_folder(Path(spec), split), name=spec, framing=framing, mode=mode)
    if os.sep in spec and not colon:
        _existing(Path(spec))
    raise _unknown(spec)


def _split_folder(path: Path, split: str) -> Path:
    """The folder of the split where the place is divided so; else the place: a class may be called train, too."""
    there = [one.name for one in path.iterdir() if one.is_dir() and not one.name.startswith(".")]
    known = {name for names in SPLITS.values() for name in names}
    if not there or not known.issuperset(there):
        return path
    found = split_among(split, there)
    if found is None:
        rule = f"must hold {' or '.join(f'{name}/' for name in SPLITS[split])} for the split {split}"
        remedy = f"Choose a `split` that is there, or add {SPLITS[split][0]}/."
        raise DataError(path, rule, f"{', '.join(sorted(there))} alone", remedy)
    return path / found


def _embedded() -> Dataset:
    with as_file(files("ringfence.data") / "embedded" / "mnist500.npz") as path:
        arrays = read_npz(path, "test")
    return _from_npz("default", arrays, class_names=DIGITS)


def _from_npz(name: str, arrays: dict[str, Any], class_names: tuple[str, ...] | None = None) -> Dataset:
    embedded = class_names is not None
    if not embedded and "classes" in arrays:
        class_names = tuple(str(label) for label in arrays["classes"])
    return dataset_from_arrays(
        name,
        arrays["x"],
        arrays.get("y"),
        index=arrays.get("index"),
        names=arrays.get("names"),
        fixed_index=embedded,
        class_names=class_names,
    )


def _public_data_set(name: str, path: Path, split: str, size: int | None) -> Dataset:
    if name in ("mnist", "cifar10"):
        _refuse_val(name, split)
    if name == "mnist":
        return dataset_from_arrays(name, *read_mnist(path, split), class_names=DIGITS)
    if name == "cifar10":
        return dataset_from_arrays(name, *read_cifar10(path, split), class_names=CIFAR10_CLASSES)
    side = 224 if size is None else size
    folder = _imagenet_folder(path, split)
    # The literature's protocol: shorter side 256, centre 224, in proportion for other sizes.
    return image_folder(folder, name=name, framing=Framing(round(side * 256 / 224), side), mode="RGB", num_classes=1000)


def files_of(source: str, place: Path, split: str) -> list[Path]:
    """The files of a place that ``source:PLACE`` reads; all, where a source has no name or reads whatever is there."""
    known: dict[str, Callable[[Path, str], list[Path]]] = {
        "mnist": mnist_files,
        "mnist-motion": mnist_files,
        "cifar10": cifar10_files,
        "imagenet": lambda path, split: _every_file(_imagenet_folder(path, split)),
    }
    return known[source](place, split) if source in known else _every_file(place)


def _every_file(place: Path) -> list[Path]:
    return sorted(one for one in place.rglob("*") if one.is_file()) if place.is_dir() else [place]


def _refuse_val(name: str, split: str) -> None:
    if split == "val":
        raise ArgumentError("split", f"must be test or train for {name}, which has no other", "'val'", "Use test.")


def _imagenet_folder(path: Path, split: str) -> Path:
    """``train`` or ``val`` of the place; the place itself, where it has neither, is taken to be the split asked for."""
    train, val = path / "train", path / "val"
    wanted, other = (train, val) if split == "train" else (val, train)
    if not wanted.is_dir() and other.is_dir():
        raise DataError(path, f"must hold {wanted.name}/ for the split {split}", f"{other.name}/ alone", "Add it.")
    return wanted if wanted.is_dir() else path


def _existing(path: Path) -> Path:
    if not os.path.exists(path):  # unlike Path's, it knows no name too long to ask about
        raise DataError(path, "must exist", "no such file or folder", "Check the path.")
    return path


def _unknown(spec: str) -> DataError:
    known, otherwise = ["default", "hf-data", *NAMED], "Give an .npz file, an image folder or mnist:PATH."
    hint = did_you_mean(spec.partition(":")[0], known, otherwise, written=repr)
    if os.path.isfile(spec):
        hint = "Put pictures into a folder and name that; save arrays by np.savez('data.npz', x=x, y=y)."
        if Path(spec).suffix in TABLES:
            hint = "In Python give columns of the table, (features, labels); or np.savez('data.npz', x=x, y=y) them."
    return DataError(spec, "must be a known data set, an .npz file or a folder", f"'{spec}'", hint)
