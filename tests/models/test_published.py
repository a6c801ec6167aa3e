"""Published checkpoints, on synthetic files with the keys of their codes."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ringfence.classifiers.architectures import LeNet, build_architecture, resnet, wide_lenet
from ringfence.classifiers.architectures.imagenet_resnet import ImageNetResNet
from ringfence.errors import ModelError
from ringfence.models import load_model
from ringfence.models.extras import needed
from ringfence.models.weights import fit_weights, read_weights

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
CIFAR = ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))


def behind(numbers: tuple[tuple[float, ...], tuple[float, ...]], x: Tensor) -> Tensor:
    mean, std = (torch.tensor(part).view(3, 1, 1) for part in numbers)
    return (x - mean) / std


def lively(network: nn.Module) -> nn.Module:
    """With batch statistics of its own, so that their use shows."""
    torch.manual_seed(5)
    for value in network.state_dict().values():
        if value.dim() == 1 and value.is_floating_point():
            value.copy_(torch.rand_like(value) + 0.5)
    return network.eval()


@pytest.mark.parametrize("name", ["resnet18", "resnet34", "resnet50"])
def test_networks_for_imagenet_are_those_of_torchvision_and_timm(name: str) -> None:
    ours = lively(ImageNetResNet(name, 7))
    models, timm = needed("torchvision.models", "timm", ""), needed("timm", "timm", "")
    x = torch.rand(1, 3, 64, 64)
    for other in (models.get_model(name, num_classes=7), timm.create_model(name, num_classes=7)):
        other.load_state_dict(ours.state_dict())  # every key, or it raises
        torch.testing.assert_close(ours(x), other.eval()(x))


def test_cohens_imagenet_checkpoint_brings_imagenets_numbers(tmp_path: Path) -> None:
    network = lively(build_architecture("resnet50", 6))
    state = {f"1.module.{key}": value for key, value in network.state_dict().items()}
    content = {"epoch": 90, "arch": "resnet50", "state_dict": state, "optimizer": {"state": {}, "param_groups": []}}
    torch.save(content, tmp_path / "checkpoint.pth.tar")
    x = torch.rand(1, 3, 64, 64)
    loaded = load_model(str(tmp_path / "checkpoint.pth.tar"))
    assert loaded.num_classes == 6
    torch.testing.assert_close(loaded.module(x), network(behind(IMAGENET, x)))


def test_cohens_cifar_checkpoint_brings_cifars_numbers(tmp_path: Path) -> None:
    network = lively(resnet(20))
    renamed = {
        f"1.{key.replace('linear', 'fc').replace('shortcut', 'downsample')}": value
        for key, value in network.state_dict().items()
    }
    torch.save({"epoch": 90, "arch": "cifar_resnet20", "state_dict": renamed}, tmp_path / "c.pth.tar")
    x = torch.rand(2, 3, 32, 32)
    torch.testing.assert_close(load_model(str(tmp_path / "c.pth.tar")).module(x), network(behind(CIFAR, x)))


@pytest.mark.parametrize("prefix", ["1.", "1.module.", "", "module."])
def test_the_lenet_of_published_mnist_runs_is_the_wide_one(tmp_path: Path, prefix: str) -> None:
    """Behind a layer that does nothing: no numbers are asked for."""
    theirs = nn.ModuleDict(
        {
            "conv1": nn.Conv2d(1, 20, 5),
            "conv2": nn.Conv2d(20, 50, 5),
            "fc1": nn.Linear(800, 500),
            "fc2": nn.Linear(500, 10),
        }
    )
    state = {prefix + key: value for key, value in theirs.state_dict().items()}
    torch.save({"epoch": 90, "arch": "lenet", "state_dict": state}, tmp_path / "c.pth.tar")
    x = torch.rand(2, 1, 28, 28)
    pooled = x
    for name in ("conv1", "conv2"):
        pooled = torch.nn.functional.max_pool2d(theirs[name](pooled).relu(), 2)
    expected = theirs["fc2"](theirs["fc1"](pooled.flatten(1)).relu())
    for spec in (str(tmp_path / "c.pth.tar"), f"lenet-wide@{tmp_path / 'c.pth.tar'}"):
        loaded = load_model(spec)
        torch.testing.assert_close(loaded.module(x), expected)
        assert loaded.num_classes == 10
        assert type(loaded.module) is type(wide_lenet())


@pytest.mark.parametrize(("arch", "width"), [("cifar_dncnn", 64), ("cifar_dncnn_wide", 128), ("imagenet_dncnn", 64)])
def test_salmans_denoisers(tmp_path: Path, arch: str, width: int) -> None:
    """Their batch norms divide by sqrt(v + 0.0001), and the last convolution has no bias."""
    layers: list[nn.Module] = [nn.Conv2d(3, width, 3, padding=1), nn.ReLU()]
    for _ in range(2):
        layers += [nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width, eps=0.0001), nn.ReLU()]
    theirs = lively(nn.Sequential(*layers, nn.Conv2d(width, 3, 3, padding=1, bias=False)))
    for part in theirs:  # type: ignore[attr-defined]
        if isinstance(part, nn.BatchNorm2d):
            part.running_var.fill_(1e-4)  # type: ignore[union-attr]  # where the small number counts
    prefix = "module.dncnn." if arch.startswith("imagenet") else "dncnn."
    state = {prefix + key: value for key, value in theirs.state_dict().items()}
    torch.save({"epoch": 1, "arch": arch, "state_dict": state}, tmp_path / "d.pth.tar")
    torch.save(resnet(8).state_dict(), tmp_path / "w.pt")
    classifier = f"resnet8@{tmp_path / 'w.pt'}"
    x = torch.rand(2, 3, 32, 32)
    expected = load_model(classifier).module(x - theirs(x))
    for denoiser in (tmp_path / "d.pth.tar", f"{arch}@{tmp_path / 'd.pth.tar'}", f"dncnn@{tmp_path / 'd.pth.tar'}"):
        loaded = load_model(f"denoised({denoiser}, {classifier})")
        torch.testing.assert_close(loaded.module(x), expected, atol=1e-4, rtol=1e-4)
    with pytest.raises(ModelError, match=r"must hold a classifier; got a denoiser"):
        load_model(str(tmp_path / "d.pth.tar"))


NETWORK = LeNet().state_dict()


@pytest.mark.parametrize(
    "content",
    [
        {"state_dict": NETWORK},
        {"model": NETWORK, "optimizer": {}, "epoch": 3, "args": Namespace(lr=0.1)},
        {"net": NETWORK, "acc": 93.1},
        {"model_state_dict": NETWORK, "loss": torch.tensor(0.1)},
        {"ema": NETWORK},
        {"model": {"state_dict": NETWORK}, "ema": None},
        {"state_dict": {f"model.{key}": value for key, value in NETWORK.items()}},
        {"state_dict": {f"net.{key}": value for key, value in NETWORK.items()}},
        {"state_dict": {f"_orig_mod.module.{key}": value for key, value in NETWORK.items()}},
        {"state_dict": {f"model._orig_mod.{key}": value for key, value in NETWORK.items()}},
        {
            f"features._orig_mod.{key[9:]}" if key.startswith("features") else key: value
            for key, value in NETWORK.items()
        },
        {
            "state_dict": {
                **{f"model.{key}": value for key, value in NETWORK.items()},
                "train_acc.tp": torch.ones(10),
                "val_accuracy.correct": torch.tensor(3),
                "metrics.f1.fn": torch.ones(1),
                "criterion.weight": torch.ones(10),
                "val_confmat.confmat": [torch.ones(1)],
            }
        },
    ],
    ids=lambda content: "+".join(list(content)[:2])[:40],
)
def test_what_trainers_put_around_weights_is_taken_off(tmp_path: Path, content: dict[str, Any]) -> None:
    torch.save(content, tmp_path / "w.pt")
    network = LeNet()
    fitted = fit_weights(network, read_weights(tmp_path / "w.pt").state, "w.pt")
    assert not fitted.behind_normalizer
    assert all(torch.equal(value, NETWORK[key]) for key, value in network.state_dict().items())


@pytest.mark.filterwarnings("ignore::ringfence.models.weights.WeightsWarning")
def test_of_several_weights_the_first_in_the_documented_order_are_taken(tmp_path: Path) -> None:
    torch.save({"ema": LeNet(3).state_dict(), "model": NETWORK}, tmp_path / "w.pt")
    assert load_model(f"lenet@{tmp_path / 'w.pt'}").num_classes == 10


def test_a_wanted_key_that_is_called_like_a_metric_is_no_metric() -> None:
    network = nn.ModuleDict({"loss": nn.Linear(2, 2)})
    state = {f"model.{key}": value + 1 for key, value in network.state_dict().items()}
    fit_weights(network, state, "w.pt")
    assert torch.equal(network["loss"].weight, state["model.loss.weight"])


def test_weights_that_are_there_twice_are_refused() -> None:
    """A student and a teacher: which one is meant cannot be known."""
    student, bias = {f"model.{key}": value for key, value in NETWORK.items()}, NETWORK["head.5.bias"]
    with pytest.raises(ModelError, match=r"unexpected key 'model\.features\.0\.weight'"):
        fit_weights(LeNet(), {**student, **NETWORK}, "w.pt")
    with pytest.raises(ModelError, match=r"weights twice, with and without 'model\.' before their names"):
        fit_weights(LeNet(), {**student, "head.5.bias": bias + 1}, "w.pt")
    with pytest.raises(ModelError, match=r"weights twice"):
        fit_weights(LeNet(), {**{f"_orig_mod.{key}": value for key, value in NETWORK.items()}, **NETWORK}, "w.pt")


@pytest.mark.parametrize("outer", ["", "model.", "module."])
def test_stored_numbers_are_found_behind_wrappers(outer: str) -> None:
    state = {f"{outer}1.{key}": value for key, value in NETWORK.items()}
    state |= {f"{outer}0.mean": torch.tensor([0.2]), f"{outer}0.std": torch.tensor([0.7])}
    fitted = fit_weights(LeNet(), state, "w.pt")
    assert fitted.behind_normalizer
    assert fitted.stored is not None
    assert [round(one, 4) for part in fitted.stored for one in part] == [0.2, 0.7]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch's own, as it loads its compiler
def test_a_compiled_factory_takes_plain_weights() -> None:
    network = nn.Sequential(nn.Linear(2, 2))
    compiled = torch.compile(network)
    state = {key: value + 1 for key, value in network.state_dict().items()}
    fit_weights(compiled, state, "w.pt")  # type: ignore[arg-type]
    assert torch.equal(network[0].weight, state["0.weight"])
