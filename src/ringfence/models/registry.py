"""Registries of the model tree: what nodes and sources declare, and how settings of a node are read from text.

A new node is a frozen dataclass with ``build``, under ``@node``: grammar, checks and messages follow from its fields.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, field, fields, make_dataclass
from typing import Any, ClassVar, Final, TypeVar, get_type_hints

from torch import nn

from ringfence.classifiers.base import Classifier
from ringfence.errors import ModelError, RingfenceError, did_you_mean
from ringfence.lift import Identity, Lift
from ringfence.models.grammar import Leaf, Node, Tree
from ringfence.record import Lane
from ringfence.settings import kind_of

Shape = tuple[int, ...]
Numbers = tuple[float, ...]
WholeNumbers = tuple[int, ...]
LaneSet = tuple[Lane, ...]
ONE: LaneSet = (Lane("main"),)
"""The lane of a single classifier."""


class NodeKind(ABC):
    """A wrapper of the tree. Subclasses are final frozen dataclasses; a field of type Tree is a model of its own."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]
    name: ClassVar[str]
    fewest: ClassVar[int] = 1
    most: ClassVar[int | None] = 1
    denoiser_first: ClassVar[bool] = False
    """Whether the first model is a denoiser, which has no classes."""
    selectors: ClassVar[tuple[str, ...]] = ()
    """Fields whose model has two outputs of its own instead of classes."""
    no_models: ClassVar[tuple[Tree, ...]] = ()
    """Words that may stand in a model's place and name none."""
    sees_whole: ClassVar[bool] = True
    """Whether its models see inputs of the size that it is given."""

    @staticmethod
    def join(digests: Sequence[str]) -> str:
        """What is hashed of its models' digests."""
        return "".join(digests)

    @abstractmethod
    def build(self, models: Sequence[nn.Module], named: Mapping[str, nn.Module]) -> nn.Module:
        """The classifier around its models: those in order, and those that stand in fields, by the field's name."""

    def lanes(self, inner: Sequence[LaneSet]) -> LaneSet:
        """Its lanes, given those of its models; by default those of the last one, which it wraps."""
        return inner[-1]

    def placed(self, module: nn.Module, shape: Shape) -> tuple[nn.Module, Lift]:
        """The classifier behind the noise and the lift before it, for inputs of this shape."""
        return module, Identity()

    @property
    def at_input(self) -> bool:
        """Whether noise enters at the input: only such nodes may stand below another."""
        return True

    @property
    def sound(self) -> bool:
        """False for a published form whose lift leaves out its norm."""
        return True

    def procedure(self, name: str) -> tuple[str, dict[str, Any]]:
        """The procedure that reads this classifier, by the name the user gave it, and settings that name implies."""
        return name, {}

    @property
    def computes_with(self) -> tuple[object, ...]:
        """What it computes with beside its models: somebody else's code among it is part of the model's digest."""
        return (type(self),)

    @property
    def only_members(self) -> bool:
        """Whether the lanes are the models themselves, one each: what smoothing every member by itself reads."""
        return False


NODES: dict[str, type[NodeKind]] = {}


class Source(ABC):
    """Where networks come from by a name of one's own: ``name:rest`` is a leaf that ``load`` builds.

    trusted: whether loading runs no code but the source's own, so that a stranger's run folder may name any rest.
    has_gradients: whether its networks can be attacked.
    """

    name: ClassVar[str]
    trusted: ClassVar[bool] = False
    has_gradients: ClassVar[bool] = True

    @abstractmethod
    def load(self, rest: str, num_classes: int | None) -> nn.Module:
        """The network, with its weights; num_classes where the user says how many."""


SOURCES: dict[str, Source] = {}
"""By name: those of users, and of Ringfence those for other libraries."""

AnyNode = TypeVar("AnyNode", bound=type[NodeKind])
T = TypeVar("T")


def node(name: str) -> Callable[[AnyNode], AnyNode]:
    """Register a node under its name."""

    def registered(kind: AnyNode) -> AnyNode:
        kind.name = name
        NODES[name] = kind
        return kind

    return registered


def node_of(kind: type[Classifier]) -> type[NodeKind]:
    """The node ``name(MODEL, setting=...)`` of a classifier made from one module and settings.

    The settings are what its ``__init__`` takes after the module: int, float, bool or str, or several numbers.
    """
    _, *settings = inspect.signature(kind).parameters.values()
    hints = get_type_hints(kind.__init__)
    declared: list[Any] = [
        (one.name, hints[one.name], *([] if one.default is one.empty else [field(default=one.default)]))
        for one in settings
    ]

    def build(self: NodeKind, models: Sequence[nn.Module], named: Mapping[str, nn.Module]) -> nn.Module:
        return kind(models[0], **vars(self))

    about = {"name": kind.name, "build": build, "computes_with": property(lambda self: (kind,))}  # type: ignore[attr-defined]
    made = make_dataclass(kind.__name__, declared, bases=(NodeKind,), frozen=True, namespace=about)
    made.__module__, made.__qualname__ = kind.__module__, kind.__qualname__
    return made


def settle(tree: Node) -> NodeKind:
    """The node with its settings read by their declared types; every mistake is named."""
    kind = NODES.get(tree.name)
    if kind is None:
        otherwise = "Quote a file name that holds parentheses."
        remedy = did_you_mean(tree.name, NODES, otherwise, written=lambda one: f"{one}(...)")
        raise ModelError(f"{tree.name}(...)", f"must be one of {', '.join(sorted(NODES))}", f"'{tree.name}'", remedy)
    count, most = len(tree.models), kind.most
    if count < kind.fewest or (most is not None and count > most):
        raise _miscounted(kind, count)
    types = get_type_hints(kind)
    known = {one.name: types[one.name] for one in fields(kind)}
    for key in tree.settings:
        if key not in known:
            listed = ", ".join(known) or "none"
            raise ModelError(f"{tree.name}({key}=)", f"has the settings {listed}", f"'{key}'", f"Write {usage(kind)}.")
    missing = [one.name for one in fields(kind) if one.default is MISSING and one.name not in tree.settings]
    if missing:
        raise ModelError(f"{tree.name}(...)", f"needs {' and '.join(missing)}", "none", f"Write {usage(kind)}.")
    read = {key: _read(tree.name, key, value, known[key]) for key, value in tree.settings.items()}
    return kind(**read)


def _miscounted(kind: type[NodeKind], count: int) -> ModelError:
    """What to say of a node with too few or too many models."""
    if kind.most == 0:
        types = get_type_hints(kind)
        needed = [one.name for one in fields(kind) if types[one.name] is Tree and one.default is MISSING]
        given = ", ".join(f"{name}={letter}" for name, letter in zip(needed, "ABCDEF", strict=False))
        remedy = f"Give them as {given}: {usage(kind)}."
        return ModelError(f"{kind.name}(...)", "takes its models by name", f"{_models(count)} without one", remedy)
    wanted = _models(kind.fewest) if kind.most == kind.fewest else f"at least {_models(kind.fewest)}"
    return ModelError(f"{kind.name}(...)", f"takes {wanted}", count, f"Write {usage(kind)}.")


def _models(count: int) -> str:
    return f"{count} model{'' if count == 1 else 's'}"


def usage(kind: type[NodeKind]) -> str:
    """How a node is written."""
    models = ["MODEL"] * (2 if kind.most is None else kind.most) + (["..."] if kind.most is None else [])
    if kind.denoiser_first:
        models[0] = "DENOISER"
    settings = [f"{one.name}={'...' if one.default is MISSING else _setting_text(one.default)}" for one in fields(kind)]
    return f"{kind.name}({', '.join([*models, *settings])})"


def _setting_text(value: Any) -> str:
    if not isinstance(value, tuple):
        return str(value).lower()
    if len(value) > 2:
        steps = f"{value[0]:g}:{value[-1]:g}:{value[1] - value[0]:g}"
        if numbers(steps) == value:
            return steps
    return "/".join(f"{one:g}" for one in value) or "none"


def _read(name: str, key: str, value: Tree, wanted: Any) -> Any:
    """A setting's value, by the annotation of its field."""
    if wanted is Tree:
        return value
    where, held = f"{name}({key}=)", kind_of(wanted)
    if not isinstance(value, Leaf):
        raise ModelError(where, "is a setting, not a model", str(value), "Give a plain value.")
    text = value.text.strip()
    if text == "none" and (held.optional or held.many):
        return None if held.optional else ()
    if held.words and text not in held.words:
        rule, example = f"must be one of {', '.join(held.words)}", held.words[0]
        raise ModelError(where, rule, f"'{text}'", f"Write e.g. {key}={example}.")
    read, rule, example = _FROM_TEXT.get((held.kind, held.many), (str, "", ""))
    try:
        return read(text)
    except (KeyError, ValueError):
        raise ModelError(where, f"must be {rule}", f"'{text}'", f"Write e.g. {key}={example}.") from None


def numbers(text: str) -> Numbers:
    """``1/2/3`` -> (1, 2, 3); ``0:1:0.25`` -> (0, .25, .5, .75, 1), both ends included."""
    if ":" not in text:
        return tuple(float(part) for part in text.split("/"))
    start, stop, step = (float(part) for part in text.split(":"))
    if not (step > 0 and stop >= start and (stop - start) / step <= 10_000):
        raise ValueError(text)
    return tuple(round(start + step * i, 10) for i in range(int((stop - start) / step + 1e-9) + 1))


_FROM_TEXT: Final[Mapping[tuple[Any, bool], tuple[Callable[[str], Any], str, str]]] = {
    (bool, False): ({"true": True, "false": False}.__getitem__, "true or false", "true"),
    (int, False): (int, "a whole number", "2"),
    (float, False): (float, "a number", "0.5"),
    (int, True): (lambda text: tuple(map(int, text.split("/"))), "whole numbers divided by /", "1/2"),
    (float, True): (numbers, "numbers divided by / or start:stop:step", "0.2/0.3"),
}
"""(type, whether there are several) -> what reads it, what it must be, and an example; any other type is text."""


def named_models(kind: NodeKind) -> dict[str, Tree]:
    """Fields that are models, but for those that name no model: ``kind.no_models``."""
    types = get_type_hints(type(kind))
    trees = {one.name: getattr(kind, one.name) for one in fields(kind) if types[one.name] is Tree}
    return {name: tree for name, tree in trees.items() if tree not in kind.no_models}


WRITTEN: Final = {"mode": "noise", "vote": "votes", "thetas": "theta", "patch": "size", "resize kind": "kind"}
"""Settings that the classes behind the nodes call otherwise than the user does."""


def checked(kind: NodeKind, build: Callable[[], T]) -> T:
    """What a node builds; errors of its classes name the node and its setting as the user wrote them."""
    try:
        return build()
    except RingfenceError as error:
        if error.argument.startswith(f"{kind.name}("):
            raise
        named = WRITTEN.get(error.argument, error.argument)
        known = {one.name for one in fields(kind)}
        named = f"{named}=" if named in known else error.argument
        where = kind.name if named == kind.name else f"{kind.name}({named})"
        raise ModelError(where, error.rule, error.received, error.remedy) from error
