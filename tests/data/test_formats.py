from __future__ import annotations

import gzip
import pickle
import struct
from pathlib import Path

import numpy as np
import pytest
import torch

from ringfence.data import load_dataset
from ringfence.errors import DataError

RNG = np.random.default_rng(0)
DIGITS = RNG.integers(0, 256, (5, 28, 28), dtype=np.uint8)
IMAGES = RNG.integers(0, 256, (4, 3, 32, 32), dtype=np.uint8)
LABELS = np.array([3, 1, 4, 1], np.uint8)


def idx(array: np.ndarray) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("folder", ["", "MNIST/raw"])
def test_mnist_idx_files(tmp_path: Path, zipped: bool, folder: str) -> None:
    (tmp_path / folder).mkdir(parents=True, exist_ok=True)
    for name, array in (("t10k-images-idx3-ubyte", DIGITS), ("t10k-labels-idx1-ubyte", np.arange(5, dtype=np.uint8))):
        path = tmp_path / folder / (name + ".gz" * zipped)
        path.write_bytes(gzip.compress(idx(array)) if zipped else idx(array))
    for data in (load_dataset(f"mnist:{tmp_path}", skip=2), load_dataset("mnist", root=tmp_path, skip=2)):
        assert data.ids == [0, 2, 4]
        assert data[2].label == 4
        torch.testing.assert_close(data[2].x, torch.from_numpy(DIGITS[4:5]).float() / 255)
    with pytest.raises(DataError, match="train-images"):
        load_dataset(f"mnist:{tmp_path}", split="train")


@pytest.mark.parametrize("content", [b"", idx(DIGITS)[:-1], idx(DIGITS) + b"x", b"\0\0\x0d\x03" + bytes(40)])
def test_torn_idx_files(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "t10k-images-idx3-ubyte").write_bytes(content)
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(idx(np.zeros(5, np.uint8)))
    with pytest.raises(DataError, match="idx"):
        load_dataset(f"mnist:{tmp_path}")


def test_cifar_binary(tmp_path: Path) -> None:
    rows = np.concatenate([LABELS[:, None], IMAGES.reshape(4, -1)], axis=1)
    (tmp_path / "test_batch.bin").write_bytes(rows.tobytes())
    data = load_dataset(f"cifar10:{tmp_path}")
    assert [item.label for item in data] == LABELS.tolist()
    torch.testing.assert_close(data[3].x, torch.from_numpy(IMAGES[3]).float() / 255)
    single = load_dataset(f"cifar10:{tmp_path / 'test_batch.bin'}")
    assert (single.labels, single.digest) == (data.labels, data.digest)
    (tmp_path / "test_batch.bin").write_bytes(rows.tobytes()[:-1])
    with pytest.raises(DataError, match="3073"):
        load_dataset(f"cifar10:{tmp_path}")


@pytest.mark.parametrize("old_numpy", [False, True])
def test_cifar_python_batches(tmp_path: Path, old_numpy: bool) -> None:
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    for i in range(1, 6):
        raw = pickle.dumps({b"data": IMAGES.reshape(4, -1), b"labels": LABELS.tolist()}, protocol=3)
        if old_numpy:
            raw = raw.replace(b"numpy._core.multiarray", b"numpy.core.multiarray")
        (folder / f"data_batch_{i}").write_bytes(raw)
    data = load_dataset(f"cifar10:{tmp_path}", split="train")
    assert len(data) == 20
    assert load_dataset(f"cifar10:{folder / 'data_batch_2'}").labels == LABELS.tolist()
    assert data[5].label == LABELS[1]
    torch.testing.assert_close(data[5].x, torch.from_numpy(IMAGES[1]).float() / 255)


class Trap:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (eval, ("open('sprung', 'w')",))


def test_cifar_pickle_that_runs_code_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("test_batch").write_bytes(pickle.dumps({b"data": Trap(), b"labels": []}))
    with pytest.raises(DataError, match=r"builtins\.eval"):
        load_dataset("cifar10:.")
    assert not Path("sprung").exists()
    Path("test_batch").write_bytes(b"nothing")
    with pytest.raises(DataError, match="plain arrays"):
        load_dataset("cifar10:.")


def test_cifar_labels_outside_ten_classes(tmp_path: Path) -> None:
    np.savez(tmp_path / "c.npz", x=IMAGES, y=np.array([0, 10, 1, 1]))
    with pytest.raises(DataError, match="label 10 at index 1"):
        load_dataset(f"cifar10:{tmp_path / 'c.npz'}")


def test_shared_cifar_and_video(shared: Path) -> None:
    data = load_dataset(f"cifar10:{shared / 'data'}", skip=20)
    assert len(data) == 500
    assert [data[i].label for i in range(5)] == [3, 7, 4, 7, 8]
    assert data.shape == (3, 32, 32)
    video = load_dataset(str(shared / "data" / "video_colored_shapes.npz"))
    assert (len(video), video.shape, video.num_classes) == (135, (16, 3, 64, 64), 3)
