"""Every bound and mechanism on the counts of one softmax run, into results/simplex/softmax.json.

python reproduce/cullen2022-simplex/softmax_bounds.py RUN
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ringfence.analysis.bounds import RunBounds
from ringfence.mechanisms import mechanisms_named
from ringfence.procedures import claims
from ringfence.procedures.replay import decided_again
from ringfence.record import Record
from ringfence.store.config import ProcedureConfig, given_in, procedure_in

RESULTS = Path(__file__).resolve().parents[2] / "results" / "simplex"
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


def study_softmax(path: Path) -> None:
    """Every bound and mechanism on the counts of one softmax run, into softmax.json; the draws are the same for all."""
    run = RunBounds.load(path)
    rows = []
    for bound, form in SOFT_BOUNDS:
        settings = run.config.procedure.settings | {"bound": bound, "form": form}
        # The paper's form knows no selection stage: it sees the n draws alone.
        records = [replace(one, stages=one.stages[-1:]) for one in run.records] if form == "paper" else run.records
        again = redecided(run, f"{bound}, {form}", run.config.procedure.name, settings, records)
        for one in mechanisms_named("all"):
            radius = again.radius(one)
            shown = {"median_radius": float(np.median(radius)), "mean_radius": float(radius.mean())}
            of = {"bound": bound, "form": form, "mechanism": one.name}
            rows.append({**of, **shown, "above": float(np.mean(radius > 0.05))})
    content = {"run": path.name, "sigma": run.sigma, "n": run.n, "inputs": len(run), "top_1": run.top_1, "rows": rows}
    (RESULTS / "softmax.json").write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    study_softmax(Path(sys.argv[1]))
