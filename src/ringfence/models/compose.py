"""Trees from their parts: nodes built in Python, members with the votes over them, and nested mappings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from os import PathLike, fspath
from typing import Any

import numpy as np
from torch import Tensor, nn

from ringfence.classifiers import VOTES
from ringfence.classifiers.votes import weighted as checked_weights
from ringfence.errors import ArgumentError, ModelError
from ringfence.models.grammar import Leaf, Live, Node, Tree, as_tree
from ringfence.models.source import FACTORIES, Kind, source_of

Part = str | PathLike[str] | Tree | nn.Module
"""What stands for a model: a source or a file, a tree or its text, or a network of the program itself."""


def tree_of(part: Any) -> Tree:
    """The tree of whatever names a classifier: text, a tree, a live network, or a nested mapping.

    ``{"soft": ["zoo:a:0", "zoo:a:1"]}`` is soft(zoo:a:0, zoo:a:1); with settings, ``{"consensus": {"models": [...],
    "agree": 2}}``.
    """
    if isinstance(part, Leaf | Node | Live):
        return part
    if isinstance(part, nn.Module):
        return Live(part)
    if isinstance(part, str):
        return as_tree(part)
    if isinstance(part, PathLike):
        return Leaf(fspath(part))
    if isinstance(part, Mapping) and len(part) == 1:
        ((name, inside),) = part.items()
        if isinstance(inside, Mapping):
            given = {str(key): value for key, value in inside.items()}
            return composed(str(name), *_listed_models(name, given.pop("models", ())), **given)
        return composed(str(name), *_listed_models(name, inside))
    rule = "must be a tree: text, a network, or a mapping of one node's name to its models and settings"
    remedy = "Give the nn.Module itself, an instance with its weights, or write e.g. soft(A, B) or {soft: [A, B]}."
    if isinstance(part, Mapping) and part and all(isinstance(one, Tensor) for one in part.values()):
        received, remedy = f"the weights of one (a dict of {len(part)} tensors)", "Load them: net.load_state_dict(...)."
    elif isinstance(part, type):
        received, remedy = f"a class, {part.__name__}", f"Make a network of it: {part.__name__}(...), with its weights."
    elif callable(part):
        received = f"a function, {getattr(part, '__name__', type(part).__name__)}"
        remedy = "Put it into the forward of an nn.Module, whose weights then belong to what is certified."
    else:
        received = repr(part)[:80]
    raise ModelError("classifier", rule, received, remedy)


def composed(name: str, *models: Part, **settings: Any) -> Node:
    """A node of the tree: ``composed("consensus", net, "zoo:a:0", agree=1)``."""
    return Node(name, tuple(map(tree_of, models)), {key: _setting(value) for key, value in settings.items()})


def _node(name: str) -> Callable[..., Node]:
    def build(*models: Part, **settings: Any) -> Node:
        return composed(name, *models, **settings)

    build.__name__ = name.replace("-", "_")
    build.__doc__ = f"The node {name}(...) of a tree: ``{build.__name__}(net, 'zoo:a:0')``; settings by name."
    return build


aces = _node("aces")
chunks = _node("chunks")
clips = _node("clips")
consensus = _node("consensus")
denoised = _node("denoised")
hard = _node("hard")
lanes = _node("lanes")
lifted = _node("lifted")
max_margin = _node("max-margin")
normalize = _node("normalize")
patches = _node("patches")
resized = _node("resized")
soft = _node("soft")
softmax = _node("softmax")
weighted = _node("weighted")


def _listed_models(name: Any, models: Any) -> Sequence[Any]:
    if not isinstance(models, list | tuple):
        raise ModelError(
            str(name),
            "is a list of models, or a mapping with models and settings",
            repr(models)[:80],
            "Write e.g. {soft: [A, B]}.",
        )
    return models


def _setting(value: Any) -> Tree:
    """A setting's value as the grammar writes it; what may be a model is left to the node's declaration."""
    if isinstance(value, nn.Module | Mapping | Leaf | Node | Live):
        return tree_of(value)
    if isinstance(value, str):
        return as_tree(value)
    if value is None:
        return Leaf("none")
    if isinstance(value, np.ndarray | np.generic | Tensor):
        return _setting(value.tolist())
    if isinstance(value, list | tuple):
        return Leaf("/".join(str(_setting(one)) for one in value) or "none")
    return Leaf(str(value).lower() if isinstance(value, bool) else repr(value))


def ensemble(
    members: Sequence[Part],
    votes: Sequence[str] = ("soft",),
    consensus: Sequence[int] = (),
    weights: Sequence[float] = (),
    on: str = "logits",
    prefixes: bool = False,
    singles: bool = False,
    after_smoothing: bool = False,
) -> Node:
    """Members and the votes over them: one vote is its own node, one K-consensus skips work, the rest are lanes.

    after_smoothing: every member is smoothed by itself, so that nothing is left to vote or to form lanes of.
    """
    models = tuple(map(tree_of, members))
    _check_votes(len(models), votes, weights, on)
    for agree in consensus:
        if not 1 <= agree <= len(models):
            rule = f"must lie between 1 and the number of members, {len(models)}"
            raise ArgumentError("consensus", rule, agree, "Ask for fewer members to agree.")
    flags = {"prefixes": prefixes, "singles": singles}
    if after_smoothing:
        _refuse_unused(votes, consensus, flags)
        return Node("lanes", models, {"votes": Leaf("none"), "singles": Leaf("true")})
    alone, chosen = not (prefixes or singles), tuple(votes)
    if alone and len(consensus) == 1 and chosen == ("soft",):
        return Node("consensus", models, {"agree": Leaf(str(consensus[0]))})
    weighing = {"weights": _setting(tuple(weights)), "on": Leaf(on)} if weights else {}
    if alone and len(chosen) == 1 and not consensus:
        return Node(chosen[0], models, weighing)
    lanes: dict[str, Tree] = {"votes": Leaf("/".join(chosen) or "none")}
    if consensus:
        lanes["consensus"] = _setting(tuple(consensus))
    return Node("lanes", models, {**lanes, **weighing, **{key: Leaf("true") for key, on in flags.items() if on}})


def with_weights(model: str | Tree, weights: str | PathLike[str]) -> Leaf:
    """A single source with its weights in one word: ``resnet20`` and FILE are resnet20@FILE."""
    tree = tree_of(model)
    if not isinstance(tree, Leaf):
        rule, remedy = "goes with a single source", "Name every source's own: soft(resnet20@A, resnet20@B)."
        raise ModelError("weights", rule, f"{weights} for {tree}", remedy)
    source = source_of(tree.text)
    if source.weights is not None or source.kind not in (*FACTORIES, Kind.ARCHITECTURE, Kind.UNKNOWN):
        raise ModelError("weights", f"does not go with {tree}, which has its own", weights, "Leave it out.")
    return Leaf(f"{tree.text}@{weights}")


def _check_votes(members: int, votes: Sequence[str], weights: Sequence[float], on: str) -> None:
    if not members:
        raise ArgumentError("members", "needs at least one member", "none", "Write e.g. a,b,c.")
    known = (*VOTES, "weighted")
    for vote in votes:
        if vote not in known:
            raise ArgumentError("vote", f"must be among {', '.join(known)}", repr(vote), "Use soft.")
    if ("weighted" in votes) != bool(weights):
        rule = "the vote weighted and the weights of the members go together"
        raise ArgumentError("member_weights", rule, list(weights), "Learn them with ringfence weights.")
    if weights:
        checked_weights(weights, members, on)
    elif on != "logits":
        rule = "says what the weights of the members multiply, and there are none"
        raise ArgumentError("weights_on", rule, repr(on), "Give weights, or leave it out.")


def _refuse_unused(votes: Sequence[str], consensus: Sequence[int], flags: Mapping[str, bool]) -> None:
    """After smoothing, nothing of this says anything: the procedure looks at every member's own votes."""
    unused = [
        *([f"vote {','.join(votes)}"] if tuple(votes) != ("soft",) else []),
        *([f"consensus {','.join(map(str, consensus))}"] if consensus else []),
        *(name for name, on in flags.items() if on),
    ]
    if unused:
        rule = "after-smoothing smooths every member by itself, so that nothing is left to vote or to form lanes of"
        remedy = f"Leave out {' and '.join(unused)}, or use another procedure."
        raise ArgumentError("procedure", rule, ", ".join(["after-smoothing", *unused]), remedy)
