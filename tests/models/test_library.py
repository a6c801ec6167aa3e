"""Networks of timm and torchvision: weights, preprocessing behind the noise, digests."""

from __future__ import annotations

import subprocess
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import ringfence as rf
from ringfence.classifiers import Normalize, Resized
from ringfence.errors import ModelError
from ringfence.models import load_model
from ringfence.models.architecture import preprocessing_in_words
from ringfence.models.extras import needed
from ringfence.models.source import foreign_code

SMALL = "test_vit"  # timm's own network for tests: 160 x 160, other numbers than ImageNet's


@pytest.fixture
def timm() -> Any:
    return needed("timm", "timm", "")


def scores_of(spec: str, x: Tensor, **given: Any) -> Tensor:
    scores: Tensor = load_model(spec, **given).module(x)
    return scores.detach()


def test_weights_of_a_file_run_behind_the_networks_own_numbers(timm: Any, tmp_path: Path) -> None:
    torch.manual_seed(3)
    network = timm.create_model("resnet18", num_classes=5).eval()
    state = {f"module.{key}": value for key, value in network.state_dict().items()}
    torch.save({"state_dict": state, "args": Namespace(lr=0.1)}, tmp_path / "w.pt")
    mean, std = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1), torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)
    x = torch.rand(2, 3, 40, 40)
    expected = network((x - mean) / std).detach()
    spec = f"timm:resnet18@{tmp_path / 'w.pt'}"
    torch.testing.assert_close(scores_of(spec, x, num_classes=5), expected)
    torch.testing.assert_close(scores_of("timm:resnet18", x, weights=tmp_path / "w.pt", num_classes=5), expected)
    torch.testing.assert_close(scores_of(spec, x), expected)  # the last layer says how many classes there are
    assert load_model(spec).num_classes == 5
    # The user's weights may have been trained behind the user's numbers.
    own = scores_of(spec, x, num_classes=5, mean=[0.0], std=[1.0])
    torch.testing.assert_close(own, network(x).detach())


def test_a_network_of_one_size_is_given_it_behind_the_noise(timm: Any) -> None:
    loaded = load_model(f"timm:{SMALL}@random", num_classes=4)
    assert isinstance(loaded.module, Resized)
    inner = loaded.module.module
    assert isinstance(inner, Normalize)
    told = timm.create_model(SMALL).pretrained_cfg
    assert loaded.module.size == told["input_size"][1:]
    assert inner.mean.flatten().tolist() == pytest.approx(told["mean"])
    x = torch.rand(2, 3, 32, 32)
    bigger = torch.nn.functional.interpolate(x, loaded.module.size, mode=told["interpolation"], antialias=True)
    torch.testing.assert_close(loaded.module(x), inner(bigger))
    words = preprocessing_in_words(loaded.module)
    assert words is not None
    assert f"resized to {loaded.module.size[0]} x" in words
    assert "normalised by mean" in words
    same = preprocessing_in_words(loaded.module, (3, *loaded.module.size))
    assert same is not None
    assert "resized" not in same


def test_noise_is_of_the_image_that_was_given_not_of_the_resized_one() -> None:
    """Of an 8 x 8 image a network sees 16 x 16: noise on the larger one would average out in its mean."""

    class Spread(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            margin = x.mean(dim=(1, 2, 3)) - 0.5
            return torch.stack([-margin, margin], dim=1)

    x, sigma = torch.full((1, 1, 8, 8), 0.52), 0.5
    [record] = rf.certify(Resized(Spread(), (16, 16)), x, noise=rf.Gaussian(sigma), procedure=rf.Fixed(n=20_000))
    share = record.stages[1].cells["votes"][1] / 20_000
    expected = torch.distributions.Normal(0, 1).cdf(torch.tensor(0.02 * 8 / sigma)).item()
    assert share == pytest.approx(expected, abs=0.03)  # as if nothing were resized; twice the distance otherwise


def test_random_networks_are_the_same_everywhere_and_told_apart(timm: Any) -> None:
    before = torch.random.get_rng_state()
    one, other = (load_model(f"timm:{SMALL}@random", num_classes=4).digest for _ in range(2))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert one == other
    assert one != load_model(f"timm:{SMALL}@random", num_classes=5).digest
    script = f"from ringfence.models import load_model; print(load_model('timm:{SMALL}@random', num_classes=4).digest)"
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert told.strip() == one


def test_torchvision_networks_have_named_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    models = needed("torchvision.models", "timm", "")
    enumeration = models.get_model_weights("squeezenet1_1")
    torch.manual_seed(1)
    network = models.get_model("squeezenet1_1").eval()
    asked: list[dict[str, Any]] = []

    def state(self: Any, **how: Any) -> dict[str, Tensor]:
        asked.append(how)
        return dict(network.state_dict())

    monkeypatch.setattr(enumeration, "get_state_dict", state)
    told = enumeration.IMAGENET1K_V1.transforms()
    x = torch.rand(1, 3, 64, 64)
    for spec in ("torchvision:squeezenet1_1", "torchvision:squeezenet1_1@IMAGENET1K_V1"):
        loaded = load_model(spec)
        assert isinstance(loaded.module, Resized)
        assert loaded.module.size == (told.crop_size[0], told.crop_size[0])
        assert loaded.module.kind == told.interpolation.value
        inner = loaded.module.module
        resized = torch.nn.functional.interpolate(x, loaded.module.size, mode="bilinear", antialias=True)
        expected = network((resized - inner.mean) / inner.std)  # type: ignore[union-attr, operator]
        torch.testing.assert_close(loaded.module(x), expected)
        with pytest.raises(ModelError, match=r"brings its own normalisation.*Leave `mean` and `std` out"):
            load_model(spec, mean=[0.5], std=[0.5])
        with pytest.raises(ModelError, match=r"num_classes: torchvision:.* was trained on 1000 classes; got 10.*@FILE"):
            load_model(spec, num_classes=10)
    assert all(one["weights_only"] and one["check_hash"] for one in asked)


def test_a_strangers_folder_may_name_networks_but_no_programs(tmp_path: Path) -> None:
    assert foreign_code("soft(timm:resnet18@w.pt, torchvision:resnet18, hf:folder)") == []
    assert foreign_code("denoised(diffusion:folder, timm:resnet18@w.pt)") == []
    assert foreign_code("onnx:net.onnx") == ["whatever onnx:net.onnx names"]
    assert foreign_code("net.ts") == ["the program in net.ts"]


def test_torchvision_is_mended_only_where_its_import_fails() -> None:
    """Where it was built for another torch its import asks for operators that nobody has; no classifier uses them."""
    torchvision = needed("torchvision", "timm", "")
    assert hasattr(torchvision.models, "resnet18")
    script = (
        "import sys, types, torch\n"
        "sys.modules['torchvision'] = types.ModuleType('torchvision')\n"  # imported without trouble
        "sys.modules['torchvision'].__spec__ = types.SimpleNamespace(name='torchvision')\n"
        "from ringfence.models import extras\n"
        "extras._mend_torchvision()\n"
        "sys.exit(len(extras._OPERATORS))"
    )
    assert subprocess.run([sys.executable, "-c", script]).returncode == 0


def painted(folder: Path, *sizes: tuple[int, int]) -> str:
    pillow = pytest.importorskip("PIL.Image")
    for place, size in enumerate(sizes):
        (folder / "only").mkdir(parents=True, exist_ok=True)
        pillow.new("RGB", size, (40 * place, 90, 200)).save(folder / "only" / f"{place}.png")
    return str(folder)


@pytest.mark.parametrize(
    ("model", "side"),
    [
        (f"timm:{SMALL}@random", 160),  # the only size it takes
        ("timm:resnet18@random", 224),  # it takes any, and its configuration names one
        (f"soft(timm:{SMALL}@random, timm:{SMALL}@random)", 160),
        (f"resized(timm:{SMALL}@random, size=160)", None),  # whoever says that means the pictures as they are
    ],
)
def test_pictures_of_several_sizes_are_brought_to_that_of_the_configuration(
    timm: Any, tmp_path: Path, model: str, side: int | None
) -> None:
    folder = painted(tmp_path / "several", (30, 40), (50, 20))
    value = rf.Certification(model, folder, noise=rf.Gaussian(0.1))
    loaded = value.load("cpu")
    if side is None:
        assert loaded.dataset.shape == (3, 40, 30)
        return
    assert loaded.dataset.shape == (3, side, side)
    assert [one.x.shape for one in loaded.dataset] == [(3, side, side)] * 2
    assert loaded.config.data.size == side, "what was done to the pictures is part of what a run folder says"
    assert rf.Certification.of(loaded.config).config() == loaded.config
    chosen = rf.Certification(model, rf.Data(folder, size=32), noise=rf.Gaussian(0.1)).load("cpu")
    assert chosen.dataset.shape == (3, 32, 32)
    same = rf.Certification(model, painted(tmp_path / "one", (30, 40), (30, 40)), noise=rf.Gaussian(0.1)).load("cpu")
    assert same.dataset.shape == (3, 40, 30)
    photos = painted(tmp_path / "large", (500, 300), (500, 300))
    large = rf.Certification(model, photos, noise=rf.Gaussian(0.1)).load("cpu")
    assert (large.dataset.shape, large.config.data.size) == ((3, side, side), side), "photographs, all of one camera"
    assert any(f"they are resized and cropped to {side} pixels" in told for told in large.remarks)
    assert any("what radii are measured in, are the pictures so made" in told for told in large.remarks)
    assert not any("resized and cropped" in told for told in same.remarks)


def test_a_run_of_pictures_as_they_are_stays_one_of_those(
    timm: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs from before larger pictures were framed: their config says that nothing was done."""
    folder = painted(tmp_path / "large", (40, 30), (40, 30))
    value = rf.Certification("timm:resnet18@random", folder, noise=rf.Gaussian(0.1))
    with monkeypatch.context() as before:
        before.setattr(rf.Data, "framed", lambda data, dataset, side: data)
        old = value.config()
    monkeypatch.setattr("ringfence.data.images.misfit", lambda files, side: True)
    assert (old.data.size, value.config().data.size) == (None, 224)
    assert rf.Certification.of(old).config() == old
