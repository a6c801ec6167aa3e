"""Folders with splits and every format, grey pictures for models that want colours, saved data sets of Hugging Face."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import ringfence as rf
from ringfence.data import ChannelsWarning, load_dataset
from ringfence.data.adapters import inputs_of
from ringfence.data.images import LayoutWarning
from ringfence.errors import ArgumentError, ClassifierError, DataError

Image = pytest.importorskip("PIL.Image")


def paint(path: Path, shade: int = 100, grey: bool = False, side: int = 8) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    shape = (side, side) if grey else (side, side, 3)
    Image.fromarray(np.full(shape, shade, np.uint8)).save(path)


def shades(spec: Path | str, **options: Any) -> list[int]:
    return [round(255 * float(one.x.mean())) for one in load_dataset(str(spec), **options)]


@pytest.mark.parametrize("ending", ["png", "jpg", "jpeg", "webp", "bmp", "tif", "tiff", "PNG"])
def test_every_format_is_read(tmp_path: Path, ending: str) -> None:
    paint(tmp_path / "a" / f"one.{ending}", 100)
    paint(tmp_path / "b" / f"two.{ending}", 200)
    assert np.allclose(shades(tmp_path), [100, 200], atol=1)


def test_splits_are_folders_of_the_root(tmp_path: Path) -> None:
    for split, shade in (("train", 10), ("val", 20), ("test", 30)):
        for name in ("cat", "dog"):
            paint(tmp_path / split / name / "a.png", shade)
    assert [shades(tmp_path, split=split) for split in ("train", "val", "test")] == [[10, 10], [20, 20], [30, 30]]
    dataset = load_dataset(str(tmp_path), split="val")
    assert dataset.class_names == ["cat", "dog"]
    assert dataset[1].name == "dog/a.png"


def test_val_is_the_test_where_there_is_no_other_and_train_never_is(tmp_path: Path) -> None:
    paint(tmp_path / "train" / "cat" / "a.png", 10)
    with pytest.raises(DataError, match=r"must hold test/ or val/ .*for the split test; got train alone"):
        shades(tmp_path)
    paint(tmp_path / "validation" / "cat" / "a.png", 20)
    assert shades(tmp_path) == [20]


def test_pictures_that_nobody_reads_and_classes_without_any_are_told_of(tmp_path: Path) -> None:
    paint(tmp_path / "cat" / "a.png", 10)
    (tmp_path / "bird").mkdir()
    (tmp_path / "bird" / ".gitkeep").touch()
    assert shades(tmp_path) == [10], "an empty folder may keep a number"
    (tmp_path / "dog").mkdir()
    (tmp_path / "dog" / "notes.txt").touch()
    with pytest.warns(LayoutWarning, match="dog counts as a class, and holds no picture"):
        assert shades(tmp_path) == [10]
    paint(tmp_path / "dog" / "b.png", 30)
    paint(tmp_path / "c.png", 40)
    paint(tmp_path / "d.png", 50)
    with pytest.warns(LayoutWarning, match=r"c\.png and 1 more beside the folders of classes: not read"):
        assert shades(tmp_path) == [10, 30]


def test_a_class_may_be_called_train(tmp_path: Path) -> None:
    for name in ("car", "train"):
        paint(tmp_path / name / "a.png")
    assert load_dataset(str(tmp_path)).class_names == ["car", "train"]


@pytest.mark.parametrize("spec", ["mnist", "cifar10"])
def test_data_sets_without_a_val_say_so(tmp_path: Path, spec: str) -> None:
    with pytest.raises(ArgumentError, match=f"split: must be test or train for {spec}"):
        load_dataset(f"{spec}:{tmp_path}", split="val")


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "TIFF"])
def test_several_pictures_in_one_file_are_refused(tmp_path: Path, kind: str) -> None:
    frames = [Image.fromarray(np.full((8, 8, 3), shade, np.uint8)) for shade in (10, 200)]
    frames[0].save(tmp_path / f"a.{kind.lower()}", save_all=True, append_images=frames[1:])
    with pytest.raises(DataError, match="must hold one picture; got 2 frames"):
        shades(tmp_path)


class Colour(nn.Module):
    """Refuses anything but three channels."""

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[1] != 3:
            raise RuntimeError("expected input to have 3 channels")
        return x.mean((2, 3))[:, :2] * torch.tensor([1.0, -1.0]) + torch.tensor([-0.5, 0.5])


class Brightness(Colour):
    """Class 1 where the mean pixel of three channels is above 1/2."""

    def forward(self, x: Tensor) -> Tensor:
        super().forward(x)
        side = x.flatten(1).mean(1) - 0.5
        return torch.stack([-side, side], 1)


FAST = rf.Execution(device="cpu", batch=20)


def test_grey_pictures_become_colours_where_the_model_wants_them(tmp_path: Path) -> None:
    for place in range(4):
        paint(tmp_path / "in" / "bright" / f"{place}.png", 220, grey=True)
        paint(tmp_path / "in" / "dark" / f"{place}.png", 20, grey=True)
    value = rf.Certification(Colour(), str(tmp_path / "in"), noise=rf.Gaussian(0.05), procedure=rf.Fixed(n0=10, n=20))
    with pytest.warns(ChannelsWarning, match="repeated in three channels"):
        loaded = value.load("cpu")
    assert loaded.dataset.shape == (3, 8, 8)
    with pytest.warns(ChannelsWarning, match="repeated in three channels"):
        run = value.run(tmp_path / "run", FAST)
    assert run.config.data.channels == 3
    assert all(record.correct for record in run.read())
    again = rf.Certification.of(run.config, modules=[Colour()])
    assert again.config() == run.config


def test_radii_of_repeated_channels_are_larger_than_grey_inputs_bear_and_that_is_said() -> None:
    """A change of 1/16 in every pixel takes the class: norm 1/2 in grey, sqrt(3)/2 in colours, where radii are."""
    grey = torch.full((1, 1, 8, 8), 0.5625)
    asked: dict[str, Any] = {"noise": rf.Gaussian(0.5), "procedure": rf.Fixed(n0=20, n=2000), "execution": FAST}
    with pytest.warns(ChannelsWarning, match=r"of norm r has the norm sqrt\(3\) r \(in l1 3 r\)"):
        [record] = rf.certify(rf.soft(Brightness()), grey, check=False, **asked)
    assert 0.5 < record.radius < 0.5 * 3**0.5
    meant = rf.Data(grey, channels=3)  # nothing is said to whoever says it himself: warnings are errors here
    assert [one.radius for one in rf.certify(rf.soft(Brightness()), meant, check=False, **asked)] == [record.radius]


def test_a_first_grey_picture_takes_no_colours_from_the_others(tmp_path: Path) -> None:
    paint(tmp_path / "a" / "0.png", 100, grey=True)
    red = np.zeros((8, 8, 3), np.uint8)
    red[..., 0] = 255
    (tmp_path / "b").mkdir()
    Image.fromarray(red).save(tmp_path / "b" / "1.png")
    with pytest.warns(ChannelsWarning, match="grey inputs are repeated"):
        loaded = rf.Certification(Colour(), str(tmp_path), noise=rf.Gaussian(0.05)).load("cpu")
    assert loaded.dataset[1].x.mean((1, 2)).tolist() == [1.0, 0.0, 0.0]


def test_what_no_form_of_the_pictures_mends_is_told_as_it_was(tmp_path: Path) -> None:
    class Five(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            raise RuntimeError(f"five channels, not {x.shape[1]}")

    paint(tmp_path / "a" / "0.png", grey=True)
    with pytest.raises(ClassifierError, match="five channels, not 1"):
        rf.Certification(Five(), str(tmp_path), noise=rf.Gaussian(0.05)).load("cpu")


def saved(folder: Path, splits: bool = False, **columns: Any) -> Path:
    datasets = pytest.importorskip("datasets")
    shade = [10, 20, 30, 40]
    pictures = [Image.fromarray(np.full((8, 8, 3), one, np.uint8)) for one in shade]
    table: dict[str, Any] = {"image": pictures, "label": [0, 1, 0, 1]} | columns
    features = {"image": datasets.Image(), "label": datasets.ClassLabel(names=["cat", "dog"])}
    features = {name: one for name, one in features.items() if name not in columns}
    whole = datasets.Dataset.from_dict(table)
    for name, feature in features.items():
        whole = whole.cast_column(name, feature)
    if splits:
        whole = datasets.DatasetDict({"train": whole.select(range(2)).flatten_indices(), "validation": whole})
    whole.save_to_disk(str(folder))
    return folder


def test_saved_data_sets_are_read_by_name_and_by_sight(tmp_path: Path) -> None:
    folder = saved(tmp_path / "set")
    for spec in (f"hf-data:{folder}", folder):
        dataset = load_dataset(str(spec))
        assert shades(spec) == [10, 20, 30, 40]
        assert dataset.labels == [0, 1, 0, 1]
        assert list(dataset.class_names or ()) == ["cat", "dog"]
        assert dataset.num_classes == 2
        assert dataset[0].x.shape == (3, 8, 8)
    assert load_dataset(str(folder), size=4)[0].x.shape == (3, 4, 4)


def test_saved_pictures_get_exact_noise_as_those_of_folders_do(tmp_path: Path) -> None:
    paint(tmp_path / "folder" / "a.png")
    sources = [tmp_path / "folder", saved(tmp_path / "set"), saved(tmp_path / "numbers", image=[[0.1]] * 4)]
    assert [load_dataset(str(one)).lattice for one in sources] == [255, 255, None]
    value = rf.Certification(Colour(), str(sources[1]), noise=rf.Gaussian(0.05))
    assert value.load("cpu").certification.noise.law.form == "exact"


def test_saved_pictures_are_turned_as_datasets_turns_them(tmp_path: Path) -> None:
    """Else a picture of a telephone would be another one by its folder than by its rows."""
    datasets = pytest.importorskip("datasets")
    picture, told = Image.fromarray(np.arange(64, dtype=np.uint8).reshape(8, 8)), Image.Exif()
    told[0x0112] = 6  # the camera lay on its side
    file = io.BytesIO()
    picture.save(file, "PNG", exif=told)
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["cat", "dog"])})
    rows = {"image": [{"bytes": file.getvalue(), "path": None}], "label": [0]}
    whole = datasets.Dataset.from_dict(rows, features=features)
    whole.save_to_disk(str(tmp_path / "set"))
    undecoded = whole.cast_column("image", datasets.Image(decode=False))
    [row], [raw], [stored] = (list(inputs_of(one)) for one in (whole, undecoded, load_dataset(str(tmp_path / "set"))))
    assert row.x[0, 0, 0] == 56 / 255, "its first column, from below"
    assert torch.equal(row.x, raw.x)
    assert torch.equal(row.x, stored.x)


def test_saved_splits(tmp_path: Path) -> None:
    folder = saved(tmp_path / "set", splits=True)
    assert shades(folder, split="train") == [10, 20]
    assert shades(folder) == shades(folder, split="val") == [10, 20, 30, 40]


def test_saved_numbers_and_unknown_labels(tmp_path: Path) -> None:
    pixels = np.arange(2 * 3 * 8 * 8).reshape(2, 3, 8, 8) % 256
    folder = saved(tmp_path / "bytes", image=pixels.tolist(), label=[0, -1])
    dataset = load_dataset(str(folder))
    torch.testing.assert_close(dataset[1].x, torch.from_numpy(pixels[1] / 255).float())
    assert dataset.labels == [0, None]
    folder = saved(tmp_path / "floats", image=(pixels / 300).tolist(), label=[0, 1])
    torch.testing.assert_close(load_dataset(str(folder))[1].x, torch.from_numpy(pixels[1] / 300).float())


@pytest.mark.parametrize(("kind", "first"), [("uint8", 1 / 255), ("float32", 1.0), ("int64", None)])
def test_saved_features_are_bytes_only_where_they_were_saved_as_such(
    tmp_path: Path, kind: str, first: float | None
) -> None:
    datasets = pytest.importorskip("datasets")
    features = datasets.Features({"x": datasets.Sequence(datasets.Value(kind)), "label": datasets.Value("int64")})
    rows = {"x": [[1, 0, 1], [0, 1, 1]], "label": [0, 1]}
    datasets.Dataset.from_dict(rows, features=features).save_to_disk(tmp_path / "saved")
    if first is None:
        with pytest.raises(DataError, match=r"must be uint8 .* got dtype int64"):
            rf.load_dataset(f"hf-data:{tmp_path / 'saved'}")
    else:
        found = rf.load_dataset(f"hf-data:{tmp_path / 'saved'}")
        torch.testing.assert_close(found[0].x, first * torch.tensor([1.0, 0, 1]))


def test_the_digest_of_a_saved_set_knows_pictures_labels_and_form(tmp_path: Path) -> None:
    one, other = saved(tmp_path / "one"), saved(tmp_path / "other", label=[1, 1, 0, 1])
    digests = [load_dataset(str(one)), load_dataset(str(other)), load_dataset(str(one), size=4)]
    digests.append(load_dataset(str(one), channels=3))
    assert len({each.digest for each in digests}) == 4
    assert load_dataset(str(one)).digest == load_dataset(f"hf-data:{one}").digest


@pytest.mark.parametrize("kind", ["pictures", "numbers"])
def test_a_saved_row_that_changes_after_the_digest_is_not_certified(tmp_path: Path, kind: str) -> None:
    """Its table stays on disk, so that whoever writes into the file changes what is read."""
    folder = saved(tmp_path / "set", **({"image": [[one / 50] * 3 for one in range(4)]} if kind == "numbers" else {}))
    data, before = load_dataset(str(folder)), load_dataset(str(folder)).digest
    assert data.digest == before
    [file] = folder.glob("*.arrow")
    content, (old, new) = file.read_bytes(), _stored(kind)
    assert content.count(old) == 1
    with file.open("r+b") as place:
        place.seek(content.index(old))
        place.write(new)
    assert data[2].x.isfinite().all()
    with pytest.raises(DataError, match="row 1: must stay what it was when the digest of the data was taken"):
        data[1]
    assert load_dataset(str(folder)).digest != before


def _stored(kind: str) -> tuple[bytes, bytes]:
    """Row 1 of a saved set, and another one as long."""
    if kind == "numbers":
        return np.full(3, 1 / 50).tobytes(), np.full(3, 0.5).tobytes()
    made = []
    for shade in (20, 21):
        file = io.BytesIO()
        Image.fromarray(np.full((8, 8, 3), shade, np.uint8)).save(file, "PNG")
        made.append(file.getvalue())
    return made[0], made[1]


def changed(folder: Path, name: str, **entries: Any) -> None:
    file = folder / name
    file.write_text(json.dumps(json.loads(file.read_text()) | entries))


def test_damaged_and_hostile_saved_sets_are_named(tmp_path: Path) -> None:
    whole = saved(tmp_path / "whole")

    def copy(name: str) -> Path:
        return Path(shutil.copytree(whole, tmp_path / name))

    (elsewhere := copy("elsewhere"))
    changed(elsewhere, "state.json", _data_files=[{"filename": "../whole/data-00000-of-00001.arrow"}])
    with pytest.raises(DataError, match="must be a saved data set; got it names files elsewhere"):
        load_dataset(str(elsewhere))
    cut = copy("cut")
    arrow = next(cut.glob("*.arrow"))
    arrow.write_bytes(arrow.read_bytes()[:200])
    with pytest.raises(DataError, match="must be a saved data set"):
        load_dataset(str(cut))
    broken = copy("broken")
    (broken / "state.json").write_text("{")
    with pytest.raises(DataError, match="must be readable JSON"):
        load_dataset(str(broken))
    listed = copy("listed")
    (listed / "state.json").write_text("[]")
    with pytest.raises(DataError, match="must hold a JSON object; got list"):
        load_dataset(str(listed))
    chosen = copy("chosen")
    changed(chosen, "state.json", _indices_data_files=[{"filename": "indices.arrow"}])
    with pytest.raises(DataError, match=r"Call flatten_indices\(\) before save_to_disk"):
        load_dataset(str(chosen))
    with pytest.raises(DataError, match=r"must have a column of inputs, called pixel_values, image.*columns photo"):
        load_dataset(str(_renamed(tmp_path / "renamed")))
    only = saved(tmp_path / "only", splits=True)
    changed(only, "dataset_dict.json", splits=["validation"])
    with pytest.raises(DataError, match="must have the split train; got the splits validation"):
        load_dataset(str(only), split="train")
    with pytest.raises(DataError, match="labels must be integers; got 'cat'"):
        load_dataset(str(saved(tmp_path / "words", label=["cat", "dog", "cat", "dog"])))
    with pytest.raises(DataError, match="must exist"):
        load_dataset(f"hf-data:{tmp_path / 'nowhere'}")


def _renamed(folder: Path) -> Path:
    datasets = pytest.importorskip("datasets")
    datasets.Dataset.from_dict({"photo": [[1, 2]], "kind": [0]}).save_to_disk(str(folder))
    return folder


def test_a_row_that_names_a_file_is_not_followed(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    secret = tmp_path / "secret.png"
    paint(secret, 77)
    rows = {"image": [{"bytes": None, "path": str(secret)}], "label": [0]}
    whole = datasets.Dataset.from_dict(rows)
    whole.save_to_disk(str(tmp_path / "set"))
    with pytest.raises(DataError, match="row 0: must hold the picture itself; got the name of a file elsewhere"):
        load_dataset(str(tmp_path / "set"))[0]
