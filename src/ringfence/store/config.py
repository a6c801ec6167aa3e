"""RunConfig: every setting that determines the records of a run, hashed and compared on resume."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

SCHEMA_VERSION = 1
"""Raised whenever a reader of the old version could misread a new run folder."""

ABSENT = "(absent)"
"""Stands for a key that only one of two compared configs has."""


def plain(value: Any) -> Any:
    """The value as JSON keeps it, so that a config equals itself after being written and read.

    Tuples become lists, NumPy scalars Python numbers, and numbers that JSON cannot hold their names ("inf").
    """
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise ValueError(f"a config holds numbers, strings, lists and dictionaries; got {type(value).__name__}")


Settings = Annotated[dict[str, Any], BeforeValidator(plain)]


class RunConfig(BaseModel):
    """Settings of a run. Two runs with equal configs on one machine have equal records, ``seconds`` apart.

    model, data: the specs as the user wrote them, with hashes of what they named; lift, procedure_settings and
    extra are free dictionaries of plain values; mechanism is the main one, mechanisms all that are recorded.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    schema_version: int = SCHEMA_VERSION
    model: str
    weights_hash: str = ""
    data: str
    data_hash: str | None = None
    num_classes: int
    skip: int = 1
    limit: int | None = None
    sigma: float
    noise: str = "gaussian"
    lift: Settings = Field(default_factory=dict)
    procedure: str
    procedure_settings: Settings = Field(default_factory=dict)
    mechanism: str
    mechanisms: list[str] = Field(default_factory=list)
    lanes: list[str] = Field(default_factory=list)
    precision: str = "fp32"
    compile: bool = False
    seed: int = 0
    mean: list[float] | None = None
    std: list[float] | None = None
    extra: Settings = Field(default_factory=dict)

    @property
    def digest(self) -> str:
        """16 hexadecimal digits of BLAKE2b over the canonical JSON; a record's ``config_hash``."""
        canonical = json.dumps(self.model_dump(), sort_keys=True, separators=(",", ":"), allow_nan=False)
        return blake2b(canonical.encode(), digest_size=8).hexdigest()

    def differences(self, other: RunConfig) -> list[tuple[str, Any, Any]]:
        """(dotted key, our value, their value) for every setting that differs."""
        ours, theirs = dict(flatten(self.model_dump())), dict(flatten(other.model_dump()))
        keys = [*ours, *(key for key in theirs if key not in ours)]
        pairs = [(key, ours.get(key, ABSENT), theirs.get(key, ABSENT)) for key in keys]
        return [(key, mine, yours) for key, mine, yours in pairs if mine != yours]


def flatten(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted key, leaf) pairs; lists are leaves."""
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
