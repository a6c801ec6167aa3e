"""Forms of networks that nobody had in mind: each computes the network, or is left alone."""

from __future__ import annotations

import operator
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from ringfence.classifiers import fold_batch_norm, joining
from ringfence.classifiers.joining import Joined, joins_on
from ringfence.classifiers.reshaping import Cut, Halved, reshaped
from ringfence.sampling import ForwardPlan, preparing

Op = Callable[..., Any]
RELUS: tuple[Op, ...] = (
    torch.relu,
    F.relu,
    F.relu6,
    torch.relu_,
    lambda x: F.relu(x, inplace=True),
    lambda x: F.relu(input=x),
    lambda x: x.relu(),
    lambda x: F.leaky_relu(x, 0.1),
)
SUMS: tuple[Op, ...] = (
    operator.add,
    operator.iadd,
    operator.sub,
    torch.add,
    lambda x, y: y + x,
    lambda x, y: x.add_(y),
    lambda x, y: torch.add(x, y, alpha=2),
    lambda x, y: torch.add(x, 2, y),  # an old way of writing it
    lambda x, y: x + y.mean((2, 3), keepdim=True),
    lambda x, y: x + 1.5,
)
CHANGES: tuple[Op, ...] = (
    lambda x: F.hardtanh(x, -1, 1, inplace=True),
    lambda x: x[:, 1:].mul_(1.1),
    lambda x: x[:, :, ::2].clamp_(max=0.5),
    lambda x: torch.cat(x.chunk(2, 1)[::-1], 1),
)


def convolution(chance: random.Random, channels: int) -> nn.Conv2d:
    high, wide = chance.choice([1, 2, 3, 3, 5]), chance.choice([1, 3, 3, 4])
    bias, around = chance.random() < 0.7, (chance.randint(0, 3), chance.randint(0, 3))
    if channels < 4:
        stride = chance.choice([(2, 2), (2, 2), (high, wide)])
        return nn.Conv2d(channels, 4, (high, wide), stride, around, bias=bias)
    kinds: list[dict[str, Any]] = [
        {"kernel_size": 1},
        {"kernel_size": 3, "padding": 1},
        {"kernel_size": 3, "padding": 1},
        {"kernel_size": (high, wide), "stride": 2, "padding": around},
        {"kernel_size": 2, "stride": 2},
        {"kernel_size": 3, "padding": (1, 2), "dilation": (1, 2), "groups": 2},
        {"kernel_size": 3, "padding": 1, "padding_mode": "reflect"},
        {"kernel_size": 3, "padding": "same"},
    ]
    return nn.Conv2d(channels, 4, bias=bias, **chance.choice(kinds))


def norm() -> nn.BatchNorm2d:
    found = nn.BatchNorm2d(4)
    assert found.running_mean is not None
    assert found.running_var is not None
    found.running_mean.normal_()
    found.running_var.uniform_(0.5, 2)
    return found


class Random(nn.Module):
    """Layers, sums and changes in place in an order that a seed chose; some layers are called twice or by two names."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        chance = random.Random(seed)
        self.seed, self.inputs = seed, chance.choice([1, 3, 4])
        self.stem = convolution(chance, self.inputs)
        self.layers = nn.ModuleList(convolution(chance, 4) for _ in range(9))
        self.norms = nn.ModuleList(norm() for _ in range(7))
        self.other, self.act, self.nothing = self.layers[0], nn.ReLU(inplace=chance.random() < 0.5), nn.Identity()
        if chance.random() < 0.2:
            self.layers[1].bias = self.layers[2].bias

    def forward(self, x: Tensor) -> Tensor:
        chance = random.Random(self.seed + 1)
        layers, norms = list(self.layers), list(self.norms)
        relus: list[Op] = [*RELUS, self.act]

        def layer(x: Tensor) -> Tensor:
            fresh = layers and chance.random() < 0.85
            found: Tensor = (layers.pop() if fresh else chance.choice([*self.layers, self.other]))(x)
            return norms.pop()(found) if norms and chance.random() < 0.4 else found

        found: list[Tensor] = [self.stem(x)]
        for _ in range(chance.randint(2, 9)):
            one = found[-1] if chance.random() < 0.75 else chance.choice(found)
            kind = chance.choice(["layer", "relu", "relu", "joined", "sum", "sum", "sum", "change", "nothing", "bias"])
            if kind == "layer":
                one = layer(one)
            elif kind in ("relu", "joined"):
                one = chance.choice(relus)(layer(one) if kind == "joined" else one)
            elif kind == "sum":
                other = chance.choice(found)
                pair = [layer(one), layer(other)] if chance.random() < 0.4 else [layer(one), other]
                one = chance.choice(relus)(chance.choice(SUMS)(*pair))
            elif kind == "change":
                changed = chance.choice(CHANGES)(one)
                one = changed if chance.random() < 0.5 else one
            elif kind == "nothing":
                one = self.nothing(one)
            elif isinstance(bias := self.layers[3].bias, Tensor):
                one = one + bias.view(1, -1, 1, 1)
            found.append(one)
        rest: list[Tensor] = [one for one in found if chance.random() < 0.15]
        return torch.stack([one.mean((2, 3)) for one in (found[-1], *rest)]).sum(0)


@pytest.mark.filterwarnings("ignore:This overload of add is deprecated")
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**20))
def test_forms_of_random_networks_are_the_networks(seed: int) -> None:
    torch.manual_seed(seed)
    model = Random(seed).double().eval()
    x = torch.randn(2, model.inputs, 13, 10, dtype=torch.float64)
    try:
        wanted = model(x.clone())
    except RuntimeError:  # layers whose shapes do not fit each other
        return
    for form in (fold_batch_norm(model), fold_batch_norm(reshaped(model), joined=True)):
        torch.testing.assert_close(form(x.clone()), wanted, rtol=1e-8, atol=1e-8)


class Small(nn.Module):
    """A convolution and a norm, and whatever else a test says."""

    def __init__(self, after: Op) -> None:
        super().__init__()
        self.stem, self.norm, self.last, self.after = nn.Conv2d(3, 4, 3), norm(), nn.Conv2d(4, 4, 1), after

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.after(self, self.norm(self.stem(x)))
        return found


def _if_a_tensor(model: Small, x: Tensor) -> Tensor:
    x = x.clamp(max=0.5) if isinstance(x, Tensor) else x
    return x * 2 if torch.is_tensor(x) and not isinstance(x, tuple | list) else x


def _added_twice(model: Small, x: Tensor) -> Tensor:
    return torch.relu(torch.add(model.last(x), 2, x))


def _two_relus(model: Small, x: Tensor) -> Tensor:
    return torch.relu(torch.relu(model.last(x) + x))


@pytest.mark.parametrize("after", [_if_a_tensor, _added_twice, _two_relus])
@pytest.mark.filterwarnings("ignore:This overload of add is deprecated")
def test_traced_networks_do_what_the_network_does(after: Op) -> None:
    torch.manual_seed(0)
    model, x = Small(after).double().eval(), torch.randn(2, 3, 8, 8, dtype=torch.float64)
    found = fold_batch_norm(model, joined=True)
    assert type(found) is not Small
    torch.testing.assert_close(found(x), model(x))


def _in_half(model: Small, x: Tensor) -> Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        return model.last(x).float()  # type: ignore[no-any-return]


def test_a_network_with_a_precision_of_its_own_is_left_alone() -> None:
    """A trace would be of another: it does not know of contexts."""
    torch.manual_seed(0)
    model, x = Small(_in_half).eval(), torch.randn(2, 3, 8, 8)
    assert torch.equal(fold_batch_norm(model, joined=True)(x), model(x))


class Asking(nn.Module):
    """Goes by what its layers are and have."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 4, 3, 2, 1), nn.ReLU(), nn.Conv2d(4, 4, 2, 2))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
            if isinstance(layer, nn.Conv2d):
                x = (
                    x.to(layer.weight.dtype).clamp(max=0.5)
                    + layer.weight.sum() * layer.stride[0]
                    + layer.kernel_size[0]
                )
        return x


def test_layers_in_other_forms_are_still_what_they_were_to_whoever_asks() -> None:
    torch.manual_seed(0)
    model, x, state = Asking().double().eval(), torch.randn(2, 3, 9, 8, dtype=torch.float64), torch.get_rng_state()
    found = reshaped(model)
    assert torch.equal(torch.get_rng_state(), state), "nothing is drawn from the generator of others"
    assert [type(one) for one in found.layers] == [Halved, nn.ReLU, Cut]  # type: ignore[union-attr]
    torch.testing.assert_close(found(x), model(x))


def by_cudnn(x: Tensor, weight: Tensor, bias: Tensor, shortcut: Tensor | None, *how: Any) -> Tensor:
    """As torch asks for it: a ReLU that makes zeros of NaN."""
    found = torch.conv2d(x, weight, bias, *how)
    return torch.relu(found if shortcut is None else found + shortcut).nan_to_num(0.0)


def with_what_was_there(x: Tensor, weight: Tensor, bias: Tensor, shortcut: Tensor | None, *how: Any) -> Tensor:
    """Adds what nobody has written."""
    found = torch.conv2d(x, weight, bias, *how)
    return torch.relu(found + (torch.full_like(found, torch.nan) * 0 if shortcut is None else shortcut))


@pytest.mark.parametrize("kernel", [by_cudnn, with_what_was_there])
def test_a_kernel_that_loses_or_finds_nan_is_not_used(kernel: Op, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row that is invalid would count as a class; where one in a thousand is, no comparison of scores would tell."""
    monkeypatch.setattr(joining, "_on_cuda", lambda x: True)
    monkeypatch.setattr(joining, "by_cudnn", kernel)
    joining.keeps_nan.cache_clear()
    torch.manual_seed(0)
    layer, x = nn.Conv2d(3, 4, 3, padding=1), torch.randn(3, 3, 6, 5)
    x[1, 0, 0, 0] = torch.nan
    for shortcut in ((), (torch.randn(3, 4, 6, 5),)):
        wanted = torch.relu(sum(shortcut, layer(x)))
        torch.testing.assert_close(Joined(layer)(x, *shortcut), wanted, equal_nan=True)
    joining.keeps_nan.cache_clear()


def test_a_kernel_that_keeps_nan_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[bool] = []

    def right(x: Tensor, weight: Tensor, bias: Tensor, shortcut: Tensor | None, *how: Any) -> Tensor:
        calls.append(shortcut is None or shortcut.is_contiguous(memory_format=torch.channels_last))
        return joining.one_after_the_other(x, weight, bias, shortcut, *how)

    monkeypatch.setattr(joining, "_on_cuda", lambda x: True)
    monkeypatch.setattr(joining, "by_cudnn", right)
    joining.keeps_nan.cache_clear()
    layer, x = nn.Conv2d(3, 4, 3, padding=1), torch.randn(3, 3, 6, 5)
    for _ in range(2):
        Joined(layer)(x)
        Joined(layer)(x, torch.randn(3, 4, 6, 5))
    assert len(calls) == 6, "each kind once to see, and each of the four calls"
    joining.keeps_nan.cache_clear()
    assert joins_on(torch.device("cpu"))


@pytest.mark.parametrize(
    ("taps", "stride", "rows", "pictures"), [(1, 1, 3, 1), (3, 1, 3, 3), (1, 2, 3, 3), (1, 1, 8, 8)]
)
def test_pixels_read_alone_are_one_picture(
    taps: int, stride: int, rows: int, pictures: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """cuDNN is faster so; the numbers are the same, wherever they lay."""
    seen: list[int] = []

    def kernel(x: Tensor, weight: Tensor, added: Tensor, by: int, bias: Tensor, *how: Any) -> Tensor:
        seen.append(len(x))
        assert all(one.is_contiguous(memory_format=torch.channels_last) for one in (x, added))
        found = torch.conv2d(x, weight, bias, *how).contiguous(memory_format=torch.channels_last)
        as_if = torch.as_strided(added, found.shape, found.stride(), added.storage_offset())
        return torch.relu(found + by * as_if)

    monkeypatch.setattr(torch, "cudnn_convolution_add_relu", kernel)
    monkeypatch.setattr(joining, "_on_cuda", lambda x: True)
    monkeypatch.setattr(joining, "HIGHEST", 30)
    joining.keeps_nan.cache_clear()
    torch.manual_seed(0)
    layer = nn.Conv2d(4, 5, taps, stride, padding=taps // 2)
    x = torch.randn(rows, 4, 6, 7).contiguous(memory_format=torch.channels_last)
    wide = torch.randn_like(torch.cat([layer(x)] * 2, 1)).contiguous(memory_format=torch.channels_last)
    for shortcut in (wide[:, :5].contiguous(), wide[:, :5]):
        found = Joined(layer)(x, shortcut)
        torch.testing.assert_close(found, torch.relu(layer(x) + shortcut))
        assert found.is_contiguous(memory_format=torch.channels_last)
    assert seen == [pictures] * 3, "once to see whether NaN stays, once for each answer"
    assert Joined(layer)(x[:0], shortcut[:0]).shape == shortcut[:0].shape
    joining.keeps_nan.cache_clear()


@pytest.mark.parametrize("kept", [True, False])
def test_nothing_is_joined_where_a_small_layer_loses_nan(kept: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every layer would go back to torch's operators, one by one, and what is compiled around them lose by it."""
    asked: list[bool] = []
    monkeypatch.setattr(joining, "joins_on", lambda device: kept)
    monkeypatch.setattr(preparing, "fold_batch_norm", lambda module, joined: asked.append(joined) or module)
    preparing.prepared(nn.Conv2d(3, 4, 1), ForwardPlan(2, "bf16", fold=True, joined=True), torch.device("cpu"))
    assert asked == [kept]
