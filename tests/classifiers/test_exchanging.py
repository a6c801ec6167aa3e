"""Layers that are exchanged in what is compiled, and which are not; the kernels themselves are in other tests."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from scipy.special import ndtr
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import GraphModule
from torch.nn.functional import gelu, linear, scaled_dot_product_attention

from ringfence.classifiers import exchanging, hopper
from ringfence.classifiers.exchanging import POWERS, exchange, gelu_by_powers
from ringfence.classifiers.fused import source
from ringfence.errors import ArgumentError
from ringfence.sampling import Forward, ForwardPlan
from ringfence.sampling.plan import plainer

pytestmark = pytest.mark.filterwarnings("ignore:.*script_method:DeprecationWarning")  # torch, loading its compiler
CPU = torch.device("cpu")


class Block(nn.Module):
    """As in vision transformers."""

    def __init__(self, wide: int = 16, deep: int = 8, act: nn.Module | None = None, bias: bool = True) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.act, self.last = nn.Linear(deep, wide, bias), act or nn.GELU(), nn.Linear(wide, deep)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = x + self.last(self.act(self.first(x)))
        return found


class ReadTwice(Block):
    def forward(self, x: Tensor) -> Tensor:
        before = self.first(x)
        found: Tensor = self.last(gelu(before)) + before[..., :8]
        return found


class ChangesItsInput(Block):
    def forward(self, x: Tensor) -> Tensor:
        x = x + 1
        before = self.first(x)
        x.mul_(3)
        found: Tensor = self.last(gelu(before)) + x
        return found


class ByName(Block):
    def forward(self, x: Tensor) -> Tensor:
        before = nn.functional.linear(x, weight=self.first.weight, bias=self.first.bias)
        found: Tensor = self.last(gelu(before))
        return found


class Attends(nn.Module):
    """As in vision transformers; how: what else attention is asked for."""

    def __init__(self, size: int = 64, **how: Any) -> None:
        super().__init__()
        self.how, self.size = how, size

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = x.view(len(x), -1, 3, 2, self.size).permute(2, 0, 3, 1, 4)
        found = scaled_dot_product_attention(query, key, value, **self.how)
        return found.transpose(1, 2).reshape(len(x), -1, 2 * self.size)


def run(model: nn.Module, x: Tensor, name: str = "linear_gelu") -> tuple[int, Tensor]:
    """How many are this operator in the graph that torch traces, and what it computes then; no exact GELU is left."""
    exchanged, left = 0, list[Any]()

    def counted(traced: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        nonlocal exchanged
        exchange(traced.graph)
        traced.graph.lint()
        traced.recompile()
        exchanged += sum(node.target is getattr(torch.ops.ringfence, name).default for node in traced.graph.nodes)
        left.extend(
            node for node in traced.graph.nodes if node.target is gelu and node.kwargs.get("approximate") != "tanh"
        )
        return traced.forward

    torch._dynamo.reset()
    with torch.inference_mode():
        found = torch.compile(model, backend=counted, dynamic=False)(x)
    assert not left or x.dtype != torch.bfloat16 or not exchanging._placed(x)
    return exchanged, found


@pytest.fixture(autouse=True)
def everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the CPU were the GPU that the kernel is for."""
    monkeypatch.setattr(exchanging, "_placed", lambda x: True)
    monkeypatch.setattr(exchanging, "_has_hopper", lambda device: True)


@pytest.mark.parametrize(
    ("model", "count"),
    [
        (Block(), 1),
        (nn.Sequential(Block(), Block()), 2),
        (nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Dropout(), nn.Linear(16, 8)).eval(), 1),
        (ChangesItsInput(), 1),
        (ByName(), 1),
        (Block(act=nn.GELU(approximate="tanh")), 0),
        (Block(act=nn.ReLU()), 0),
        (Block(bias=False), 0),
        (Block(wide=20), 0),
        (ReadTwice(), 0),
        (nn.Sequential(nn.GELU(), nn.Linear(8, 8)), 0),
    ],
    ids=lambda one: type(one).__name__ if isinstance(one, nn.Module) else str(one),
)
@pytest.mark.parametrize("shape", [(5, 8), (2, 3, 8)])
def test_an_exact_gelu_that_alone_reads_a_layer_is_one_with_it(
    model: nn.Module, count: int, shape: tuple[int, ...]
) -> None:
    model, x = model.bfloat16().eval(), torch.randn(shape).bfloat16()
    exchanged, found = run(model, x)
    assert exchanged == count
    torch.testing.assert_close(found, model(x), rtol=0.02, atol=0.01)


@pytest.mark.parametrize("what", ["float32", "elsewhere", "another GPU", "one row"])
def test_what_the_kernel_is_not_for_is_left_to_torch(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if what == "elsewhere":
        monkeypatch.undo()
    if what == "another GPU":
        monkeypatch.setattr(exchanging, "_has_hopper", lambda device: False)
    kind = torch.float32 if what == "float32" else torch.bfloat16
    assert run(Block().to(kind), torch.randn((8,) if what == "one row" else (4, 8)).to(kind))[0] == 0


@pytest.mark.parametrize("rows", [2**31 - 1, 2**31])
def test_rows_that_cannot_be_told_apart_are_left_to_torch(rows: int) -> None:
    x, weight, bias = (torch.empty(one, device="meta", dtype=torch.bfloat16) for one in ((rows, 8), (8, 8), (8,)))
    assert hopper.fits_linear_gelu(x, weight, bias) == (rows < 2**31)


@pytest.mark.parametrize(
    ("how", "rows", "size", "count"),
    [
        ({}, 197, 64, 1),
        ({"dropout_p": 0.0, "attn_mask": None, "is_causal": False, "scale": 0.125}, 208, 64, 1),
        ({}, 192, 64, 0),
        ({}, 209, 64, 0),
        ({}, 197, 32, 0),
        ({"scale": 0.5}, 197, 64, 0),
        ({"is_causal": True}, 197, 64, 0),
        ({"attn_mask": torch.ones(197, 197).tril().bool()}, 197, 64, 0),
    ],
)
def test_attention_to_as_many_keys_as_the_kernel_takes_is_an_operator(
    how: dict[str, Any], rows: int, size: int, count: int
) -> None:
    model, x = Attends(size, **how), torch.randn(2, rows, 6 * size).bfloat16()
    exchanged, found = run(model, x, "attention")
    assert exchanged == count
    torch.testing.assert_close(found, model(x), rtol=0.02, atol=0.01)


def test_other_types_and_other_keys_are_not_the_kernels() -> None:
    query = torch.empty(2, 3, 197, 64, device="meta", dtype=torch.bfloat16)
    assert hopper.fits_attention(query, query, query)
    for other in (query.half(), query[:, :, :196], query[:, :1], query[0]):
        assert not hopper.fits_attention(query, other, query)
        assert not hopper.fits_attention(query, query, other)
    assert not hopper.fits_attention(*[query.half()] * 3)
    assert not hopper.fits_attention(*[query[:0]] * 3)


def test_the_kernel_is_given_rows_and_its_answer_has_the_inputs_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[tuple[Tensor, ...]] = []

    def kernel(*one: Tensor) -> Tensor:
        given.append(one)
        return gelu(linear(*one))

    monkeypatch.setattr(hopper, "checked_kernel", lambda *_: SimpleNamespace(linear_gelu=kernel))
    layer, x = nn.Linear(8, 16).bfloat16(), torch.randn(3, 8, 2).bfloat16().transpose(1, 2)
    with torch.inference_mode():
        found = torch.ops.ringfence.linear_gelu(x, layer.weight.t().contiguous().t(), layer.bias)
        torch.testing.assert_close(found, gelu(layer(x)), rtol=0.02, atol=1e-3)
        wider = torch.ops.ringfence.linear_gelu(x.float(), layer.weight.float(), layer.bias.float())
    assert found.is_contiguous()
    assert [tuple(one.shape) for one in given[0]] == [(6, 8), (16, 8), (16,)]
    assert all(one.is_contiguous() for one in given[0])
    assert (len(given), wider.dtype) == (1, torch.float32)


@pytest.mark.parametrize("lies", ["as it is made", "elsewhere", "at an odd place", "turned"])
def test_attention_is_read_where_it_lies_if_it_can_be(lies: str, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[tuple[Tensor, ...]] = []

    def kernel(*one: Any) -> Tensor:
        given.append(one)
        return scaled_dot_product_attention(*one).transpose(1, 2).contiguous().transpose(1, 2)

    monkeypatch.setattr(hopper, "checked_kernel", lambda *_: SimpleNamespace(attention=kernel))
    memory = torch.randn(2 * 197 * 3 * 2 * 64 + 8).bfloat16()
    every = memory[1 if lies == "at an odd place" else 0 :][: 2 * 197 * 3 * 2 * 64].view(2, 197, 3, 2, 64)
    query, key, value = every.permute(2, 0, 3, 1, 4)
    if lies == "turned":
        query = query.transpose(2, 3).contiguous().transpose(2, 3)
    if lies == "elsewhere":
        query = query[:1].expand(2, 2, 197, 64)
    found = torch.ops.ringfence.attention(query, key, value)
    assert torch.equal(given[0][0], query)
    assert all(one.data_ptr() % 16 == 0 and one.stride(3) == 1 and min(one.stride()) > 0 for one in given[0])
    assert [one.data_ptr() for one in given[0]] == [
        one.data_ptr() for one in (query, key, value)
    ] or lies != "as it is made"
    torch.testing.assert_close(found, scaled_dot_product_attention(query, key, value), rtol=0.02, atol=1e-3)
    assert found.transpose(1, 2).is_contiguous()


def test_compilers_are_told_what_attention_answers() -> None:
    query = torch.randn(2, 3, 5, 8)
    found = torch.ops.ringfence.attention(query, query, query)
    with FakeTensorMode() as mode:
        told = torch.ops.ringfence.attention(*[mode.from_tensor(query)] * 3)
    assert (told.shape, told.dtype, told.stride()) == (found.shape, found.dtype, found.stride())


def test_gelu_by_powers_is_exact_to_a_fiftieth_of_what_bf16_resolves() -> None:
    """Of every number of bf16, before it is rounded; where all that is left is 1e-15, it may be 0."""
    x = (torch.arange(2**16, dtype=torch.int32) << 16).view(torch.float32)
    x = x[torch.isfinite(x)]
    wanted = x.double() * torch.from_numpy(ndtr(x.double().numpy()))
    found = gelu_by_powers(x).double()
    unit = 2.0 ** (wanted.abs().clamp(min=2.0**-126).log2().floor() - 7)
    large = wanted.abs() > 1e-15
    assert ((found - wanted).abs() / unit)[large].max() <= 0.52  # half of it is rounding
    assert (found - wanted)[~large].abs().max() < 1e-17
    no_number = torch.tensor([torch.nan, torch.inf, -torch.inf])
    torch.testing.assert_close(
        gelu_by_powers(no_number).float(), torch.tensor([torch.nan, torch.inf, torch.nan]), equal_nan=True
    )


def test_the_kernel_has_the_formulas_numbers() -> None:
    text = source("linear_gelu.cu")
    assert [float(one) for one in re.findall(r"(-?\d+\.\d+(?:e-\d+)?)f", text)] == list(reversed(POWERS))


def test_compilers_are_told_what_the_operator_answers() -> None:
    layer, x = nn.Linear(8, 16), torch.randn(3, 8, 2).transpose(1, 2)
    found = torch.ops.ringfence.linear_gelu(x, layer.weight, layer.bias)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        told = torch.ops.ringfence.linear_gelu(*map(mode.from_tensor, (x, layer.weight.detach(), layer.bias.detach())))
    assert (told.shape, told.dtype, told.stride()) == (found.shape, found.dtype, found.stride())


class Scores(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Sequential(Block(), Block()), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.head(self.body(x))
        return found


@pytest.mark.parametrize("autotune", [False, True])
def test_a_compiled_network_with_the_operator_is_the_network(autotune: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[torch.Size] = []

    def kernel(*one: Tensor) -> Tensor:
        called.append(one[0].shape)
        return gelu(linear(*one))

    monkeypatch.setattr(hopper, "checked_kernel", lambda *_: SimpleNamespace(linear_gelu=kernel))
    torch._dynamo.reset()
    model, x = Scores().eval(), torch.randn(6, 8)
    plain = ForwardPlan(6, "bf16")
    plan = ForwardPlan(6, "bf16", compile=True, exchanged=True, autotune=autotune)
    found, wanted = (Forward(model, one, CPU, 4)(x).scores for one in (plan, plain))
    assert called == [torch.Size((6, 8))] * 2
    torch.testing.assert_close(found, wanted, rtol=0.02, atol=0.02)


def test_plans_say_so_and_those_of_earlier_versions_do_not() -> None:
    plan = ForwardPlan(4, "bf16", compile=True, joined=True, exchanged=True)
    assert ForwardPlan.stored(plan.settings()) == plan
    earlier = plan.settings()
    del earlier["exchanged"]
    assert not ForwardPlan.stored(earlier).exchanged
    assert [name for name, _ in plainer(plan)][:2] == ["exchanged", "joined"]
    with pytest.raises(ArgumentError, match=r"exchanged.*needs compile"):
        ForwardPlan(4, exchanged=True)
