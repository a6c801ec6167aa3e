"""Classifier: a module that turns a batch into scores and can say how many network forwards each row took."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules import module as modules
from torch.nn.parameter import is_lazy
from torch.nn.utils.parametrize import is_parametrized

from ringfence.classifiers.kinds import LOGITS, Kinds
from ringfence.errors import ClassifierError, RingfenceError
from ringfence.record import Lane

APART: list[tuple[Any, str, bool]] = []
"""(owner, function, whether all that it calls is left out too) of what torch.compile leaves out of the graph around it;
sampling/preparing.py tells the compiler, which nobody loads before he needs it."""


class Scored(NamedTuple):
    """Scores (B, K) or (B, lanes, K), and the network forwards they took: one number for all rows, or int64
    (B,) or (B, lanes) where rows differ."""

    scores: Tensor
    work: Tensor | int


class Composed(ABC):  # noqa: B024
    """What asks the networks inside it for their scores alone: another form of one that has the same ones will do.

    Kinds are registered, and do not inherit: their bases are part of digests, and runs that exist must stay theirs.
    """


@Composed.register
class Classifier(nn.Module, ABC):
    """What wraps networks: subclasses are final and write ``score``; calling one gives the scores alone."""

    @abstractmethod
    def score(self, x: Tensor) -> Scored:
        """Batch (B, *shape) -> scores and work."""

    def forward(self, x: Tensor) -> Tensor:
        """Batch (B, *shape) -> scores (B, K) or (B, lanes, K)."""
        return self.score(x).scores

    wraps: ClassVar[str | None] = None
    """The attribute whose scores these are, of a wrapper that leaves them as they are."""

    @property
    def kinds(self) -> Kinds:
        """Whether scores are logits or probabilities: for all lanes, or lane by lane; as of what it wraps."""
        return LOGITS if self.wraps is None else kinds_of(getattr(self, self.wraps))

    @property
    def lanes(self) -> tuple[Lane, ...]:
        """What the lanes of (B, lanes, K) are; those with (B, K) are one classifier."""
        return (Lane("main"),)

    tells_facts: ClassVar[bool] = False
    """Whether the run asks for ``clean_scores`` of its inputs, before any noise, and keeps of the ``facts`` they tell
    those that its procedure ``knows``."""

    def clean_scores(self, x: Tensor) -> Tensor:
        """Scores (B, K) of clean inputs (B, *shape); asked again later, when they must be the same."""
        raise NotImplementedError

    def facts(self, scores: Tensor) -> list[Mapping[str, int]]:
        """What clean scores (B, K) say of their inputs, for the records; nothing by default."""
        return [{} for _ in scores]


class _Watch:
    """Switched on by checks, never by runs. on: a network that changes its input in place is refused; heard: gets the
    scores of each network that is asked."""

    on = False
    heard: list[Tensor] | None = None


@contextmanager
def inputs_watched() -> Iterator[None]:
    """Networks that change their input in place are refused meanwhile: another that is given it too would see that."""
    _Watch.on = True
    try:
        yield
    finally:
        _Watch.on = False


@contextmanager
def networks_heard() -> Iterator[list[Tensor]]:
    """The scores of each plain network that is asked meanwhile, in the order of their asking."""
    heard: list[Tensor] = []
    _Watch.heard = heard
    try:
        yield heard
    finally:
        _Watch.heard = None


def hearing() -> bool:
    """Whether somebody hears networks now."""
    return _Watch.heard is not None


def unheard(ask: Callable[[Tensor], Scored]) -> Callable[[Tensor], Scored]:
    """The same, while nobody hears."""

    def quietly(x: Tensor) -> Scored:
        heard, _Watch.heard = _Watch.heard, None
        try:
            return ask(x)
        finally:
            _Watch.heard = heard

    return quietly


def score(module: nn.Module, x: Tensor) -> Scored:
    """Scores and work of any module; a plain network is one forward."""
    if isinstance(module, Classifier):
        return module.score(x)
    before = x.clone() if _Watch.on else None
    answer = Scored(scores_in(module(x), len(x)), 1)
    if before is not None:
        check_unchanged(x, before)
    if _Watch.heard is not None:
        _Watch.heard.append(answer.scores)
    return answer


def check_unchanged(x: Tensor, before: Tensor) -> None:
    """Refuse what has changed the batch it was given."""
    if not torch.equal(x.nan_to_num(), before.nan_to_num()):
        rule, remedy = "must not change its input", "Work on a copy (x.clone()): no in-place operation on the input."
        raise ClassifierError("classifier", rule, "a batch that was rewritten by the forward", remedy)


def kinds_of(module: object) -> Kinds:
    """What the scores of any module are; a plain network's are logits."""
    inner = getattr(module, "_orig_mod", module)  # a compiled module hides what it is
    return inner.kinds if isinstance(inner, Classifier) else LOGITS


def facts(module: nn.Module, x: Tensor) -> list[Mapping[str, int]]:
    """Facts of clean inputs (B, *shape); a plain network has none."""
    if isinstance(module, Classifier) and module.tells_facts:
        return module.facts(module.clean_scores(x.clone()))
    return [{} for _ in x]


def with_networks(module: nn.Module, change: Callable[[nn.Module], nn.Module | None]) -> nn.Module:
    """A copy for evaluation in which change has replaced what it does not answer with None.

    It is asked about a classifier before its parts, and never about parts of a plain network, which may rely on them.
    """

    def changed(part: nn.Module) -> nn.Module:
        if (found := change(part)) is not None:
            return found
        if isinstance(part, Composed | nn.ModuleList):
            for name, child in part.named_children():
                setattr(part, name, changed(child))
        return part

    return changed(copy.deepcopy(module).eval())


def has_hooks(module: nn.Module) -> bool:
    """Whether something is registered that runs whenever this module (not its parts) is called."""
    return bool(module._forward_hooks or module._forward_pre_hooks)


def beside_its_score(module: nn.Module) -> str | None:
    """What would run when a Ringfence classifier among the parts is called, and does not where ``score`` is asked."""
    for part in module.modules():
        if not isinstance(part, Classifier):
            continue
        if has_hooks(part) or modules._global_forward_hooks or modules._global_forward_pre_hooks:
            return "a forward hook"
        if "forward" in vars(part) or type(part).forward is not Classifier.forward:
            return f"a {type(part).__name__} with a forward of its own"
        if type(part).__call__ is not nn.Module.__call__:
            return f"a {type(part).__name__} with a __call__ of its own"
    return None


def is_classifier(module: object) -> bool:
    """Whether it is a Ringfence classifier, compiled or not."""
    return isinstance(getattr(module, "_orig_mod", module), Classifier)  # a compiled module hides what it is


def runs_its_code_alone(module: nn.Module) -> bool:
    """Whether calling the module is running ``forward`` of its class and of its parts' classes, and nothing beside.

    Hooks (spectral and weight norm of old are such), parametrised weights and a ``forward`` or ``__call__`` of an
    object's own are part of the function, and are not seen by whoever reads weights or traces ``forward``.
    """
    if modules._global_forward_hooks or modules._global_forward_pre_hooks:
        return False
    return not any(
        has_hooks(part)
        or is_parametrized(part)
        or "forward" in vars(part)
        or type(part).__call__ is not nn.Module.__call__
        for part in module.modules()
    )


def invalid_rows(scores: Tensor) -> Tensor:
    """Rows (B,) of member scores (B, M, K) with a NaN or an infinity anywhere: no vote can repair them."""
    return ~torch.isfinite(scores).flatten(1).all(1)


def refuse_lazy(module: nn.Module, argument: str, kind: type[RingfenceError]) -> None:
    """Refuse a module that has weights without a shape: each copy of it would draw its own."""
    named = chain(module.named_parameters(), module.named_buffers())
    first = next((name for name, value in named if is_lazy(value)), None)
    if first is not None:
        received = f"'{first}' of a lazy module that has seen no input"
        raise kind(argument, "must have all its weights", received, "Run one batch through it first: model(x).")


def scores_in(answer: Any, rows: int) -> Tensor:
    """The scores (B, K) or (B, lanes, K) of an answer to so many rows; whoever asks checks their shape.

    Of a tuple or list the first entry, of a mapping or an object its ``logits`` (``ModelOutput`` of transformers is
    both). A single logit z, (B,) or (B, 1), is the classes (0, z): z > 0 is class 1, and softmax is the sigmoid of z.
    """
    found = getattr(answer, "logits", answer)
    if isinstance(found, Mapping):
        if "logits" not in found:
            received = f"a {type(found).__name__} with {', '.join(map(repr, list(found)[:5])) or 'nothing'}"
            rule = "must return scores: a tensor, a tuple that begins with one, or a mapping with 'logits'"
            raise ClassifierError("classifier", rule, received, "Return the logits alone, or under 'logits'.")
        found = found["logits"]
    if isinstance(found, tuple | list) and found:
        found = found[0]
    if isinstance(found, Tensor) and tuple(found.shape) in ((rows,), (rows, 1)):
        single = found.reshape(-1)
        return torch.stack([torch.zeros_like(single), single], dim=1)
    return found  # type: ignore[no-any-return]
