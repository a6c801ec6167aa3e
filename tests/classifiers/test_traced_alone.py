"""What a tracer does not see: arguments that nobody gives, and parts that are asked for their layers."""

from __future__ import annotations

import builtins
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from ringfence.classifiers import fold_batch_norm
from ringfence.classifiers.joining import Joined
from ringfence.classifiers.reshaping import reshaped


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.act = nn.Linear(6, 6), nn.GELU()

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        x = self.act(self.layer(x))
        return x if mask is None else x.clamp(max=1)


class Optional(nn.Module):
    """Has arguments that a run never gives, and calls a layer of its part by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm, self.mlp = nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), Mlp()

    def forward(self, x: Tensor, mask: Tensor | None = None, *, features: bool = False, scale: float = 2.0) -> Tensor:
        x = torch.relu(self.norm(self.stem(x)))
        if mask is not None:
            x = x.clamp(max=1)
        x = x.mean((2, 3)) * scale
        return x if features else self.mlp(x) + self.mlp.layer(x)


def test_forms_are_of_what_runs_on_a_batch_alone() -> None:
    torch.manual_seed(0)
    model, x = Optional().eval(), 9 * torch.randn(4, 3, 8, 8)
    found = fold_batch_norm(reshaped(model), joined=True)
    assert any(isinstance(part, Joined) for part in found.modules())
    torch.testing.assert_close(found(x), model(x), rtol=1e-4, atol=1e-4)


class Aliased(nn.Module):
    """Keeps a second name of what it changes in place."""

    def __init__(self, own: bool) -> None:
        super().__init__()
        self.one, self.norm, self.two, self.own = nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.Conv2d(6, 6, 1), own

    def forward(self, x: Tensor) -> Tensor:
        x = kept = torch.tanh(self.norm(self.one(x)))
        inner = self.two(x)
        if self.own:
            inner += x
            return torch.relu(inner) + kept
        x += inner
        return torch.relu(x) - 2 * kept


@pytest.mark.parametrize("own", [True, False])
def test_what_is_changed_in_place_is_changed_under_all_its_names(own: bool) -> None:
    torch.manual_seed(0)
    model, x = Aliased(own).eval(), torch.randn(4, 3, 8, 8)
    found = fold_batch_norm(model, joined=True)
    assert any(isinstance(part, Joined) for part in found.modules()) == own
    torch.testing.assert_close(found(x), model(x), rtol=1e-4, atol=1e-5)


class Added(nn.Module):
    """Adds two convolutions up, of which one has a single channel, or a bias is read by itself."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.stem, self.norm, self.left, self.right = (
            nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.Conv2d(6, 6, 1), nn.Conv2d(6, channels, 1)
        )  # fmt: skip
        self.reads = channels == 6

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.stem(x))
        found = torch.relu(self.left(x) + self.right(x))
        return found * self.right.bias.view(-1, 1, 1) if self.reads else found


@pytest.mark.parametrize("channels", [1, 6])
def test_a_bias_is_moved_only_where_nobody_sees_it(channels: int) -> None:
    torch.manual_seed(0)
    model, x = Added(channels).eval(), torch.randn(4, 3, 8, 8)
    found = fold_batch_norm(model, joined=True)
    assert type(found) is not Added
    torch.testing.assert_close(found(x), model(x), rtol=1e-4, atol=1e-5)


class StraightThrough(torch.autograd.Function):
    """The sign, with a gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.sign()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # type: ignore[override]
        return gradient


def _straight_through(x: Tensor) -> Tensor:
    found: Tensor = StraightThrough.apply(x)  # type: ignore[no-untyped-call]
    return found


def _as_tensor(x: Tensor) -> Tensor:
    return torch.as_tensor(x)


def _doubled(x: Tensor) -> Tensor:
    return 2 * x


def _scripted(x: Tensor) -> Tensor:
    found: Tensor = torch.jit.script(_doubled)(x)
    return found


def _checkpointed(x: Tensor) -> Tensor:
    found: Tensor = torch.utils.checkpoint.checkpoint(torch.sin, x, use_reentrant=True)
    return found


def _gradient(x: Tensor) -> Tensor:
    found: Tensor = torch.func.grad(lambda y: y.sin().sum())(x)
    return found


class Reads(nn.Module):
    """Hands what a layer answers to something that is no operator of torch's."""

    def __init__(self, by: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.stem, self.norm, self.by = nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), by

    def forward(self, x: Tensor) -> Tensor:
        return self.by(self.norm(self.stem(x))).mean((2, 3))


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
@pytest.mark.parametrize("by", [_straight_through, _as_tensor, _scripted, _checkpointed, _gradient])
def test_what_reads_a_batch_in_c_is_left_as_it_is(by: Callable[[Tensor], Tensor]) -> None:
    """It took the tracer's stand-in for a tensor, and the process crashed."""
    torch.manual_seed(0)
    model, x = Reads(by).eval(), torch.randn(4, 3, 8, 8)
    with torch.no_grad():
        found = fold_batch_norm(model)
        assert type(found) is Reads
        torch.testing.assert_close(found(x), model(x))


def test_a_stand_in_has_no_class_that_c_would_take_for_a_tensor() -> None:
    """The same, told without a crash."""
    seen: list[tuple[bool, bool]] = []

    def noted(x: Tensor) -> Tensor:
        seen.append((isinstance(x, Tensor), x.__class__ is Tensor))
        return x

    fold_batch_norm(Reads(noted).eval())
    assert seen == [(True, False)]


def test_isinstance_is_what_it_was_once_a_network_is_traced() -> None:
    before = builtins.isinstance
    fold_batch_norm(Optional().eval())
    fold_batch_norm(Reads(_as_tensor).eval())
    assert builtins.isinstance is before


class Trying(nn.Module):
    """Takes loud rows another way, where it can tell which they are."""

    def __init__(self, loud: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.stem, self.norm, self.loud = nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), loud

    def forward(self, x: Tensor) -> Tensor:
        top = x.flatten(1).amax(1)
        try:
            some = bool(self.loud(top))
        except Exception:
            some = False
        scores = self.norm(self.stem(x)).mean((2, 3))
        return torch.where((top > 4)[:, None], -scores, scores) if some else scores


@pytest.mark.parametrize(
    "loud",
    [
        lambda top: (top > 4).any(),
        lambda top: float(top.max()) > 4,
        lambda top: int(top.max()) >= 4,
        lambda top: [one for one in top if one > 4],
        lambda top: len(top[top > 4]),
        lambda top: range((top > 4).sum()),
        lambda top: [False, True][(top > 4).any().long()],
        lambda top: (top > 4).any().item() is True,
        lambda top: {True: True}.get((top > 4).any().item()),
        lambda top: torch.equal(top.clamp(max=4), top) is False,
        lambda top: torch.as_tensor(top.max()) > 4,
        lambda top: np.asarray(top).max() > 4,
        lambda top: operator.setitem(some := top.clone(), top > 4, -1) or (some < 0).any(),
    ],
)
def test_what_a_network_tries_to_know_of_values_is_not_answered_with_an_error(loud: Callable[[Tensor], Any]) -> None:
    """It went on as if no row were loud, and where such rows are rare no check of a form sees one."""
    torch.manual_seed(0)
    model, x = Trying(loud).eval(), torch.randn(4, 3, 8, 8).clamp(-2, 2)
    x[1] += 9
    torch.testing.assert_close(fold_batch_norm(model)(x), model(x), rtol=1e-4, atol=1e-4)
