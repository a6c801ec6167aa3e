"""Which foreign code a model spec would run: what must be asked before a stranger's run folder names the model."""

from __future__ import annotations

from ringfence.classifiers import architectures
from ringfence.models.grammar import Leaf, Live, Tree, as_tree
from ringfence.models.registry import SOURCES, named_models, settle
from ringfence.models.source import Kind, source_of

OURS = architectures.__name__
"""The package whose networks a spec may name like anybody's: those that it declares, and nothing else found there."""


def foreign_code(spec: str) -> list[str]:
    """What loading the spec would execute, in words; empty for weights of known architectures, which are only read."""
    return _told(as_tree(spec), denoiser=False)


def _told(tree: Tree, denoiser: bool) -> list[str]:
    """The same for a part, which stands in a denoiser's place or not, as models/resolve.py decides it."""
    if isinstance(tree, Leaf):
        return _leaf(tree.text, denoiser)
    if isinstance(tree, Live):
        return []
    kind = settle(tree)
    parts = [(one, denoiser or (kind.denoiser_first and place == 0)) for place, one in enumerate(tree.models)]
    parts += [(one, denoiser and name not in kind.selectors) for name, one in named_models(kind).items()]
    return [told for one, cleans in parts for told in _told(one, cleans)]


def _leaf(text: str, denoiser: bool) -> list[str]:
    source = source_of(text, denoiser)
    if source.kind is Kind.REGISTERED and not SOURCES[source.name.partition(":")[0]].trusted:
        return [f"whatever {source.name} names"]
    if source.kind is Kind.PROGRAM:
        return [f"the program in {source.name}"]
    if source.kind is Kind.FILE:
        return [f"{source.place}, and {source.factory}() in it"]
    if source.kind is Kind.MODULE and not _is_ours(source.place, source.factory):
        return [f"the module {source.place}, and {source.factory}() in it"]
    return []


def _is_ours(place: str, factory: str) -> bool:
    """Whether that is a declared network of ours, named in the package or where it is written."""
    declared = getattr(architectures, factory, None) if factory in architectures.NETWORKS else None
    return declared is not None and place in (OURS, declared.__module__)
