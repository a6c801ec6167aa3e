"""Run folders made from simulated votes or scores, without a network."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from configs import small_config

from ringfence.mechanisms import Mechanism, mechanisms_named
from ringfence.procedures import Given, Procedure, claims
from ringfence.record import Record, StageTally
from ringfence.store import RunFolder
from ringfence.types import BINS, SCORE_EDGES, FloatArray, Tally

SIGMA = 1.0


def simulated_run(
    path: Path,
    procedure: Procedure,
    p: FloatArray,
    ids: Sequence[int],
    mechanisms: Sequence[Mechanism] = tuple(mechanisms_named("all")),
    seed: int = 0,
    lane: str = "main",
) -> RunFolder:
    """Inputs with class probabilities p (inputs, K), or mean scores p where the procedure reads scores."""
    inputs, classes = p.shape
    rng, given = np.random.default_rng(seed), Given(classes, SIGMA, mechanisms[0])
    config = small_config(
        model="simulated",
        data="simulated",
        num_classes=classes,
        sigma=SIGMA,
        procedure=procedure.name,
        procedure_settings=procedure.settings(),
        mechanisms=[one.name for one in mechanisms],
        lanes=[lane],
        seed=seed,
    )
    state = procedure.start(inputs, given)
    stages: list[list[StageTally]] = [[] for _ in range(inputs)]
    while (wanted := procedure.request(state)).any():
        votes = np.stack([rng.multinomial(draws, row) for draws, row in zip(wanted, p, strict=True)])
        cells = {"votes": np.pad(votes, ((0, 0), (0, 1)))}
        if "scores" in procedure.needs:
            cells = {"scores": constant_scores(p, wanted)}
        for row in np.flatnonzero(wanted):
            own = {name: counts[row] for name, counts in cells.items()}
            stages[row].append(StageTally(int(state["stage"][row]), 0, int(wanted[row]), own))
        state = procedure.update(state, Tally(cells, wanted), given)
    decisions = procedure.conclude(state, given)
    prediction, radius, radii = claims(decisions, given, mechanisms[1:])
    run = RunFolder.create_or_resume(path, config)
    run.append(
        [
            Record(
                input_id=int(one),
                lane=lane,
                label=0,
                prediction=int(prediction[row]),
                radius=float(radius[row]),
                p_a=float(decisions.p_a[row]),
                p_b=float(decisions.p_b[row]),
                alpha=procedure.alpha,
                procedure=procedure.name,
                sound=procedure.sound,
                seed=seed,
                draws=sum(stage.draws for stage in stages[row]),
                forwards=0,
                seconds=0.5,
                target=procedure.target,
                radii={name: float(values[row]) for name, values in radii.items()},
                spent=dict(procedure.spent),
                stages=tuple(stages[row]),
                config_hash=config.digest,
            )
            for row, one in enumerate(ids)
        ]
    )
    return run


def constant_scores(p: FloatArray, draws: FloatArray) -> FloatArray:
    """Cells (inputs, K * BINS + 1) of draws that all return the score vector p (inputs, K)."""
    inputs, classes = p.shape
    cells = np.zeros((inputs, classes * BINS + 1), np.int64)
    bins = np.searchsorted(SCORE_EDGES[1:-1], p, side="right") + np.arange(classes) * BINS
    np.add.at(cells, (np.arange(inputs)[:, None], bins), np.asarray(draws)[:, None])
    return cells


def spread(inputs: int, classes: int = 4, seed: int = 1) -> FloatArray:
    """Class probabilities (inputs, K) of every difficulty, class 0 on top."""
    rng = np.random.default_rng(seed)
    rest = rng.dirichlet(np.ones(classes - 1), inputs)
    top = rng.uniform(0.4, 0.99, inputs)[:, None]
    return np.hstack([top, (1 - top) * rest])
