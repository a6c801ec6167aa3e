"""Thumbnails as a few sprite sheets: one picture of many tiles loads faster and packs better than thousands."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from ringfence.report import need

Picture = NDArray[np.uint8]

COLUMNS = 20
_PER_SHEET = 400
MOST_FRAMES = 8
BUDGET = 2_500_000
"""Bytes that all sheets of a page may take; larger sets are compressed with loss, then halved in size."""


@final
@dataclass(frozen=True)
class Sheets:
    """Pictures by number: sheet number // per_sheet, there row by row in ``columns`` columns of width x height tiles.

    sizes: (height, width) of each picture inside its tile; frames of each: 1 for an image, more for a clip.
    """

    urls: list[str]
    width: int
    height: int
    sizes: list[tuple[int, int]]
    frames: list[int]
    lossy: bool

    def to_dict(self) -> dict[str, Any]:
        """What the page's script reads."""
        same = len(set(self.sizes)) <= 1
        return {
            "urls": self.urls,
            "columns": COLUMNS,
            "perSheet": _PER_SHEET,
            "width": self.width,
            "height": self.height,
            "sizes": [] if same else [list(size) for size in self.sizes],
            "frames": [] if set(self.frames) <= {1} else self.frames,
            "lossy": self.lossy,
        }


def sheets(pictures: Sequence[Picture], budget: int = BUDGET) -> Sheets | None:
    """Sheets of all pictures, each uint8 (height, width, channels) or a clip (frames, height, width, channels)."""
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
    return Sheets(urls, width, height, [one.shape[:2] for one in tiles], frames, lossy)


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
