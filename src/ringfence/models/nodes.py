"""Nodes of the model tree: one small class a wrapper, its fields its settings, its name what a user writes.

A new node is a frozen dataclass with ``build``, under ``@node``: grammar, checks, help and files follow from it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from difflib import get_close_matches
from typing import Any, ClassVar, TypeVar, final, get_type_hints

from torch import nn

from ringfence.classifiers import Aces, EntropySelector, KConsensus, Lanes, NetworkSelector, lane_names, theta_names
from ringfence.classifiers.denoised import Denoised
from ringfence.classifiers.normalize import Normalize
from ringfence.classifiers.patches import Crops, Patches, Reduction
from ringfence.classifiers.video import Chunks, Clips
from ringfence.classifiers.votes import HardVote, MaxMargin, SoftmaxVote, SoftVote, Vote, Weighted
from ringfence.errors import ModelError, RingfenceError
from ringfence.lift import Identity, Lift, noise_place
from ringfence.models.grammar import Leaf, Node, Tree
from ringfence.models.normalization import refuse_second
from ringfence.operators import clips

Shape = tuple[int, ...]
Numbers = tuple[float, ...]
Names = tuple[str, ...]
ONE: Names = ("main",)
"""The lane of a single classifier."""


class NodeKind(ABC):
    """A wrapper of the tree. Subclasses are final frozen dataclasses; a field of type Tree is a model of its own."""

    name: ClassVar[str]
    fewest: ClassVar[int] = 1
    most: ClassVar[int | None] = 1
    denoiser_first: ClassVar[bool] = False
    """Whether the first model is a denoiser, which has no classes."""

    @staticmethod
    def join(digests: Sequence[str]) -> str:
        """What is hashed of its models' digests."""
        return "".join(digests)

    @abstractmethod
    def build(self, models: Sequence[nn.Module], named: Mapping[str, nn.Module]) -> nn.Module:
        """The classifier around its models: those in order, and those that stand in fields, by the field's name."""

    def lanes(self, inner: Sequence[Names]) -> Names:
        """Names of the lanes, given those of its models; by default those of the last one, which it wraps."""
        return inner[-1]

    def placed(self, module: nn.Module, shape: Shape) -> tuple[nn.Module, Lift]:
        """The classifier behind the noise and the lift before it, for inputs of this shape."""
        return module, Identity()

    @property
    def at_input(self) -> bool:
        """Whether noise enters at the input: only such nodes may stand below another."""
        return True

    def procedure(self, name: str) -> str:
        """The form of a procedure that reads this classifier, by the name the user gave it."""
        return name


ENTROPY = Leaf("entropy")
"""ACES's selector that needs no network."""

ACES_PROCEDURES = {"fixed": "aces", "sequential": "aces-sequential", "predict": "aces-predict"}
"""What the usual procedures are called where a selector is certified along with a class."""

NODES: dict[str, type[NodeKind]] = {}
Kind = TypeVar("Kind", bound=type[NodeKind])


def node(name: str) -> Callable[[Kind], Kind]:
    """Register a node under its name."""

    def registered(kind: Kind) -> Kind:
        kind.name = name
        NODES[name] = kind
        return kind

    return registered


def settle(tree: Node) -> NodeKind:
    """The node with its settings read by their declared types; every mistake is named."""
    kind = NODES.get(tree.name)
    if kind is None:
        near = get_close_matches(tree.name, NODES, n=1)
        remedy = f"Did you mean {near[0]}(...)?" if near else "Quote a file name that holds parentheses."
        raise ModelError(f"{tree.name}(...)", f"must be one of {', '.join(sorted(NODES))}", f"'{tree.name}'", remedy)
    count, most = len(tree.models), kind.most
    if count < kind.fewest or (most is not None and count > most):
        wanted = f"{kind.fewest}" if most == kind.fewest else f"at least {kind.fewest}" if most is None else f"{most}"
        raise ModelError(
            tree.name, f"takes {wanted} model{'' if wanted == '1' else 's'}", count, f"Write {usage(kind)}."
        )
    types = get_type_hints(kind)
    known = {one.name: types[one.name] for one in fields(kind)}  # type: ignore[arg-type]
    for key in tree.settings:
        if key not in known:
            listed = ", ".join(known) or "none"
            raise ModelError(f"{tree.name}({key}=)", f"has the settings {listed}", f"'{key}'", f"Write {usage(kind)}.")
    missing = [one.name for one in fields(kind) if one.default is MISSING and one.name not in tree.settings]  # type: ignore[arg-type]
    if missing:
        raise ModelError(tree.name, f"needs {' and '.join(missing)}", "none", f"Write {usage(kind)}.")
    read = {key: _read(f"{tree.name}({key}=)", value, known[key]) for key, value in tree.settings.items()}
    return kind(**read)


def usage(kind: type[NodeKind]) -> str:
    """How a node is written."""
    models = {0: [], 1: ["MODEL"]}.get(kind.fewest, ["MODEL", "MODEL"] + (["..."] if kind.most is None else []))
    settings = [f"{one.name}={'...' if one.default is MISSING else _written(one.default)}" for one in fields(kind)]  # type: ignore[arg-type]
    return f"{kind.name}({', '.join([*models, *settings])})"


def _written(value: Any) -> str:
    return ("/".join(f"{one:g}" for one in value) or "none") if isinstance(value, tuple) else str(value).lower()


def _read(where: str, value: Tree, wanted: Any) -> Any:
    if wanted is Tree:
        return value
    if not isinstance(value, Leaf):
        raise ModelError(where, "is a setting, not a model", str(value), "Give a plain value.")
    text = value.text.strip()
    optional = type(None) in getattr(wanted, "__args__", ())
    if optional and text == "none":
        return None
    try:
        if wanted is bool:
            return {"true": True, "false": False}[text]
        if wanted is int or wanted == int | None:
            return int(text)
        if wanted is float:
            return float(text)
        if wanted == Numbers:
            return () if text == "none" else numbers(text)
    except (KeyError, ValueError):
        said = {bool: "true or false", float: "a number", Numbers: "numbers divided by / or start:stop:step"}
        raise ModelError(where, f"must be {said.get(wanted, 'a whole number')}", f"'{text}'", "Correct it.") from None
    return text


def numbers(text: str) -> Numbers:
    """``1/2/3`` -> (1, 2, 3); ``0:1:0.25`` -> (0, .25, .5, .75, 1), both ends included."""
    if ":" not in text:
        return tuple(float(part) for part in text.split("/"))
    start, stop, step = (float(part) for part in text.split(":"))
    if not (step > 0 and stop >= start and (stop - start) / step <= 10_000):
        raise ValueError(text)
    return tuple(round(start + step * i, 10) for i in range(int((stop - start) / step + 1e-9) + 1))


def members(kind: NodeKind, inner: Sequence[Names]) -> int:
    """How many models there are, each of which must be one classifier."""
    for names in inner:
        if names != ONE:
            rule, remedy = "is made of single classifiers", "Leave out prefixes=, singles= and lanes(...) inside."
            raise ModelError(kind.name, rule, f"one with {len(names)} lanes", remedy)
    return len(inner)


class VoteNode(NodeKind):
    """A vote over its members; prefixes and singles add lanes from the same pass."""

    most: ClassVar[int | None] = None
    vote: ClassVar[Callable[[Sequence[nn.Module]], Vote]]
    prefixes: bool
    singles: bool

    def lanes(self, inner: Sequence[Names]) -> Names:
        """One, or the votes of all prefixes and every single member."""
        count = members(self, inner)
        alone = not (self.prefixes or self.singles)
        return ONE if alone else lane_names(count, (self.name,), self.prefixes, self.singles, ())

    def build(self, models: Sequence[nn.Module], named: Mapping[str, nn.Module]) -> nn.Module:
        """The vote, or lanes of it."""
        if self.prefixes or self.singles:
            return Lanes(models, (self.name,), self.prefixes, self.singles)
        return type(self).vote(models)


def _register_vote(name: str, kind: Callable[[Sequence[nn.Module]], Vote]) -> None:
    @final
    @node(name)
    @dataclass(frozen=True)
    class Registered(VoteNode):
        vote: ClassVar[Callable[[Sequence[nn.Module]], Vote]] = kind
        prefixes: bool = False
        singles: bool = False


for _name, _kind in {"soft": SoftVote, "softmax": SoftmaxVote, "hard": HardVote, "max-margin": MaxMargin}.items():
    _register_vote(_name, _kind)


@final
@node("weighted")
@dataclass(frozen=True)
class WeightedNode(NodeKind):
    """The mean of members under given weights, of logits or of softmax scores."""

    most: ClassVar[int | None] = None
    weights: Numbers
    on: str = "logits"

    def lanes(self, inner: Sequence[Names]) -> Names:
        """One classifier."""
        members(self, inner)
        return ONE

    def build(self, models: Sequence[nn.Module], named: Mapping[str, nn.Module]) -> nn.Module:
        """One weighted vote."""
        return Weighted(models, self.weights, self.on)


@final
@node("consensus")
@dataclass(frozen=True)
class ConsensusNode(NodeKind):
    """K-consensus: the other members are asked only where the first ones disagree."""

    most: ClassVar[int | None] = None
    agree: int

    def lanes(self, inner: Sequence[Names]) -> Names:
        """One classifier."""
        members(self, inner)
        return ONE

    def build(self, models: Sequence[nn.Module], named: Mapping[str, nn.Module]) -> nn.Module:
        """With work truly skipped."""
        return KConsensus(models, self.agree)


@final
@node("lanes")
@dataclass(frozen=True)
class LanesNode(NodeKind):
    """Several votes over the same members in one pass: ``lanes(a, b, votes=soft/hard, consensus=2)``."""

    most: ClassVar[int | None] = None
    votes: str = "soft"
    consensus: Numbers = ()
    weights: Numbers = ()
    on: str = "logits"
    prefixes: bool = False
    singles: bool = False

    @property
    def _votes(self) -> tuple[str, ...]:
        return tuple(part.strip() for part in self.votes.split("/") if part.strip() and part.strip() != "none")

    @property
    def _agree(self) -> tuple[int, ...]:
        return tuple(int(one) for one in self.consensus)

    def lanes(self, inner: Sequence[Names]) -> Names:
        """Singles, votes, consensus, in this order."""
        return lane_names(members(self, inner), self._votes, self.prefixes, self.singles, self._agree)

    def build(self, models: Sequence[nn.Module], named: Mapping[str, nn.Module]) -> nn.Module:
        """All in one pass."""
        return Lanes(models, self._votes, self.prefixes, self.singles, self._agree, self.weights, self.on)


@final
@node("denoised")
@dataclass(frozen=True)
class DenoisedNode(NodeKind):
    """A denoiser in front of a classifier: ``denoised(dncnn@FILE, resnet20@FILE)``."""

    fewest: ClassVar[int] = 2
    most: ClassVar[int | None] = 2
    denoiser_first: ClassVar[bool] = True

    @staticmethod
    def join(digests: Sequence[str]) -> str:
        """As earlier versions joined them."""
        return " ".join(["denoised", *digests])

    def build(self, models: Sequence[nn.Module], named: Mapping[str, nn.Module]) -> nn.Module:
        """classifier(denoiser(x))."""
        return Denoised(models[0], models[1])


@final
@node("normalize")
@dataclass(frozen=True)
class NormalizeNode(NodeKind):
    """Channel means and deviations in front of a model: ``normalize(A, mean=0.5/0.5/0.5, std=0.2/0.2/0.2)``."""

    mean: Numbers
    std: Numbers

    def build(self, models: Sequence[nn.Module], named: Mapping[str, nn.Module]) -> nn.Module:
        """classifier((x - mean) / std), unless the model normalises by itself."""
        refuse_second((self.mean, self.std), models[0], "the model")
        return Normalize(models[0], self.mean, self.std)


@final
@node("chunks")
@dataclass(frozen=True)
class ChunksNode(NodeKind):
    """Mean logits of a network over consecutive chunks of a video."""

    frames: int

    def build(self, models: Sequence[nn.Module], named: Mapping[str, nn.Module]) -> nn.Module:
        """Chunks of so many frames."""
        return Chunks(models[0], self.frames)


class _Reduced(NodeKind):
    """One network over several windows; noise at the input, or elsewhere with a lift, at the root only."""

    reduce: str
    noise: str
    form: str

    @property
    def at_input(self) -> bool:
        """Other places need a lift."""
        return self.noise == "input"


@final
@node("patches")
@dataclass(frozen=True)
class PatchesNode(_Reduced):
    """A classifier on overlapping patches: ``patches(A, resize=36, size=32, count=4, reduce=mean, noise=input)``."""

    size: int
    count: int | None = None
    resize: int | None = None
    kind: str = "bilinear"
    pad: int = 0
    crop: int | None = None
    stride: int | None = None
    sampling: str = "dense"
    seed: int = 0
    reduce: str = "mean"
    noise: str = "input"
    form: str = "sound"

    @property
    def _crops(self) -> Crops:
        chosen: Any = {"kind": self.kind, "sampling": self.sampling}
        return Crops(
            size=self.size,
            count=self.count,
            resize=self.resize,
            pad=self.pad,
            crop=self.crop,
            stride=self.stride,
            seed=self.seed,
            **chosen,
        )

    @property
    def at_input(self) -> bool:
        """Random patches are drawn once per input, which takes a lift too."""
        return self.noise == "input" and self.sampling == "dense"

    def build(self, models: Sequence[nn.Module], named: Mapping[str, nn.Module]) -> nn.Module:
        """Noise at the input; ``placed`` changes it where it enters elsewhere."""
        reduce: Reduction = self.reduce  # type: ignore[assignment]
        return Patches(models[0], self._crops, reduce)

    def placed(self, module: nn.Module, shape: Shape) -> tuple[nn.Module, Lift]:
        """The lift of the noise's place, and what is left to do."""
        assert isinstance(module, Patches)
        place = noise_place(self.noise, self._crops, shape, self.form)
        return Patches(module.classifier, place.rest, module.reduce), place.lift


@final
@node("clips")
@dataclass(frozen=True)
class ClipsNode(_Reduced):
    """A classifier on overlapping sub-videos: ``clips(A, frames=16, count=3)``."""

    frames: int
    count: int | None = None
    stride: int | None = None
    reduce: str = "mean"
    noise: str = "input"
    form: str = "sound"

    def build(self, models: Sequence[nn.Module], named: Mapping[str, nn.Module]) -> nn.Module:
        """Noise on the video."""
        reduce: Reduction = self.reduce  # type: ignore[assignment]
        return Clips(models[0], self.frames, self.count, self.stride, reduce)

    def placed(self, module: nn.Module, shape: Shape) -> tuple[nn.Module, Lift]:
        """The lift of the noise's place, and what is left to do."""
        assert isinstance(module, Clips)
        if len(shape) != 4:
            raise ModelError("clips", "needs videos (T, C, H, W)", shape, "Use patches for images.")
        cut = clips(shape[0], self.frames, self.count, self.stride)
        place = noise_place(self.noise, cut, shape, self.form)
        return Patches(module.classifier, place.rest, module.reduce), place.lift


@final
@node("aces")
@dataclass(frozen=True)
class AcesNode(NodeKind):
    """ACES: ``aces(certify=A, core=B, select=entropy, theta=0:1:0.01)``."""

    fewest: ClassVar[int] = 0
    most: ClassVar[int | None] = 0
    certify: Tree
    core: Tree
    select: Tree = ENTROPY
    theta: Numbers = tuple(round(0.01 * i, 2) for i in range(101))

    def procedure(self, name: str) -> str:
        """Selection and class are claimed together, which takes procedures of its own."""
        if name not in ACES_PROCEDURES.values() and name not in ACES_PROCEDURES:
            rule = f"ACES is certified by {', '.join(ACES_PROCEDURES)}"
            raise ModelError("procedure", rule, repr(name), "Use fixed.")
        return ACES_PROCEDURES.get(name, name)

    def lanes(self, inner: Sequence[Names]) -> Names:
        """One lane per theta."""
        members(self, inner)
        return theta_names(self.theta)

    def build(self, models: Sequence[nn.Module], named: Mapping[str, nn.Module]) -> nn.Module:
        """Certification network, selector, core network."""
        chosen = named.get("select")
        selector = EntropySelector(self.theta) if chosen is None else NetworkSelector(chosen, self.theta)
        return Aces(named["certify"], selector, named["core"])


def named_models(kind: NodeKind) -> dict[str, Tree]:
    """Fields that are models; a select of ``entropy`` needs none."""
    types = get_type_hints(type(kind))
    trees = {one.name: getattr(kind, one.name) for one in fields(kind) if types[one.name] is Tree}  # type: ignore[arg-type]
    return {name: tree for name, tree in trees.items() if not (name == "select" and tree == ENTROPY)}


def checked(kind: NodeKind, build: Callable[[], nn.Module]) -> nn.Module:
    """What a node builds; errors of its classes name the node."""
    try:
        return build()
    except RingfenceError as error:
        raise ModelError(f"{kind.name}({error.argument})", error.rule, error.received, error.remedy) from error
