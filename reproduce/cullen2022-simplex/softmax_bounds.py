"""Stored counts under other procedures and bounds: every bound and mechanism on those of one softmax run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ringfence.analysis.bounds import RunBounds
from ringfence.mechanisms import mechanisms_named
from ringfence.procedures import claims
from ringfence.procedures.replay import decided_again
from ringfence.record import Record
from ringfence.store.claims import given_in, procedure_in
from ringfence.store.config import ProcedureConfig

SOFT_BOUNDS = (("betting", "sound"), ("bernstein", "sound"), ("hoeffding", "sound"), ("hoeffding", "paper"))


def redecided(
    run: RunBounds, name: str, procedure: str, settings: dict[str, Any], records: Sequence[Record]
) -> RunBounds:
    """The same counts under another procedure or bound, with the radii that they give by every mechanism."""
    config = run.config.model_copy(update={"procedure": ProcedureConfig(name=procedure, **settings)})
    given = given_in(config)
    decided = decided_again(procedure_in(config), given, records, name).decisions
    found = {one.name: claims(decided, replace(given, mechanism=one))[1] for one in mechanisms_named("all")}
    radii = [{key: float(values[row]) for key, values in found.items()} for row in range(len(records))]
    return RunBounds(name, config, [replace(one, radii=own) for one, own in zip(records, radii, strict=True)])


def soft_rows(run: RunBounds) -> list[dict[str, Any]]:
    """Every bound and mechanism on the counts of one softmax run; the draws are the same for all."""
    rows = []
    for bound, form in SOFT_BOUNDS:
        settings = run.config.procedure.settings | {"bound": bound, "form": form}
        # The paper's form knows no selection stage: it sees the n draws alone.
        records = [replace(one, stages=one.stages[-1:]) for one in run.records] if form == "paper" else run.records
        again = redecided(run, f"{bound}, {form}", run.config.procedure.name, settings, records)
        for one in mechanisms_named("all"):
            radius = again.radius(one)
            shown = {"median_radius": float(np.median(radius)), "above": float(np.mean(radius > 0.05))}
            rows.append({"bound": bound, "form": form, "mechanism": one.name, **shown})
    return rows
