"""Members: what may be stacked, what is refused. That both ways agree is a law (tests/laws/test_wrappers.py)."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounter

from ringfence.classifiers import Members, SoftVote
from ringfence.errors import ArgumentError, ClassifierError
from ringfence.sampling import ForwardPlan
from ringfence.sampling.check import checked_forward
from ringfence.sampling.preparing import prepare_compiler


class Scaled(nn.Module):
    """A network with a setting that no weight shows."""

    def __init__(self, scale: object) -> None:
        super().__init__()
        self.layer, self.scale = nn.Linear(3, 4), scale

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.layer(x) * self.scale
        return scores


def test_only_members_that_differ_in_weights_alone_are_stacked() -> None:
    assert Members([nn.Linear(3, 4), nn.Linear(3, 4)]).stackable
    assert Members([Scaled(2.0), Scaled(2.0)]).stackable
    assert not Members([Scaled(2.0), Scaled(3.0)]).stackable, "the first one's scale would be used for both"
    assert not Members([Scaled(torch.ones(4)), Scaled(torch.ones(4))]).stackable, "who knows"
    assert not Members([nn.Linear(3, 4)]).stackable
    assert not Members([nn.Linear(3, 4), nn.Linear(3, 4, bias=False)]).stackable
    assert not Members([nn.Linear(3, 4), nn.Linear(3, 5)]).stackable
    assert not Members([SoftVote([nn.Linear(3, 4)]), SoftVote([nn.Linear(3, 4)])]).stackable
    with pytest.raises(ArgumentError, match="one architecture"):
        Members([Scaled(2.0), Scaled(3.0)]).use_stack(True)


def test_a_copy_of_a_stack_has_its_own_weights() -> None:
    members = Members([nn.Linear(3, 4), nn.Linear(3, 4)]).eval()
    members.use_stack(True)
    x = torch.ones(2, 3)
    before = members(x)
    for twin in (copy.deepcopy(members), pickle.loads(pickle.dumps(members))):
        torch.testing.assert_close(twin(x), before)
        with torch.no_grad():
            twin.members[0].weight.add_(1.0)
        twin.use_stack(True)
        assert (twin(x)[:, 0] != before[:, 0]).all()
        torch.testing.assert_close(members(x), before)


def test_scores_are_added_in_single_precision() -> None:
    members = Members([nn.Linear(3, 4), nn.Linear(3, 4)]).bfloat16()
    assert members(torch.ones(2, 3, dtype=torch.bfloat16)).dtype == torch.float32
    assert Members([nn.Linear(3, 4).double()])(torch.ones(2, 3, dtype=torch.float64)).dtype == torch.float64


def test_members_that_cannot_vote_are_refused() -> None:
    with pytest.raises(ArgumentError, match="empty ensemble"):
        Members([])
    with pytest.raises(ClassifierError, match="one K"):
        Members([nn.Linear(3, 4), nn.Linear(3, 5)])(torch.ones(2, 3))
    with pytest.raises(ClassifierError, match="one K"):
        Members([nn.Unflatten(1, (1, 3))])(torch.ones(2, 3))


def test_members_of_one_architecture_are_compiled_once() -> None:
    prepare_compiler()
    operations = []
    for count in (3, 8):
        members = [nn.Sequential(nn.Flatten(), nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)) for _ in range(count)]
        ensemble = Members(members).eval()
        torch._dynamo.reset()
        compiler = CompileCounter()
        run = torch.compile(ensemble.score, backend=compiler, dynamic=False)
        x = torch.randn(64, 4, generator=torch.Generator().manual_seed(0))
        with torch.inference_mode():
            assert torch.equal(run(x).scores, ensemble.score(x).scores)
        operations.append(compiler.op_count)
    assert operations[0] >= 4, "the members were compiled"
    assert operations[1] == operations[0], "five members more, the same compiled forward"


class Trying(nn.Module):
    """Takes loud rows another way, where it can tell which they are."""

    def __init__(self, loud: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.first, self.last, self.loud = nn.Linear(8, 6), nn.Linear(6, 3), loud

    def forward(self, x: Tensor) -> Tensor:
        top = self.first(x).amax(1)
        try:
            some = bool(self.loud(top))
        except Exception:
            some = False
        scores = self.last(self.first(x))
        return torch.where((top > 4)[:, None], -scores, scores) if some else scores


def _any(top: Tensor) -> Any:
    return (top > 4).any()


def _chosen(top: Tensor) -> Any:
    return len(top[top > 4])


@pytest.mark.parametrize("loud", [_any, _chosen])
def test_members_that_catch_an_error_of_the_stacked_forward_are_not_stacked(loud: Callable[[Tensor], Any]) -> None:
    """They went on as if no row were loud, and where such rows are rare no check of a form sees one."""
    members = Members([Trying(loud).eval(), Trying(loud).eval()])
    members.use_stack(True)
    with torch.inference_mode(), pytest.raises(ClassifierError, match="stacked: needs members that run in one batched"):
        members(torch.zeros(4, 8))
    vote, draw = SoftVote([Trying(loud), Trying(loud)]).eval(), torch.rand(64, 8)
    found = checked_forward(vote, ForwardPlan(64, stacked=True), torch.device("cpu"), 3, lambda rows: draw[:rows])
    assert not found.forward.plan.stacked
    assert "one batched forward; got a failure of" in found.forward.plan.refused[0]


class TryingLate(Trying):
    """Looks for loud rows only where the batch itself has one."""

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = super().forward(x) if bool((x > 9).any()) else self.last(self.first(x))
        return scores


def test_a_stacked_forward_that_fails_late_ends_there() -> None:
    """It was watched while it saw one row, and the first loud one came in a run."""
    members = Members([TryingLate(_any).eval(), TryingLate(_any).eval()])
    members.use_stack(True)
    with torch.inference_mode():
        members(torch.zeros(4, 8))
        with pytest.raises(ClassifierError, match="stacked: needs members that run in one batched"):
            members(torch.full((4, 8), 10.0))
