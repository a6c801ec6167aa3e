"""Linear layers and GELUs that become one operator, and which do not; the kernel itself is in other tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import GraphModule
from torch.nn.functional import gelu

from ringfence.classifiers import linear_gelu
from ringfence.classifiers.linear_gelu import exchange
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


def run(model: nn.Module, x: Tensor) -> tuple[int, Tensor]:
    """How many were exchanged in the graph that torch traces, and what it computes then."""
    exchanged = 0

    def counted(traced: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        nonlocal exchanged
        exchange(traced.graph)
        traced.graph.lint()
        traced.recompile()
        ours = torch.ops.ringfence.linear_gelu.default
        exchanged += sum(node.target is ours for node in traced.graph.nodes)
        return traced.forward

    torch._dynamo.reset()
    with torch.inference_mode():
        found = torch.compile(model, backend=counted, dynamic=False)(x)
    return exchanged, found


@pytest.fixture(autouse=True)
def everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the CPU were the GPU that the kernel is for."""
    monkeypatch.setattr(linear_gelu, "_placed", lambda x: True)


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


@pytest.mark.parametrize("what", ["float32", "elsewhere", "one row"])
def test_what_the_kernel_is_not_for_is_left_to_torch(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if what == "elsewhere":
        monkeypatch.undo()
    kind = torch.float32 if what == "float32" else torch.bfloat16
    assert run(Block().to(kind), torch.randn((8,) if what == "one row" else (4, 8)).to(kind))[0] == 0


@pytest.mark.parametrize("rows", [2**31 - 1, 2**31])
def test_rows_that_cannot_be_told_apart_are_left_to_torch(rows: int) -> None:
    x, weight, bias = (torch.empty(one, device="meta", dtype=torch.bfloat16) for one in ((rows, 8), (8, 8), (8,)))
    assert linear_gelu._fits(x, weight, bias, x) == (rows < 2**31)


def test_the_kernel_is_given_rows_and_its_answer_has_the_inputs_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[tuple[Tensor, ...]] = []

    def kernel(*one: Tensor) -> Tensor:
        given.append(one)
        return gelu(nn.functional.linear(*one))

    monkeypatch.setattr(linear_gelu, "checked_kernel", lambda *_: SimpleNamespace(linear_gelu=kernel))
    layer, x = nn.Linear(8, 16).bfloat16(), torch.randn(3, 8, 2).bfloat16().transpose(1, 2)
    with torch.inference_mode():
        found = torch.ops.ringfence.linear_gelu(x, layer.weight.t().contiguous().t(), layer.bias)
        torch.testing.assert_close(found, gelu(layer(x)), rtol=0.02, atol=1e-3)
        wider = torch.ops.ringfence.linear_gelu(x.float(), layer.weight.float(), layer.bias.float())
    assert found.is_contiguous()
    assert [tuple(one.shape) for one in given[0]] == [(6, 8), (16, 8), (16,)]
    assert all(one.is_contiguous() for one in given[0])
    assert (len(given), wider.dtype) == (1, torch.float32)


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
        return gelu(nn.functional.linear(*one))

    monkeypatch.setattr(linear_gelu, "checked_kernel", lambda *_: SimpleNamespace(linear_gelu=kernel))
    torch._dynamo.reset()
    model, x = Scores().eval(), torch.randn(6, 8)
    plain = ForwardPlan(6, "bf16")
    plan = ForwardPlan(6, "bf16", compile=True, linear_gelu=True, autotune=autotune)
    found, wanted = (Forward(model, one, CPU, 4)(x).scores for one in (plan, plain))
    assert called == [torch.Size((6, 8))] * 2
    torch.testing.assert_close(found, wanted, rtol=0.02, atol=0.02)


def test_plans_say_so_and_those_of_earlier_versions_do_not() -> None:
    plan = ForwardPlan(4, "bf16", compile=True, joined=True, linear_gelu=True)
    assert ForwardPlan.stored(plan.settings()) == plan
    earlier = plan.settings()
    del earlier["linear_gelu"]
    assert not ForwardPlan.stored(earlier).linear_gelu
    assert [name for name, _ in plainer(plan)][:2] == ["linear_gelu", "joined"]
    with pytest.raises(ArgumentError, match="linear_gelu.*needs compile"):
        ForwardPlan(4, linear_gelu=True)
