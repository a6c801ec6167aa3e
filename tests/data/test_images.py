from __future__ import annotations

import struct
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch

from ringfence.data import load_dataset
from ringfence.errors import ArgumentError, DataError

Image = pytest.importorskip("PIL.Image")


def paint(path: Path, shape: tuple[int, ...] = (6, 8, 3), value: int = 255, mode: str | None = None) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.fromarray(np.full(shape, value, np.uint8))
    (image.convert(mode) if mode else image).save(path)


def test_class_folders_are_numbered_in_order(tmp_path: Path) -> None:
    for name in ("b/2.png", "b/10.png", "a/x.png", "c/z.png"):
        paint(tmp_path / name)
    (tmp_path / "a" / "readme.txt").write_text("not an image")
    data = load_dataset(str(tmp_path))
    assert [item.name for item in data] == ["a/x.png", "b/10.png", "b/2.png", "c/z.png"]
    assert [item.label for item in data] == [0, 1, 1, 2]
    assert (data.num_classes, data.class_names, data.shape) == (3, ["a", "b", "c"], (3, 6, 8))
    assert load_dataset(str(tmp_path), skip=2).ids == [0, 2]
    torch.testing.assert_close(data[0].x, torch.ones(3, 6, 8))


def test_pictures_within_folders_of_a_class_belong_to_it(tmp_path: Path) -> None:
    for name in ("a/x.png", "a/2019/y.png", "b/2020/may/z.png", "b/.trash/w.png"):
        paint(tmp_path / name)
    data = load_dataset(str(tmp_path))
    assert [item.name for item in data] == ["a/2019/y.png", "a/x.png", "b/2020/may/z.png"]
    assert [item.label for item in data] == [0, 0, 1]


def test_flat_folders_with_and_without_labels(tmp_path: Path) -> None:
    paint(tmp_path / "p.png", (6, 8), 51)
    paint(tmp_path / "q.png", (6, 8), 51)
    data = load_dataset(str(tmp_path))
    assert [item.label for item in data] == [None, None]
    torch.testing.assert_close(data[0].x, torch.full((1, 6, 8), 0.2))
    (tmp_path / "labels.csv").write_text("file,label\nq.png,4\np.png,2\n")
    data = load_dataset(str(tmp_path))
    assert [(item.id, item.name, item.label) for item in data] == [(0, "q.png", 4), (1, "p.png", 2)]
    assert data.num_classes is None
    (tmp_path / "labels.csv").write_text("file,label\nq.png,4\n", encoding="utf-8-sig")  # as spreadsheets save it
    assert [item.label for item in load_dataset(str(tmp_path))] == [4]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("p.png,4\n", "needs the columns"),
        ("file,label,label\np.png,1,2\n", "each once; got"),
        ("file,label\np.png,four\n", "line 2.*integers"),
        ("file,label\np.png,1\nr.png,1\n", "line 3.*existing"),
    ],
)
def test_bad_label_tables(tmp_path: Path, table: str, message: str) -> None:
    paint(tmp_path / "p.png")
    (tmp_path / "labels.csv").write_text(table)
    with pytest.raises(DataError, match=message):
        load_dataset(str(tmp_path))


def test_arrays_are_not_resized_and_nobody_believes_they_are() -> None:
    with pytest.raises(ArgumentError, match=r"size: .*arrays stay as they are; got 14 for .*resized\(MODEL, size=14\)"):
        load_dataset("default", size=14)
    assert load_dataset("default", size=28, limit=1).shape == (1, 28, 28)


def test_size_resizes_the_shorter_side_and_crops_the_centre(tmp_path: Path) -> None:
    pixels = np.zeros((4, 12), np.uint8)
    pixels[:, 4:8] = 255
    Image.fromarray(pixels).save(tmp_path / "a.png")
    paint(tmp_path / "b.png", (16, 8), 255)
    data = load_dataset(str(tmp_path), size=4)
    torch.testing.assert_close(data[0].x, torch.ones(1, 4, 4))
    assert data[1].x.shape == (1, 4, 4)
    with pytest.raises(DataError, match=r"b\.png.*first image"):
        list(load_dataset(str(tmp_path)))
    with pytest.raises(ArgumentError, match="size: must be at least 1"):
        load_dataset(str(tmp_path), size=0)


def test_unreadable_images_and_empty_folders(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="must hold PNG, JPEG, WebP, BMP or TIFF images"):
        load_dataset(str(tmp_path))
    paint(tmp_path / "a.png")
    (tmp_path / "b.jpg").write_bytes(b"torn")
    data = load_dataset(str(tmp_path))
    with pytest.raises(DataError, match=r"b\.jpg"):
        list(data)
    Image.fromarray(np.zeros((6, 8), np.uint16)).save(tmp_path / "a.png")
    with pytest.raises(DataError, match="8 bits"):
        load_dataset(str(tmp_path))


def sixteen_bits(colour: int, channels: int) -> bytes:
    """A PNG of 8 x 8 pixels with 16 bits a channel, which Pillow reads and does not write."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    rows = b"".join(b"\0" + np.full(8 * channels, 0x80FF, ">u2").tobytes() for _ in range(8))
    head = struct.pack(">IIBBBBB", 8, 8, 16, colour, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


@pytest.mark.parametrize(("colour", "channels"), [(0, 1), (2, 3), (4, 2), (6, 4)], ids=["L", "RGB", "LA", "RGBA"])
def test_sixteen_bits_are_refused_in_every_colour(tmp_path: Path, colour: int, channels: int) -> None:
    """Pillow cuts colours off to 8 bits by itself: what is certified would be up to 1/255 away in every pixel."""
    from ringfence.serve.inputs import PNG, read_input

    content = sixteen_bits(colour, channels)
    (tmp_path / "a.png").write_bytes(content)
    with pytest.raises(DataError, match=r"must have 8 bits per channel; got mode (I|RGB|LA|RGBA);16"):
        load_dataset(str(tmp_path))
    with pytest.raises(DataError, match="must have 8 bits per channel"):
        read_input(content, PNG, (3, 8, 8))


def test_missing_pillow_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paint(tmp_path / "a.png")
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(DataError, match=r"ringfence\[images\]"):
        load_dataset(str(tmp_path))


def test_imagenet_is_framed_as_in_the_literature(tmp_path: Path) -> None:
    paint(tmp_path / "val" / "n01" / "a.jpg", (300, 400, 3))
    paint(tmp_path / "val" / "n02" / "b.jpg", (500, 260), 128)
    data = load_dataset(f"imagenet:{tmp_path}")
    assert [item.x.shape for item in data] == [(3, 224, 224)] * 2
    assert (data.num_classes, [item.label for item in data]) == (1000, [0, 1])


def test_shared_imagenet_samples(shared: Path) -> None:
    data = load_dataset("imagenet", root=shared / "data" / "imagenet_samples", limit=3)
    assert [item.label for item in data] == [0, 7, 14]
    assert data.shape == (3, 224, 224)


def test_a_file_that_changes_after_the_digest_is_not_certified(tmp_path: Path) -> None:
    for number in range(2):
        Image.new("L", (4, 4), 10 * number).save(tmp_path / f"{number}.png")
    data = load_dataset(str(tmp_path))
    before = data.digest
    Image.new("L", (4, 4), 200).save(tmp_path / "1.png")
    assert data[0].x.shape == (1, 4, 4)
    with pytest.raises(DataError, match=r"1\.png: must stay what it was when the digest of the data was taken"):
        data[1]
    assert load_dataset(str(tmp_path)).digest != before
    assert float(load_dataset(str(tmp_path))[1].x.max()) == pytest.approx(200 / 255)


def test_a_file_that_is_gone_before_the_digest_is_told_by_name(tmp_path: Path) -> None:
    for name in "ab":
        paint(tmp_path / f"{name}.png")
    data = load_dataset(str(tmp_path))
    (tmp_path / "b.png").unlink()
    with pytest.raises(DataError, match=r"b\.png: must be a file that can be read"):
        _ = data.digest


def test_the_bytes_that_are_checked_are_the_bytes_that_are_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that changes between two readings would be hashed as one picture and certified as another."""
    paint(tmp_path / "a.png", (4, 4), 51)
    data = load_dataset(str(tmp_path))
    assert data.digest
    before = (tmp_path / "a.png").read_bytes()
    paint(tmp_path / "a.png", (4, 4), 255)
    monkeypatch.setattr(Path, "read_bytes", lambda path: before)
    torch.testing.assert_close(data[0].x, torch.full((1, 4, 4), 0.2))


def test_pictures_of_several_sizes_and_larger_ones_are_known_by_their_headers(tmp_path: Path) -> None:
    for name in ("a.png", "b.png"):
        paint(tmp_path / name, (6, 8))
    (tmp_path / "c.png").write_bytes(b"torn")
    assert [load_dataset(str(tmp_path)).misfits(side) for side in (5, 6, 7, 8)] == [True, True, False, False]
    paint(tmp_path / "d.png", (8, 6))
    assert load_dataset(str(tmp_path), limit=1).misfits(99)
    assert not load_dataset(str(tmp_path), size=4).misfits(4)
