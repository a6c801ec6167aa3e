from __future__ import annotations

import copy
from collections.abc import Callable
from weakref import WeakKeyDictionary

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.functional import leaky_relu

from ringfence.classifiers.architectures import resnet
from ringfence.training import narrow
from ringfence.training.objectives import compiled_gradient
from ringfence.training.objectives.compiled_gradient import Differentiated, differentiated
from ringfence.training.objectives.diversity import loss_of_rows, margin_over_runner_up
from ringfence.training.objectives.second_order import SecondOrder

ROWS = 6


@pytest.fixture(autouse=True)
def _nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing was compiled before, and what is passed to a compiler is used as it is, unless a test says more."""
    monkeypatch.setattr(compiled_gradient, "_KNOWN", [])
    monkeypatch.setattr(compiled_gradient, "_CHECKED", WeakKeyDictionary())
    monkeypatch.setattr(compiled_gradient, "narrow_options", dict)
    monkeypatch.setattr(compiled_gradient, "compiled", lambda run, **more: run)


def inputs() -> tuple[Tensor, Tensor]:
    torch.manual_seed(1)
    return torch.rand(ROWS, 3, 32, 32), torch.arange(ROWS) % 10


def network(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return resnet(8).train()


def weights_gradient(found: Differentiated, member: nn.Module) -> list[Tensor]:
    total = found.scores.square().mean() + found.values.sum() + 9 * found.gradient.flatten(1).norm(dim=1).sum()
    return list(torch.autograd.grad(total, list(member.parameters())))


@pytest.mark.parametrize("values", [margin_over_runner_up, loss_of_rows])
def test_what_is_compiled_is_the_plain_function_of_each_members_own_tensors(
    values: compiled_gradient.Values, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Members of one architecture share the code; their weights and statistics are their own."""
    made: list[object] = []
    monkeypatch.setattr(compiled_gradient, "compiled", lambda run, **more: made.append(run) or run)
    x, y = inputs()
    for seed in range(2):
        member, other = network(seed), network(seed)
        fast = compiled_gradient._fast(member, x, y, values)
        plain = differentiated(other, x, y, values)
        for one, two in zip(fast, plain, strict=True):
            torch.testing.assert_close(one, two)
        for one, two in zip(weights_gradient(fast, member), weights_gradient(plain, other), strict=True):
            torch.testing.assert_close(one, two)
        for name, value in member.state_dict().items():  # the check before the first use leaves no trace
            torch.testing.assert_close(value, other.state_dict()[name])
    assert len(made) == 1


REFUSED = "run uncompiled: ArgumentError: compile: a compiled network must have the gradients"


def lost(value: Tensor) -> Tensor:
    """The value without its derivatives."""
    return value.detach() + 0 * value


@pytest.mark.parametrize("part", range(3))
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("values", [margin_over_runner_up, loss_of_rows])
def test_compiled_code_that_loses_the_derivative_of_a_part_is_refused(
    values: compiled_gradient.Values, precision: str, part: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In half precision all three together hid one of them."""

    def forgetful(run: Callable[..., tuple[Tensor, ...]], **more: object) -> object:
        return lambda *given: [lost(one) if at == part else one for at, one in enumerate(run(*given))]

    monkeypatch.setattr(compiled_gradient, "compiled", forgetful)
    with (
        torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"),
        pytest.warns(UserWarning, match=REFUSED),
    ):
        compiled_gradient._fast(network(), *inputs(), values)
    assert compiled_gradient._KNOWN[-1].run is None


class Sloped(nn.Sequential):
    """Networks that print alike, have the same shapes and compute other things."""

    slope = 0.0

    def forward(self, x: Tensor) -> Tensor:
        return leaky_relu(super().forward(x), self.slope)


def test_networks_of_one_look_that_compute_other_things_share_no_code() -> None:
    x, y = inputs()
    for slope in (0.1, 0.9):
        torch.manual_seed(0)
        member = Sloped(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 10))
        member.slope = slope
        fast = compiled_gradient._fast(member, x, y, loss_of_rows)
        torch.testing.assert_close(fast.scores, differentiated(member, x, y, loss_of_rows).scores)
    assert len(compiled_gradient._KNOWN) == 2


def test_code_that_members_share_is_checked_for_each_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compilers may make it anew for weights that are laid out in another way."""
    second = network(1)

    def wrong_for_one(run: Callable[..., tuple[Tensor, ...]], **more: object) -> object:
        def for_all_but_one(*given: Tensor) -> object:
            found = run(*given)
            return [lost(one) for one in found] if any(one is second.conv1.weight for one in given) else found

        return for_all_but_one

    monkeypatch.setattr(compiled_gradient, "compiled", wrong_for_one)
    compiled_gradient._fast(network(0), *inputs(), loss_of_rows)
    with pytest.warns(UserWarning, match=REFUSED):
        compiled_gradient._fast(second, *inputs(), loss_of_rows)


def test_a_member_in_another_mode_has_other_code() -> None:
    x, y = inputs()
    member = network()
    for mode in (True, False, True):
        member.train(mode)
        plain = differentiated(copy.deepcopy(member), x, y, loss_of_rows)
        for one, two in zip(compiled_gradient._fast(member, x, y, loss_of_rows), plain, strict=True):
            torch.testing.assert_close(one, two)


def test_what_cannot_be_compiled_runs_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*given: object) -> None:
        raise RuntimeError("no such graph")

    monkeypatch.setattr(compiled_gradient, "compiled", lambda run, **more: fails)
    x, y = inputs()
    with pytest.warns(UserWarning, match="uncompiled: RuntimeError: no such graph"):
        first = compiled_gradient._fast(network(), x, y, loss_of_rows)
    for one, two in zip(first, compiled_gradient._fast(network(), x, y, loss_of_rows), strict=True):
        torch.testing.assert_close(one, two)


def test_convolutions_of_few_channels_are_exchanged_forward_and_backward(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(narrow, "_is_bf16", lambda image: True)
    member = network().eval().to(memory_format=torch.channels_last)
    x = inputs()[0].contiguous(memory_format=torch.channels_last)
    names, values = zip(*member.named_parameters(), strict=True)

    def gradients(x: Tensor, *given: Tensor) -> list[Tensor]:
        out = torch.func.functional_call(member, dict(zip(names, given, strict=True)), (x,))
        return list(torch.autograd.grad(out.square().sum(), given))

    graph = make_fx(gradients)(x, *values)
    plain = graph(x, *values)
    narrow.exchange(graph.graph)
    graph.recompile()
    calls = [str(node.target) for node in graph.graph.nodes if "ringfence" in str(node.target)]
    # Two convolutions of 16 channels and one of 32; those of 3, of 64 and of stride 2 are torch's.
    assert calls.count("ringfence.narrow_convolved.default") == 6
    assert calls.count("ringfence.narrow_to_weight.default") == 3
    for node in graph.graph.nodes:  # no gradient is copied to another layout by the operator that takes it
        if "narrow" in str(node.target) or "convolution_backward" in str(node.target):
            images = [one.meta["val"] for one in node.args[:2] if one.meta["val"].shape[0] == ROWS]
            assert all(one.is_contiguous(memory_format=torch.channels_last) for one in images)
    for one, other in zip(graph(x, *values), plain, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("channels", narrow.SIDES)
def test_those_of_second_derivatives_are_exchanged_too(channels: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """There adjoints are transposed convolutions, and gradients of weights have a weight that is not there."""
    monkeypatch.setattr(narrow, "_is_bf16", lambda image: True)
    torch.manual_seed(0)
    side = narrow.SIDES[channels]
    layers = (nn.Conv2d(channels, channels, 3, padding=1, bias=False) for _ in range(2))
    member = nn.Sequential(next(layers), nn.BatchNorm2d(channels), nn.Tanh(), next(layers)).double()
    member.train().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    x = torch.randn(3, channels, side, side, dtype=torch.float64).contiguous(memory_format=torch.channels_last)
    names, values = zip(*member.named_parameters(), strict=True)

    def gradients(x: Tensor, *given: Tensor) -> list[Tensor]:
        x = x.detach().requires_grad_()
        with SecondOrder(everywhere=True) as second:
            out = torch.func.functional_call(member, dict(zip(names, given, strict=True)), (x,))
        slope = second.gradient(out.sin().sum(), x)
        return list(torch.autograd.grad(slope.square().sum(), given, allow_unused=True, materialize_grads=True))

    graph = make_fx(gradients)(x, *values)
    plain = graph(x, *values)
    narrow.exchange(graph.graph)
    graph.recompile()
    left = [str(node.target) for node in graph.graph.nodes if "aten.convolution" in str(node.target)]
    ways = [node.args[2] for node in graph.graph.nodes if "narrow_convolved" in str(node.target)]
    assert (left, set(ways)) == ([], {False, True})
    for one, other in zip(graph(x, *values), plain, strict=True):
        torch.testing.assert_close(one, other)


def test_other_convolutions_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(narrow, "_is_bf16", lambda image: True)

    def several(x: Tensor, w: Tensor) -> Tensor:
        wide = torch.conv2d(x, w, stride=2, padding=1)
        apart = torch.conv2d(x, w[:, :1].expand(16, 1, 3, 3), padding=1, groups=16)
        shifted = torch.conv2d(x, w, torch.ones(16), padding=1)
        return wide.sum() + apart.sum() + shifted.sum() + torch.conv2d(x, w).sum()

    x = torch.rand(2, 16, 8, 8).contiguous(memory_format=torch.channels_last)
    graph = make_fx(several)(x, torch.rand(16, 16, 3, 3))
    narrow.exchange(graph.graph)
    assert not any("ringfence" in str(node.target) for node in graph.graph.nodes)


@pytest.mark.parametrize(("rows", "ours"), [(2**17, 0), (2**17 - 1, 1)])
def test_tensors_of_more_numbers_than_kernels_can_address_stay_with_torch(
    rows: int, ours: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(narrow, "_is_bf16", lambda image: True)
    with FakeTensorMode():
        x = torch.empty(rows, 16, 32, 32).contiguous(memory_format=torch.channels_last)
        graph = make_fx(lambda x, w: torch.conv2d(x, w, padding=1))(x, torch.empty(16, 16, 3, 3))
    narrow.exchange(graph.graph)
    assert sum("ringfence" in str(node.target) for node in graph.graph.nodes) == ours


@pytest.mark.filterwarnings("ignore")  # the compiler's own
def test_the_compiler_tells_functions_of_one_code_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """It keeps what it compiled by the code: gradients of another value would have been taken for these."""
    aot = {"dynamic": False, "backend": "aot_eager"}
    monkeypatch.setattr(compiled_gradient, "compiled", lambda run, **more: torch.compile(run, **aot))
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 10)]
    member, (x, y) = nn.Sequential(*layers).train(), inputs()
    for values in (margin_over_runner_up, loss_of_rows):
        for one, two in zip(
            compiled_gradient._fast(member, x, y, values), differentiated(member, x, y, values), strict=True
        ):
            torch.testing.assert_close(one, two)
