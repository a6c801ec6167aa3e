"""Nodes of the model tree: one small class a wrapper, its fields its settings, its name what a user writes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, final

from torch import nn

from ringfence.classifiers import Aces, EntropySelector, KConsensus, Lanes, NetworkSelector, theta_lanes, vote_lanes
from ringfence.classifiers.denoised import Denoised
from ringfence.classifiers.normalize import Normalize
from ringfence.classifiers.patches import Chunks, Clips, Crops, Patches, Reduction
from ringfence.classifiers.resized import Resized
from ringfence.classifiers.votes import HardVote, MaxMargin, SoftmaxVote, SoftVote, Vote, Weighted
from ringfence.errors import ModelError
from ringfence.lift import LIFTS, Form, Lift, Mode, noise_place
from ringfence.models.architecture import refuse_second
from ringfence.models.grammar import Leaf, Tree
from ringfence.models.registry import ONE, LaneSet, NodeKind, Numbers, Shape, WholeNumbers, node
from ringfence.operators import clips

ENTROPY = Leaf("entropy")
"""ACES's selector that needs no network."""

ACES_PROCEDURES: dict[str, tuple[str, dict[str, Any]]] = {
    "fixed": ("aces", {}),
    "two-sided": ("aces", {"lower_share": 0.5}),
    "sequential": ("aces-sequential", {}),
    "predict": ("aces-predict", {}),
}
"""What the usual procedures are where a selector is certified along with a class."""


def members(kind: NodeKind, inner: Sequence[LaneSet]) -> int:
    """How many models there are, each of which must be one classifier."""
    for lanes in inner:
        if lanes[0].theta is not None:
            rule, remedy = "is made of single classifiers", "Let aces(...) be the outermost node."
            raise ModelError(f"{kind.name}(...)", rule, "aces(...), which has several thetas, each a lane", remedy)
        if lanes != ONE:
            rule, remedy = "is made of single classifiers", "Leave out prefixes=, singles= and lanes(...) inside."
            listed = ", ".join(lane.name for lane in lanes[:3]) + (", ..." if len(lanes) > 3 else "")
            raise ModelError(f"{kind.name}(...)", rule, f"one with lanes: {listed}", remedy)
    return len(inner)


class VoteNode(NodeKind):
    """A vote over its members; prefixes and singles add lanes from the same pass."""

    most: ClassVar[int | None] = None
    vote: ClassVar[Callable[[Sequence[nn.Module]], Vote]]
    prefixes: bool
    singles: bool

    def lanes(self, inner: Sequence[LaneSet]) -> LaneSet:
        """One, or the votes of all prefixes and every single member."""
        count = members(self, inner)
        alone = not (self.prefixes or self.singles)
        return ONE if alone else vote_lanes(count, (self.name,), self.prefixes, self.singles, ())

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


class OneOfMembers(NodeKind):
    """One classifier made of single ones."""

    most: ClassVar[int | None] = None

    def lanes(self, inner: Sequence[LaneSet]) -> LaneSet:
        """One classifier."""
        members(self, inner)
        return ONE


@final
@node("weighted")
@dataclass(frozen=True)
class WeightedNode(OneOfMembers):
    """The mean of members under given weights, of logits or of softmax scores."""

    weights: Numbers
    on: str = "logits"

    def build(self, models: Sequence[nn.Module], named: Mapping[str, nn.Module]) -> nn.Module:
        """One weighted vote."""
        return Weighted(models, self.weights, self.on)


@final
@node("consensus")
@dataclass(frozen=True)
class ConsensusNode(OneOfMembers):
    """K-consensus: the other members are asked only where the first ones disagree."""

    agree: int

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
    consensus: WholeNumbers = ()
    weights: Numbers = ()
    on: str = "logits"
    prefixes: bool = False
    singles: bool = False

    @property
    def _votes(self) -> tuple[str, ...]:
        return tuple(part.strip() for part in self.votes.split("/") if part.strip() and part.strip() != "none")

    @property
    def only_members(self) -> bool:
        """Every single member, and nothing made of several."""
        return self.singles and not (self._votes or self.prefixes or self.consensus)

    def lanes(self, inner: Sequence[LaneSet]) -> LaneSet:
        """Singles, votes, consensus, in this order."""
        return vote_lanes(members(self, inner), self._votes, self.prefixes, self.singles, self.consensus)

    def build(self, models: Sequence[nn.Module], named: Mapping[str, nn.Module]) -> nn.Module:
        """All in one pass."""
        return Lanes(models, self._votes, self.prefixes, self.singles, self.consensus, self.weights, self.on)


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
        refuse_second((self.mean, self.std), models[0], "the model", "mean, std", "Leave normalize(...) away.")
        return Normalize(models[0], self.mean, self.std)


@final
@node("resized")
@dataclass(frozen=True)
class ResizedNode(NodeKind):
    """Images brought to the size a model was trained on, behind the noise: ``resized(A, size=224)``."""

    sees_whole: ClassVar[bool] = False

    size: int
    kind: str = "bicubic"

    def build(self, models: Sequence[nn.Module], named: Mapping[str, nn.Module]) -> nn.Module:
        """classifier(resize(x))."""
        return Resized(models[0], (self.size, self.size), self.kind)


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

    sees_whole: ClassVar[bool] = False

    reduce: Reduction
    noise: Mode
    form: Form

    @property
    def sound(self) -> bool:
        """The paper form leaves out the factor."""
        return self.form != "paper"

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
    reduce: Reduction = "mean"
    noise: Mode = "input"
    form: Form = "sound"

    @property
    def _crops(self) -> Crops:
        return Crops(**{one.name: getattr(self, one.name) for one in fields(Crops)})

    @property
    def at_input(self) -> bool:
        """Random patches are drawn once per input, which takes a lift too."""
        return self.noise == "input" and self.sampling == "dense"

    def build(self, models: Sequence[nn.Module], named: Mapping[str, nn.Module]) -> nn.Module:
        """Noise at the input; ``placed`` changes it where it enters elsewhere."""
        return Patches(models[0], self._crops, self.reduce)

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
    reduce: Reduction = "mean"
    noise: Mode = "input"
    form: Form = "sound"

    def build(self, models: Sequence[nn.Module], named: Mapping[str, nn.Module]) -> nn.Module:
        """Noise on the video."""
        return Clips(models[0], self.frames, self.count, self.stride, self.reduce)

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
    selectors: ClassVar[tuple[str, ...]] = ("select",)
    no_models: ClassVar[tuple[Tree, ...]] = (ENTROPY,)
    certify: Tree
    core: Tree
    select: Tree = ENTROPY
    theta: Numbers = tuple(round(0.01 * i, 2) for i in range(101))

    def procedure(self, name: str) -> tuple[str, dict[str, Any]]:
        """Selection and class are claimed together, which takes procedures of its own."""
        if name in (own for own, _ in ACES_PROCEDURES.values()):
            return name, {}
        if name not in ACES_PROCEDURES:
            rule = f"must be one of {', '.join(ACES_PROCEDURES)} for ACES"
            raise ModelError("procedure", rule, repr(name), "Use fixed.")
        return ACES_PROCEDURES[name]

    def lanes(self, inner: Sequence[LaneSet]) -> LaneSet:
        """One lane per theta."""
        members(self, inner)
        return theta_lanes(self.theta)

    def build(self, models: Sequence[nn.Module], named: Mapping[str, nn.Module]) -> nn.Module:
        """Certification network, selector, core network."""
        chosen = named.get("select")
        selector = EntropySelector(self.theta) if chosen is None else NetworkSelector(chosen, self.theta)
        return Aces(named["certify"], selector, named["core"])


@final
@node("lifted")
@dataclass(frozen=True)
class LiftedNode(NodeKind):
    """Noise behind a registered lift: radii are divided by its norm."""

    sees_whole: ClassVar[bool] = False

    by: str

    def build(self, models: Sequence[nn.Module], named: Mapping[str, nn.Module]) -> nn.Module:
        """The model itself, which sees lifted inputs."""
        self._lift()
        return models[0]

    def placed(self, module: nn.Module, shape: Shape) -> tuple[nn.Module, Lift]:
        """The model and the lift."""
        return module, self._lift()

    @property
    def at_input(self) -> bool:
        """Noise comes behind the lift."""
        return self.by == "identity"

    @property
    def sound(self) -> bool:
        """As the lift says."""
        return self._lift().sound

    @property
    def computes_with(self) -> tuple[object, ...]:
        """The lift."""
        return (self._lift(),)

    def _lift(self) -> Lift:
        if self.by not in LIFTS:
            rule = f"must be one of {', '.join(LIFTS)}"
            raise ModelError("lifted(by=)", rule, f"'{self.by}'", "Load the plugin that registers it.")
        return LIFTS[self.by]()
