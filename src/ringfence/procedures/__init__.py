"""How many draws to ask for, and what they prove: pure, vectorised, no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from typing import Any

from ringfence.errors import LOAD_PLUGIN, ArgumentError, did_you_mean
from ringfence.procedures.aces import AcesCertify, AcesPredict, AcesProcedure
from ringfence.procedures.aces_sequential import AcesSequential
from ringfence.procedures.anytime import Anytime
from ringfence.procedures.base import Decisions, Given, Procedure, State, claims
from ringfence.procedures.fixed import EnsembleAfterSmoothing, Fixed, TwoSided
from ringfence.procedures.predict import Multinomial, Predict
from ringfence.procedures.sequential import Sequential
from ringfence.procedures.softmax import Softmax
from ringfence.procedures.staged import Staged
from ringfence.settings import Setting, setting, settings_of

PROCEDURES: dict[str, type[Procedure]] = {
    kind.name: kind
    for kind in (
        Fixed,
        TwoSided,
        Multinomial,
        Softmax,
        Predict,
        Staged,
        Sequential,
        Anytime,
        EnsembleAfterSmoothing,
        AcesCertify,
        AcesPredict,
        AcesSequential,
    )
}

__all__ = [
    "PROCEDURES",
    "AcesCertify",
    "AcesPredict",
    "AcesProcedure",
    "AcesSequential",
    "Anytime",
    "Decisions",
    "EnsembleAfterSmoothing",
    "Fixed",
    "Given",
    "Multinomial",
    "Predict",
    "Procedure",
    "Sequential",
    "Softmax",
    "Staged",
    "State",
    "TwoSided",
    "claims",
    "declared",
    "foreseen",
    "procedure",
    "setting",
    "usual_name",
]


def usual_name(settings: Mapping[str, Any]) -> str:
    """Where no procedure is named: sequential where a radius is given, and fixed where none is."""
    return Fixed.name if settings.get("radius") is None else Sequential.name


def procedure(name: str | None, settings: Mapping[str, Any], unless_known: Sequence[str] = ()) -> Procedure:
    """The procedure of that name, or the usual one.

    Settings that are None keep their defaults, unknown ones are refused together, but for those in unless_known.
    """
    kind = _kind(name or usual_name(settings))
    known = [one.name for one in fields(kind)]
    asked = {key: value for key, value in settings.items() if key in known or key not in unless_known}
    return kind(**_fitting(kind, asked))


def _fitting(kind: type[Procedure], settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that are given, None being none; all that this procedure does not know or lacks in one error."""
    given = {key: value for key, value in settings.items() if value is not None}
    own = {one.name: one for one in fields(kind)}
    unknown = [key for key in given if key not in own]
    missing = [name for name, one in own.items() if one.default is MISSING and name not in given]
    if unknown:
        received = ", ".join(str(given[key]) for key in unknown)
        noun = "is no setting" if len(unknown) == 1 else "are no settings"
        remedy = f"It knows {', '.join(f'`{one}`' for one in own)}."
        raise ArgumentError(", ".join(unknown), f"{noun} of the {kind.name} procedure", received, remedy)
    if missing:
        remedy = f"Give {', '.join(f'`{one}`' for one in missing)}, or another procedure."
        raise ArgumentError(", ".join(missing), f"is needed by the {kind.name} procedure", "none", remedy)
    return given


def foreseen(test: Procedure, given: Given, radius: float | None = None) -> dict[str, Any]:
    """What a certification can reach and costs per input, before anything runs; radius: whether it is in reach.

    For a known radius also the probability it needs, and the mean draws of inputs whose class has probability p.
    """
    best = test.best_case(given)
    answer: dict[str, Any] = {
        "procedure": test.name,
        "largest_radius": best,
        "radius": radius,
        "reachable": radius is None or radius <= best,
        "most_draws": test.most_draws,
    }
    if test.target is not None and test.target <= best:
        needed = float(given.probability_for(test.target))
        means = {p: test.expected_draws(p, given) for p in sorted({0.5, 0.7, 0.9, 0.99, 0.999, needed})}
        answer["p_needed"] = needed
        answer["expected_draws_at_p"] = {f"{p:.4g}": mean for p, mean in means.items() if mean is not None}
    return answer


def declared(name: str) -> tuple[Setting, ...]:
    """The settings of the procedure of that name: what they mean, and what they may be."""
    return tuple(settings_of(_kind(name)).values())


def _kind(name: str) -> type[Procedure]:
    kind = PROCEDURES.get(name.replace("_", "-"))
    if kind is None:
        remedy = did_you_mean(name, PROCEDURES, f"Name one of them, or {LOAD_PLUGIN}")
        raise ArgumentError("procedure", f"must be one of {', '.join(PROCEDURES)}", name, remedy)
    return kind
