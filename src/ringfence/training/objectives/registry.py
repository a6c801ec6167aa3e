"""Objectives by name, built from settings as a user writes them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, get_type_hints

from ringfence.errors import ArgumentError
from ringfence.training.objectives.adp import Adp
from ringfence.training.objectives.base import Objective, SingleObjective
from ringfence.training.objectives.catrs import Catrs
from ringfence.training.objectives.consistency import Consistency
from ringfence.training.objectives.denoise import DenoiseMse, DenoiseStability
from ringfence.training.objectives.drt import Drt
from ringfence.training.objectives.gal import Gal
from ringfence.training.objectives.gaussian import Gaussian
from ringfence.training.objectives.macer import Macer
from ringfence.training.objectives.reweight import Reweight
from ringfence.training.objectives.select import Select
from ringfence.training.objectives.smoothadv import SmoothAdv
from ringfence.training.objectives.smoothmix import SmoothMix
from ringfence.training.objectives.stability import Stability

OBJECTIVES: dict[str, type[Objective]] = {
    one.name: one
    for one in (
        Gaussian,
        SmoothAdv,
        Consistency,
        Macer,
        Stability,
        SmoothMix,
        Catrs,
        Reweight,
        Drt,
        Adp,
        Gal,
        DenoiseMse,
        DenoiseStability,
        Select,
    )
}
"""Every objective that a name and numbers describe."""

BASES: dict[str, tuple[type[SingleObjective], ...]] = {
    Drt.name: (Gaussian, SmoothAdv),
    Select.name: (Gaussian, SmoothAdv, Consistency, Macer, Stability, SmoothMix),
}
"""What ``--base`` may name, by the objective that is built upon it."""


def build_objective(name: str, settings: Mapping[str, Any], base: str | None = None, **parts: Any) -> Objective:
    """The objective with these settings (strings are converted); drt and select hand what is not theirs to their base.

    parts: values that are no settings, such as the classifier of ``denoise-stability``.
    """
    if name not in OBJECTIVES:
        raise ArgumentError("--objective", f"must be one of {', '.join(OBJECTIVES)}", repr(name), "Use gaussian.")
    kind = OBJECTIVES[name]
    own = {one.name for one in dataclasses.fields(kind)}  # type: ignore[arg-type]
    known: set[str] = set()
    if name in BASES:
        inner = _base_named(base or Gaussian.name, name)
        known = {one.name for one in dataclasses.fields(inner)} - own  # type: ignore[arg-type]
        parts["base"] = _build(inner, {key: value for key, value in settings.items() if key in known})
        settings = {key: value for key, value in settings.items() if key not in known}
    elif base is not None:
        rule = f"belongs to the objectives {' and '.join(BASES)}"
        raise ArgumentError("--base", rule, f"--objective {name}", "Leave --base out.")
    unknown = [key for key in settings if key not in own or key in ("base", "classifier")]
    if unknown:
        listed = ", ".join(sorted((own | known) - {"base", "classifier"}))
        raise ArgumentError("--set", f"{name} has the settings {listed}", ", ".join(unknown), "Correct the name.")
    built: Objective = _build(kind, settings, **parts)
    return built


def _base_named(base: str, objective: str) -> type[SingleObjective]:
    allowed = {one.name: one for one in BASES[objective]}
    if base not in allowed:
        rule = f"of {objective} must be one of {', '.join(allowed)}"
        raise ArgumentError("--base", rule, repr(base), "Use gaussian.")
    return allowed[base]


def _build(kind: type[Any], settings: Mapping[str, Any], **parts: Any) -> Any:
    hints = get_type_hints(kind)
    return kind(**{key: _converted(key, value, hints[key]) for key, value in settings.items()}, **parts)


def _converted(name: str, value: Any, kind: Any) -> Any:
    """Text as the type of its setting; anything else stays."""
    if not isinstance(value, str) or kind not in (int, float, bool):
        return value
    try:
        if kind is bool:
            return {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}[value.lower()]
        return kind(value)
    except (ValueError, KeyError):
        raise ArgumentError(f"--set {name}", f"must be a {kind.__name__}", repr(value), "Correct the value.") from None
