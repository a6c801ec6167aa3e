"""The inputs of a report: columns small enough to embed for ten thousand of them, pictures as a few sprite sheets."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringfence.class_names import CIFAR10_CLASSES, DIGITS, MOTIONS
from ringfence.record import Record
from ringfence.report import need
from ringfence.report.lanes import Lane, Material, Stream
from ringfence.rounding import rounded_down
from ringfence.store import InputInfo, RunFolder

Key = tuple[str, int]
"""(data set, input id): runs on the same data share their inputs."""

_INFINITE = 1e308
_NUMBERS = ("radius", "p_a", "p_b", "draws", "forwards", "seconds", "lift_norm", "alpha", "target", "seed")


Picture = NDArray[np.uint8]

COLUMNS = 20
_PER_SHEET = 400
MOST_FRAMES = 8
BUDGET = 2_500_000
"""Bytes that all sheets of a page may take; larger sets are compressed with loss, then halved in size."""


def gallery(material: Material, class_names: Sequence[str] | None = None) -> dict[str, Any]:
    """Everything the page's gallery shows; lanes align with items, None where a lane lacks the input."""
    sets = {lane.run: data_set(lane) for lane in material.lanes}
    about: dict[Key, InputInfo] = {}
    for run, inputs in material.inputs.items():
        for one in inputs:
            kept = about.get((sets[run], one.id))
            if kept is None or kept.thumbnail is None:
                about[sets[run], one.id] = one
    labels: dict[Key, int | None] = {}
    for lane in material.lanes:
        for record in lane.records:
            key = sets[lane.run], record.input_id
            labels[key] = record.label if labels.get(key) is None else labels[key]
    keys = sorted(labels)
    pictures = [(key, about[key].thumbnail) for key in keys if key in about]
    shown = [(key, picture) for key, picture in pictures if picture is not None]
    numbers = {key: number for number, (key, _) in enumerate(shown)}
    names = list(dict.fromkeys(sets.values()))
    classes = {name: _classes(name, [lane for lane in material.lanes if sets[lane.run] == name]) for name in names}
    return {
        "sets": [{"name": name.partition("#")[0], "classes": list(class_names or classes[name])} for name in names],
        "items": {
            "set": [names.index(key[0]) for key in keys],
            "id": [key[1] for key in keys],
            "label": [labels[key] for key in keys],
            "name": [about[key].name if key in about else "" for key in keys],
            "picture": [numbers.get(key) for key in keys],
        },
        "pictures": sheets([picture for _, picture in shown]),
        "lanes": [_lane(lane, sets[lane.run], keys) for lane in material.lanes],
    }


def data_set(lane: Lane) -> str:
    """What identifies the data of a lane, its name before a ``#``: two runs on equal data have equal inputs."""
    return lane.run if lane.config is None else f"{lane.config.data.source}#{lane.config.data.digest or ''}"


def _classes(name: str, lanes: Sequence[Lane]) -> Sequence[str]:
    """What the runs on a data set call its classes; where they tell nothing, what those of a public one are called."""
    runs = [lane.source for lane in lanes if isinstance(lane.source, RunFolder)]
    kind = name.partition("#")[0].partition(":")[0]
    known = {"default": DIGITS, "mnist": DIGITS, "cifar10": CIFAR10_CLASSES, "mnist-motion": MOTIONS}
    return next((run.class_names for run in runs if run.class_names), known.get(kind, ()))


def _lane(lane: Lane, data: str, keys: Sequence[Key]) -> dict[str, Any]:
    place = {record.input_id: at for at, record in enumerate(lane.records)}
    at = [place.get(one) if own == data else None for own, one in keys]
    rows: list[Record | None] = [None if spot is None else lane.records[spot] for spot in at]
    streams = [() if spot is None else lane.streams[spot] for spot in at]
    mechanisms = list(dict.fromkeys(name for record in lane.records for name in record.radii))
    facts = list(dict.fromkeys(name for record in lane.records for name in record.facts))
    return {
        "name": lane.name,
        "run": lane.run,
        "lane": lane.lane,
        "sigma": lane.config.noise.sigma if lane.config else None,
        "sound": lane.metrics.sound,
        "prediction": [None if row is None else row.prediction for row in rows],
        **{name: _shrunk([getattr(row, name, None) for row in rows], up=name == "p_b") for name in _NUMBERS},
        "radii": {
            name.replace("_", "-"): _shrunk([None if r is None else r.radii.get(name) for r in rows])
            for name in mechanisms
        },
        "facts": {name: [None if row is None else row.facts.get(name) for row in rows] for name in facts},
        "spent": dict(lane.records[0].spent),
        "procedure": lane.records[0].procedure,
        "streams": [[_stream(one) for one in own] for own in streams],
    }


def _stream(one: Stream) -> list[Any]:
    """[stage, requests, draws, [class, weight, ...], invalid, scored, {other cells}], as the script expects it."""
    pairs = [value for pair in zip(one.classes, map(number, one.weights), strict=True) for value in pair]
    return [one.stage, one.requests, one.draws, pairs, one.invalid, int(one.scored), dict(one.other)]


def _shrunk(values: Sequence[Any], up: bool = False) -> Any:
    """Rounded numbers; a single value where all inputs share it."""
    found = [number(value, up) for value in values]
    present = {value for value in found if value is not None}
    if len(present) <= 1 and None not in found:
        return present.pop() if present else None
    return found


def number(value: float | int | None, up: bool = False) -> float | int | None:
    """Seven digits, rounded down so that no radius grows by being shown (up for upper bounds).

    NaN becomes None, infinity a number that no radius reaches: JSON has neither.
    """
    if value is None or isinstance(value, int):
        return value
    if math.isnan(value):
        return None
    if math.isinf(value):
        return math.copysign(_INFINITE, value)
    shown = rounded_down(float(value), 7, up)
    return int(shown) if shown.is_integer() else shown


def sheets(pictures: Sequence[Picture], budget: int = BUDGET) -> dict[str, Any] | None:
    """Sheets of all pictures, each uint8 (height, width, channels) or a clip (frames, height, width, channels).

    As the page's script reads them: picture i is on sheet i // perSheet, there row by row in ``columns`` columns of
    width x height tiles. sizes: [height, width] of each inside its tile, empty where all are alike; frames of each,
    empty where there is no clip.
    """
    if not pictures:
        return None
    flat = [strip(one) for one in pictures]
    frames = [min(len(one), MOST_FRAMES) if one.ndim == 4 else 1 for one in pictures]
    urls: list[str] = []
    for lossy, stride in ((False, 1), (True, 1), (True, 2)):
        tiles = [one[::stride, ::stride] for one in flat]
        height, width = (max(one.shape[axis] for one in tiles) for axis in (0, 1))
        starts = range(0, len(tiles), _PER_SHEET)
        urls = [_sheet(tiles[start : start + _PER_SHEET], height, width, lossy) for start in starts]
        if sum(map(len, urls)) <= budget:
            break
    sizes = [list(one.shape[:2]) for one in tiles]
    shape = {"columns": COLUMNS, "perSheet": _PER_SHEET, "width": width, "height": height}
    alike, still = all(size == sizes[0] for size in sizes), set(frames) <= {1}
    return {"urls": urls, **shape, "sizes": [] if alike else sizes, "frames": [] if still else frames, "lossy": lossy}


def strip(picture: Picture) -> Picture:
    """An image as (height, width, 1 or 3); a clip as up to MOST_FRAMES of its frames side by side."""
    if picture.ndim == 2:
        picture = picture[:, :, None]
    if picture.ndim == 4:
        kept = np.linspace(0, len(picture) - 1, min(len(picture), MOST_FRAMES)).round().astype(int)
        picture = np.concatenate(list(picture[kept]), axis=1)
    return picture if picture.shape[2] in (1, 3) else picture[:, :, :1]


def _sheet(tiles: Sequence[Picture], height: int, width: int, lossy: bool) -> str:
    """One sheet as a data URL; grey where every tile is."""
    images = need("PIL.Image")
    grey = all(tile.shape[2] == 1 for tile in tiles)
    columns = min(COLUMNS, len(tiles))
    canvas = np.zeros((-(-len(tiles) // COLUMNS) * height, columns * width, 1 if grey else 3), np.uint8)
    for place, tile in enumerate(tiles):
        top, left = place // COLUMNS * height, place % COLUMNS * width
        canvas[top : top + tile.shape[0], left : left + tile.shape[1]] = tile
    image, file = images.fromarray(canvas[:, :, 0] if grey else canvas), io.BytesIO()
    if lossy:
        image.save(file, "JPEG", quality=82)
    else:
        image.save(file, "PNG", optimize=True)
    kind = "jpeg" if lossy else "png"
    return f"data:image/{kind};base64,{base64.b64encode(file.getvalue()).decode()}"
