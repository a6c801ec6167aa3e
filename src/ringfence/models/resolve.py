"""resolve: from a tree to a classifier in evaluation mode, with its lanes, its digest and its lift."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, final

from torch import nn

import ringfence.models.nodes  # noqa: F401  (registers them)
from ringfence.classifiers.base import Classifier, refuse_lazy
from ringfence.digests import joined
from ringfence.errors import Collected, ModelError
from ringfence.lift import Identity, Lift
from ringfence.models.code import code_settings
from ringfence.models.grammar import Leaf, Live, Node, Tree, live_places
from ringfence.models.identity import model_digest
from ringfence.models.registry import ONE, LaneSet, NodeKind, Shape, checked, named_models, settle

AFTER_SMOOTHING: Final = "after-smoothing"
"""The procedure that reads members instead of one classifier."""


@final
@dataclass(frozen=True)
class LoadedModel:
    """A module in evaluation mode, batch (B, ...) in [0, 1] -> scores (B, K) or (B, lanes, K), and what identifies it.

    num_classes is None where only a forward pass can tell; digest covers weights, normalisation and every setting of
    the tree; root: the node at the top, None for a single source; side: pixels that pictures of several sizes are
    brought to where nobody says how many, as the configurations of its networks do.
    """

    module: nn.Module
    num_classes: int | None
    digest: str
    spec: str
    lanes: LaneSet = ONE
    root: NodeKind | None = field(default=None, repr=False)
    side: int | None = None

    @property
    def at_input(self) -> nn.Module:
        """The classifier where only noise at the input is possible; refused if the tree places it elsewhere."""
        if self.root is not None and not self.root.at_input:
            rule, remedy = "must have its noise at the input here", "Write noise=input, and dense patches."
            raise ModelError(self.spec, rule, "noise elsewhere", remedy)
        return self.module

    def placed(self, shape: Shape) -> tuple[nn.Module, Lift]:
        """The classifier behind the noise and the lift before it, for inputs of this shape."""
        root, module = self.root, self.module
        return (module, Identity()) if root is None else checked(root, lambda: root.placed(module, shape))


@final
@dataclass(frozen=True)
class Sources:
    """Who loads a leaf: as a classifier, as a denoiser, or as a selector with two outputs."""

    classifier: Callable[[str], LoadedModel]
    denoiser: Callable[[str], LoadedModel]
    selector: Callable[[str], LoadedModel]


def resolve(tree: Tree, sources: Sources) -> LoadedModel:
    """The classifier of a tree, whose leaves the sources load."""
    return _resolve(tree, sources, sources.classifier, top=True)


def procedure_for(tree: Tree, name: str) -> tuple[str, dict[str, Any]]:
    """The procedure that reads the classifier of a tree, and the settings that its name implies."""
    kind = settle(tree) if isinstance(tree, Node) else None
    if isinstance(tree, Live):
        return name, {}
    if name == AFTER_SMOOTHING and kind is not None:
        kind.procedure(name)  # a node that is certified by procedures of its own says so
    if name == AFTER_SMOOTHING and not (isinstance(tree, Node) and kind and kind.only_members and len(tree.models) > 1):
        rule = f"{name} smooths every member by itself, and so takes at least two `members` and no vote"
        remedy = "Write lanes(A, B, votes=none, singles=true), or use another procedure."
        raise ModelError("procedure", rule, str(tree), remedy)
    return (name, {}) if kind is None else kind.procedure(name)


def root_is_sound(tree: Tree) -> bool:
    """Whether the lift of a tree divides radii by its norm, as it must."""
    return not isinstance(tree, Node) or settle(tree).sound


def lift_of(tree: Tree, shape: Shape | None) -> Lift | None:
    """The lift of a tree for inputs of this shape, without loading its models; None where the root is a network of a
    program, which was given together with any lift."""
    if not isinstance(tree, Node):
        return None if live_places(tree) else Identity()
    kind = settle(tree)
    beside = named_models(kind)
    for inner in (*tree.models, *beside.values()):
        _refuse_lifts_in(inner)
    if kind.at_input and kind.sound:
        return Identity()
    if shape is None:
        rule, remedy = "has a lift, whose norm takes the shape of the inputs", "Let the run come to its end."
        raise ModelError(f"{kind.name}(...)", rule, "none", remedy)
    models, named = [nn.Identity() for _ in tree.models], {name: nn.Identity() for name in beside}
    return checked(kind, lambda: kind.placed(kind.build(models, named), shape)[1])


def _refuse_lifts_in(tree: Tree) -> None:
    """Noise below a node is noise that the node sees: no lift of the whole describes it."""
    if isinstance(tree, Node):
        kind = settle(tree)
        _refuse_lift_of(tree, kind)
        for inner in (*tree.models, *named_models(kind).values()):
            _refuse_lifts_in(inner)


def _refuse_lift_of(tree: Node, kind: NodeKind) -> None:
    if not kind.at_input:
        rule = "may place its noise elsewhere than at the input only as the outermost node"
        raise ModelError(str(tree), rule, f"inside another node: {_first_setting(tree)}", "Write noise=input here.")


def lanes_of(tree: Tree, of_live: LaneSet = ONE) -> LaneSet:
    """The lanes of its classifier, before anything is loaded; of_live: those of a network of the program,
    which the text of a tree only names."""
    if isinstance(tree, Live):
        return tree.module.lanes if isinstance(tree.module, Classifier) else ONE
    if isinstance(tree, Leaf):
        return of_live if live_places(tree) else ONE
    kind = settle(tree)
    inner = [lanes_of(one, of_live) for one in (*tree.models, *named_models(kind).values())]
    return kind.lanes(inner)


def _resolve(tree: Tree, sources: Sources, leaf: Callable[[str], LoadedModel], top: bool = False) -> LoadedModel:
    if isinstance(tree, Live):
        return _live(tree)
    if isinstance(tree, Leaf):
        return leaf(tree.text)
    kind = settle(tree)
    if not top:
        _refuse_lift_of(tree, kind)
    leaves = [sources.denoiser if kind.denoiser_first and place == 0 else leaf for place in range(len(tree.models))]
    beside = named_models(kind)
    leaves += [sources.selector if name in kind.selectors else leaf for name in beside]
    wrong = Collected()
    every = zip((*tree.models, *beside.values()), leaves, strict=True)
    asked = [wrong.ask(partial(_resolve, one, sources, by)) for one, by in every]
    wrong.tell()
    parts = [one for one in asked if one is not None]
    models, named = parts[: len(tree.models)], dict(zip(beside, parts[len(tree.models) :], strict=True))
    lanes = kind.lanes([one.lanes for one in parts])
    classes = _same_classes(tree, kind, models, named)
    build = lambda: kind.build([one.module for one in models], {name: one.module for name, one in named.items()})  # noqa: E731
    module = checked(kind, build).eval()
    digest = joined(
        [one.digest for one in parts], kind.join, kind.name, *_own_settings(kind), *code_settings(kind.computes_with)
    )
    sides = {one.side for one in parts} - {None}
    side = sides.pop() if kind.sees_whole and len(sides) == 1 else None
    return LoadedModel(module, classes, digest, str(tree), lanes, kind, side)


def _live(tree: Live) -> LoadedModel:
    """A network of the program: a copy in evaluation mode, so that the user's own stays as it is."""
    refuse_lazy(tree.module, str(tree), ModelError)
    try:
        module = copy.deepcopy(tree.module).eval()
    except Exception as error:  # whatever a foreign object raises
        rule, received = "must be one that copy.deepcopy can copy", f"{type(error).__name__}: {error}"
        remedy = "Take what cannot be copied out of it: locks, open files, weights of torch.nn.utils.weight_norm."
        raise ModelError(str(tree), rule, received, remedy) from error
    return LoadedModel(module, None, model_digest(module, structured=True), str(tree), lanes_of(tree))


def _own_settings(kind: NodeKind) -> list[str]:
    models = named_models(kind)
    return sorted(f"{name}={value!r}" for name, value in vars(kind).items() if name not in models)


def _first_setting(tree: Node) -> str:
    return ", ".join(f"{key}={value}" for key, value in tree.settings.items() if key in ("noise", "sampling"))


def _same_classes(tree: Node, kind: NodeKind, models: list[LoadedModel], named: dict[str, LoadedModel]) -> int | None:
    """The classes all models share; a selector has two outputs of its own, a denoiser none."""
    voting = [
        *models[1 if kind.denoiser_first else 0 :],
        *(one for name, one in named.items() if name not in kind.selectors),
    ]
    for name in kind.selectors:
        if name in named and named[name].num_classes not in (None, 2):
            received, remedy = f"{named[name].num_classes} outputs", "Use entropy, or train one as an ACES selector."
            raise ModelError(f"{kind.name}({name}=)", "must have two outputs, (core, certify)", received, remedy)
    counts = {one.num_classes for one in voting} - {None}
    if len(counts) > 1:
        listed = ", ".join(f"{one.spec}: {one.num_classes}" for one in voting)
        raise ModelError(
            tree.name, "is made of models with the same classes", listed, "Leave out the ones that differ."
        )
    return counts.pop() if counts else None
