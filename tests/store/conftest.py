"""Records and configs for the tests of the store."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from configs import small_config

from ringfence.record import Record, StageTally
from ringfence.store import RunConfig


@pytest.fixture
def config() -> RunConfig:
    return small_config(
        model="default",
        weights_hash="0123",
        data="default",
        num_classes=10,
        sigma=0.5,
        procedure="sequential",
        procedure_settings={"radius": 0.5, "alpha": 0.001, "stages": (1000, 10000)},
        mechanisms=["one-sided", "neyman-pearson"],
        lanes=["a", "b"],
    )


@pytest.fixture
def make_record(config: RunConfig) -> Callable[..., Record]:
    """A record full of awkward values; any field can be overridden."""

    def make(input_id: int, lane: str = "a", stages: int = 3, classes: int = 10, **changes: Any) -> Record:
        rng = np.random.default_rng([input_id, len(lane), stages])
        entries = tuple(
            StageTally(
                stage=min(j, 1),
                start=100 * j,
                draws=100,
                cells={"votes": rng.integers(0, 2**40, classes + 1), "bits": rng.integers(0, 9, 2 * j)},
            )
            for j in range(stages)
        )
        values: dict[str, Any] = {
            "input_id": input_id,
            "lane": lane,
            "label": None if input_id % 3 == 0 else input_id % classes,
            "prediction": input_id % classes if input_id % 2 else -1,
            "radius": float(np.nextafter(0.1 * input_id, 2)),
            "p_a": 1 / 3,
            "p_b": float(np.nextafter(0.0, 1)),
            "alpha": 1e-3,
            "procedure": "sequential",
            "sound": True,
            "seed": 2**53 + 1,
            "draws": 2**40,
            "forwards": 2**41,
            "seconds": 0.1 + 0.2,
            "target": None if input_id % 2 else 0.1 + 0.2,
            "lift_norm": float(np.nextafter(1.0, 2)),
            "radii": {"one-sided": float("inf"), "neyman-pearson": -0.0},
            "spent": {},
            "stages": entries,
            "config_hash": config.digest,
        }
        return Record(**(values | changes))

    return make


@pytest.fixture
def same() -> Callable[[Record, Record], bool]:
    """Equality of records bit by bit; their own == cannot compare the arrays inside."""

    def bits(value: Any) -> Any:
        if isinstance(value, float):
            return value.hex()
        if isinstance(value, dict):
            return [(key, bits(entry)) for key, entry in value.items()]
        if isinstance(value, tuple):
            return [bits(entry) for entry in value]
        if isinstance(value, StageTally):
            return value.stage, value.start, value.draws, [(key, bits(cells)) for key, cells in value.cells.items()]
        return (value.dtype.str, value.tolist()) if isinstance(value, np.ndarray) else value

    def compare(one: Record, other: Record) -> bool:
        return all(bits(getattr(one, name)) == bits(getattr(other, name)) for name in Record.__dataclass_fields__)

    return compare
