"""Parts of a certification by their names, as configs and job files write them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import torch

from ringfence.errors import ArgumentError, Collected
from ringfence.mechanisms import Mechanism, mechanisms_named
from ringfence.models import procedure_for
from ringfence.models.grammar import Live, Tree
from ringfence.noise import Gaussian, Noise, noise_with
from ringfence.procedures import PROCEDURES, Procedure
from ringfence.procedures import procedure as named_procedure
from ringfence.stats.noise_law import FLOAT


def fitted_procedure(tree: Tree, asked: Procedure) -> Procedure:
    """The procedure that reads the classifier of a tree: ACES has its own for the usual names."""
    if isinstance(tree, Live):
        return asked
    name, implied = procedure_for(tree, asked.name)
    if name == asked.name:
        return asked
    known = {one.name for one in fields(PROCEDURES[name])}  # type: ignore[arg-type]
    usual = {one.name: one.default for one in fields(asked)}  # type: ignore[arg-type]
    settings = {key: value for key, value in asked.settings().items() if key in known or value != usual[key]}
    return named_procedure(name, {**settings, **implied})


def check_kinds(noise: object, procedure: object, mechanisms: Sequence[object]) -> None:
    """Refuse what is no noise, procedure or mechanism at all: nothing else can be asked of it."""
    wrong = Collected()
    asked = [("noise", noise, Noise, "rf.Gaussian(0.25)"), ("procedure", procedure, Procedure, "rf.Fixed(n=10_000)")]
    asked += [("mechanism", one, Mechanism, "rf.neyman_pearson") for one in mechanisms]
    for name, value, kind, example in asked:
        if not isinstance(value, kind):
            remedy = f"Write e.g. {name}={example}."
            wrong.problems.append(ArgumentError(name, f"must be a {kind.__name__}", repr(value), remedy))
    wrong.tell()


def resolved_precision(name: str) -> Any:
    """``auto`` is bf16 where a CUDA device computes in it, else fp32; other names stay, to be checked."""
    if name != "auto":
        return name
    return "bf16" if torch.cuda.is_available() and torch.cuda.is_bf16_supported() else "fp32"


def noise_of(settings: Mapping[str, Any]) -> Noise:
    """The noise of a config's entries."""
    family, sigma = str(settings.get("family", Gaussian.name)), settings.get("sigma")
    known = ("family", "sigma", "form", "lattice")
    unknown = set(settings) - {*known, "coordinates"}  # the last follows from the data, and is the config's to keep
    if unknown:
        raise ArgumentError("noise", f"has the settings {', '.join(known)}", sorted(unknown), "Leave out the others.")
    if type(sigma) not in (int, float):
        raise ArgumentError("sigma", "must be a positive number", repr(sigma), "Give e.g. 0.25 ([0,1] pixel units).")
    form, lattice = settings.get("form", FLOAT), settings.get("lattice")
    return noise_with(family, float(sigma), form, lattice)  # type: ignore[arg-type]


def mechanisms_of(names: str | Sequence[str]) -> tuple[Mechanism, ...]:
    """Mechanisms by name, the deciding one first; ``all`` is Neyman-Pearson with every other one beside it."""
    return tuple(one for name in ([names] if isinstance(names, str) else names) for one in mechanisms_named(str(name)))


def undivided(alpha: float, lanes: int) -> float:
    """The alpha whose division over so many lanes gives this one to the last bit."""
    whole = alpha * lanes
    near = [whole, math.nextafter(whole, 0.0), math.nextafter(whole, 1.0)]
    return next((one for one in near if one / lanes == alpha), whole)
