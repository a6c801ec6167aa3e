"""How many draws to ask for, and what they prove: pure, vectorised, no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from difflib import get_close_matches
from typing import Any

from ringfence.errors import ArgumentError
from ringfence.procedures.aces import AcesCertify, AcesPredict
from ringfence.procedures.aces_sequential import AcesSequential
from ringfence.procedures.after_smoothing import EnsembleAfterSmoothing
from ringfence.procedures.anytime import Anytime
from ringfence.procedures.base import Decisions, Given, Procedure, State
from ringfence.procedures.claims import claims
from ringfence.procedures.fixed import Fixed, TwoSided
from ringfence.procedures.multinomial import Multinomial
from ringfence.procedures.predict import Predict
from ringfence.procedures.sequential import Sequential
from ringfence.procedures.softmax import Softmax
from ringfence.procedures.staged import Staged

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
    "procedure",
]


def procedure(name: str, settings: Mapping[str, Any]) -> Procedure:
    """The procedure of that name; settings that are None keep their defaults, unknown ones are refused."""
    kind = PROCEDURES.get(name.replace("_", "-"))
    if kind is None:
        near = get_close_matches(name, PROCEDURES, n=1)
        remedy = f"Did you mean {near[0]}?" if near else "Name one of them."
        raise ArgumentError("procedure", f"must be one of {', '.join(PROCEDURES)}", name, remedy)
    given = {key: value for key, value in settings.items() if value is not None}
    known = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    for key in given.keys() - known:
        raise ArgumentError(
            key, f"is no setting of the {kind.name} procedure", given[key], f"It knows {sorted(known)}."
        )
    for field in fields(kind):  # type: ignore[arg-type]
        if field.default is MISSING and field.name not in given:
            raise ArgumentError(
                field.name,
                f"is needed by the {kind.name} procedure",
                "none",
                f"Give --{field.name} or another procedure.",
            )
    return kind(**given)
