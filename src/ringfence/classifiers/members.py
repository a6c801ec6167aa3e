"""Members: several classifiers on the same noisy batch, in a loop or as one stacked forward."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap
from torch.overrides import TorchFunctionMode

from ringfence.classifiers.base import APART, Classifier, Scored, kinds_of, runs_its_code_alone, score, scores_in
from ringfence.classifiers.kinds import Kinds
from ringfence.classifiers.normalize import Normalize
from ringfence.errors import ArgumentError, ClassifierError


@final
class Members(Classifier):
    """Scores of every member, (B, M, K), all on the same draws, in float32 or better: votes add them up.

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
    def kinds(self) -> Kinds:
        """Every member's own."""
        return tuple(kinds_of(member)[0] for member in self.members)

    def __getstate__(self) -> dict[str, Any]:
        """The stacked function is made anew after copying: it would keep the weights of the original."""
        return {**self.__dict__, "_stack": None}

    @property
    def stackable(self) -> bool:
        """Whether all members are networks of one architecture, normalised or not, that differ in weights alone."""
        return len(self.members) > 1 and all(alike(one, self.members[0]) for one in self.members)

    def use_stack(self, stacked: bool) -> None:
        """Choose how members run; stacked is refused where they differ."""
        if stacked and not self.stackable:
            raise ArgumentError("stacked", "needs members of one architecture", "different ones", "Use the loop.")
        self.stacked = stacked
        self._stack = None

    def score(self, x: Tensor) -> Scored:
        """(B, *shape) -> (B, M, K)."""
        scores, work = self.each(x)
        total: Tensor | int = 0
        for one in work:
            total = total + one
        return Scored(scores, total)

    # What it calls is compiled apart from what surrounds it (sampling/preparing.py).
    def each(self, x: Tensor) -> tuple[Tensor, list[Tensor | int]]:
        """(B, *shape) -> scores (B, M, K) and every member's own work, a number or (B,).

        Each has a batch of its own: one that clamps rare rows in place, which no check sees, would do so for all.
        """
        if self.stacked:
            if self._stack is None:
                self._stack = _stack(list(self.members))
            return _precise(_watched(self._stack, x.clone()).transpose(0, 1)), [1] * len(self.members)
        parts = []
        for member in self.members:  # a loop, not a comprehension: that would be compiled as one graph of all
            parts.append(score(member, x.clone()))
        shapes = {tuple(part.scores.shape) for part in parts}
        if len(shapes) > 1 or parts[0].scores.dim() != 2:
            received = sorted({tuple(part.scores.shape[1:]) for part in parts})
            raise ClassifierError("members", "must all return (B, K), one K", received, "Check the members' classes.")
        return _precise(torch.stack([part.scores for part in parts], dim=1)), [part.work for part in parts]


@final
class _Failures(TorchFunctionMode):
    """While it is on, the first function of torch that fails is kept, whoever catches its error."""

    failed: str | None = None

    def __torch_function__(
        self, function: Any, types: Any, given: tuple[Any, ...] = (), named: Mapping[str, Any] | None = None
    ) -> Any:
        """The function itself."""
        try:
            return function(*given, **(named or {}))
        except Exception:
            self.failed = self.failed or getattr(function, "__name__", "a function of torch")
            raise


def _watched(stack: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """The stacked scores (M, B, K); where something fails in them they are not the members', though these catch the
    error and go on as if rows were others."""
    with _Failures() as seen:
        scores = stack(x)
    if seen.failed:
        rule, received = "needs members that run in one batched forward", f"a failure of {seen.failed}"
        remedy = "Leave out the try that catches it: members that raise it run one by one."
        raise ClassifierError("stacked", rule, received, remedy)
    return scores


APART.append((sys.modules[__name__], "_watched", False))
# What it calls is compiled, each call by itself. Members of one architecture then share one forward, whose weights are
# arguments, and ten of them compile (and autotune) in the time of one.
APART.append((Members, "each", False))


def _precise(scores: Tensor) -> Tensor:
    """Half precision has too few digits to add scores in: shares would tie that do not."""
    return scores.to(torch.promote_types(scores.dtype, torch.float32))


def alike(one: nn.Module, other: nn.Module) -> bool:
    """Whether running ``other`` with the weights of ``one`` is running ``one``.

    Wrappers whose work varies are left out; so are modules with differing attributes, whatever their weights, and
    whatever runs more than its class's code: a hook of the one would see the other.
    """
    parts, others = (list(module.named_modules(remove_duplicate=False)) for module in (one, other))
    return (
        runs_its_code_alone(one)
        and len(parts) == len(others)
        and _sharing(one) == _sharing(other)
        and all(
            name == twin_name
            and type(part) is type(twin)
            and (isinstance(part, Normalize) or not isinstance(part, Classifier))
            and _same(dict(_settings(part)), dict(_settings(twin)))
            for (name, part), (twin_name, twin) in zip(parts, others, strict=True)
        )
    )


def _settings(part: nn.Module) -> Iterator[tuple[str, Any]]:
    """What a module is apart from the values of its weights: their names, shapes and kinds, and its attributes."""
    for name, value in (*part._parameters.items(), *part._buffers.items()):
        yield f"weights {name}", None if value is None else (value.shape, value.dtype)
    yield from (
        (name, value) for name, value in vars(part).items() if name not in ("_parameters", "_buffers", "_modules")
    )


def _sharing(module: nn.Module) -> list[int]:
    """Which names mean the same part or the same weights: for each the place of the first that does."""
    every = (
        *module.named_modules(remove_duplicate=False),
        *module.named_parameters(remove_duplicate=False),
        *module.named_buffers(remove_duplicate=False),
    )
    first: dict[int, int] = {}
    return [first.setdefault(id(value), place) for place, (_, value) in enumerate(every)]


def _same(one: Any, other: Any) -> bool:
    """Equality, types included, that says no where it cannot tell, as between tensors kept as plain attributes."""
    if isinstance(one, dict) and isinstance(other, dict):
        return (
            type(one) is type(other) and one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
        )
    try:
        return type(one) is type(other) and bool(one == other)
    except Exception:  # whatever a foreign comparison raises
        return False


def _stack(members: list[nn.Module]) -> Callable[[Tensor], Tensor]:
    """One function (B, *shape) -> (M, B, K) over the members' stacked parameters."""
    skeleton = members[0]
    parameters, buffers = stack_module_state(members)
    state: dict[str, Any] = {name: value.detach() for name, value in {**parameters, **buffers}.items()}

    def one(weights: dict[str, Any], x: Tensor) -> Tensor:
        return scores_in(functional_call(skeleton, weights, (x,)), len(x))

    batched = vmap(one, in_dims=(0, None), randomness="error")
    return lambda x: batched(state, x)
