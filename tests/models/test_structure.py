"""The digest of a program's network covers what it computes with, wherever that is kept, and nothing that passes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import ringfence as rf
from ringfence.digests import apart, changes, difference, joined
from ringfence.errors import ModelError, StoreError
from ringfence.models import model_digest


@dataclass
class Settings:
    factor: float


class Slotted:
    __slots__ = ("factor",)

    def __init__(self, factor: float) -> None:
        self.factor = factor


class Sign(Enum):
    PLUS = 2.0
    MINUS = 3.0


class Scaling:
    def __init__(self, factor: float) -> None:
        self.factor = factor

    def hook(self, module: nn.Module, x: object, y: Tensor) -> Tensor:
        return y * self.factor


class Holds(nn.Module):
    """y = f w x for some factor f that is kept under a name."""

    def __init__(self, **kept: object) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([1.0, -1.0]))
        for name, value in kept.items():
            setattr(self, name, value)

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight


def layer(factor: float) -> nn.Linear:
    found = nn.Linear(1, 1)
    nn.init.constant_(found.weight, factor), nn.init.zeros_(found.bias)
    return found


def hooked(factor: float) -> nn.Module:
    found = Holds()
    found.register_forward_hook(Scaling(factor).hook)
    return found


KEPT: dict[str, Callable[[float], nn.Module]] = {
    "private dict": lambda factor: Holds(_settings={"factor": factor}),
    "private tensors": lambda factor: Holds(_bank=[torch.tensor(factor)]),
    "dataclass": lambda factor: Holds(settings=Settings(factor)),
    "slots": lambda factor: Holds(settings=Slotted(factor)),
    "enum": lambda factor: Holds(sign=Sign(factor)),
    "deque": lambda factor: Holds(last=deque([factor])),
    "range": lambda factor: Holds(taps=range(int(factor))),
    "decimal": lambda factor: Holds(factor=Decimal(factor)),
    "array of objects": lambda factor: Holds(factors=np.array([factor, None], dtype=object)),
    "layers in a list": lambda factor: Holds(layers=[layer(factor)]),
    "layers in a dict": lambda factor: Holds(_layers={"one": layer(factor)}),
    "layer of a closure": lambda factor: (lambda inner: Holds(run=lambda x: inner(x)))(layer(factor)),
    "method": lambda factor: Holds(scaled=Scaling(factor).hook),
    "hook of an object": hooked,
}


def digest(module: nn.Module) -> str:
    return model_digest(module, structured=True)


@pytest.mark.parametrize("kind", KEPT)
def test_where_a_factor_is_kept_does_not_matter(kind: str) -> None:
    made = KEPT[kind]
    assert digest(made(2.0)) == digest(made(2.0))
    assert str(changes(digest(made(3.0)), digest(made(2.0)))).startswith("layers or attributes of the network")


class Scaled(nn.Module):
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor
        self.weight = nn.Parameter(torch.tensor([factor, -factor]))

    def forward(self, x: Tensor) -> Tensor:
        return x[:, :1] * self.weight * self.factor


SCRIPTED: dict[str, Callable[[float], nn.Module]] = {
    "scripted": lambda factor: torch.jit.script(Scaled(factor)),
    "traced": lambda factor: torch.jit.trace(Scaled(factor), torch.rand(3, 2)),  # type: ignore[no-untyped-call]
    "frozen": lambda factor: torch.jit.freeze(torch.jit.script(Scaled(factor).eval())),
    "inside": lambda factor: nn.Sequential(torch.jit.freeze(torch.jit.script(Scaled(factor).eval()))),
}


@pytest.mark.parametrize("kind", SCRIPTED)
@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_code_constants_and_attributes_of_torchscript_count(kind: str) -> None:
    """A frozen network has no weights that a state dict knows, and a factor is an attribute or a constant."""
    made = SCRIPTED[kind]
    assert digest(made(2.0)) == digest(made(2.0))  # though the classes of both have numbers of their own
    found = changes(digest(made(3.0)), digest(made(2.0)))
    assert found is not None
    assert "layers or attributes of the network" in found


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_a_run_is_not_continued_with_another_frozen_network(tmp_path: Path) -> None:
    def certified(factor: float) -> None:
        asked = {"sigma": 0.5, "procedure": rf.Fixed(n=100, n0=10), "check": False}
        rf.certify(SCRIPTED["frozen"](factor), torch.rand(2, 2), out=tmp_path / "run", **asked)  # type: ignore[call-overload]

    torch.manual_seed(0)
    certified(2.0)
    with pytest.raises(StoreError, match="layers or attributes of the network"):
        certified(-2.0)


def test_a_compiled_network_is_the_same_whenever_it_is_compiled() -> None:
    compiled: Any = torch.compile  # typed as if it took functions alone
    net = Scaled(2.0)
    first, second, other = (compiled(one, backend="eager") for one in (net, net, Scaled(3.0)))
    assert digest(first) == digest(second)
    assert digest(first) != digest(other)


def test_objects_that_hold_each_other_end() -> None:
    one, other, net = Scaling(1.0), Scaling(2.0), Holds()
    one.other, other.other, other.net = other, one, net  # type: ignore[attr-defined]
    net.inside = one  # type: ignore[assignment]
    assert digest(net) == digest(net)


class Meter:
    def __init__(self) -> None:
        self.calls, self.sizes = 0, list[int]()

    def update(self, size: int) -> None:
        self.calls += 1
        self.sizes.append(size)


class Filling(Holds):
    """Counts, and keeps what its first forward made."""

    def __init__(self, **kept: object) -> None:
        super().__init__(**kept)
        self.calls, self.sizes, self.meter, self.noted = 0, set[int](), Meter(), dict[str, int]()
        self.grid: Tensor | None = None
        self.register_buffer("last", torch.zeros(2), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.sizes.add(len(x))
        self.noted["calls"] = self.calls
        self.meter.update(len(x))
        self.last = x[0]
        self.grid = torch.linspace(0.5, 1.0, 2) if self.grid is None else self.grid
        return super().forward(x) * self.grid


def test_what_a_network_fills_itself_may_differ_where_its_answers_are_compared() -> None:
    net = Filling(factor=2.0)
    fresh = digest(net)
    net(torch.ones(3, 2))
    filled = digest(net)
    assert difference("the model", filled, fresh) is None
    assert apart(filled, fresh) == changes(filled, fresh)  # as of two runs, which may be of two classifiers
    assert "layers or attributes of the network" in str(apart(filled, fresh))
    assert "layers or attributes of the network" in str(difference("the model", digest(Filling(factor=3.0)), filled))
    assert "unfilled:" not in digest(Holds(factor=2.0))


def test_of_a_tree_every_network_counts_beside_one_that_fills_something() -> None:
    def tree(factor: float, calls: int) -> str:
        net = Filling()
        net.calls = calls
        return joined([digest(net), digest(Holds(factor=factor))], " ".join)

    assert difference("the model", tree(2.0, 1), tree(2.0, 0)) is None
    assert "layers or attributes of the network" in str(difference("the model", tree(3.0, 1), tree(2.0, 0)))


@pytest.mark.parametrize("kind", ["lock", "weight norm"])
@pytest.mark.filterwarnings("ignore:.*weight_norm:FutureWarning")
def test_a_network_that_cannot_be_copied_is_told_so(kind: str, tmp_path: Path) -> None:
    net: nn.Module = Holds(lock=Lock()) if kind == "lock" else nn.utils.weight_norm(nn.Linear(2, 2))
    with pytest.raises(ModelError, match=r"copy\.deepcopy can copy"):
        rf.certify(net.eval(), torch.rand(2, 2), sigma=0.5, out=tmp_path / "run")


class Packed(nn.Linear):
    """As layers of quantized networks keep their weights."""

    def __init__(self) -> None:
        super().__init__(2, 2)

    def get_extra_state(self) -> tuple[str]:
        return ("packed",)


def test_weights_that_are_no_plain_tensors_are_named(tmp_path: Path) -> None:
    for net, told in ((Packed(), "a tuple"), (nn.Linear(2, 2, device="meta"), "on meta")):
        with pytest.raises(ModelError, match=rf"plain tensors; got .*{told}"):
            rf.certify(net, torch.rand(2, 2), sigma=0.5, out=tmp_path / "run")


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_a_frozen_network_has_no_mode_and_is_certified() -> None:
    frozen = SCRIPTED["frozen"](2.0)
    found = list(rf.certify(frozen, torch.full((1, 2), 5.0), sigma=0.5, procedure=rf.Fixed(n=100, n0=10)))
    assert [one.prediction for one in found] == [0]


def test_a_layer_that_stands_in_several_places_is_told_in_each() -> None:
    one, other, last = nn.ReLU(), nn.Tanh(), nn.Linear(2, 2)
    nets = [nn.Sequential(one, other, again, last) for again in (one, other)]
    nets += [nn.Sequential(last, other), nn.Sequential(last, other, other)]
    assert len({model_digest(net, structured=True) for net in nets}) == len(nets)


def test_lambdas_of_one_line_are_told_apart() -> None:
    plus, minus = lambda x: +x, lambda x: -x
    nets = [Holds(first=plus, second=minus), Holds(first=minus, second=plus), Holds(first=plus, second=plus)]
    assert len({model_digest(net, structured=True) for net in nets}) == len(nets)
    hooked = [nn.Linear(2, 2), nn.Linear(2, 2)]
    hooked[1].load_state_dict(hooked[0].state_dict())
    doubled, shifted = lambda m, x, y: 2 * y, lambda m, x, y: y + 1
    for net, hooks in zip(hooked, [(doubled, shifted), (shifted, doubled)], strict=True):
        for hook in hooks:
            net.register_forward_hook(hook)
    assert model_digest(hooked[0], structured=True) != model_digest(hooked[1], structured=True)


def test_classes_and_functions_of_numpy_among_attributes_are_told() -> None:
    assert model_digest(Holds(act=nn.ReLU), structured=True) != model_digest(Holds(act=nn.Tanh), structured=True)
    assert model_digest(Holds(act=np.sin), structured=True) != model_digest(Holds(act=np.cos), structured=True)
