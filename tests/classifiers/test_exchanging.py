"""Layers that are exchanged in what is compiled, and which are not; attention's kernel itself is in other tests."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from exchanged import run_exchanged
from scipy.special import ndtr
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.functional import gelu, scaled_dot_product_attention

from ringfence.classifiers import attention, exchanging
from ringfence.classifiers.attention import fits
from ringfence.classifiers.exchanging import gelu_by_powers
from ringfence.errors import ArgumentError
from ringfence.sampling import Forward, ForwardPlan
from ringfence.sampling.plan import plainer

pytestmark = pytest.mark.filterwarnings("ignore:.*script_method:DeprecationWarning")  # torch, loading its compiler
CPU = torch.device("cpu")
EVERY = (2, 197, 3, 2, 64)
"""Images, rows, of query, key and value, heads, numbers: as one layer of a transformer makes them."""


class ByName(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return gelu(input=x)


class ChangesItsInput(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        x = x + 1
        found = gelu(x)
        x.mul_(3)
        return found + x


class Attends(nn.Module):
    """As in vision transformers; how: what else attention is asked for."""

    def __init__(self, size: int = 64, **how: Any) -> None:
        super().__init__()
        self.how, self.size = how, size

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = x.view(len(x), -1, 3, 2, self.size).permute(2, 0, 3, 1, 4)
        found = scaled_dot_product_attention(query, key, value, **self.how)
        return found.transpose(1, 2).reshape(len(x), -1, 2 * self.size)


@pytest.fixture(autouse=True)
def everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the CPU were a GPU, and one that the kernel is for."""
    monkeypatch.setattr(exchanging, "_on_cuda", lambda x: True)
    monkeypatch.setattr(exchanging, "_has_hopper", lambda device: True)


@pytest.mark.parametrize(
    ("model", "count"),
    [
        (nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8), nn.GELU()), 2),
        (ChangesItsInput(), 1),
        (nn.GELU(approximate="tanh"), 0),
        (nn.ReLU(), 0),
        (ByName(), 0),
    ],
    ids=lambda one: type(one).__name__ if isinstance(one, nn.Module) else str(one),
)
def test_exact_gelus_are_powers_of_two(model: nn.Module, count: int) -> None:
    model, x = model.bfloat16(), torch.randn(3, 5, 8).bfloat16()
    called, found = run_exchanged(model, x)
    assert called.count("exp2") == count
    assert count == 0 or "gelu" not in called
    torch.testing.assert_close(found, model(x), rtol=0.02, atol=0.01)


@pytest.mark.parametrize("what", ["float32", "elsewhere"])
def test_what_is_not_in_half_precision_on_a_gpu_is_left_to_torch(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if what == "elsewhere":
        monkeypatch.undo()
    kind = torch.float32 if what == "float32" else torch.bfloat16
    assert "gelu" in run_exchanged(nn.GELU(), torch.randn(4, 8).to(kind))[0]
    assert "scaled_dot_product_attention" in run_exchanged(Attends(), torch.randn(1, 197, 384).to(kind))[0]


def test_gelu_by_powers_is_exact_to_a_fiftieth_of_what_bf16_resolves() -> None:
    """Of every number of bf16, before it is rounded; where all that is left is 1e-15, it may be 0."""
    x = (torch.arange(2**16, dtype=torch.int32) << 16).view(torch.float32)
    x = torch.cat([x[torch.isfinite(x)], torch.linspace(-12, 12, 2_000_001)])
    wanted = x.double() * torch.from_numpy(ndtr(x.double().numpy()))
    found = gelu_by_powers(x).double()
    unit = 2.0 ** (wanted.abs().clamp(min=2.0**-126).log2().floor() - 7)
    large = wanted.abs() > 1e-15
    assert ((found - wanted).abs() / unit)[large].max() <= 0.52  # half of it is rounding
    assert (found - wanted)[~large].abs().max() < 1e-17
    no_number = torch.tensor([torch.nan, torch.inf, -torch.inf])
    wanted = torch.tensor([torch.nan, torch.inf, torch.nan])  # as torch has it on CUDA
    torch.testing.assert_close(gelu_by_powers(no_number).float(), wanted, equal_nan=True)


@pytest.mark.parametrize(
    ("how", "rows", "size", "taken"),
    [
        ({}, 197, 64, True),
        ({"dropout_p": 0.0, "attn_mask": None, "is_causal": False, "scale": 0.125}, 208, 64, True),
        ({}, 192, 64, False),
        ({}, 209, 64, False),
        ({}, 197, 32, False),
        ({"scale": 0.5}, 197, 64, False),
        ({"is_causal": True}, 197, 64, False),
        ({"attn_mask": torch.ones(197, 197).tril().bool()}, 197, 64, False),
    ],
)
def test_attention_to_as_many_keys_as_the_kernel_takes_is_an_operator(
    how: dict[str, Any], rows: int, size: int, taken: bool
) -> None:
    model, x = Attends(size, **how), torch.randn(2, rows, 6 * size).bfloat16()
    called, found = run_exchanged(model, x)
    assert ("attention.default" in called, "scaled_dot_product_attention" in called) == (taken, not taken)
    torch.testing.assert_close(found, model(x), rtol=0.02, atol=0.01)


def test_attention_on_other_gpus_is_torchs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchanging, "_has_hopper", lambda device: False)
    assert "scaled_dot_product_attention" in run_exchanged(Attends(), torch.randn(1, 197, 384).bfloat16())[0]


def test_other_types_and_other_keys_are_not_the_kernels() -> None:
    query = torch.empty(2, 3, 197, 64, device="meta", dtype=torch.bfloat16)
    assert fits(query, query, query)
    for other in (query.half(), query[:, :, :196], query[:, :1], query[0]):
        assert not fits(query, other, query)
        assert not fits(query, query, other)
    assert not fits(*[query.half()] * 3)
    assert not fits(*[query[:0]] * 3)
    assert not fits(*[query[:1, :1].expand(2**16, 2**15, 197, 64)] * 3)


@pytest.mark.parametrize("lies", ["as it is made", "twice at one place", "at an odd place", "turned"])
def test_attention_is_read_where_it_lies_if_it_can_be(lies: str, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[tuple[Tensor, ...]] = []

    def kernel(*one: Any) -> Tensor:
        given.append(one)
        return scaled_dot_product_attention(*one).transpose(1, 2).contiguous().transpose(1, 2)

    monkeypatch.setattr(attention, "checked_kernel", lambda *_: SimpleNamespace(attention=kernel))
    size = torch.Size(EVERY).numel()
    begin = 1 if lies == "at an odd place" else 0
    every = torch.randn(size + 8).bfloat16()[begin : begin + size].view(EVERY)
    query, key, value = every.permute(2, 0, 3, 1, 4)
    if lies == "turned":
        query = query.transpose(2, 3).contiguous().transpose(2, 3)
    if lies == "twice at one place":
        query = query[:1].expand(2, 2, 197, 64)
    found = torch.ops.ringfence.attention(query, key, value)
    assert torch.equal(given[0][0], query)
    assert all(one.data_ptr() % 16 == 0 and one.stride(3) == 1 and min(one.stride()) > 0 for one in given[0])
    if lies == "as it is made":
        assert [one.data_ptr() for one in given[0]] == [one.data_ptr() for one in (query, key, value)]
    torch.testing.assert_close(found, scaled_dot_product_attention(query, key, value), rtol=0.02, atol=1e-3)
    assert found.transpose(1, 2).is_contiguous()


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_compilers_are_told_what_attention_answers(kind: torch.dtype) -> None:
    query = torch.randn(2, 3, 5, 8).to(kind)
    found = torch.ops.ringfence.attention(query, query, query)
    with FakeTensorMode() as mode:
        told = torch.ops.ringfence.attention(*[mode.from_tensor(query)] * 3)
    assert (told.shape, told.dtype, told.stride()) == (found.shape, found.dtype, found.stride())


class Scores(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.every, self.attends, self.first, self.act = nn.Linear(8, 384), Attends(), nn.Linear(128, 16), nn.GELU()
        self.head = nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.head(self.act(self.first(self.attends(self.every(x))))).mean(1)
        return found


@pytest.mark.parametrize("autotune", [False, True])
def test_a_compiled_network_with_exchanged_layers_is_the_network(
    autotune: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[torch.Size] = []

    def kernel(*one: Any) -> Tensor:
        called.append(one[0].shape)
        return scaled_dot_product_attention(*one).transpose(1, 2).contiguous().transpose(1, 2)

    monkeypatch.setattr(attention, "checked_kernel", lambda *_: SimpleNamespace(attention=kernel))
    torch._dynamo.reset()
    model, x = Scores().eval(), torch.randn(6, 197, 8)
    plan = ForwardPlan(6, "bf16", compile=True, exchanged=True, autotune=autotune)
    found, wanted = (Forward(model, one, CPU, 4)(x).scores for one in (plan, plan.plain))
    assert called == [torch.Size((6, 2, 197, 64))]
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
