"""``denoised(DENOISER, CLASSIFIER``: every kind of denoiser, what identifies the whole, and what is refused.)"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from ringfence.classifiers import Denoised, Normalize
from ringfence.classifiers.architectures import DnCNN
from ringfence.classifiers.architectures.denoisers import CDnCNN, FDnCNN, FFDNet
from ringfence.errors import ModelError
from ringfence.models import load_model

FACTORY = """
from torch import nn

def half():
    net = nn.Conv2d(1, 1, 1)
    nn.init.constant_(net.weight, 0.5)
    nn.init.constant_(net.bias, 0.0)
    return net
"""


def saved(path: Path, network: nn.Module, arch: str | None = None) -> Path:
    torch.manual_seed(0)
    state = {key: torch.randn_like(value) * 0.1 for key, value in network.state_dict().items() if value.dim()}
    state.update({key: value.abs() for key, value in state.items() if key.endswith("running_var")})
    network.load_state_dict(state, strict=False)
    if path.suffix == ".pt":
        torch.save(state, path)
    else:
        save_file(state, path, {"arch": arch} if arch else None)  # stores keys in the order of their names
    return path


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
@pytest.mark.parametrize(
    ("name", "network"),
    [
        ("dncnn", DnCNN(1, 3, 8)),
        ("cdncnn", CDnCNN(1, 8, 4)),
        ("fdncnn-0.25", FDnCNN(0.25, 1, 7, 6)),
        ("ffdnet-0.25", FFDNet(0.25, 1, 9, 5)),
    ],
)
def test_sizes_are_read_off_the_weights(tmp_path: Path, name: str, network: nn.Module, suffix: str) -> None:
    path = saved(tmp_path / f"d{suffix}", network)
    loaded = load_model(f"denoised({name}@{path}, default:1)")
    x = torch.rand(2, 1, 28, 28)
    torch.testing.assert_close(loaded.module(x), load_model("default:1").module(network.eval()(x)))
    assert loaded.num_classes == 10
    assert not any(part.training for part in loaded.module.modules())


def test_colour_and_grey_are_told_by_shapes(tmp_path: Path) -> None:
    path = saved(tmp_path / "d.pt", FFDNet(0.25, 3, 4, 8))
    (tmp_path / "nets.py").write_text("from torch import nn\ndef flat(): return nn.Flatten()\n")
    module = load_model(f"denoised(ffdnet-0.25@{path}, {tmp_path / 'nets.py'}:flat)").module
    assert module(torch.rand(1, 3, 5, 4)).shape == (1, 60)


def test_a_trained_file_names_its_denoiser(tmp_path: Path) -> None:
    path = saved(tmp_path / "final-0.safetensors", DnCNN(1, 4, 8), "dncnn")
    named = load_model(f"denoised({path}, default)")
    assert named.digest == load_model(f"denoised(dncnn@{path}, default)").digest
    assert named.spec == f"denoised({path}, default)"
    with pytest.raises(ModelError, match=r"must hold a classifier; got a denoiser, 'dncnn'\. Write denoised\("):
        load_model(str(path))
    saved(path, DnCNN(1, 4, 8))
    with pytest.raises(ModelError, match=r"must name its denoiser under 'arch'; got a file without one"):
        load_model(f"denoised({path}, default)")
    saved(path, DnCNN(1, 4, 8), "lenet")
    with pytest.raises(ModelError, match=r"must be a denoiser; got 'lenet'"):
        load_model(f"denoised({path}, default)")


def test_a_normalising_layer_of_the_denoiser_is_kept(tmp_path: Path) -> None:
    network = Normalize(DnCNN(1, 3, 4), [0.5], [0.25])
    state = network.eval().state_dict()
    save_file(state, tmp_path / "d.safetensors", {"arch": "dncnn"})
    x = torch.rand(2, 1, 28, 28)
    loaded = load_model(f"denoised({tmp_path / 'd.safetensors'}, default)")
    torch.testing.assert_close(loaded.module(x), load_model("default").module(network(x)))
    lone = {f"1.{key}": value for key, value in network.module.state_dict().items()}
    save_file(lone, tmp_path / "l.safetensors", {"arch": "dncnn"})
    with pytest.raises(ModelError, match="the normalising layer it was trained with"):
        load_model(f"denoised({tmp_path / 'l.safetensors'}, default)")


def test_a_denoiser_from_the_zoo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(tmp_path / "cleaner.safetensors", DnCNN(1, 4, 8), "dncnn")
    monkeypatch.setenv("RINGFENCE_ZOO", str(tmp_path))
    assert load_model("denoised(zoo:cleaner, default)").digest == load_model(f"denoised({path}, default)").digest


def test_factories_on_both_sides_and_mean_behind_the_denoiser(tmp_path: Path) -> None:
    file = tmp_path / "nets.py"
    file.write_text(FACTORY)
    loaded = load_model(f"denoised({file}:half, default)", mean=[0.1], std=[0.5])
    x = torch.rand(2, 1, 28, 28)
    torch.testing.assert_close(loaded.module(x), load_model("default").module((x / 2 - 0.1) / 0.5))
    weights = {"weight": torch.full((1, 1, 1, 1), 2.0), "bias": torch.zeros(1)}
    torch.save(weights, tmp_path / "w.pt")
    twice = load_model(f"denoised({file}:half@{tmp_path / 'w.pt'}, denoised({file}:half, default))")
    torch.testing.assert_close(twice.module(x), load_model("default").module(x))


def test_the_digest_covers_both_parts_and_the_noise_level(tmp_path: Path) -> None:
    first, second = saved(tmp_path / "a.pt", FDnCNN(0.25, 1, 4, 4)), tmp_path / "b.pt"
    state = torch.load(first, weights_only=True)
    state["model.0.bias"][0] += 1
    torch.save(state, second)
    specs = [
        f"denoised(fdncnn-0.25@{first}, default)",
        f"denoised(fdncnn-0.5@{first}, default)",
        f"denoised(fdncnn-0.25@{second}, default)",
        f"denoised(fdncnn-0.25@{first}, default:1)",
        "default",
    ]
    digests = [load_model(spec).digest for spec in specs]
    digests.append(load_model(specs[0], mean=[0.5], std=[0.5]).digest)
    assert len(set(digests)) == 6
    assert load_model(f"denoised(fdncnn-.250@{first}, default:0)").digest == digests[0]


def test_weights_given_apart_belong_to_the_classifier(tmp_path: Path) -> None:
    path = saved(tmp_path / "d.pt", CDnCNN(1, 4, 4))
    classifier = load_model("default:2").module
    torch.save(classifier.state_dict(), tmp_path / "lenet.pt")
    apart = load_model(f"denoised(cdncnn@{path}, lenet)", weights=tmp_path / "lenet.pt")
    assert apart.digest == load_model(f"denoised(cdncnn@{path}, lenet@{tmp_path / 'lenet.pt'})").digest
    with pytest.raises(ModelError, match=r"weights: does not go with default"):
        load_model(f"denoised(cdncnn@{path}, default)", weights=tmp_path / "lenet.pt")


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ("denoised()", r"takes 2 models; got 0"),
        ("denoised(dncnn@{file})", r"takes 2 models; got 1"),
        ("denoised(, default)", r"must name a model here"),
        ("denoised(dncnn@{file}, )", r"must name a model here"),
        ("denoised(dncnn, default)", r"needs trained weights; got none\. Write dncnn@FILE"),
        ("denoised(ffdnet-0.25, default)", r"Write ffdnet-0\.25@FILE"),
        ("denoised(fdncnn@{file}, default)", r"is told the noise level.*got none\. Write e\.g\. fdncnn-0\.25@FILE"),
        ("denoised(fdncnn-x@{file}, default)", r"at most 1 in \[0,1\] pixel units; got 'x'"),
        ("denoised(ffdnet-25@{file}, default)", r"got '25'"),
        ("denoised(ffdnet-nan@{file}, default)", r"got 'nan'"),
        ("denoised(cdncnn-0.25@{file}, default)", r"must be a denoiser; got 'cdncnn-0\.25'"),
        ("denoised(lenet@{file}, default)", r"must be a denoiser; got 'lenet'"),
        ("denoised(cdncnn@{file}.no, default)", r"must be an existing file; got no such file"),
        ("denoised({file}.no.pt, default)", r"must be an existing file; got no such file"),
        ("denoised(fdncnn-0.25@{file}, default)", r"'model\.0\.weight' of shape \(4, 1, 3, 3\).*has \(4, 2, 3, 3\)"),
        ("denoised(dncnn@{file}, default)", r"key 'estimate\.0\.weight' missing"),
        ("denoised(ffdnet-0.1@{lenet}, default)", r"key 'model\.0\.weight' missing"),
        ("denoised(cdncnn@{file}, lenet)", r"lenet: an architecture needs trained weights"),
        ("denoised(cdncnn@{file}, defualt)", r"Did you mean 'default'"),
        ("denoised(nowhere.py:make, default)", r"must be an existing file"),
        ("dncnn@{file}", r"must be a classifier; got a denoiser\. Put a classifier behind it: denoised\(dncnn@FILE"),
        ("ffdnet-0.25", r"must be a classifier; got a denoiser"),
        ("denoised:dncnn@FILE+default", r"Write denoised\(dncnn@FILE, default\), in quotes"),
    ],
)
def test_what_is_refused_says_why(tmp_path: Path, spec: str, told: str) -> None:
    file, lenet = saved(tmp_path / "d.pt", CDnCNN(1, 4, 4)), tmp_path / "l.pt"
    torch.save(load_model("default").module.state_dict(), lenet)
    with pytest.raises(ModelError, match=told):
        load_model(spec.format(file=file, lenet=lenet))


CIFAR_DENOISERS = {
    "fdncnn-0.25@denoiser_fdncnn_color_fp16.pt": 0.606,
    "ffdnet-0.25@denoiser_ffdnet_color_fp16.pt": 0.584,
    "cdncnn@denoiser_cdncnn_color_sigma60to70_fp16.pt": 0.574,
}
"""Accuracy stated for 500 CIFAR-10 test images at sigma 0.25, one noise draw, in front of the clean ResNet-56."""


@pytest.mark.parametrize("denoiser", CIFAR_DENOISERS)
def test_public_denoisers_reach_their_accuracy(shared: Path, denoiser: str) -> None:
    folder = shared / "data" / "weights"
    spec = f"denoised({denoiser.replace('@', f'@{folder}/')}, resnet56-pad@{folder / 'cifar10_resnet56.pt'})"
    loaded = load_model(spec, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
    assert isinstance(loaded.module, Denoised)
    with np.load(shared / "data" / "cifar10_test.npz") as file:
        x, y = torch.from_numpy(file["x"][::100]).float() / 255, torch.from_numpy(file["y"][::100])
    noisy = x + 0.25 * torch.randn(x.shape, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        answers = torch.cat([loaded.module(part).argmax(1) for part in noisy.split(50)])
        raw = loaded.module.classifier(noisy).argmax(1)
    stated, found = CIFAR_DENOISERS[denoiser], float((answers == y).float().mean())
    assert len(y) == 100
    # Three standard errors of 100 images.
    assert abs(found - stated) <= 3 * (stated * (1 - stated) / 100) ** 0.5
    assert float((raw == y).float().mean()) < 0.3, "the clean network alone fails under this noise"


def test_the_public_grey_denoiser_takes_noise_off_digits(shared: Path) -> None:
    from ringfence.data import load_dataset

    spec = f"denoised(ffdnet-0.25@{shared / 'data' / 'weights' / 'denoiser_ffdnet_gray_fp16.pt'}, default)"
    module = load_model(spec).module
    assert isinstance(module, Denoised)
    clean = torch.stack([one.x for one in load_dataset("default", limit=20)])
    noisy = clean + 0.25 * torch.randn(clean.shape, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        left = (module.denoiser(noisy) - clean).square().mean()
    assert left < 0.25 * 0.25**2, "a quarter of the noise's energy at most"
