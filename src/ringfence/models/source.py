"""What kind of source a leaf of a model tree names, and which foreign code it would run: decided in one place.

Were those who load a leaf and those who ask whether to trust it to read it each in their own way, a stranger's run
folder could name a program that only one of them sees.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import final

from ringfence.classifiers import architectures
from ringfence.classifiers.architectures import ARCHITECTURES
from ringfence.errors import ModelError
from ringfence.models.architecture import denoiser_name
from ringfence.models.exported import is_program
from ringfence.models.grammar import Leaf, Live, Tree, as_tree
from ringfence.models.registry import SOURCES, named_models, settle
from ringfence.models.weights import CHECKPOINTS, split_weights

OURS = architectures.__name__
"""The package whose networks a spec may name like anybody's: those that it declares, and nothing else found there."""

BLIND, GUIDED = ("dncnn", "cdncnn"), ("fdncnn", "ffdnet")
"""Denoisers that find the noise level themselves, and those that are told it: ``fdncnn-0.25``."""


class Kind(Enum):
    """Where a leaf's network comes from."""

    EMBEDDED = "default"
    ZOO = "zoo"
    PROGRAM = "exported program or TorchScript"
    FILE = "factory in a file"
    MODULE = "factory in a module"
    ARCHITECTURE = "known network"
    CHECKPOINT = "file of weights"
    REGISTERED = "source of a user"
    UNKNOWN = "unknown"


FACTORIES = (Kind.FILE, Kind.MODULE, Kind.REGISTERED)
"""Kinds that build by somebody's code, which is told the classes."""


@final
@dataclass(frozen=True)
class LeafSource:
    """A leaf's kind, its name without the weights after an @, and the file of those."""

    kind: Kind
    name: str
    weights: str | None

    @property
    def member(self) -> str | None:
        """What follows the first colon: the number of an embedded network, the name in the zoo; None without one."""
        _, colon, member = self.name.partition(":")
        return member if colon else None

    @property
    def place(self) -> str:
        """The file or module of a factory."""
        return self.name.rpartition(":")[0]

    @property
    def factory(self) -> str:
        """Its name there."""
        return self.name.rpartition(":")[2]


def source_of(leaf: str, denoiser: bool = False) -> LeafSource:
    """What a leaf names; denoiser: it stands where a denoiser belongs, whose known networks are others."""
    if leaf.partition(":")[0] in SOURCES:
        return LeafSource(Kind.REGISTERED, leaf, None)  # what follows is all its own
    name, weights = split_weights(leaf)
    return LeafSource(_kind(name, denoiser), name, weights)


def is_denoiser(name: str) -> bool:
    """Whether a name begins like that of a denoiser known here."""
    return denoiser_name(name.partition("-")[0]) in (*BLIND, *GUIDED)


def _kind(name: str, denoiser: bool) -> Kind:
    head, colon, _ = name.partition(":")
    if head in ("default", "zoo"):
        return Kind.EMBEDDED if head == "default" else Kind.ZOO
    if is_program(Path(name)):
        return Kind.PROGRAM
    if colon:
        return Kind.FILE if name.rpartition(":")[0].endswith(".py") else Kind.MODULE
    if is_denoiser(name) if denoiser else name in ARCHITECTURES:
        return Kind.ARCHITECTURE
    return Kind.CHECKPOINT if Path(name).suffix in CHECKPOINTS else Kind.UNKNOWN


def foreign_code(spec: str) -> list[str]:
    """What loading the spec would execute, in words; empty for weights of known architectures, which are only read."""
    return [told for one in _leaves(as_tree(spec)) if (told := _runs(one))]


def without_gradients(spec: str) -> list[str]:
    """The leaves that no attack gets through, by the word of their source: nothing is loaded to ask."""
    named = [one.name for one in _leaves(as_tree(spec)) if one.kind is Kind.REGISTERED]
    return [name for name in named if not SOURCES[name.partition(":")[0]].has_gradients]


def refuse_foreign_code(spec: str, folder: Path, remedy: str) -> None:
    """A run folder from elsewhere is data: it may say which of our networks to load, and name nobody's program."""
    if told := foreign_code(spec):
        rule = "names a model that runs code, which no run folder may start by itself"
        received = f"{folder / 'config.json'}, with which this command would run {'; '.join(dict.fromkeys(told))}"
        raise ModelError("run", rule, received, remedy)


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
