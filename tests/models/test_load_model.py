from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from ringfence.classifiers import Normalize
from ringfence.classifiers.architectures import EfficientNetLite0, LeNet, resnet
from ringfence.data import load_dataset
from ringfence.errors import ModelError
from ringfence.models import load_model
from ringfence.training import DeviceData, TrainingJob
from ringfence.training.run import build_member


def cohen_checkpoint(path: Path, prefix: str, model: nn.Module, arch: str) -> Path:
    state = {
        prefix + key.replace("linear", "fc").replace("shortcut", "downsample"): value
        for key, value in model.state_dict().items()
    }
    torch.save({"epoch": 90, "arch": arch, "state_dict": state, "optimizer": {"state": {}, "param_groups": []}}, path)
    return path


@pytest.mark.parametrize("member", [0, 1, 2])
def test_embedded_networks_are_right_under_their_noise(member: int) -> None:
    loaded = load_model(f"default:{member}")
    assert loaded.num_classes == 10
    assert not loaded.module.training
    inputs = list(load_dataset("default"))
    x = torch.stack([item.x for item in inputs])
    y = torch.tensor([item.label for item in inputs])
    noise = torch.randn(x.shape, generator=torch.Generator().manual_seed(member))
    with torch.no_grad():
        accuracy = (loaded.module(x + 0.5 * noise).argmax(1) == y).float().mean().item()
    assert accuracy > 0.90


def test_default_is_its_first_member_and_members_differ() -> None:
    digests = [load_model(spec).digest for spec in ("default", "default:0", "default:1", "default:2")]
    assert digests[0] == digests[1]
    assert len(set(digests)) == 3


@pytest.mark.parametrize("spec", ["default:3", "default:x", "default:-1"])
def test_default_has_three_members(spec: str) -> None:
    with pytest.raises(ModelError, match="default:0 to default:2"):
        load_model(spec)


def test_architecture_with_weights_from_both_formats(tmp_path: Path) -> None:
    model = LeNet(4).eval()
    save_file(model.state_dict(), tmp_path / "w.safetensors")
    torch.save(model.state_dict(), tmp_path / "w.pt")
    x = torch.rand(2, 1, 28, 28)
    for name in ("w.safetensors", "w.pt"):
        loaded = load_model("lenet", weights=tmp_path / name)
        assert loaded.num_classes == 4
        torch.testing.assert_close(loaded.module(x), model(x))


def test_one_word_can_name_architecture_and_weights(tmp_path: Path) -> None:
    path = tmp_path / "w.pt"
    torch.save(LeNet(4).state_dict(), path)
    loaded = load_model(f"lenet@{path}")
    assert loaded.spec == f"lenet@{path}"
    assert loaded.digest == load_model("lenet", weights=path).digest
    with pytest.raises(ModelError, match=r"weights: does not go with lenet@.*Leave it out"):
        load_model(f"lenet@{path}", weights=path)
    with pytest.raises(ModelError, match="no such file"):
        load_model(f"lenet@{path}.no")


def settled(network: nn.Module) -> nn.Module:
    """Batch statistics of some noise, without which a fresh deep network answers the same to everything."""
    for one in network.modules():
        if isinstance(one, nn.BatchNorm2d):
            one.momentum = 1.0
    network.train()(torch.rand(4, 3, 64, 64))
    return network.eval()


def test_an_architecture_brings_its_own_normalisation(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = settled(EfficientNetLite0(5))
    torch.save(model.state_dict(), tmp_path / "w.pt")
    loaded = load_model(f"efficientnet_lite0@{tmp_path / 'w.pt'}")
    assert loaded.num_classes == 5
    pixels = torch.randint(0, 256, (2, 3, 64, 64))
    expected, raw = model((pixels - 127) / 128), model(pixels / 255)
    torch.testing.assert_close(loaded.module(pixels / 255), expected, atol=1e-4, rtol=1e-4)
    assert not torch.allclose(raw, expected, atol=1e-2)


def test_a_network_trained_here_keeps_the_normalisation_it_was_trained_with(tmp_path: Path) -> None:
    torch.manual_seed(0)
    x, members = torch.rand(2, 3, 64, 64), ("efficientnet_lite0",)
    data = DeviceData(x, torch.zeros(2), 5)
    for job in (TrainingJob(members=members), TrainingJob(members=members, mean=(0.1,), std=(0.2,))):
        network = settled(build_member(job, 0, data))
        assert isinstance(network, Normalize)
        save_file(network.state_dict(), tmp_path / "net.safetensors", {"arch": job.arch})
        torch.testing.assert_close(load_model(str(tmp_path / "net.safetensors")).module(x), network(x))
        assert not torch.allclose(network.module(x), network(x), atol=1e-2)


def test_safetensors_that_name_their_architecture_are_a_model(tmp_path: Path) -> None:
    path = tmp_path / "net.safetensors"
    save_file(LeNet().state_dict(), path, metadata={"arch": "lenet"})
    assert load_model(str(path)).num_classes == 10
    save_file(LeNet().state_dict(), path)
    with pytest.raises(ModelError, match=r"a file without one. Give .* timm:NAME@FILE"):
        load_model(str(path))


def test_mean_and_std_belong_to_the_model_and_to_its_digest() -> None:
    plain, wrapped = load_model("default"), load_model("default", mean=[0.13], std=[0.31])
    x = torch.rand(2, 1, 28, 28)
    torch.testing.assert_close(wrapped.module(x), plain.module((x - 0.13) / 0.31))
    assert plain.digest != wrapped.digest
    with pytest.raises(ModelError, match="together"):
        load_model("default", mean=[0.1])


@pytest.mark.parametrize("prefix", ["1.", "1.module."])
def test_cohen_checkpoint_keeps_the_normalisation_it_was_trained_with(tmp_path: Path, prefix: str) -> None:
    model = resnet(20).eval()
    path = cohen_checkpoint(tmp_path / "checkpoint.pth.tar", prefix, model, "cifar_resnet20")
    x = torch.rand(2, 3, 32, 32)
    expected = Normalize(model, (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))(x)
    torch.testing.assert_close(load_model(str(path)).module(x), expected)
    torch.testing.assert_close(load_model("resnet20", weights=path).module(x), expected)
    own = load_model(str(path), mean=[0.0], std=[1.0]).module(x)
    torch.testing.assert_close(own, model(x))


@pytest.mark.parametrize("prefix", ["", "module."])
def test_checkpoint_without_a_normalising_layer_gets_none(tmp_path: Path, prefix: str) -> None:
    model = resnet(8, shortcut="pad").eval()
    path = cohen_checkpoint(tmp_path / "checkpoint.pth", prefix, model, "cifar_resnet8")
    x = torch.rand(2, 3, 32, 32)
    torch.testing.assert_close(load_model(str(path)).module(x), model(x))


def test_stored_normalisation_is_used(tmp_path: Path) -> None:
    model = Normalize(LeNet(), [0.2], [0.7]).eval()
    save_file(model.state_dict(), tmp_path / "n.safetensors")
    x = torch.rand(2, 1, 28, 28)
    torch.testing.assert_close(load_model("lenet", weights=tmp_path / "n.safetensors").module(x), model(x))


def test_unknown_normalisation_is_asked_for(tmp_path: Path) -> None:
    path = cohen_checkpoint(tmp_path / "c.pth", "1.", LeNet(), "lenet")
    with pytest.raises(ModelError, match="Give `mean` and `std`"):
        load_model(str(path))


def test_public_weights_load_by_name(shared: Path) -> None:
    path = shared / "data" / "weights" / "cifar10_resnet20.pt"
    assert load_model("resnet20-pad", weights=path).num_classes == 10
    with pytest.raises(ModelError, match=r"layer2\.0\.shortcut\.0\.weight' missing"):
        load_model("resnet20", weights=path)


@pytest.mark.parametrize(
    ("spec", "nearest"), [("defualt", "'default'"), ("resnet-20", "'resnet20'"), ("lennet", "'lenet'")]
)
def test_unknown_model_suggests_the_nearest(spec: str, nearest: str) -> None:
    with pytest.raises(ModelError, match=nearest):
        load_model(spec)


def test_weights_are_needed_or_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="needs trained weights"):
        load_model("lenet")
    with pytest.raises(ModelError, match="has its own"):
        load_model("default", weights=tmp_path / "w.pt")
    for arguments in ({"spec": "lenet", "weights": tmp_path / "no.pt"}, {"spec": str(tmp_path / "no.pth")}):
        with pytest.raises(ModelError, match="no such file"):
            load_model(**arguments)  # type: ignore[arg-type]


def test_unknown_architecture_in_a_checkpoint_is_named(tmp_path: Path) -> None:
    path = cohen_checkpoint(tmp_path / "c.pth.tar", "1.", LeNet(), "resnet51")
    with pytest.raises(ModelError, match="'resnet51'"):
        load_model(str(path))
