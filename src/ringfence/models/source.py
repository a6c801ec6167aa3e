"""What kind of source a leaf of a model tree names: decided in one place, for those who load it and who ask about it.

Were the loaders and trust to read a leaf each in their own way, a run folder could name a program that only one of
them sees.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import final

from ringfence.classifiers.architectures import ARCHITECTURES
from ringfence.models.architecture import denoiser_name
from ringfence.models.exported import is_program
from ringfence.models.registry import SOURCES
from ringfence.models.weights import CHECKPOINTS, split_weights

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
