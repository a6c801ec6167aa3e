"""Run folders without a network: votes drawn from known probabilities, concluded by the real procedures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from configs import small_config

from ringfence.mechanisms import MECHANISMS
from ringfence.procedures import Fixed, Given, Procedure, claims
from ringfence.record import Record, StageTally
from ringfence.stats import NoiseLaw
from ringfence.store import InputInfo, RunConfig, RunFolder
from ringfence.types import Tally

CLASSES = 4


def fake_run(
    path: Path,
    inputs: int = 40,
    procedure: Procedure | None = None,
    *,
    lanes: Sequence[str] = ("main",),
    mechanisms: Sequence[str] = ("neyman_pearson",),
    sigma: float = 0.5,
    seed: int = 0,
    names: Sequence[str] | None = None,
    shape: tuple[int, ...] | None = (8, 8, 1),
    labelled: bool = True,
    **changes: Any,
) -> RunFolder:
    """Inputs of every difficulty; shape is that of their pictures, None for none; later lanes are a little worse."""
    test = Fixed(n=500) if procedure is None else procedure
    config = small_config(
        **{
            "model": "fake",
            "data": "fake.npz",
            "num_classes": CLASSES,
            "sigma": sigma,
            "procedure": test.name,
            "procedure_settings": test.settings(),
            "mechanisms": list(mechanisms),
            "lanes": list(lanes),
            "seed": seed,
            "count": inputs,
        }
        | changes
    )
    config = config.model_copy(update={"norm": MECHANISMS[mechanisms[0]].norm} if mechanisms[0] in MECHANISMS else {})
    run = RunFolder.create_or_resume(path, config)
    rng = np.random.default_rng(seed)
    label = np.arange(inputs) % CLASSES
    top = np.where(rng.random(inputs) < 0.1, (label + 1) % CLASSES, label)
    easy = rng.beta(6, 1, inputs)
    records = [
        record
        for place, lane in enumerate(lanes)
        for record in _lane(
            config, test, lane, label if labelled else None, top, easy * max(1 - 0.02 * place, 0.3), rng
        )
    ]
    run.append(sorted(records, key=lambda record: record.input_id), run.add_environment({"ringfence": "test"}))
    pictures = None if shape is None else rng.integers(0, 256, (inputs, *shape), dtype=np.uint8)
    named = [f"picture-{i}.png" for i in range(inputs)] if names is None else names
    run.write_inputs(
        [
            InputInfo(
                i, int(label[i]) if labelled else None, named[i % len(named)], None if pictures is None else pictures[i]
            )
            for i in range(inputs)
        ]
    )
    return run


def _lane(
    config: RunConfig, test: Procedure, lane: str, label: Any, top: Any, easy: Any, rng: np.random.Generator
) -> list[Record]:
    law = NoiseLaw(config.noise.family, config.noise.sigma)
    inputs, given = len(top), Given(CLASSES, law, MECHANISMS[config.mechanisms[0]])
    p = np.repeat((1 - easy)[:, None] / (CLASSES - 1), CLASSES, axis=1)
    p[np.arange(inputs), top] = easy
    state = test.start(inputs, given)
    stages: list[list[StageTally]] = [[] for _ in range(inputs)]
    while (wanted := test.request(state)).any():
        votes = np.pad(rng.multinomial(wanted, p / p.sum(1, keepdims=True)), ((0, 0), (0, 1)))
        for row in np.flatnonzero(wanted):
            start = sum(entry.draws for entry in stages[row] if entry.stage == state["stage"][row])
            stages[row].append(StageTally(int(state["stage"][row]), start, int(wanted[row]), {"votes": votes[row]}))
        live = wanted > 0
        state[live] = test.update(state[live], Tally({"votes": votes[live]}, wanted[live]), given)
    decisions = test.conclude(state, given)
    prediction, radius, radii = claims(decisions, given, [MECHANISMS[name] for name in config.mechanisms[1:]])
    draws = [sum(entry.draws for entry in own) for own in stages]
    return [
        Record(
            input_id=row,
            lane=lane,
            label=None if label is None else int(label[row]),
            prediction=int(prediction[row]),
            radius=float(radius[row]),
            p_a=float(decisions.p_a[row]),
            p_b=float(decisions.p_b[row]),
            alpha=test.alpha,
            procedure=test.name,
            sound=test.sound,
            seed=config.seed,
            draws=draws[row],
            forwards=draws[row],
            seconds=draws[row] * 1e-5,
            target=test.target,
            radii={name: float(values[row]) for name, values in radii.items()},
            spent=dict(test.spent),
            stages=tuple(stages[row]),
            config_hash=config.digest,
            norm=given.mechanism.norm,
        )
        for row in range(inputs)
    ]
