from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from ringfence.classifiers import Normalize
from ringfence.classifiers.architectures import ARCHITECTURES, LeNet, build_architecture, resnet
from ringfence.errors import ArgumentError, ClassifierError


def parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def test_parameter_counts_are_the_published_ones() -> None:
    assert parameters(LeNet()) == 61_706
    assert parameters(resnet(20)) == 272_474
    assert parameters(resnet(110)) == 1_730_714
    assert parameters(resnet(20, shortcut="pad")) == 269_722
    assert parameters(resnet(56, shortcut="pad")) == 853_018


def test_scores_have_one_column_per_class() -> None:
    assert LeNet(7)(torch.rand(3, 1, 28, 28)).shape == (3, 7)
    for shortcut in ("projection", "pad"):
        assert resnet(8, 5, shortcut).eval()(torch.rand(2, 3, 32, 32)).shape == (2, 5)


def test_names_build_what_they_say() -> None:
    assert {"lenet", "resnet20", "resnet20-pad", "resnet110"} <= set(ARCHITECTURES)
    assert parameters(build_architecture("resnet20-pad")) == 269_722
    assert parameters(build_architecture("resnet20", 11)) == 272_474 + 65
    assert build_architecture("lenet", 4)(torch.rand(1, 1, 28, 28)).shape == (1, 4)
    for name in ("resnet50", "resnet21", "lenet5", "resnet20-none", ""):
        with pytest.raises(KeyError):
            build_architecture(name)


def test_impossible_depth_is_refused() -> None:
    with pytest.raises(ValueError, match="6n"):
        resnet(21)


@pytest.mark.parametrize(("depth", "published"), [(20, 0.9173), (56, 0.9339)])
def test_public_cifar_weights_reach_their_accuracy(shared: Path, depth: int, published: float) -> None:
    model = resnet(depth, shortcut="pad")
    state = torch.load(shared / "data" / "weights" / f"cifar10_resnet{depth}.pt", weights_only=True)
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected
    assert all(key.endswith("num_batches_tracked") for key in missing)
    classifier = Normalize(model, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)).eval()
    with np.load(shared / "data" / "cifar10_test.npz") as file:
        x, y = torch.from_numpy(file["x"][:300]), torch.from_numpy(file["y"][:300])
    with torch.no_grad():
        accuracy = (classifier(x.float() / 255).argmax(1) == y).float().mean().item()
    # Three standard errors of 300 images around the accuracy on all 10,000.
    assert accuracy >= published - 3 * (published * (1 - published) / 300) ** 0.5


def test_normalize_computes_the_formula_and_stays_in_the_state() -> None:
    x = torch.rand(2, 3, 4, 4)
    wrapped = Normalize(nn.Identity(), (0.1, 0.2, 0.3), (1.0, 2.0, 4.0))
    torch.testing.assert_close(wrapped(x)[:, 1], (x[:, 1] - 0.2) / 2)
    assert set(wrapped.state_dict()) == {"mean", "std"}
    video = torch.rand(2, 5, 3, 4, 4)
    torch.testing.assert_close(wrapped(video)[:, :, 2], (video[:, :, 2] - 0.3) / 4)
    assert Normalize(nn.Identity(), [0.5], [0.5])(x).shape == x.shape


def test_normalize_refuses_what_would_broadcast_silently() -> None:
    with pytest.raises(ClassifierError, match="channels"):
        Normalize(nn.Identity(), (0.1, 0.2, 0.3), (1, 1, 1))(torch.rand(2, 1, 4, 4))
    with pytest.raises(ArgumentError, match="same number"):
        Normalize(nn.Identity(), (0.1,), (1.0, 1.0))
    with pytest.raises(ArgumentError, match="positive"):
        Normalize(nn.Identity(), (0.1,), (0.0,))
    with pytest.raises(ArgumentError, match="finite"):
        Normalize(nn.Identity(), (float("nan"),), (1.0,))
