"""What programs already have becomes inputs: every container gives the same pictures and labels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)
from torch.utils.data import Dataset as TorchDataset

import ringfence as rf
from ringfence.data import Data, Dataset, Input, OrderWarning
from ringfence.errors import ArgumentError, DataError

Image = pytest.importorskip("PIL.Image")

BYTES = torch.randint(0, 256, (7, 3, 6, 6), generator=torch.Generator().manual_seed(3), dtype=torch.uint8)
X = BYTES.float() / 255
Y = torch.tensor([0, 1, 2, 0, 1, 2, 1])
PILLOW = [Image.fromarray(one.permute(1, 2, 0).numpy()) for one in BYTES]


def encoded(image: Any, kind: str = "PNG") -> bytes:
    stream = BytesIO()
    image.save(stream, kind)
    return stream.getvalue()


class Rows(TorchDataset[Any]):
    """A map-style data set whose rows are made by a function."""

    def __init__(self, row: Callable[[int], Any]) -> None:
        self.row = row

    def __len__(self) -> int:
        return len(X)

    def __getitem__(self, place: int) -> Any:
        return self.row(place)


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return iter(zip(X, Y.tolist(), strict=True))


def hugging_face() -> Any:
    datasets = pytest.importorskip("datasets")
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["a", "b", "c"])})
    return datasets.Dataset.from_dict({"image": PILLOW, "label": Y.tolist()}, features=features)


def web(tmp_path: Path, batched: bool) -> Any:
    wds = pytest.importorskip("webdataset")
    name = str(tmp_path / "shard.tar")
    with wds.TarWriter(name) as writer:
        for place, picture in enumerate(PILLOW):
            writer.write({"__key__": f"sample{place}", "png": encoded(picture), "cls": int(Y[place])})
    data = wds.WebDataset(name, shardshuffle=False)
    return data.decode("torchrgb8").to_tuple("png", "cls").batched(3) if batched else data


SOURCES: dict[str, Callable[[Path], Any]] = {
    "a pair of tensors": lambda _: (X, Y),
    "a pair of arrays": lambda _: (X.numpy(), Y.numpy()),
    "a tensor and a list": lambda _: (X, Y.tolist()),
    "an array and a tuple": lambda _: (X.numpy(), tuple(Y.tolist())),
    "two lists": lambda _: (list(X), Y.tolist()),
    "pictures and a tensor": lambda _: (PILLOW, Y),
    "bytes": lambda _: (BYTES, Y),
    "arrays of bytes": lambda _: (BYTES.numpy(), Y.numpy()),
    "a TensorDataset": lambda _: TensorDataset(X, Y),
    "a loader": lambda _: DataLoader(TensorDataset(X, Y), batch_size=3),
    "a loader of three parts": lambda _: DataLoader(TensorDataset(X, Y, torch.arange(7)), batch_size=3),
    "a loader of mappings": lambda _: DataLoader(Rows(lambda i: {"pixel_values": X[i], "labels": Y[i]}), batch_size=2),
    "a loader without batches": lambda _: DataLoader(Rows(lambda i: (X[i], Y[i])), batch_size=None),
    "a loader that collates nothing": lambda _: DataLoader(
        Rows(lambda i: (PILLOW[i], int(Y[i]))), batch_size=3, collate_fn=list
    ),
    "a loader of lists": lambda _: DataLoader(
        Rows(lambda i: (PILLOW[i], int(Y[i]))),
        batch_size=3,
        collate_fn=lambda rows: ([row[0] for row in rows], [row[1] for row in rows]),
    ),
    "a Dataset of pictures": lambda _: Rows(lambda i: (PILLOW[i], int(Y[i]))),
    "a Dataset of mappings": lambda _: Rows(lambda i: {"img": X[i], "target": Y[i]}),
    "a list of pairs": lambda _: list(zip(X, Y, strict=True)),
    "a list of lists": lambda _: [[x, int(y)] for x, y in zip(X, Y, strict=True)],
    "three-tuples": lambda _: [(x, int(y), f"file{i}.png") for i, (x, y) in enumerate(zip(X, Y, strict=True))],
    "mappings of arrays": lambda _: [{"x": x, "y": y} for x, y in zip(X.numpy(), Y.numpy(), strict=True)],
    "one mapping of columns": lambda _: {"image": X, "label": Y},
    "encoded pictures": lambda _: [(encoded(one), int(y)) for one, y in zip(PILLOW, Y, strict=True)],
    "an IterableDataset": lambda _: Stream(),
    "a loader of a stream": lambda _: DataLoader(Stream(), batch_size=4),
    "Hugging Face": lambda _: hugging_face(),
    "Hugging Face, torch": lambda _: hugging_face().with_format("torch"),
    "Hugging Face, numpy": lambda _: hugging_face().map(
        lambda row: {"pixel_values": np.array(row["image"]).transpose(2, 0, 1).tolist()}, remove_columns=["image"]
    ),
    "WebDataset": lambda folder: web(folder, False),
    "WebDataset, batched": lambda folder: web(folder, True),
    "Inputs": lambda _: [Input(i, x, int(y), str(i)) for i, (x, y) in enumerate(zip(X, Y, strict=True))],
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::ResourceWarning")
@pytest.mark.parametrize("kind", SOURCES)
def test_every_container_gives_the_same_inputs(kind: str, tmp_path: Path) -> None:
    data = Data(SOURCES[kind](tmp_path))
    data.check()
    found = list(data.stream())
    assert [one.id for one in found] == list(range(7))
    assert [one.label for one in found] == Y.tolist()
    torch.testing.assert_close(torch.stack([one.x for one in found]), X, rtol=0, atol=1e-6)
    kept = data.load(3)
    assert kept.shape == (3, 6, 6)
    torch.testing.assert_close(kept[4].x, X[4], rtol=0, atol=1e-6)


def test_tables_of_pandas_are_rows_of_features() -> None:
    """Iterated as they are they give the names of their columns, and columns of labels were taken for an input."""
    pandas = pytest.importorskip("pandas")
    features, labels = np.array([[-3.0, 0.5], [4.0, 7.0]]), [1, 0]
    table = pandas.DataFrame(features, columns=["age", "income"], index=[7, 5])
    column = pandas.Series(labels, index=[7, 5])
    for source in ((table, column), (table, labels), (features, column)):
        found = list(Data(source).stream())
        assert [one.x.tolist() for one in found] == features.tolist()
        assert [one.label for one in found] == labels
    assert [one.label for one in Data(table).stream()] == [None, None]


def test_names_come_along() -> None:
    named = Data([(X[0], 1, "cat.png"), {"image": X[1], "file_name": "dog.png"}]).stream()
    assert [one.name for one in named] == ["cat.png", "dog.png"]


def test_pictures_without_labels_have_none_and_nothing_is_said_of_their_answer() -> None:
    assert [one.label for one in Data(X).stream()] == [None] * 7
    assert [one.label for one in Data(X.numpy()).stream()] == [None] * 7
    assert [one.label for one in Data(DataLoader(list(X), batch_size=2)).stream()] == [None] * 7  # type: ignore[arg-type]

    class Bright(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.mean((2, 3))

    options: dict[str, Any] = {"sigma": 0.1, "procedure": rf.Fixed(n0=10, n=20)}
    assert [one.correct for one in rf.certify(Bright(), X[:2], **options)] == [None, None]
    labelled = list(rf.certify(Bright(), (X[:2], Bright()(X[:2]).argmax(1)), **options))
    assert all(one.correct in (True, False) for one in labelled)


def test_grey_pictures_of_pillow_have_one_channel() -> None:
    (one,) = Data([PILLOW[0].convert("L")]).stream()
    assert one.x.shape == (1, 6, 6)
    assert 0 <= float(one.x.min()) < float(one.x.max()) <= 1


def test_videos_are_single_inputs_and_no_batches() -> None:
    (one,) = Data([(torch.rand(5, 3, 6, 6), 2)]).stream()
    assert one.x.shape == (5, 3, 6, 6)
    assert one.label == 2


class Bare:
    """Neither rows nor an iterable."""


REFUSED: dict[str, tuple[Any, str]] = {
    "whole numbers": ([torch.zeros(3, 6, 6, dtype=torch.int64)], r"input 0: must be uint8 .*torch.int64.*x.byte"),
    "truth values": ([np.zeros((3, 6, 6), bool)], r"must be uint8 .*bool"),
    "complex numbers": ([torch.zeros(3, 6, 6, dtype=torch.complex64)], r"must be uint8 .*complex64"),
    "one-hot labels": ([(X[0], torch.tensor([0.0, 1.0, 0.0]))], r"label of input 0: must be a class number; got 3 num"),
    "one-hot labels of a tensor": (
        (X, torch.eye(7).long()),
        r"label of input 0: .*got 7 numbers. Give labels\.argmax\(1\)",
    ),
    "names for labels": ([(X[0], "cat")], r"label of input 0: must be a class number; got 'cat'\. Number the classes"),
    "a column of names": ((X[:2], ["cat", "dog"]), r"label of input 0: must be a class number; got 'cat'"),
    "half a label": ([(X[0], 0.5)], r"must be a class number; got 0\.5"),
    "mappings without a picture": ([{"tensor": X[0], "label": 1}], r"must name the input: pixel_values.*keys tensor"),
    "text": (["cat.png", "dog.png"], r"each must be an Input, a picture.*got str"),
    "numbers": ([1, 2, 3], r"each must be an Input.*got int.*give x\[None\], a batch of one"),
    "a vector": (np.zeros(3, np.float32), r"each must be an Input.*got float32.*give x\[None\]"),
    "rows of features that are lists": ([[0.1, 0.2], [0.3, 0.4]], r"got list\. Give rows of features as an array"),
    "bytes that are no picture": ([b"not a picture"], r"input 0: must be a readable PNG, JPEG"),
    "several splits": ({"train": [X[0]], "test": [X[1]]}, r"one data set, not a mapping of several; got train, test"),
    "labels that are too few": (
        DataLoader([0], batch_size=1, collate_fn=lambda _: (X, Y[:3])),  # type: ignore[arg-type]
        r"one label for each input; got columns of 7, 3 rows",
    ),
    "labels of a tensor that are too few": ((X, Y[:3]), r"one label for each input; got columns of 7, 3 rows"),
    "a list of labels that is too short": ((X, [0, 1]), r"one label for each input; got columns of 7, 2 rows"),
    "batches of text": (
        DataLoader([0], batch_size=1, collate_fn=lambda _: "text"),  # type: ignore[arg-type]
        r"batches of inputs, or of inputs and labels; got a str\. Write a collate_fn",
    ),
    "columns that are none": (
        DataLoader([0], batch_size=1, collate_fn=lambda _: {"image": X, "label": 3}),  # type: ignore[arg-type]
        r"columns of equal length.*label, a int",
    ),
    "empty batches": (
        DataLoader([0], batch_size=1, collate_fn=lambda _: []),  # type: ignore[arg-type]
        r"batches of inputs, or of inputs and labels; got a list",
    ),
    "sparse tensors": ([X[0].to_sparse()], r"input 0: must hold all its values; got sparse_coo"),
    "tensors without values": (X.to("meta"), r"input 0: must hold all its values; got meta"),
    "masked arrays": (
        np.ma.masked_array(X.numpy(), mask=X.numpy() > 0.5),
        r"input \d: must hold all its values; got masked values\. Fill it",
    ),
    "ragged rows": ([{"pixel_values": [[1, 2], [3]]}], r"input 0: must be an array"),
    "a picture that is a set": ([{"image": {1, 2}}], r"must be a tensor, an array or a picture; got set"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_cannot_be_an_input_is_named(kind: str) -> None:
    source, message = REFUSED[kind]
    with pytest.raises(DataError, match=message):
        list(Data(source).stream())


CHOICES: dict[str, tuple[dict[str, Any], str]] = {
    "no rows": ({"source": Bare()}, r"data: must be a source, a Dataset.*Bare"),
    "a number": ({"source": 3}, r"data: must be a source.*int"),
    "another split": ({"split": "validation"}, r"split: must be one of test, train, val; got 'validation'"),
    "a range without dots": ({"range": "255"}, r"range: must be LOW\.\.HIGH.*'255'\. Write e\.g\. 0\.\.255"),
    "a range backwards": ({"range": "255..0"}, r"range: must be LOW\.\.HIGH"),
    "a range of words": ({"range": "low..high"}, r"range: must be LOW\.\.HIGH"),
    "a range without end": ({"range": "0..inf"}, r"range: must be LOW\.\.HIGH"),
    "two channels": ({"channels": 2}, r"channels: must be 1 or 3; got 2"),
    "no step": ({"skip": 0}, r"skip: must be at least 1; got 0"),
}


@pytest.mark.parametrize("kind", CHOICES)
def test_choices_that_no_source_has_are_refused(kind: str) -> None:
    chosen, message = CHOICES[kind]
    with pytest.raises(ArgumentError, match=message):
        Data(**chosen).check()


def test_channels_last_in_memory_is_refused_before_a_run_folder_is_begun(tmp_path: Path) -> None:
    net = torch.nn.Conv2d(3, 3, 6)
    value = rf.Certification(net, (X.permute(0, 2, 3, 1), Y), noise=rf.Gaussian(0.1))
    with pytest.raises(DataError, match=r"channels must come first: \(N, C, H, W\); got inputs of shape \(6, 6, 3\)"):
        value.run(tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("read", [lambda data: list(data.stream()), lambda data: data.load()])
def test_what_a_list_of_whole_numbers_means_is_the_same_in_every_row(read: Callable[[Data], Any]) -> None:
    """JSON writes 1.0 as 1: a row of such would be divided by 255 in silence, and the others not."""
    black_and_white, grey = [[0, 1], [1, 0]], [[0.5, 1], [1, 0]]
    for rows in ([grey, black_and_white], [black_and_white, grey]):
        with pytest.raises(DataError, match=r"input 1: lists must hold whole numbers in all.*none; got both"):
            read(Data([{"x": row} for row in rows]))
    with pytest.raises(DataError, match=r"input 1: must be uint8 .* got dtype int64.*x\.float\(\) of features"):
        read(Data([{"x": [0.5, 1, 17]}, {"x": [3, 1, 17]}]))
    assert len(read(Data([{"x": grey}, {"x": grey}]))) == len(read(Data([{"x": black_and_white}] * 2))) == 2


@pytest.mark.parametrize("of", [lambda i, x: x, lambda i, x: (x, i % 2), lambda i, x: Input(i, x, i % 2, str(i))])
def test_one_buffer_that_every_input_is_written_into_is_read_in_time(of: Callable[[int, torch.Tensor], Any]) -> None:
    """Inputs are read ahead: without copies the first ones would all be certified as the last of them."""

    class Light(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            light = x.mean((1, 2, 3))[:, None] - 0.5
            return torch.cat([-light, light], 1)

    def rows() -> Iterator[Any]:
        room = torch.empty(3, 6, 6)
        yield from (of(i, room.fill_(0.2 + 0.6 * (i % 2))) for i in range(20))

    options: dict[str, Any] = {"noise": rf.Gaussian(0.1), "procedure": rf.Fixed(n0=10, n=20), "check": False}
    found = {one.input_id: one.prediction for one in rf.certify(Light(), rows(), **options)}
    assert found == {i: i % 2 for i in range(20)}
    room, numbers, labels = torch.empty(3, 6, 6), list(range(20)), [i % 2 for i in range(20)]
    kept = Dataset(
        name="one buffer",
        ids=numbers,
        labels=list(labels),
        positions=numbers,
        read=lambda i: room.fill_(0.2 + 0.6 * (i % 2)),
        name_of=str,
        shape=(3, 6, 6),
        identify=lambda: "one buffer",
    )
    assert [one.prediction for one in rf.certify(Light(), kept, **options)] == labels


def test_a_loader_of_ready_batches_is_taken_apart() -> None:
    ready = DataLoader([(X[:4], Y[:4]), (X[4:], Y[4:])], batch_size=None)  # type: ignore[arg-type]
    assert [one.label for one in Data(ready).stream()] == Y.tolist()


def test_a_stream_is_given_its_form_too() -> None:
    (one,) = Data([torch.full((1, 4, 4), 127.5)], range="0..255", channels=3).stream()
    assert one.x.shape == (3, 4, 4)
    assert float(one.x.mean()) == 0.5


@pytest.mark.parametrize("loaded", [True, False])
def test_of_what_has_no_end_no_more_is_read_than_is_chosen(loaded: bool) -> None:
    class Endless(IterableDataset[Any]):
        def __iter__(self) -> Iterator[Any]:
            for number in range(1000):
                assert number < 100, "far more than was chosen"
                yield X[number % 7], int(Y[number % 7])

    source: Any = DataLoader(Endless(), batch_size=2) if loaded else Endless()
    chosen = Data(source, skip=2, limit=3).load()
    assert [one.id for one in chosen] == [0, 2, 4]
    assert all(torch.equal(one.x, X[one.id]) for one in chosen)
    whole, some = (Data((X, Y), limit=limit).load().digest for limit in (None, 3))
    assert whole == some, "of what has an end the digest is that of all"


def test_resized_pixels_may_overshoot_a_little() -> None:
    class Bright(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.mean((2, 3))

    overshot = [torch.full((3, 6, 6), 1.02), torch.full((3, 6, 6), -0.01)]
    with pytest.warns(UserWarning, match="inputs range over"):
        found = list(rf.certify(Bright(), overshot, sigma=0.1, procedure=rf.Fixed(n0=10, n=20)))
    assert len(found) == 2


@pytest.mark.parametrize("kind", [torch.float64, torch.float16, torch.bfloat16])
def test_floats_of_every_width_are_certified(kind: torch.dtype) -> None:
    class Bright(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return 50 * x.mean((2, 3))

    options: dict[str, Any] = {"sigma": 0.1, "procedure": rf.Fixed(n0=10, n=20)}
    narrow = X.to(kind)
    found, expected = (list(rf.certify(Bright(), one, **options)) for one in (narrow, narrow.float()))
    assert [(one.prediction, one.radius) for one in found] == [(one.prediction, one.radius) for one in expected]
    arrays = list(rf.certify(Bright(), X.double().numpy(), **options))
    assert len(arrays) == len(X)


@pytest.mark.parametrize("kind", ["tensor", "loader", "pictures", "npz", "folder"])
def test_bytes_are_not_mapped_from_a_range_once_more(kind: str, tmp_path: Path) -> None:
    """They are divided by 255 by themselves; mapped from -1..1 they would be pale, and radii in units of 2."""
    np.savez(tmp_path / "bytes.npz", x=BYTES.numpy())
    (tmp_path / "folder").mkdir()
    PILLOW[0].save(tmp_path / "folder" / "a.png")
    sources = {
        "tensor": BYTES,
        "loader": DataLoader(TensorDataset(BYTES), batch_size=2),
        "pictures": PILLOW,
        "npz": str(tmp_path / "bytes.npz"),
        "folder": str(tmp_path / "folder"),
    }
    for range in ("-1..1", "0..255"):
        with pytest.raises(ArgumentError, match="bytes and pictures lie in"):
            Data(sources[kind], range=range).load()
        with pytest.raises(ArgumentError, match="bytes and pictures lie in"):
            list(Data(sources[kind], range=range).stream())
    assert torch.equal(Data(BYTES.float(), range="0..255").load()[0].x, X[0])


def test_the_digest_of_inputs_in_memory_knows_their_shape() -> None:
    """The same bytes in another shape are other pictures, which a fully convolutional network takes as well."""
    digests = {Data(x).load().digest for x in (X, X.reshape(7, 3, 4, 9), X.double())}
    assert len(digests) == 3


@pytest.mark.parametrize(
    "how",
    [
        {"shuffle": True, "batch_size": 3},
        {"sampler": SubsetRandomSampler(range(7)), "batch_size": 3},
        {"sampler": WeightedRandomSampler([1.0] * 7, 7), "batch_size": 3},
        {"batch_sampler": BatchSampler(RandomSampler(range(7)), 3, False)},
        {"shuffle": True, "batch_size": None},
    ],
)
def test_a_loader_that_shuffles_is_told_of_and_kept_in_no_folder(how: dict[str, Any]) -> None:
    loader = DataLoader(TensorDataset(X, Y), **how)
    with pytest.warns(OrderWarning, match="the DataLoader shuffles.*Give a loader with shuffle=False"):
        assert len(list(Data(loader).stream())) == 7
    with pytest.raises(DataError, match=r"must come in the same order.*shuffles\. Give a loader with shuffle=False"):
        Data(loader).load()


def test_a_loader_that_keeps_the_order_is_taken_in_silence() -> None:
    chosen = BatchSampler(SequentialSampler(range(7)), 3, False)
    for how in ({"batch_size": 3}, {"batch_sampler": chosen}, {"batch_size": None}):
        loader: Any = DataLoader(TensorDataset(X, Y), **how)  # type: ignore[arg-type]
        assert len(Data(loader).load()) == len(list(Data(loader).stream())) == 7


@pytest.mark.parametrize("kind", [">f4", ">f8", "longdouble"])
def test_numbers_of_other_machines_are_read(kind: str, tmp_path: Path) -> None:
    """Astronomers' files have their bytes in the other order, and torch takes none of these."""
    x = np.linspace(0, 1, 2 * 28 * 28).reshape(2, 1, 28, 28)
    np.savez(tmp_path / "x.npz", x=x.astype(kind))
    for found in (Data(x.astype(kind)).stream(), rf.load_dataset(str(tmp_path / "x.npz"))):
        assert torch.equal(torch.stack([one.x.float() for one in found]), torch.tensor(x).float())
