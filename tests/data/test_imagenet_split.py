"""ImageNet's folders are its splits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ringfence.data import load_dataset
from ringfence.errors import DataError


def paint(path: Path, shade: int) -> None:
    image = pytest.importorskip("PIL.Image")
    path.parent.mkdir(parents=True, exist_ok=True)
    image.fromarray(np.full((8, 8, 3), shade, np.uint8)).save(path)


def brightness(spec: str, split: str) -> list[float]:
    return [round(255 * float(item.x.mean())) for item in load_dataset(spec, split=split, size=8)]  # type: ignore[arg-type]


def test_each_split_is_its_own_folder(tmp_path: Path) -> None:
    for split, shade in (("train", 200), ("val", 10)):
        for name in ("n01", "n02"):
            paint(tmp_path / split / name / "a.png", shade)
    assert brightness(f"imagenet:{tmp_path}", "train") == [200, 200]
    assert brightness(f"imagenet:{tmp_path}", "test") == [10, 10]
    assert brightness(f"imagenet:{tmp_path / 'train'}", "train") == [200, 200]  # the folder itself, named by the user


@pytest.mark.parametrize(("there", "split", "missing"), [("val", "train", "train/"), ("train", "test", "val/")])
def test_one_split_never_stands_in_for_the_other(tmp_path: Path, there: str, split: str, missing: str) -> None:
    paint(tmp_path / there / "n01" / "a.png", 100)
    with pytest.raises(DataError, match=f"must hold {missing} for the split {split}; got {there}/ alone"):
        brightness(f"imagenet:{tmp_path}", split)
