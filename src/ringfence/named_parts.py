"""The parts of a certification, made from their names in configs and job files; and the checks of all of them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import torch

from ringfence.errors import ArgumentError, Collected, ModelError
from ringfence.mechanisms import Mechanism
from ringfence.models import lanes_of, procedure_for
from ringfence.models.grammar import Live, Tree, live_places
from ringfence.models.load import check_classes
from ringfence.noise import Gaussian, Noise, noise_with
from ringfence.procedures import PROCEDURES, EnsembleAfterSmoothing, Procedure
from ringfence.procedures import procedure as named_procedure
from ringfence.record import Lane
from ringfence.sampling import ForwardPlan, check_seed, pick_device
from ringfence.settings import SMALLEST_SHARE, check_settings
from ringfence.stats.noise_law import AUTO

if TYPE_CHECKING:
    from ringfence.certification import Certification

TF32_SINCE = (8, 0)
"""Compute capability of the first devices that have it."""


def fitted_procedure(tree: Tree, asked: Procedure) -> Procedure:
    """The procedure that reads the classifier of a tree: ACES has its own for the usual names."""
    if isinstance(tree, Live):
        return asked
    name, implied = procedure_for(tree, asked.name)
    if name == asked.name:
        return asked
    known = {one.name for one in fields(PROCEDURES[name])}
    usual = {one.name: one.default for one in fields(asked)}
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


def check_numbers(value: Certification) -> None:
    """Refuse numbers that no certification has."""
    wrong = Collected()
    with wrong:
        check_seed(value.seed)
    if not isinstance(value.split_alpha, bool):
        received, remedy = repr(value.split_alpha), "Give True to divide alpha over the lanes."
        wrong.problems.append(ArgumentError("split_alpha", "must be True or False", received, remedy))
    with wrong:
        ForwardPlan(1, value.precision)
    with wrong:
        check_settings(value.procedure)
    if not value.mechanisms:
        wrong.problems.append(ArgumentError("mechanism", "needs at least one", "none", "Use neyman-pearson."))
    with wrong:
        check_classes(value.classes, "classes")
    if (value.mean is None) != (value.std is None):
        remedy = "Give both, one number per channel."
        wrong.problems.append(ModelError("mean, std", "must be given together", "only one", remedy))
    wrong.tell()


def check_tree(value: Certification) -> None:
    """Refuse a tree whose lanes, lift or normalisation do not go together with the rest."""
    live, joint = isinstance(value.classifier, Live), value.procedure.name == EnsembleAfterSmoothing.name
    lanes = tuple(map(Lane, value.names)) or lanes_of(value.classifier)  # every node is known, its settings are read
    twice = [name for name, count in Counter(lane.name for lane in lanes).items() if count > 1]
    if twice:
        rule, remedy = "must have names of their own, which are the keys of their records", "Leave out one of them."
        raise ArgumentError("lanes", rule, f"{', '.join(map(repr, twice[:3]))} more than once", remedy)
    if value.split_alpha and joint:
        rule = "divides alpha over lanes, and after-smoothing makes one claim about all members"
        raise ArgumentError("split_alpha", rule, f"procedure {value.procedure.name}", "Leave it out.")
    if value.split_alpha and value.procedure.alpha / len(lanes) < SMALLEST_SHARE <= value.procedure.alpha:
        rule, remedy = f"must be at least {SMALLEST_SHARE:g} for each lane", "Raise it, or leave `split_alpha` out."
        raise ArgumentError("alpha", rule, f"{value.procedure.alpha:g} over {len(lanes)} lanes", remedy)
    if (value.lift is not None or value.names) and not live:
        rule = "are for a network of the program; a tree of models says its own"
        raise ArgumentError("lift, lanes", rule, str(value.classifier), "Leave them out.")
    if value.mean is not None and live_places(value.classifier):
        rule = "stand before sources, and a network of the program brings what it needs"
        raise ModelError("mean, std", rule, str(value.classifier), "Wrap it: normalize(net, mean=..., std=...).")


def resolved_precision(name: str, device: str = "auto") -> Any:
    """``auto`` is tf32 on a CUDA device that computes in it, else fp32; other names stay, to be checked."""
    if name != "auto":
        return name
    where = pick_device(device)
    return "tf32" if where.type == "cuda" and torch.cuda.get_device_capability(where) >= TF32_SINCE else "fp32"


def noise_of(settings: Mapping[str, Any]) -> Noise:
    """The noise of a config's entries."""
    family, sigma = str(settings.get("family", Gaussian.name)), settings.get("sigma")
    known = ("family", "sigma", "form", "lattice")
    unknown = set(settings) - {*known, "coordinates"}  # the last follows from the data, and is the config's to keep
    if unknown:
        raise ArgumentError("noise", f"has the settings {', '.join(known)}", sorted(unknown), "Leave out the others.")
    if type(sigma) not in (int, float):
        raise ArgumentError("sigma", "must be a positive number", repr(sigma), "Give e.g. 0.25 ([0,1] pixel units).")
    form, lattice = settings.get("form", AUTO), settings.get("lattice")
    return noise_with(family, float(sigma), form, lattice)  # type: ignore[arg-type]


def undivided(alpha: float, lanes: int) -> float:
    """The alpha whose division over so many lanes gives this one to the last bit."""
    whole = alpha * lanes
    near = [whole, math.nextafter(whole, 0.0), math.nextafter(whole, 1.0)]
    return next((one for one in near if one / lanes == alpha), whole)
