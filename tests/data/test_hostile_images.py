"""Image folders from strangers: named formats only, no bombs, nothing outside the folder, every byte in the digest."""

from __future__ import annotations

import os
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest

from ringfence.data import load_dataset
from ringfence.digests import changes
from ringfence.errors import DataError
from ringfence.store.parts import InputInfo, inputs_bytes, parse_inputs

Image = pytest.importorskip("PIL.Image")

EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\n%%EOF\n"


def paint(path: Path, value: int = 255, shape: tuple[int, ...] = (6, 8)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.full(shape, value, np.uint8)).save(
        path, **({"compress_level": 0} if path.suffix == ".png" else {})
    )


def png(path: Path, width: int, height: int) -> None:
    """A small file that says it is a picture of that size."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    rows = zlib.compress(b"\0" * (width + 1) * min(height, 4))
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b""))


def test_postscript_called_png_starts_no_interpreter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from PIL import EpsImagePlugin

    started: list[object] = []
    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", lambda *words, **options: started.append(words))
    (tmp_path / "a.png").write_bytes(EPS)
    with pytest.raises(DataError, match="readable PNG, JPEG, WebP, BMP or TIFF"):
        load_dataset(str(tmp_path))
    assert started == []


@pytest.mark.parametrize("kind", ["GIF", "PPM", "TGA"])
def test_only_the_named_formats_are_decoded(tmp_path: Path, kind: str) -> None:
    Image.fromarray(np.zeros((6, 8), np.uint8)).save(tmp_path / "a.png", format=kind)
    with pytest.raises(DataError, match="readable PNG, JPEG, WebP, BMP or TIFF"):
        load_dataset(str(tmp_path))


@pytest.mark.parametrize("side", [10_000, 12_000, 100_000], ids=["large", "warned about", "refused by pillow"])
def test_bombs_are_refused_before_they_are_unpacked(tmp_path: Path, side: int) -> None:
    png(tmp_path / "a.png", side, side)
    with pytest.raises(DataError, match="at most 67,108,864 pixels"):
        load_dataset(str(tmp_path))


def test_a_thin_image_does_not_grow_by_resizing(tmp_path: Path) -> None:
    paint(tmp_path / "a.png", shape=(1, 60_000))
    with pytest.raises(DataError, match="at most 67,108,864 pixels"):
        load_dataset(str(tmp_path), size=64)


@pytest.mark.parametrize("way", ["up", "absolute", "link", "up and back"])
def test_labels_do_not_leave_their_folder(tmp_path: Path, way: str) -> None:
    folder, secret = tmp_path / "data", tmp_path / "secret.png"
    paint(secret)
    paint(folder / "a.png")
    named = {"up": "../secret.png", "absolute": str(secret), "link": "b.png", "up and back": "../data/a.png"}[way]
    if way == "link":
        (folder / "b.png").symlink_to(secret)
    (folder / "labels.csv").write_text(f"file,label\na.png,0\n{named},1\n")
    with pytest.raises(DataError, match="line 3: must name a file inside the folder"):
        load_dataset(str(folder))


@pytest.mark.parametrize("content", [b"file,label\n\xff\xfe,1\n", b"file,label\n" + b"x" * 200_000 + b",1\n"])
def test_a_table_that_cannot_be_read_is_named(tmp_path: Path, content: bytes) -> None:
    paint(tmp_path / "a.png")
    (tmp_path / "labels.csv").write_bytes(content)
    with pytest.raises(DataError, match=r"labels\.csv.*must be a readable table"):
        load_dataset(str(tmp_path))


@pytest.mark.skipif(os.name != "posix", reason="pipes are POSIX")
def test_folders_and_pipes_called_images_are_no_images(tmp_path: Path) -> None:
    paint(tmp_path / "class" / "a.png")
    (tmp_path / "class" / "b.png").mkdir()
    os.mkfifo(tmp_path / "class" / "c.png")
    assert [item.name for item in load_dataset(str(tmp_path))] == ["class/a.png"]


def test_a_changed_pixel_changes_the_digest_though_the_size_stays(tmp_path: Path) -> None:
    paint(tmp_path / "x" / "a.png", 10)
    before, size = load_dataset(str(tmp_path)).digest, (tmp_path / "x" / "a.png").stat().st_size
    assert load_dataset(str(tmp_path)).digest == before
    paint(tmp_path / "x" / "a.png", 11)
    assert (tmp_path / "x" / "a.png").stat().st_size == size
    assert changes(load_dataset(str(tmp_path)).digest, before) == "data bytes"
    paint(tmp_path / "x" / "a.png", 10)
    assert changes(load_dataset(str(tmp_path), size=6).digest, before) == "size or colour mode of the images"


def test_a_name_of_any_bytes_is_read_and_identified(tmp_path: Path) -> None:
    paint(tmp_path / "a.png")
    os.rename(os.fsencode(tmp_path / "a.png"), os.fsencode(tmp_path) + b"/\xff.png")
    data = load_dataset(str(tmp_path))
    assert data.digest
    stored = inputs_bytes([InputInfo(0, None, data[0].name)])
    assert [one.name for one in parse_inputs(tmp_path / "inputs.parquet", stored)] == ["\\udcff.png"]


def test_index_and_labels_are_named_apart(tmp_path: Path) -> None:
    def digest(y: list[int], index: list[int]) -> str:
        np.savez(tmp_path / "d.npz", x=np.zeros((2, 4, 4), np.uint8), y=np.array(y), index=np.array(index))
        return load_dataset(str(tmp_path / "d.npz")).digest

    assert changes(digest([0, 1], [0, 2]), digest([0, 1], [0, 1])) == "index"
    assert changes(digest([0, 0], [0, 1]), digest([0, 1], [0, 1])) == "labels"


def test_digests_of_earlier_runs_on_arrays_hold() -> None:
    assert changes(load_dataset("default").digest, "35b3dc06345976af6f88ffbb00451629") is None  # of committed runs


def test_two_inputs_with_one_id_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", x=np.zeros((3, 4, 4), np.uint8), index=np.array([5, 7, 5]))
    with pytest.raises(DataError, match="an id of its own; got id 5 2 times"):
        load_dataset(str(tmp_path / "d.npz"))
