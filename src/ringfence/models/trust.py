"""What a model spec would run, and whether it has gradients: asked before a stranger's run folder names the model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ringfence.classifiers import architectures
from ringfence.errors import ModelError
from ringfence.models.grammar import Leaf, Live, Tree, as_tree
from ringfence.models.registry import SOURCES, named_models, settle
from ringfence.models.source import Kind, LeafSource, source_of

OURS = architectures.__name__
"""The package whose networks a spec may name like anybody's: those that it declares, and nothing else found there."""


def foreign_code(spec: str) -> list[str]:
    """What loading the spec would execute, in words; empty for weights of known architectures, which are only read."""
    return [told for one in _leaves(as_tree(spec)) if (told := _runs(one))]


def refuse_foreign_code(spec: str, folder: Path, remedy: str) -> None:
    """A run folder from elsewhere is data: it may say which of our networks to load, and name nobody's program."""
    if told := foreign_code(spec):
        rule = "names a model that runs code, which no run folder may start by itself"
        received = f"{folder / 'config.json'}, with which this command would run {'; '.join(dict.fromkeys(told))}"
        raise ModelError("run", rule, received, remedy)


def without_gradients(spec: str) -> list[str]:
    """The leaves that no attack gets through, by the word of their source: nothing is loaded to ask."""
    named = [one.name for one in _leaves(as_tree(spec)) if one.kind is Kind.REGISTERED]
    return [name for name in named if not SOURCES[name.partition(":")[0]].has_gradients]


def _leaves(tree: Tree, denoiser: bool = False) -> Iterator[LeafSource]:
    """What each leaf names; a part stands in a denoiser's place or not, as models/resolve.py decides it."""
    if isinstance(tree, Leaf):
        yield source_of(tree.text, denoiser)
    if isinstance(tree, Leaf | Live):
        return
    kind = settle(tree)
    for place, one in enumerate(tree.models):
        yield from _leaves(one, denoiser or (kind.denoiser_first and place == 0))
    for name, one in named_models(kind).items():
        yield from _leaves(one, denoiser and name not in kind.selectors)


def _runs(source: LeafSource) -> str | None:
    if source.kind is Kind.REGISTERED and not SOURCES[source.name.partition(":")[0]].trusted:
        return f"whatever {source.name} names"
    if source.kind is Kind.PROGRAM:
        return f"the program in {source.name}"
    if source.kind is Kind.FILE:
        return f"{source.place}, and {source.factory}() in it"
    if source.kind is Kind.MODULE and not _is_ours(source.place, source.factory):
        return f"the module {source.place}, and {source.factory}() in it"
    return None


def _is_ours(place: str, factory: str) -> bool:
    """Whether that is a declared network of ours, named in the package or where it is written."""
    declared = getattr(architectures, factory, None) if factory in architectures.NETWORKS else None
    return declared is not None and place in (OURS, declared.__module__)
