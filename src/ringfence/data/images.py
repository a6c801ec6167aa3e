"""Image folders: one subfolder per class, or flat with a labels.csv, or flat without labels."""

from __future__ import annotations

import csv
import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np
import torch
from torch import Tensor

from ringfence.data.dataset import EIGHT_BIT, Dataset
from ringfence.digests import hashed, write_digest
from ringfence.errors import ArgumentError, DataError

if TYPE_CHECKING:
    from PIL.Image import Image

SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".webp", ".bmp", ".tif", ".tiff"})
FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "TIFF")
"""What is decoded, whatever a file is called: a decoder of another format may start a program."""
KINDS = "PNG, JPEG, WebP, BMP or TIFF"
MOST_PIXELS = 2**26
"""Of an image, as stored and as resized; larger ones would fill the memory before anyone noticed."""


class LayoutWarning(UserWarning):
    """A folder with pictures that nobody reads, or with a class that has none."""


@dataclass(frozen=True)
class Framing:
    """Shorter side resized to ``resize`` (bilinear), then the central ``crop`` x ``crop`` pixels."""

    resize: int
    crop: int

    def __post_init__(self) -> None:
        if not 1 <= self.crop <= self.resize:
            raise ArgumentError("size", "must be at least 1", self.crop, "Give the side in pixels, such as 224.")

    def resized(self, image: Image) -> tuple[int, int]:
        """Width and height before the crop."""
        scale = self.resize / min(image.size)
        width, height = (max(self.resize, round(side * scale)) for side in image.size)
        return width, height

    def apply(self, image: Image) -> Image:
        """The framed image."""
        from PIL.Image import Resampling

        width, height = self.resized(image)
        if image.size != (width, height):
            image = image.resize((width, height), Resampling.BILINEAR)
        left, top = (width - self.crop) // 2, (height - self.crop) // 2
        return image.crop((left, top, left + self.crop, top + self.crop))


def image_folder(
    path: Path,
    *,
    name: str | None = None,
    framing: Framing | None = None,
    mode: str | None = None,
    num_classes: int | None = None,
) -> Dataset:
    """Pictures of a folder, read when asked for.

    Class subfolders are numbered in the order of their names; ids count files in the order of class, then name,
    or of the lines of labels.csv (columns ``file`` and ``class_index`` or ``label``). mode: L (gray) or RGB;
    by default what the first image is.
    """
    files, labels, class_names = _listing(path)
    if not files:
        raise DataError(path, f"must hold {KINDS} images", "none", "Put them there, or one folder per class.")
    image = _decoded(files[0], _content(files[0]))
    mode = mode or mode_of(image)
    shape = tuple(pixels_of(image, str(files[0]), mode, framing).shape)

    identified: dict[Path, str] = {}

    def read(position: int) -> Tensor:
        file = files[position]
        content = _content(file)  # read once: what is hashed is what is seen
        known = identified.get(file)
        if known is not None and known != hashed([content]):
            rule, remedy = "must stay what it was when the digest of the data was taken", "Certify the new files anew."
            raise DataError(file, rule, "other bytes", remedy)
        x = pixels_of(_decoded(file, content), str(file), mode, framing)
        if x.shape != shape:
            rule = f"must have the shape of the first image {shape}"
            raise DataError(file, rule, tuple(x.shape), "Give `size` to resize and crop all images.")
        return x

    relative = [file.relative_to(path).as_posix() for file in files]
    return Dataset(
        name=name or str(path),
        ids=list(range(len(files))),
        labels=labels,
        positions=list(range(len(files))),
        read=read,
        name_of=lambda position: relative[position],
        shape=shape,
        identify=cache(partial(_digest, files, relative, labels, f"{framing}|{mode}", identified)),
        num_classes=num_classes if num_classes is not None else (len(class_names) if class_names else None),
        class_names=class_names or None,
        lattice=EIGHT_BIT,
        misfits=partial(misfit, files if framing is None else []),
    )


def _listing(path: Path) -> tuple[list[Path], list[int | None], list[str]]:
    if (path / "labels.csv").is_file():
        return *_from_csv(path), []
    folders = sorted(entry for entry in path.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    if not folders:
        files = _images(path)
        return files, [None] * len(files), []
    of_class = [_images(folder, within=True) for folder in folders]
    _warn_of_layout(path, [folder for folder, found in zip(folders, of_class, strict=True) if not found])
    pairs = [(file, number) for number, found in enumerate(of_class) for file in found]
    return [file for file, _ in pairs], [number for _, number in pairs], [folder.name for folder in folders]


def _warn_of_layout(path: Path, without: list[Path]) -> None:
    """without: folders of classes that hold no picture; empty ones may stand there to keep a number."""
    filled = [folder.name for folder in without if any(not one.name.startswith(".") for one in folder.iterdir())]
    if filled:
        told = f"{path}: {', '.join(filled[:3])}{' ...' if filled[3:] else ''} counts as a class, and holds no picture"
        warnings.warn(f"{told}; move it away if it is none.", LayoutWarning, stacklevel=2)
    if loose := _images(path):
        told = (
            f"{path}: {loose[0].name}{f' and {len(loose) - 1} more' if loose[1:] else ''} beside the folders of classes"
        )
        warnings.warn(f"{told}: not read; move it into the folder of its class.", LayoutWarning, stacklevel=2)


def _images(folder: Path, within: bool = False) -> list[Path]:
    """Sorted; those of a class may lie in folders within its own, as for torchvision, unless these are hidden."""
    found = (one for one in (folder.rglob("*") if within else folder.iterdir()) if one.suffix.lower() in SUFFIXES)
    shown = (one for one in found if not any(part.startswith(".") for part in one.relative_to(folder).parts[:-1]))
    return sorted(one for one in shown if one.is_file())


def _from_csv(path: Path) -> tuple[list[Path], list[int | None]]:
    table = path / "labels.csv"
    files: list[Path] = []
    labels: list[int | None] = []
    with _readable(table), table.open(newline="", encoding="utf-8-sig") as lines:
        rows = csv.DictReader(lines)
        columns = rows.fieldnames or []
        column = next((key for key in ("class_index", "label") if key in columns), None)
        if "file" not in columns or column is None or len(set(columns)) < len(columns):
            rule = "needs the columns file and class_index (or label), each once"
            raise DataError(table, rule, list(columns), "Add a header line, or correct it.")
        for row in rows:
            try:
                labels.append(int(row[column]))
            except (TypeError, ValueError) as error:
                raise DataError(
                    f"{table}, line {rows.line_num}", "labels must be integers", f"'{row[column]}'", "Correct the line."
                ) from error
            files.append(path / (row["file"] or ""))
            where = f"{table}, line {rows.line_num}"
            if not files[-1].is_file():
                raise DataError(where, "must name an existing file", row["file"], "Correct the line.")
            if not files[-1].resolve().is_relative_to(path.resolve()) or ".." in Path(row["file"]).parts:
                remedy = "Put the image beside labels.csv."
                raise DataError(where, "must name a file inside the folder", row["file"], remedy)
    return files, labels


@contextmanager
def _readable(table: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(table, "must be a readable table", error, "Write it anew, as UTF-8.") from error


def is_image(x: object) -> bool:
    """Whether it is a picture of Pillow's, asked without importing Pillow."""
    pillow = sys.modules.get("PIL.Image")
    return pillow is not None and isinstance(x, pillow.Image)


def mode_of(image: Image) -> str:
    """L for a grey picture, RGB for any other."""
    return "L" if image.mode in ("1", "L") else "RGB"


def open_image(file: BinaryIO, where: str, turned: bool = False) -> Image:
    """A decoded picture; where: its name in messages; turned: as its camera says, which ``datasets`` does with its rows
    and torchvision does not with folders."""
    try:
        from PIL import Image as pillow
        from PIL import UnidentifiedImageError
        from PIL.ImageOps import exif_transpose
    except ImportError as error:
        remedy = "Install it: pip install 'ringfence[images]'."
        raise DataError(where, "reading images needs pillow", "not installed", remedy) from error
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pillow.DecompressionBombWarning)  # our own limit is lower
        try:
            with pillow.open(file, formats=FORMATS) as image:
                _check_size(where, *image.size)
                _refuse_several(where, image)
                refuse_deep(where, image)
                image.load()
                return exif_transpose(image) if turned else image
        except pillow.DecompressionBombError as error:
            raise _too_large(where, error) from error
        except DataError:
            raise
        except Exception as error:  # a damaged or hostile file can raise nearly anything
            rule = f"must be a readable {KINDS} image"
            received = "other bytes" if isinstance(error, UnidentifiedImageError) else error
            raise DataError(where, rule, received, "Replace or remove it.") from error


def _refuse_several(where: str, image: Image) -> None:
    """Which page or frame was meant is not ours to guess; telephones put previews behind a JPEG, which do no harm."""
    frames = 1 if image.format in ("JPEG", "MPO") else getattr(image, "n_frames", 1)
    if frames > 1:
        raise DataError(where, "must hold one picture", f"{frames} frames or pages", "Save the one that is meant.")


def refuse_deep(where: str, image: Image) -> None:
    """Refuse more than 8 bits a channel: colours are cut off to those while they are decoded, and over a whole picture
    that can be more than a radius. Before it is decoded, the name of the file's own form tells."""
    told = [one[3] for one in getattr(image, "tile", ())]
    forms = [image.mode, *(str(one[0] if isinstance(one, tuple) else one) for one in told)]
    deep = next((one for one in forms if one.startswith(("I", "F")) or one.endswith((";16B", ";16L", ";16N"))), None)
    if deep is not None:
        remedy = "Convert it, or give its numbers as an array (.npz; to a server .npy)."
        raise DataError(where, "must have 8 bits per channel", f"mode {deep}", remedy)


def _check_size(where: str, width: int, height: int) -> None:
    if width * height > MOST_PIXELS:
        raise _too_large(where, f"{width} x {height}")


def _too_large(where: str, received: object) -> DataError:
    return DataError(where, f"must have at most {MOST_PIXELS:,} pixels", received, "Scale it down, or remove it.")


def pixels_of(image: Image, where: str, mode: str, framing: Framing | None = None) -> Tensor:
    """(C, H, W) in [0, 1]; mode: L (grey) or RGB."""
    refuse_deep(where, image)
    image = image.convert(mode)
    if framing is not None:
        _check_size(where, *framing.resized(image))
    pixels = np.array(image if framing is None else framing.apply(image), dtype=np.uint8)
    planes = pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)
    return torch.from_numpy(np.ascontiguousarray(planes)).float() / 255


def misfit(files: Iterable[Path | BinaryIO], side: int) -> bool:
    """Whether pictures, as their first bytes say, differ in size or all exceed a square of so many pixels; unreadable
    ones are told by whoever reads them."""
    from PIL import Image as pillow

    first: tuple[int, int] | None = None
    for file in files:
        try:
            with pillow.open(file, formats=FORMATS) as image:
                first = first or image.size
                if image.size != first:
                    return True
        except Exception:
            continue
    return first is not None and min(first) >= side and first != (side, side)


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise DataError(file, "must be a file that can be read", error, "Replace or remove it.") from error


def _decoded(file: Path, content: bytes) -> Image:
    return open_image(BytesIO(content), str(file))


def _digest(
    files: list[Path], relative: list[str], labels: list[int | None], how: str, identified: dict[Path, str]
) -> str:
    """Of all files, and in identified of each."""

    def contents() -> Iterator[bytes]:
        for file, name in zip(files, relative, strict=True):
            content = _content(file)
            identified[file] = hashed([content])
            yield f"{len(name)} {len(content)} {name}".encode("utf-8", "surrogateescape")
            yield content

    return write_digest(
        {"inputs": hashed(contents()), "labels": hashed([str(labels).encode()]), "framing": hashed([how.encode()])}
    )
