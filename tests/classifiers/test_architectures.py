from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.fx import GraphModule
from torch.nn.functional import pad

from ringfence.classifiers import Members, Normalize, fold_batch_norm
from ringfence.classifiers.architectures import ARCHITECTURES, EfficientNetLite0, LeNet, build_architecture, resnet
from ringfence.classifiers.architectures.efficientnet import same_padding
from ringfence.classifiers.architectures.lenet import convolve_and_pool, pooled_by_blocks, wide_lenet
from ringfence.data import load_dataset
from ringfence.errors import ArgumentError, ClassifierError
from ringfence.models import load_model


def parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def test_parameter_counts_are_the_published_ones() -> None:
    assert parameters(LeNet()) == 61_706
    assert parameters(resnet(20)) == 272_474
    assert parameters(resnet(110)) == 1_730_714
    assert parameters(resnet(20, shortcut="pad")) == 269_722
    assert parameters(resnet(56, shortcut="pad")) == 853_018
    assert parameters(EfficientNetLite0()) == 4_652_008
    assert parameters(build_architecture("efficientnet_lite0", 10)) == 4_652_008 - 990 * 1281


def test_scores_have_one_column_per_class() -> None:
    assert LeNet(7)(torch.rand(3, 1, 28, 28)).shape == (3, 7)
    for shortcut in ("projection", "pad"):
        assert resnet(8, 5, shortcut).eval()(torch.rand(2, 3, 32, 32)).shape == (2, 5)


def test_names_build_what_they_say() -> None:
    assert {"lenet", "resnet20", "resnet20-pad", "resnet110"} <= set(ARCHITECTURES)
    assert parameters(build_architecture("resnet20-pad")) == 269_722
    assert parameters(build_architecture("resnet20", 11)) == 272_474 + 65
    assert build_architecture("lenet", 4)(torch.rand(1, 1, 28, 28)).shape == (1, 4)
    for name in ("resnet51", "resnet21", "lenet5", "resnet20-none", ""):
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


@pytest.mark.parametrize("kernel", [3, 5])
@pytest.mark.parametrize(("height", "width"), [(8, 8), (7, 8), (8, 7), (9, 11)])
def test_padding_before_stride_2_is_tensorflows(kernel: int, height: int, width: int) -> None:
    def around(side: int) -> tuple[int, int]:
        total = max((-(-side // 2) - 1) * 2 + kernel - side, 0)
        return total // 2, total - total // 2

    x, convolution = torch.rand(1, 1, height, width), nn.Conv2d(1, 1, kernel, 2)
    padded = same_padding(x, convolution)
    assert torch.equal(padded, pad(x, (*around(width), *around(height))))
    assert convolution(padded).shape[2:] == (-(-height // 2), -(-width // 2))
    assert same_padding(x, nn.Conv2d(1, 1, kernel, padding=kernel // 2)) is x


def test_efficientnets_batch_norms_fold_away() -> None:
    torch.manual_seed(0)
    network = EfficientNetLite0(4)
    for one in network.modules():
        if isinstance(one, nn.BatchNorm2d):
            one.momentum = 1.0
    network(torch.rand(4, 3, 64, 64))  # statistics other than zero and one
    folded = fold_batch_norm(network)
    assert not any(isinstance(one, nn.BatchNorm2d) for one in folded.modules())
    x = torch.rand(2, 3, 65, 64)
    expected = network.eval()(x)
    torch.testing.assert_close(folded(x), expected, atol=1e-3, rtol=1e-3)
    assert not torch.allclose(expected[0], expected[1], atol=1e-1)


@pytest.mark.parametrize(
    ("each", "expected"), [(5, 27), pytest.param(1, 131, marks=pytest.mark.slow)], ids=["every fifth", "all"]
)
def test_public_imagenet_weights_reach_their_accuracy(shared: Path, each: int, expected: int) -> None:
    """0.916 on all the images."""
    weights = shared / "data" / "weights" / "efficientnet_lite0_imagenet_fp16.pt"
    loaded = load_model(f"efficientnet_lite0@{weights}")
    assert loaded.num_classes == 1000
    images = list(load_dataset(f"imagenet:{shared / 'data' / 'imagenet_samples'}"))
    assert len(images) == 143
    right, images = 0, images[::each]
    with torch.no_grad():
        for at in range(0, len(images), 13):
            batch = images[at : at + 13]
            answers = loaded.module(torch.stack([one.x for one in batch])).argmax(1)
            right += sum(int(answer) == one.label for answer, one in zip(answers, batch, strict=True))
    assert abs(right - expected) < 2


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


@pytest.mark.parametrize(("channels", "outputs", "size", "padding"), [(1, 6, 5, 2), (6, 16, 5, 0), (2, 3, 3, 1)])
def test_convolution_on_blocks_equals_convolution_and_pooling(channels, outputs, size, padding) -> None:
    torch.manual_seed(0)
    conv = nn.Conv2d(channels, outputs, size, padding=padding).double()
    x = torch.randn(4, channels, 14, 14, dtype=torch.float64, requires_grad=True)
    plain, blocks = nn.functional.max_pool2d(conv(x).relu(), 2), pooled_by_blocks(x, conv.weight, conv.bias, padding)
    assert torch.allclose(plain, blocks, atol=1e-12)
    assert torch.allclose(plain, convolve_and_pool(x, conv.weight, conv.bias, padding), atol=1e-12)
    weight = torch.randn_like(plain)
    wanted = [x, *conv.parameters()]
    for one, other in zip(
        torch.autograd.grad((plain * weight).sum(), wanted),
        torch.autograd.grad((blocks * weight).sum(), wanted),
        strict=True,
    ):
        assert torch.allclose(one, other, atol=1e-10)


def test_the_lenets_have_the_published_sizes() -> None:
    for name, size in (("lenet", 61_706), ("lenet-wide", 431_080)):
        assert sum(one.numel() for one in build_architecture(name).parameters()) == size
    layers = [type(part).__name__ for part in wide_lenet().modules() if not list(part.children())]
    assert layers == ["Conv2d", "ReLU", "MaxPool2d"] * 2 + ["Flatten", "Linear", "ReLU", "Linear"]


@pytest.mark.parametrize("network", [LeNet(), wide_lenet()])
def test_lenet_in_blocks_has_the_same_features(network: LeNet) -> None:
    torch.manual_seed(0)
    x = torch.rand(3, 1, 28, 28)
    assert torch.allclose(network.features(x), network.in_blocks(x), atol=1e-5)


def compiled(network: nn.Module, x: Tensor) -> tuple[list[str], Tensor]:
    """What is in the graph that torch traces, and what it computes."""
    called: list[str] = []

    def noted(traced: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        called.extend(str(node.target) for node in traced.graph.nodes)
        return traced.forward

    torch._dynamo.reset()
    with torch.inference_mode():
        return called, torch.compile(network, backend=noted, dynamic=False)(x)


CHANGES: dict[str, Callable[[nn.Sequential], object]] = {
    "nothing": lambda features: None,
    "a hook": lambda features: features[1].register_forward_hook(lambda layer, given, found: found.clamp(max=0.1)),
    "a hook before": lambda features: features[3].register_forward_pre_hook(lambda layer, given: (given[0] / 2,)),
    "a hook on all": lambda features: features.register_forward_hook(lambda layer, given, found: -found),
    "another function": lambda features: features.__setitem__(1, nn.Hardtanh(0.0, 0.1)),
    "another forward": lambda features: setattr(features[4], "forward", torch.abs),
    "a mean": lambda features: features.__setitem__(2, nn.AvgPool2d(2)),
    "windows that overlap": lambda features: features.__setitem__(5, nn.MaxPool2d(3, 2, padding=1)),
    "edges that go round": lambda features: features.__setitem__(
        0, nn.Conv2d(1, 6, 5, padding=2, padding_mode="circular")
    ),
    "taps apart": lambda features: features.__setitem__(0, nn.Conv2d(1, 6, 3, padding=2, dilation=2)),
}


@pytest.mark.filterwarnings("ignore:.*script_method:DeprecationWarning")
@pytest.mark.parametrize("change", CHANGES)
def test_a_compiled_lenet_is_the_one_that_its_user_made_of_it(change: str) -> None:
    """A rare difference would pass the check: what is compiled must be the network by construction."""
    torch.manual_seed(0)
    network, x = LeNet().eval(), torch.rand(3, 1, 28, 28)
    CHANGES[change](network.features)
    called, found = compiled(network, x)
    assert sum("convolve_and_pool" in one for one in called) == (2 if change == "nothing" else 0)
    torch.testing.assert_close(found, network(x))


@pytest.mark.filterwarnings("ignore:.*script_method:DeprecationWarning")
def test_lenets_in_one_stack_run_in_blocks_all_at_once(capfd: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    members, x = Members([LeNet(), LeNet()]).eval(), torch.rand(3, 1, 28, 28)
    wanted = members(x)
    members.use_stack(True)
    called, found = compiled(members, x)
    torch.testing.assert_close(found, wanted)
    assert any("convolve_and_pool" in one for one in called)
    assert "batching rule" not in capfd.readouterr().err  # torch would say that it takes them one by one
