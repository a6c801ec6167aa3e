"""Training objectives; registered below, in the order in which they are listed to users."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from ringfence.errors import LOAD_PLUGIN, ArgumentError, did_you_mean
from ringfence.settings import settings_of
from ringfence.training.objectives.adversarial import SmoothAdv as SmoothAdv
from ringfence.training.objectives.adversarial import SmoothMix as SmoothMix
from ringfence.training.objectives.attacked_noise import Catrs as Catrs
from ringfence.training.objectives.attacked_noise import Reweight as Reweight
from ringfence.training.objectives.base import LossTerms as LossTerms
from ringfence.training.objectives.base import Objective as Objective
from ringfence.training.objectives.base import SingleObjective as SingleObjective
from ringfence.training.objectives.base import share_right as share_right
from ringfence.training.objectives.beside_classifier import DenoiseMse as DenoiseMse
from ringfence.training.objectives.beside_classifier import DenoiseStability as DenoiseStability
from ringfence.training.objectives.beside_classifier import Select as Select
from ringfence.training.objectives.diversity import Adp as Adp
from ringfence.training.objectives.diversity import Drt as Drt
from ringfence.training.objectives.diversity import Gal as Gal
from ringfence.training.objectives.gaussian import Consistency as Consistency
from ringfence.training.objectives.gaussian import Macer as Macer
from ringfence.training.objectives.gaussian import NoiseAugmentation as NoiseAugmentation
from ringfence.training.objectives.gaussian import Stability as Stability

_ALONE = (NoiseAugmentation, SmoothAdv, Consistency, Macer, Stability, SmoothMix, Catrs, Reweight)
_TOGETHER, _FOR_CLASSIFIERS = (Drt, Adp, Gal), (DenoiseMse, DenoiseStability, Select)

OBJECTIVES: dict[str, type[Objective]] = {kind.name: kind for kind in (*_ALONE, *_TOGETHER, *_FOR_CLASSIFIERS)}
"""Every registered objective; the first is the default."""


def default_objective() -> Objective:
    """The first one, with its defaults."""
    return next(iter(OBJECTIVES.values()))()


def bases_of(kind: type[Objective]) -> dict[str, type[Objective]]:
    """What an objective may be built upon, by name; the first is the default. Empty: it stands alone."""
    found = [one.metadata["bases"] for one in fields(kind) if "bases" in one.metadata]
    return {base.name: base for bases in found for base in bases}


def build_objective(name: str, settings: Mapping[str, Any], base: str | None = None) -> Objective:
    """The objective with these settings (text is converted); what is not its own goes to the one it is built upon."""
    kind = _objective_class(name)
    bases = bases_of(kind)
    if base is not None and not bases:
        known = " and ".join(other for other, one in OBJECTIVES.items() if bases_of(one))
        raise ArgumentError("base", f"belongs to the objectives {known}", f"objective {name}", "Leave it out.")
    own, inner, parts = settings_of(kind), {}, {}
    if bases:
        base = next(iter(bases)) if base is None else base
        if base not in bases:
            raise ArgumentError("base", f"of {name} must be one of {', '.join(bases)}", repr(base), "Leave it out.")
        inner = {key: one for key, one in settings_of(bases[base]).items() if key not in own}
        parts["base"] = bases[base](
            **{key: _parsed_if_text(inner[key], settings[key]) for key in settings if key in inner}
        )
    unknown = [key for key in settings if key not in own and key not in inner]
    if unknown:
        names = sorted({**own, **inner})
        rule = f"{name} has the settings {', '.join(names)} alone"
        given = ", ".join(str(settings[one]) for one in unknown)
        raise ArgumentError(", ".join(unknown), rule, given, _remedy(unknown[0], names))
    return kind(**{key: _parsed_if_text(own[key], settings[key]) for key in settings if key in own}, **parts)


def stored_objective(stored: Mapping[str, Any]) -> Objective:
    """The inverse of ``Objective.settings``; settings that did not exist then have their default."""
    inner = stored.get("base")
    flat = {**(inner or {}), **stored}
    return build_objective(
        stored["name"],
        {key: value for key, value in flat.items() if key not in ("name", "base")},
        None if inner is None else inner["name"],
    )


def _objective_class(name: str) -> type[Objective]:
    name = name.replace("_", "-")
    if name not in OBJECTIVES:
        remedy = did_you_mean(name, OBJECTIVES, f"Use {next(iter(OBJECTIVES))}, or {LOAD_PLUGIN}")
        raise ArgumentError("objective", f"must be one of {', '.join(OBJECTIVES)}", repr(name), remedy)
    return OBJECTIVES[name]


def _remedy(unknown: str, known: list[str]) -> str:
    """What to do about a setting that the objective does not have: it is misspelt, or another objective's."""
    owners = [name for name, one in OBJECTIVES.items() if unknown in settings_of(one)]
    owned = f"{unknown} belongs to the objectives {', '.join(owners)}." if owners else "Correct the name."
    return did_you_mean(unknown, known, owned)


def _parsed_if_text(known: Any, value: Any) -> Any:
    return known.parse(value) if isinstance(value, str) else value
