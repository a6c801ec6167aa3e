from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from ringfence.data import InputRangeWarning, load_dataset
from ringfence.errors import ArgumentError, DataError


def save(path: Path, **arrays: object) -> str:
    np.savez(path, **arrays)  # type: ignore[arg-type]
    return str(path)


def test_default_is_every_twentieth_test_digit() -> None:
    data = load_dataset("default")
    assert len(data) == 500
    assert data.ids == list(range(0, 10_000, 20))
    assert (data.num_classes, data.shape, data.name) == (10, (1, 28, 28), "default")
    assert data.class_names is not None
    assert len(data.class_names) == 10
    first = data[0]
    assert (first.id, first.label, first.x.shape, first.x.dtype) == (0, 7, (1, 28, 28), torch.float32)
    assert 0 <= first.x.min() < first.x.max() <= 1
    assert [item.id for item in data] == data.ids


def test_default_equals_mnist(shared: Path) -> None:
    data = load_dataset("default")
    mnist = load_dataset(f"mnist:{shared / 'data' / 'mnist.npz'}", skip=20)
    assert mnist.ids == data.ids
    assert mnist.labels == data.labels
    assert all(torch.equal(a.x, b.x) for a, b in zip(data, mnist, strict=True))


def test_skip_comes_before_limit(tmp_path: Path) -> None:
    spec = save(tmp_path / "d.npz", x=np.arange(10, dtype=np.uint8).reshape(10, 1, 1), y=np.arange(10))
    data = load_dataset(spec, skip=3, limit=2)
    assert data.ids == [0, 3]
    assert [item.label for item in data] == [0, 3]
    torch.testing.assert_close(data[1].x, torch.full((1, 1, 1), 3 / 255))
    assert load_dataset(spec, skip=3, limit=100).ids == [0, 3, 6, 9]
    assert load_dataset(spec, skip=3).digest == load_dataset(spec).digest
    for wrong in ({"skip": 0}, {"limit": 0}, {"split": "validation"}):
        with pytest.raises(ArgumentError):
            load_dataset(spec, **wrong)  # type: ignore[arg-type]


def test_npz_shapes_and_types(tmp_path: Path) -> None:
    for shape, expected in [((2, 5, 6), (1, 5, 6)), ((2, 3, 5, 6), (3, 5, 6)), ((2, 4, 3, 5, 6), (4, 3, 5, 6))]:
        data = load_dataset(save(tmp_path / "d.npz", x=np.full(shape, 255, np.uint8)))
        assert data.shape == expected
        assert data[1].x.shape == expected
        assert (data[1].label, data[1].x.max().item()) == (None, 1.0)
    data = load_dataset(save(tmp_path / "d.npz", x=np.full((2, 5, 6), 0.5)))
    assert (data[0].x.dtype, data[0].x.max().item()) == (torch.float32, 0.5)


def test_npz_of_several_splits(tmp_path: Path) -> None:
    one = np.zeros((1, 2, 2), np.uint8)
    spec = save(tmp_path / "d.npz", x_test=one, y_test=np.array([1]), x_train=one, y_train=np.array([2]))
    assert load_dataset(spec)[0].label == 1
    assert load_dataset(spec, split="train")[0].label == 2


def test_npz_names_and_classes(tmp_path: Path) -> None:
    x, y = np.zeros((2, 2, 2), np.uint8), np.array([[0], [1]])
    data = load_dataset(save(tmp_path / "d.npz", x=x, y=y, classes=["up", "down"], names=["a", "b"]))
    assert (data[1].name, data.class_names, data.num_classes) == ("b", ("up", "down"), 2)


def test_values_outside_the_unit_interval_are_named(tmp_path: Path) -> None:
    spec = save(tmp_path / "d.npz", x=np.linspace(-1, 2.5, 8).reshape(2, 2, 2))
    with pytest.warns(InputRangeWarning, match=r"\[-1, 2\.5\]"):
        assert load_dataset(spec)[0].x.min() == -1


@pytest.mark.filterwarnings("error")
def test_features_have_units_of_their_own(tmp_path: Path) -> None:
    spec = save(tmp_path / "d.npz", x=np.linspace(-3, 3, 8).reshape(2, 4))
    assert load_dataset(spec)[0].x.min() == -3


def test_digest_sees_content(tmp_path: Path) -> None:
    x = np.zeros((2, 2, 2), np.uint8)
    digests = [load_dataset(save(tmp_path / "d.npz", x=x, y=np.array(y))).digest for y in ([0, 1], [0, 1], [1, 1])]
    x[1, 1, 1] = 1
    digests.append(load_dataset(save(tmp_path / "d.npz", x=x, y=np.array([0, 1]))).digest)
    assert digests[0] == digests[1]
    assert len(set(digests)) == 3


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": np.zeros((2, 2, 2), np.int64)}, "uint8"),
        ({"x": np.zeros((2,), np.uint8)}, "shape"),
        ({"x": np.zeros((2, 32, 32, 3), np.uint8)}, "channels must come first"),
        ({"x": np.zeros((2, 2, 2), np.uint8), "y": np.zeros(3, int)}, "one label for each of the 2"),
        ({"x": np.zeros((2, 2, 2), np.uint8), "y": np.zeros(2)}, "integers"),
        ({"x": np.zeros((2, 2, 2), np.uint8), "y": np.array([0, -1])}, "label -1 at index 1"),
        ({"x": np.array([[[0.5]], [[np.nan]]])}, "NaN or infinity at index 1"),
        ({"images": np.zeros((2, 2, 2), np.uint8)}, "must hold x"),
        ({"x": np.array([object()])}, "plain arrays"),
        ({"x": np.zeros((2, 2, 2), np.uint8), "index": np.arange(3)}, "index must hold one"),
    ],
)
def test_bad_arrays_are_explained(tmp_path: Path, arrays: dict[str, object], message: str) -> None:
    with pytest.raises(DataError, match=message):
        load_dataset(save(tmp_path / "d.npz", **arrays))


def test_labels_outside_the_classes_name_the_first_index(tmp_path: Path) -> None:
    spec = save(tmp_path / "d.npz", x=np.zeros((6, 2, 2), np.uint8), y=np.array([0, 1, 2, 9, 3, 9]))
    with pytest.raises(DataError, match=r"0 to 2 \(3 classes\); got label 9 at index 3"):
        load_dataset(spec, num_classes=3)
    assert load_dataset(spec, num_classes=3, limit=3).ids == [0, 1, 2]
    with pytest.raises(DataError, match="label 7 at index 0"):
        load_dataset("default").check_labels(7)


@pytest.mark.parametrize("content", [b"", b"nothing", b"PK\x03\x04torn"])
def test_damaged_npz(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "d.npz").write_bytes(content)
    with pytest.raises(DataError, match=r"d\.npz"):
        load_dataset(str(tmp_path / "d.npz"))


def test_single_array_is_no_archive(tmp_path: Path) -> None:
    np.save(tmp_path / "d.npy", np.zeros((2, 2)))
    (tmp_path / "d.npy").rename(tmp_path / "d.npz")
    with pytest.raises(DataError, match="a single array"):
        load_dataset(str(tmp_path / "d.npz"))


def test_truncated_npz(tmp_path: Path) -> None:
    path = tmp_path / "d.npz"
    np.savez_compressed(path, x=np.random.default_rng(0).integers(0, 255, (50, 8, 8), dtype=np.uint8))
    raw = bytearray(path.read_bytes())
    raw[200:260] = bytes(60)
    path.write_bytes(bytes(raw))
    with pytest.raises(DataError, match=r"d\.npz"):
        load_dataset(str(path))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("defualt", "'default'"),
        ("cifar", "'cifar10'"),
        ("minst:somewhere", "'mnist'"),
        ("mnist", "mnist:PATH"),
        ("mnist:nowhere", "no such file"),
        ("nowhere.npz", "no such file"),
    ],
)
def test_unknown_specs_are_explained(spec: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        load_dataset(spec)


def test_one_hot_labels_are_told_to_be_numbers(tmp_path: Path) -> None:
    path = save(tmp_path / "a.npz", x=np.zeros((3, 1, 8, 8)), y=np.eye(3))
    with pytest.raises(DataError, match=r"one label for each .*got \(3, 3\).*y\.argmax\(1\)"):
        load_dataset(path)


def test_a_table_is_told_how_its_columns_become_inputs(tmp_path: Path) -> None:
    (tmp_path / "features.csv").write_text("a,b,label\n0.1,0.2,1\n")
    with pytest.raises(DataError, match=r"In Python give columns of the table, \(features, labels\)"):
        load_dataset(str(tmp_path / "features.csv"))
