"""Members: several classifiers on the same noisy batch, in a loop or as one stacked forward."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from ringfence.classifiers.base import Classifier, Scored, score
from ringfence.errors import ArgumentError, ClassifierError


@final
class Members(Classifier):
    """Scores of every member, (B, M, K), all on the same draws.

    ``stacked`` runs members of one architecture as one batched forward over stacked parameters; the loop is
    the other way. Both give the same scores up to rounding; which is faster depends on the device, so the
    engine measures and stores it with the forward plan.
    """

    def __init__(self, members: Sequence[nn.Module]) -> None:
        super().__init__()
        if not members:
            raise ArgumentError("members", "needs at least one classifier", "an empty ensemble", "Name some members.")
        self.members = nn.ModuleList(members)
        self.stacked = False
        self._stack: Callable[[Tensor], Tensor] | None = None

    def __len__(self) -> int:
        return len(self.members)

    @property
    def stackable(self) -> bool:
        """Whether all members are plain networks of one architecture."""
        first = self.members[0]
        shapes = [(name, value.shape) for name, value in first.state_dict().items()]
        return len(self.members) > 1 and all(
            not isinstance(one, Classifier)
            and type(one) is type(first)
            and str(one) == str(first)
            and [(name, value.shape) for name, value in one.state_dict().items()] == shapes
            for one in self.members
        )

    def use_stack(self, stacked: bool) -> None:
        """Choose how members run; stacked is refused where they differ."""
        if stacked and not self.stackable:
            raise ArgumentError("stacked", "needs members of one architecture", "different ones", "Use the loop.")
        self.stacked = stacked
        self._stack = None

    def score(self, x: Tensor) -> Scored:
        """(B, *shape) -> (B, M, K)."""
        if self.stacked:
            if self._stack is None:
                self._stack = _stack(list(self.members))
            return Scored(self._stack(x).transpose(0, 1), len(self.members))
        parts = [score(member, x) for member in self.members]
        shapes = {tuple(part.scores.shape) for part in parts}
        if len(shapes) > 1 or parts[0].scores.dim() != 2:
            received = sorted({tuple(part.scores.shape[1:]) for part in parts})
            raise ClassifierError("members", "must all return (B, K), one K", received, "Check the members' classes.")
        work: Tensor | int = 0
        for part in parts:
            work = work + part.work
        return Scored(torch.stack([part.scores for part in parts], dim=1), work)


def _stack(members: list[nn.Module]) -> Callable[[Tensor], Tensor]:
    """One function (B, *shape) -> (M, B, K) over the members' stacked parameters."""
    skeleton = members[0]
    parameters, buffers = stack_module_state(members)
    state: dict[str, Any] = {name: value.detach() for name, value in {**parameters, **buffers}.items()}

    def one(weights: dict[str, Any], x: Tensor) -> Tensor:
        scores: Tensor = functional_call(skeleton, weights, (x,))
        return scores

    batched = vmap(one, in_dims=(0, None), randomness="error")
    return lambda x: batched(state, x)
