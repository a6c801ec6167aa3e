"""Maxima of pooling windows, one side after the other: the numbers of torch's pooling, whoever calls it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

import ringfence as rf
from ringfence.classifiers import KConsensus, Scored, SoftVote
from ringfence.classifiers.architectures import build_architecture
from ringfence.classifiers.maxima import Maxima, by_maxima, maxima
from ringfence.sampling import Forward, ForwardPlan, preparing
from ringfence.sampling.check import checked_forward

CPU = torch.device("cpu")
ODD = (0.0, -0.0, float("nan"), float("inf"), float("-inf"), 1.0, -1.0)


pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")


def scripted(module: nn.Module) -> Any:
    return torch.jit.script(module.eval())


def same(found: Tensor, wanted: Tensor) -> bool:
    """NaN at the same places, and elsewhere the same numbers; 0.0 is -0.0."""
    return found.dtype == wanted.dtype and torch.equal(
        found.nan_to_num(7.5, 1e30, -1e30), wanted.nan_to_num(7.5, 1e30, -1e30)
    )


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_maxima_are_torchs_bit_for_bit_but_for_the_signs_of_zeros(data: st.DataObject) -> None:
    draw = data.draw
    sides, steps = draw(st.tuples(*[st.integers(2, 3)] * 2)), draw(st.tuples(*[st.integers(1, 4)] * 2))
    size = [draw(st.integers(side, 9)) for side in sides]
    dtype = draw(st.sampled_from([torch.float32, torch.bfloat16, torch.float16, torch.float64]))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**16)))
    x = torch.randn(2, 5, *size, generator=generator).to(dtype)
    strange = torch.tensor(ODD, dtype=dtype)[torch.randint(len(ODD), x.shape, generator=generator)]
    x = torch.where(torch.rand(x.shape, generator=generator) < draw(st.sampled_from([0.0, 0.3, 1.0])), strange, x)
    x = x.to(memory_format=draw(st.sampled_from([torch.contiguous_format, torch.channels_last])))
    wanted = F.max_pool2d(x, sides, steps)
    assert same(found := maxima(x, sides, steps), wanted)
    assert found.stride() == wanted.stride() or 1 in found.shape


X = torch.randn(4, 6, 9, 11, generator=torch.Generator().manual_seed(0))
CALLS: dict[str, tuple[Callable[[Tensor], Any], int]] = {
    # How it is called, and how many poolings are exchanged.
    "module": (nn.MaxPool2d(2), 1),
    "module with strides": (nn.MaxPool2d((3, 2), (1, 2)), 1),
    "function": (lambda x: F.max_pool2d(x, 2), 1),
    "by name": (lambda x: F.max_pool2d(input=x, kernel_size=2, stride=None), 1),
    "torch's own": (lambda x: torch.max_pool2d(x, [2, 3], []), 1),
    "one image": (lambda x: F.max_pool2d(x[0], 3, stride=(2,)), 1),
    "in a vmap": (lambda x: torch.vmap(lambda y: F.max_pool2d(y, 2))(x[None]), 1),
    "twice": (lambda x: F.max_pool2d(F.max_pool2d(x, 2), 2), 2),
    "padded": (nn.MaxPool2d(3, 2, padding=1), 0),
    "dilated": (nn.MaxPool2d(2, dilation=2), 0),
    "rounded up": (nn.MaxPool2d(2, ceil_mode=True), 0),
    "with indices": (lambda x: nn.MaxPool2d(2, return_indices=True)(x)[1], 0),
    "of one": (nn.MaxPool2d(1), 0),
    "of one row": (nn.MaxPool2d((1, 2)), 0),
    "larger": (nn.MaxPool2d(5), 0),
    "scripted": (lambda x: scripted(nn.MaxPool2d(2))(x), 0),
    "whole numbers": (lambda x: F.max_pool2d((9 * x).long(), 2), 0),
    "averages": (nn.AvgPool2d(2), 0),
}


@pytest.mark.parametrize("name", CALLS)
def test_poolings_are_found_whoever_calls_them(name: str) -> None:
    call, count = CALLS[name]
    wanted = call(X)
    with Maxima() as mode:
        found = call(X)
    assert mode.found == count
    assert torch.equal(found, wanted)


def test_what_torch_refuses_is_refused() -> None:
    for wrong in ({"kernel_size": 12}, {"kernel_size": 2, "stride": 0}, {"kernel_size": (2, 2, 2)}):
        with pytest.raises(RuntimeError), Maxima():
            F.max_pool2d(X, **wrong)


def test_gradients_are_torchs() -> None:
    """Of equal numbers it gives all to the first; maxima would share it out."""
    x = torch.ones(1, 1, 4, 4, requires_grad=True)
    with Maxima() as mode:
        F.max_pool2d(x, 2).sum().backward()
    assert mode.found == 0
    assert x.grad is not None
    assert set(x.grad.flatten().tolist()) == {0.0, 1.0}


class Small(nn.Module):
    """A convolution and a pooling of whatever kind."""

    def __init__(self, pool: nn.Module | None = None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.pool, self.head = nn.Conv2d(3, 4, 3), pool or nn.MaxPool2d(2), nn.Linear(36, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.pool(self.conv(x)).flatten(1))


class OwnPool(nn.MaxPool2d):
    """A kind of pooling that is none."""

    def forward(self, x: Tensor) -> Tensor:
        return -super().forward(-x)


class LooksAtItself(Small):
    """Knows the kinds of its layers."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * (1 if [type(one) for one in self.children()][1] is nn.MaxPool2d else -1)


class Replaces(Small):
    """Makes its pooling anew in every call."""

    def forward(self, x: Tensor) -> Tensor:
        self.pool = nn.MaxPool2d(2)
        return super().forward(x)


class Shares(Small):
    """Asks one pooling twice."""

    def forward(self, x: Tensor) -> Tensor:
        kept = self.pool(self.conv(x))
        return self.head(kept.flatten(1)) + self.pool(kept).mean((1, 2, 3))[:, None]


def hooked() -> nn.Module:
    network = Small()
    network.pool.register_forward_pre_hook(lambda _, given: (2 - given[0],))
    network.pool.register_forward_hook(lambda _, given, out: out * given[0].mean((2, 3), keepdim=True))
    return network


HOSTILE: dict[str, Callable[[], nn.Module]] = {
    "usual": Small,
    "hooks on the pooling": hooked,
    "subclass": lambda: Small(OwnPool(2)),
    "looks at its layers": LooksAtItself,
    "replaced in forward": Replaces,
    "shared": Shares,
    "scripted layer": lambda: Small(scripted(nn.MaxPool2d(2))),
    "scripted": lambda: scripted(Small()),
    "traced": lambda: torch.jit.trace(Small().eval(), torch.rand(2, 3, 8, 8)),
    "vote": lambda: SoftVote([Small(), hooked()]),
    "consensus": lambda: KConsensus([Small(), hooked(), Shares()], 2),
    "lenet": lambda: nn.Sequential(nn.Conv2d(3, 1, 1), nn.Upsample(28), build_architecture("lenet", 5)),
}


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("name", HOSTILE)
@torch.inference_mode()
def test_every_network_is_itself(name: str, precision: Any) -> None:
    """Bit for bit: maxima round nothing."""
    network, x = HOSTILE[name]().eval(), torch.rand(16, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    for form in ({}, {"channels_last": True}):
        plan = ForwardPlan(16, precision, **form)  # type: ignore[arg-type]
        wanted = Forward(network, plan, CPU, 5)(x.clone()).scores
        exchanged = Forward(network, ForwardPlan(16, precision, maxima=True, **form), CPU, 5)  # type: ignore[arg-type]
        for _ in range(2):
            assert torch.equal(exchanged(x.clone()).scores, wanted)


def test_a_network_that_does_not_pool_runs_as_it_is() -> None:
    """Of torch's attention, say, another way is taken where somebody looks on."""
    looked: list[tuple[int, bool]] = []

    def run(x: Tensor) -> Scored:
        looked.append((len(x), torch.overrides.has_torch_function((x,))))
        return Scored(x, 1)

    faster = by_maxima(nn.Identity(), run)
    faster(X)
    faster(X)
    assert looked == [(1, True), (4, False), (4, False)]


def test_what_its_owner_compiled_is_left_alone() -> None:
    def run(x: Tensor) -> Scored:
        raise AssertionError

    network = nn.Sequential(nn.Identity())
    network[0]._orig_mod = nn.Identity()
    assert by_maxima(network, run) is run


@pytest.mark.parametrize("compiled", [False, True])
def test_pooling_is_exchanged_unless_it_is_compiled(monkeypatch: pytest.MonkeyPatch, compiled: bool) -> None:
    asked: list[str] = []
    monkeypatch.setattr(preparing, "by_maxima", lambda module, run: asked.append("maxima") or run)
    monkeypatch.setattr(preparing, "compiled", lambda run, mode=None: asked.append("compiled") or run)
    preparing.prepared(Small().eval(), ForwardPlan(4, maxima=True, compile=compiled), CPU)
    assert asked == (["compiled"] if compiled else ["maxima"])


def test_maxima_that_are_wrong_give_way_to_torchs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringfence.classifiers.maxima.maxima", lambda x, sides, steps: F.avg_pool2d(x, sides, steps))
    x = torch.rand(64, 3, 8, 8)
    found = checked_forward(Small().eval(), ForwardPlan(64, maxima=True, channels_last=True), CPU, 5, lambda rows: x)
    plan = found.forward.plan
    assert not plan.maxima
    assert plan.channels_last
    (why,) = plan.refused
    assert why.startswith("maxima: scores of ")


def test_defaults_on_a_cpu_pool_by_maxima(monkeypatch: pytest.MonkeyPatch) -> None:
    plans: list[ForwardPlan] = []
    how = rf.Execution(device="cpu", on_plan=plans.append)
    (record,) = rf.certify(Small().eval(), torch.rand(1, 3, 8, 8), sigma=0.25, n=100, execution=how, check=False)
    assert record.draws == 200
    assert plans[-1].maxima
    assert not plans[-1].refused
