"""RunConfig: every setting that determines the records of a run, hashed and compared on resume."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from typing import Annotated, Any

import numpy as np
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

SCHEMA_VERSION = 2
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


class _Ensemble(BaseModel):
    """What ``extra.ensemble`` may hold; settings of later versions stay as they are."""

    model_config = ConfigDict(strict=True, extra="allow")

    members: list[str] = Field(default_factory=list)
    votes: list[str] = Field(default_factory=list)
    consensus: list[int] = Field(default_factory=list)
    weights: list[float] = Field(default_factory=list)
    weights_on: str = "logits"
    prefixes: bool = False
    singles: bool = False
    after_smoothing: bool = False
    select: str = ""


class _Extra(BaseModel):
    """Types of the entries of ``extra`` that commands read back; whatever else stands there is nobody's business."""

    model_config = ConfigDict(strict=True, extra="allow")

    ensemble: _Ensemble | None = None
    smooth_reduce: dict[str, Any] | None = None
    split: str | None = None
    size: int | None = None
    count: int | None = None


def _checked(extra: dict[str, Any]) -> dict[str, Any]:
    """The same entries, once their types are known to be right: a folder may come from anywhere."""
    try:
        _Extra.model_validate(extra)
    except ValidationError as error:
        first = error.errors()[0]
        raise ValueError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    return extra


Extra = Annotated[Settings, AfterValidator(_checked)]


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
    extra: Extra = Field(default_factory=dict)

    @property
    def digest(self) -> str:
        """16 hexadecimal digits of BLAKE2b over the canonical JSON; a record's ``config_hash``."""
        return canonical_digest(self.model_dump())

    @property
    def ensemble(self) -> Mapping[str, Any]:
        """Members, votes and selector of the classifier, as flags were stored or as the tree says; or empty."""
        stored: Mapping[str, Any] | None = self.extra.get("ensemble")
        return stored or composition(self.model)

    @property
    def reduced(self) -> Mapping[str, Any]:
        """How patches or sub-videos are cut and reduced, likewise; empty where whole inputs are certified."""
        stored: Mapping[str, Any] | None = self.extra.get("smooth_reduce")
        return stored or reduction(self.model)

    def differences(self, other: RunConfig) -> list[tuple[str, Any, Any]]:
        """(dotted key, our value, their value) for every setting that differs."""
        ours, theirs = dict(flatten(self.model_dump())), dict(flatten(other.model_dump()))
        keys = [*ours, *(key for key in theirs if key not in ours)]
        pairs = [(key, ours.get(key, ABSENT), theirs.get(key, ABSENT)) for key in keys]
        return [(key, mine, yours) for key, mine, yours in pairs if mine != yours]


def canonical_digest(settings: Mapping[str, Any]) -> str:
    """The digest of settings, whatever their schema, as they stand in config.json."""
    canonical = json.dumps(settings, sort_keys=True, separators=(",", ":"))
    return blake2b(canonical.encode(), digest_size=8).hexdigest()


def composition(model: str) -> dict[str, Any]:
    """What the outermost vote, consensus or selection of a tree is made of; empty for anything else."""
    tree = _node(model)
    if tree is None or tree.name in ("denoised", "normalize", "patches", "clips", "chunks"):
        return {}
    told = {key: str(value) for key, value in tree.settings.items()}
    if tree.name == "aces":
        return {"select": "entropy", **told}
    members = [str(one) for one in tree.models]
    if tree.name == "consensus":
        return {"members": members, "votes": ["soft"], "consensus": [int(told["agree"])]}
    listed = {key: [] if told.get(key, "none") == "none" else told[key].split("/") for key in ("votes", "consensus")}
    votes = listed["votes"] or ([] if tree.name == "lanes" and "votes" in told else ["soft"])
    agree = [int(one) for one in listed["consensus"]]
    return {"members": members, "votes": votes if tree.name == "lanes" else [tree.name], "consensus": agree}


def reduction(model: str) -> dict[str, Any]:
    """What a tree of patches, clips or chunks says; empty for anything else."""
    tree = _node(model)
    kinds = {"patches": "crops", "clips": "clips", "chunks": "chunk"}
    if tree is None or tree.name not in kinds:
        return {}
    told = {key: str(value) for key, value in tree.settings.items()}
    return {kinds[tree.name]: told, "reduce": told.get("reduce", "mean"), "mode": told.get("noise", "input")}


def _node(model: str) -> Any:
    """The outermost node of a tree; None for a single source and for what no parser reads."""
    if "(" not in model:
        return None
    from ringfence.errors import ModelError
    from ringfence.models.grammar import Node, as_tree

    try:
        tree = as_tree(model)
    except ModelError:
        return None
    return tree if isinstance(tree, Node) else None


def flatten(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted key, leaf) pairs; lists are leaves."""
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
