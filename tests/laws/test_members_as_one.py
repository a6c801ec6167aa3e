"""Laws of members that run as one: only where that is running each."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

import pytest
import torch
from noisy_votes import CPU, hooked, noisy, replaced, votes
from torch import Tensor, nn
from torch.nn.utils import parametrizations

from ringfence.classifiers import Members, SoftVote
from ringfence.sampling import ForwardPlan
from ringfence.sampling.check import checked_forward


class Private(nn.Module):
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.inner, self._factor = nn.Sequential(nn.Flatten(), nn.Linear(108, 4)), factor

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self._factor * self.inner(x)
        return scores


class Secret(Private):
    """Differs in what no attribute shows: Python code may keep anything anywhere."""

    FACTORS: ClassVar[dict[int, float]] = {}

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.FACTORS[id(self.inner)] * self.inner(x)
        return scores

    def __deepcopy__(self, memo: dict[int, Any]) -> Secret:
        twin = Secret(1.0)
        twin.inner = copy.deepcopy(self.inner, memo)
        twin.FACTORS[id(twin.inner)] = self.FACTORS[id(self.inner)]
        return twin.train(self.training)


def secret(factor: float) -> Secret:
    made = Secret(1.0)
    made.FACTORS[id(made.inner)] = factor
    return made


def linear() -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), nn.Linear(108, 4))


def tied() -> nn.Module:
    module = nn.Sequential(nn.Flatten(), nn.Linear(108, 108), nn.Linear(108, 108), nn.Linear(108, 4))
    module[2] = module[1]
    return module


def normed(module: nn.Sequential) -> nn.Sequential:
    parametrizations.weight_norm(module[1])
    return module


PAIRS: dict[str, Callable[[], list[nn.Module]]] = {
    "alike": lambda: [linear(), linear(), linear()],
    "private attributes": lambda: [Private(1.0), Private(-3.0), Private(-3.0)],
    "attributes equal but for their type": lambda: [Private(1.0), Private(True), Private(1)],
    "hooks": lambda: [linear(), hooked(linear(), ""), hooked(linear(), "1")],
    "hooks of the first": lambda: [hooked(linear(), ""), linear(), linear()],
    "a forward of their own": lambda: [linear(), replaced(linear()), linear()],
    "parametrised": lambda: [linear(), normed(linear()), normed(linear())],
    "secrets": lambda: [secret(1.0), secret(-3.0), secret(-3.0)],
    "shared parts": lambda: [
        nn.Sequential(nn.Flatten(), nn.Linear(108, 108), nn.Linear(108, 108), nn.Linear(108, 4)),
        tied(),
        tied(),
    ],
}
DIFFERENT = [name for name in PAIRS if name not in ("alike", "secrets")]


@pytest.mark.parametrize("name", PAIRS)
def test_members_run_as_one_only_if_that_is_running_each(name: str) -> None:
    torch.manual_seed(0)
    ensemble = SoftVote(PAIRS[name]()).eval()
    with torch.inference_mode():
        x = noisy(64)
        wanted = sum(member(x) for member in ensemble.members.members) / 3
    found = checked_forward(ensemble, ForwardPlan(64, stacked=True), CPU, 4, noisy)
    torch.testing.assert_close(found.answer.scores.squeeze(1), wanted, rtol=1e-4, atol=1e-5)
    assert found.forward.plan.stacked == (name != "secrets")
    assert votes(ensemble, ForwardPlan(64)) == votes(ensemble, replace(found.forward.plan, refused=()))


@pytest.mark.parametrize("name", DIFFERENT)
def test_what_can_be_seen_to_differ_is_not_even_tried(name: str) -> None:
    assert not Members(PAIRS[name]()).eval().stackable


def test_modes_of_members_count_too() -> None:
    members = Members([linear(), linear()]).eval()
    assert members.stackable
    members.members[1][1].train()
    assert not members.stackable
