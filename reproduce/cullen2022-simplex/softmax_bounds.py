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
from ringfence.mechanisms import MECHANISMS
from ringfence.record import Record

RESULTS = Path(__file__).resolve().parents[2] / "results" / "simplex"
SOFT_BOUNDS = (("betting", "sound"), ("bernstein", "sound"), ("hoeffding", "sound"), ("hoeffding", "paper"))


def redecided(
    run: RunBounds, name: str, procedure: str, settings: dict[str, Any], records: Sequence[Record]
) -> RunBounds:
    """The same counts under another procedure or bound; stored radii are left out, so that they are computed again."""
    config = run.config.model_copy(update={"procedure": procedure, "procedure_settings": settings})
    return RunBounds(name, config, [replace(one, radii={}) for one in records])


def study_softmax(path: Path) -> None:
    """Every bound and mechanism on the counts of one softmax run, into softmax.json; the draws are the same for all."""
    run = RunBounds.load(path)
    rows = []
    for bound, form in SOFT_BOUNDS:
        settings = run.config.procedure_settings | {"bound": bound, "form": form}
        # The paper's form knows no selection stage: it sees the n draws alone.
        records = [replace(one, stages=one.stages[-1:]) for one in run.records] if form == "paper" else run.records
        again = redecided(run, f"{bound}, {form}", run.config.procedure, settings, records)
        for name, one in MECHANISMS.items():
            radius = again.radius(one)
            shown = {"median_radius": float(np.median(radius)), "mean_radius": float(radius.mean())}
            of = {"bound": bound, "form": form, "mechanism": name}
            rows.append({**of, **shown, "above": float(np.mean(radius > 0.05))})
    content = {"run": path.name, "sigma": run.sigma, "n": run.n, "inputs": len(run), "top_1": run.top_1, "rows": rows}
    (RESULTS / "softmax.json").write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    study_softmax(Path(sys.argv[1]))
