"""Inputs as they come: PNG, JPEG, NPY or JSON, of exactly the model's shape, decoded only if they are."""

from __future__ import annotations

import json
import math
import threading
from contextlib import nullcontext
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ringfence.data.images import refuse_deep
from ringfence.errors import DataError, RingfenceError
from ringfence.serve.limits import UnknownKind
from ringfence.unit_check.values import is_picture, is_rounded_away

PNG, JPEG, NPY, JSON = "image/png", "image/jpeg", "application/x-npy", "application/json"
KINDS = (PNG, JPEG, NPY, JSON)
STARTS = {b"\x89PNG": PNG, b"\xff\xd8\xff": JPEG, b"\x93NUMPY": NPY, b"{": JSON}
"""What bytes of each kind begin with."""
SUFFIXES = {".png": PNG, ".jpg": JPEG, ".jpeg": JPEG, ".npy": NPY, ".json": JSON}
MOST_HEADER = 4096
"""Bytes of the header of an array; they are parsed as Python literals."""
_HEADERS = threading.Lock()
"""Python 3.11 parses literals in one thread at a time, or raises a SystemError."""
LONGEST = 64
"""Bytes of a number in JSON, more than twice what any takes."""
BESIDE = 2**20
"""Bytes of an image beside four for each of its values: what a camera or a printer wants to know."""
PIXELS = (b"IHDR", b"PLTE", b"IDAT", b"IEND")
"""Chunks of a PNG that its pixels stand in. Of the others each may unfold a thousand bytes to a megabyte."""
MOST_SCANS = 100
"""Of a JPEG, each of which may pass over all of its pixels with a dozen bytes; encoders write about ten."""
LARGE = 2**20
_LARGE = threading.Lock()
"""Numbers in JSON take twenty times the memory that they do in the end: of long texts one is read at a time."""


def largest(shape: tuple[int, ...]) -> int:
    """Bytes that an input takes at most, whatever it is written in: as JSON, each number with a comma and a space."""
    return math.prod(shape) * (LONGEST + 2) + BESIDE


def read_input(content: bytes, kind: str, shape: tuple[int, ...], sigma: float | None = None) -> Tensor:
    """One input (*shape), float32: pixels in [0,1], or features, beside which noise of sigma is not rounded away."""
    if kind in (PNG, JPEG):
        return _image(content, kind, shape)
    return _in_range(_array(content, kind, shape, "input"), is_picture(shape), sigma)


def read_inputs(content: bytes, kind: str, shape: tuple[int, ...], most: int, sigma: float | None = None) -> Tensor:
    """A batch (N, *shape) of at most ``most`` inputs; an image is a batch of one."""
    if kind in (PNG, JPEG):
        return _image(content, kind, shape)[None]
    found = _in_range(_array(content, kind, (-1, *shape), "inputs"), is_picture(shape), sigma)
    if not 1 <= len(found) <= most:
        raise DataError("inputs", f"must be 1 to {most}", len(found), "Send several jobs.")
    return found


def read_input_file(path: Path, shape: tuple[int, ...]) -> Tensor:
    """The input that a file holds, by its ending."""
    return read_input(*file_content(path), shape)


def file_content(path: Path) -> tuple[bytes, str]:
    """The bytes of a file, and their kind by its ending."""
    kind = SUFFIXES.get(path.suffix.lower())
    if kind is None:
        raise DataError(path, f"must end in one of {', '.join(SUFFIXES)}", path.suffix or "nothing", "Rename it.")
    try:
        return path.read_bytes(), kind
    except OSError as error:
        raise DataError(path, "must be readable", error.strerror, "Check the path.") from error


def _image(content: bytes, kind: str, shape: tuple[int, ...]) -> Tensor:
    """Pixels of an image; its size is compared before anything is decoded, so that none can unfold in memory."""
    if len(shape) != 3 or shape[0] not in (1, 3):
        raise DataError("input", f"is no image: the model takes {shape}", kind, f"Send an array as {NPY}.")
    from PIL import Image

    try:
        # Its warnings stay warnings: filters are of the whole process, and other requests run beside this one.
        with Image.open(BytesIO(_bare(content, kind, shape)), formats=[kind.removeprefix("image/").upper()]) as image:
            if image.size != shape[:0:-1]:
                rule, found = f"must be {shape[2]} x {shape[1]} pixels", f"{image.size[0]} x {image.size[1]}"
                raise DataError("input", rule, found, "Resize it: the certificate is about the pixels you send.")
            refuse_deep("input", image)
            pixels = np.array(image.convert("L" if shape[0] == 1 else "RGB"), dtype=np.uint8)
    except DataError:
        raise
    except Exception as error:  # a damaged or hostile file can raise nearly anything
        raise _unreadable(f"must be a readable {kind}", content, kind) from error
    planes = np.ascontiguousarray(pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1))
    return torch.from_numpy(np.divide(planes, 255, dtype=np.float32))


def _bare(content: bytes, kind: str, shape: tuple[int, ...]) -> bytes:
    """An image without what its pixels do not need; refused where it would take long to decode for its size."""
    if len(content) > (most := 4 * math.prod(shape) + BESIDE):
        remedy = f"Resize it to {shape[2]} x {shape[1]} pixels, and leave out notes and profiles."
        raise DataError("input", f"has at most {most} bytes as an image", len(content), remedy)
    if kind == JPEG:
        if (scans := content.count(b"\xff\xda")) > MOST_SCANS:  # bytes that only a scan begins with
            raise DataError("input", f"must have at most {MOST_SCANS} scans", scans, "Encode it again.")
        return content
    parts, place = [content[:8]], 8
    while name := content[place + 4 : place + 8]:
        begin, place = place, place + 12 + int.from_bytes(content[place : place + 4], "big")
        if name in PIXELS:
            parts.append(content[begin:place])
    return b"".join(parts)


def _unreadable(rule: str, content: bytes, kind: str) -> DataError:
    """No bytes at all, those of another kind, or damaged ones; what a library made of them tells a client nothing."""
    other = next((one for start, one in STARTS.items() if content.startswith(start) and one != kind), None)
    if not content:
        return DataError("input", rule, "no bytes", "Check the name of the file: curl sends none where it finds none.")
    if other is not None:
        remedy = f"Name it as what it is, {other}: in Content-Type, or by the ending of the file."
        return DataError("input", rule, f"bytes of {other}", remedy)
    remedy = "Send the file as it is (curl: --data-binary @FILE, with the @), or encode it again."
    return DataError("input", rule, f"{len(content)} other or damaged bytes", remedy)


def _array(content: bytes, kind: str, shape: tuple[int, ...], key: str) -> np.ndarray[Any, Any]:
    if kind == NPY:
        return _npy(content, shape)
    if kind == JSON:
        return _json(content, shape, key)
    remedy = "Send the file itself, no form, and name its kind: -H 'Content-Type: image/png' --data-binary @FILE."
    raise UnknownKind("Content-Type", f"must be one of {', '.join(KINDS)}", kind or "nothing", remedy)


def _npy(content: bytes, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """The array of an .npy file, whose header is compared before anything is allocated."""
    file = BytesIO(content)
    try:
        with _HEADERS:
            version = np.lib.format.read_magic(file)
            read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            found, fortran, dtype = read(file, max_header_size=MOST_HEADER)
        _check_shape(found, shape)
        if dtype.kind not in "uf" or (dtype.kind == "u" and dtype.itemsize != 1):
            remedy = "Convert it: x.astype('uint8') where it holds 0 to 255."
            raise DataError("input", "must be uint8, or floats (in [0, 1] where they are pixels)", dtype, remedy)
        if len(content) - file.tell() != math.prod(found) * dtype.itemsize:
            raise DataError("input", "must hold as many values as its header says", "others", "Save it again.")
        values = np.frombuffer(content, dtype, offset=file.tell())
        array: np.ndarray[Any, Any] = values.reshape(found, order="F" if fortran else "C")
    except RingfenceError:
        raise
    except Exception as error:  # whatever a hostile header makes of its reader
        raise _unreadable("must be an array as numpy.save writes it", content, NPY) from error
    return array.astype(np.float32) / 255 if array.dtype == np.uint8 else array


def _json(content: bytes, shape: tuple[int, ...], key: str) -> np.ndarray[Any, Any]:
    if -1 not in shape and len(content) > (most := LONGEST * math.prod(shape) + MOST_HEADER):
        raise DataError("body", f"has at most {most} bytes for one input", len(content), "Send fewer digits.")
    entry = f'must be JSON with the entry {key} alone: {{"{key}": numbers, nested as the shape is}}'
    try:
        with _LARGE if len(content) > LARGE else nullcontext():
            told = json.loads(content)
            if not isinstance(told, dict) or set(told) != {key}:
                found = f"the entries {sorted(told)}"[:80] if isinstance(told, dict) else f"a {type(told).__name__}"
                remedy = f"Send lists in lists, {len(shape)} deep, under {key}; settings go into the address."
                raise DataError("body", entry, found, remedy)
            _check_nesting(told[key], len(shape))
            array = np.array(told[key], dtype=np.float64)
            del told
    except RingfenceError:
        raise
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DataError("body", entry, "no JSON", "Send a file that json.dump has written.") from error
    except (ValueError, TypeError, OverflowError) as error:
        remedy = f"Send lists in lists, {len(shape)} deep, as long as the shape says, of plain numbers alone."
        raise DataError("body", entry, f"{key} nested otherwise, or of other values", remedy) from error
    _check_shape(array.shape, shape)
    return array


def _check_nesting(values: Any, depth: int) -> None:
    """Numbers at that depth and nothing else: NumPy would read texts and truth values as numbers too."""
    if depth == 0:
        if type(values) not in (int, float):
            raise TypeError("a number")
    elif not isinstance(values, list):
        raise TypeError("a list")
    else:
        for one in values:
            _check_nesting(one, depth - 1)


def _check_shape(found: tuple[int, ...], wanted: tuple[int, ...]) -> None:
    if len(found) != len(wanted) or any(b not in (-1, a) for a, b in zip(found, wanted, strict=True)):
        told = f"({', '.join('N' if one == -1 else str(one) for one in wanted)})"
        raise DataError("input", f"must have the shape {told}", found, _reshaping(found, wanted))


def _reshaping(found: tuple[int, ...], wanted: tuple[int, ...]) -> str:
    """How an array gets the shape, where nothing but the order or number of its axes is wrong."""
    if found[1:] == wanted:
        return "Send one input, x[0]; several are a job (/v1/jobs)."
    if wanted[0] in (-1, 1) and found == wanted[1:]:
        return "Add the first axis: x[None]."
    if wanted[0] != -1 and found[-1:] + found[:-1] == wanted:
        return "Put channels first: x.transpose(2, 0, 1)."
    return "Resize it, channels first." if len(wanted) > 1 else f"Send the {wanted[0]} features in one list."


def _in_range(array: np.ndarray[Any, Any], pixels: bool, sigma: float | None) -> Tensor:
    """float32: every value of pixels lies in [0, 1], every one of features is a number that noise of sigma moves."""
    with np.errstate(over="ignore"):  # beyond float32: infinite, and refused
        values = np.array(array, dtype=np.float32, order="C")
    if not bool(((values >= 0) & (values <= 1)).all() if pixels else np.isfinite(values).all()):
        found = f"{values.min():.7g} to {values.max():.7g}"
        rule, remedy = "must hold finite numbers", "Remove NaN and infinity."
        if pixels:
            rule, remedy = (
                "must hold values from 0 to 1",
                "Divide bytes by 255, and leave it to the model to normalise.",
            )
        raise DataError("input", rule, found, remedy)
    largest = float(np.abs(values).max(initial=0.0))
    if sigma is not None and is_rounded_away(sigma, largest):
        rule = f"must hold numbers beside which noise of sigma {sigma:g} is not rounded away in float32"
        raise DataError("input", rule, f"values up to {largest:.4g}", "Send them in the units of the certification.")
    return torch.from_numpy(values)
