"""RunConfig: what a run certified, typed; everything that determines its records, hashed and compared on resume."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
    model_validator,
)

from ringfence.digests import apart, difference
from ringfence.errors import StoreError
from ringfence.record import Lane
from ringfence.settings import LARGEST
from ringfence.store.atomic import read_json

SCHEMA_VERSION = 2
"""Raised whenever a reader of the old version could misread a new run folder."""

ABSENT = "(absent)"
"""Stands for a key that only one of two compared configs has."""


_DIGESTS = {"classifier.digest": "the model", "data.digest": "the data"}
"""Settings that are digests, and of what."""


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
    if isinstance(value, int) and not -LARGEST <= value < LARGEST:
        raise ValueError(f"a whole number of a config lies below 2^63; got one of {len(str(abs(value)))} digits")
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise ValueError(f"a config holds numbers, strings, lists and dictionaries; got {type(value).__name__}")


def _lane(value: Any) -> Lane:
    """A lane as it was stored, each entry of its type."""
    if isinstance(value, Lane):
        return value
    if not isinstance(value, Mapping) or "name" not in value:
        raise ValueError("a lane is a dictionary with a name")
    types = {"name": str, "vote": str, "prefix": int, "member": int, "agree": int, "theta": float}
    for key, entry in value.items():
        fits = key in types and (type(entry) is types[key] or (types[key] is float and type(entry) is int))
        if not fits:
            raise ValueError(f"a lane has the entries {', '.join(types)}, each of its type; got {key}: {entry!r}")
    if not math.isfinite(value.get("theta", 0.0)):
        raise ValueError(f"the theta of a lane is a number; got {value['theta']}")
    return Lane(**value)


StoredLane = Annotated[Lane, BeforeValidator(_lane), PlainSerializer(lambda lane: lane.settings())]
Count = Annotated[int, Field(ge=0, lt=LARGEST)]
Positive = Annotated[int, Field(ge=1, lt=LARGEST)]
Seed = Annotated[int, Field(ge=-LARGEST, lt=LARGEST)]
Mechanisms = Annotated[list[str], Field(min_length=1)]


class _Part(BaseModel):
    """A part of the config: frozen, its entries of exactly their types, unknown ones refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, strict=True)


class _Open(BaseModel):
    """A part whose further entries are plain values that its name gives a meaning."""

    model_config = ConfigDict(frozen=True, extra="allow", allow_inf_nan=False, strict=True)

    @model_validator(mode="before")
    @classmethod
    def _plainly(cls, content: Any) -> Any:
        return plain(content) if isinstance(content, Mapping) else content


class ClassifierConfig(_Part):
    """The tree, the digest of what it named, the classes, a normalisation before every source, and the lanes."""

    tree: str
    digest: str = ""
    classes: Positive
    mean: list[float] | None = None
    std: list[float] | None = None
    lanes: list[StoredLane] = Field(default_factory=lambda: [Lane("main")], min_length=1)

    @property
    def names(self) -> list[str]:
        """Names of the lanes, which are keys of the records."""
        return [lane.name for lane in self.lanes]

    def lane(self, name: str) -> Lane:
        """The lane of that name; one that a folder's records made up has nothing but its name."""
        return next((lane for lane in self.lanes if lane.name == name), Lane(name))


class DataConfig(_Part):
    """The source, its digest, which of its inputs are certified, and what is done to them: size, range, channels.

    count: how many those are, None if unknown.
    """

    source: str
    digest: str | None = None
    split: str = "test"
    skip: Positive = 1
    limit: Count | None = None
    stop: Count | None = None
    size: Positive | None = None
    range: str | None = None
    channels: Positive | None = None
    count: Count | None = None

    @model_serializer(mode="wrap")
    def _without_what_pixels_need_not(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Inputs taken as they are keep the digests they had before anything could be done to them."""
        found: dict[str, Any] = dump(self)
        return {key: value for key, value in found.items() if value is not None or key not in ("range", "channels")}


class NoiseConfig(_Part):
    """The law of the noise; coordinates: of an input, which the proof about exact noise needs."""

    family: str = "gaussian"
    sigma: Annotated[float, Field(gt=0)]
    form: Literal["float", "exact"] = "float"
    lattice: Positive | None = None
    coordinates: Positive | None = None

    @model_validator(mode="after")
    def _of_one_form(self) -> Self:
        """Readers take both from here: without them a claim about lattice points would pass for one about all."""
        if (self.form == "exact") != (self.lattice is not None) or (self.lattice is None) != (self.coordinates is None):
            raise ValueError("exact noise has a lattice and the number of coordinates, float noise neither")
        return self

    @model_serializer(mode="wrap")
    def _without_what_float_noise_has_not(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Float noise is stored as it was before there was any other: digests of its runs stay."""
        found: dict[str, Any] = dump(self)
        if self.coordinates is None:
            found.pop("coordinates", None)
        return found


class LiftConfig(_Open):
    """The fixed linear map before the noise, and the certified bound of its norm."""

    name: str = "identity"
    norm_bound: Annotated[float, Field(gt=0)] = 1.0


class ProcedureConfig(_Open):
    """The procedure's name and its fields; alpha is that of one lane, already divided where alpha was split."""

    name: str

    @property
    def settings(self) -> dict[str, Any]:
        """The fields, without the name."""
        return dict(self.model_extra or {})


class Migrated(_Part):
    """That these settings were once rewritten from an earlier schema, as some committed runs were; no rule asks.

    weights: ``state-v1`` where the classifier's digest covers weights alone, and no code.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, populate_by_name=True, serialize_by_alias=True)

    schema_from: int = Field(alias="from")
    weights: str | None = None


class RunConfig(_Part):
    """What was certified. Two runs with equal configs on one machine have equal records, ``seconds`` apart.

    The first mechanism decides, the others give further radii from the same bounds.
    """

    schema_version: int = SCHEMA_VERSION
    classifier: ClassifierConfig
    data: DataConfig
    noise: NoiseConfig
    norm: str = "l2"
    lift: LiftConfig = Field(default_factory=LiftConfig)
    procedure: ProcedureConfig
    mechanisms: Mechanisms
    split_alpha: bool = False
    precision: str = "fp32"
    seed: Seed = 0
    migrated: Migrated | None = None

    @property
    def digest(self) -> str:
        """16 hexadecimal digits of BLAKE2b over the canonical JSON; a record's ``config_hash``."""
        canonical = json.dumps(self.model_dump(), sort_keys=True, separators=(",", ":"))
        return blake2b(canonical.encode(), digest_size=8).hexdigest()

    @property
    def ensemble(self) -> Mapping[str, Any]:
        """Members, votes and selector at the root of the tree; empty for anything else."""
        if "(" not in self.classifier.tree:  # a single source, for which no grammar is imported
            return {}
        from ringfence.models.grammar import composition

        return composition(self.classifier.tree)

    def consensus(self, lane: str) -> tuple[int, int] | None:
        """(k, K) of the K-consensus that a lane is; None where it is something else.

        None for denoised members too: two forwards each, and four of them may be two members or four.
        """
        members, asked = (list(self.ensemble.get(key, ())) for key in ("members", "consensus"))
        if not asked or any(spec.startswith("denoised(") for spec in members):
            return None
        agree = asked[0] if lane == "main" else self.classifier.lane(lane).agree
        return None if agree is None else (len(members), agree)

    @property
    def root(self) -> str:
        """Name of the outermost node of the tree; empty for a single source."""
        if "(" not in self.classifier.tree:
            return ""
        from ringfence.models.grammar import outermost

        tree = outermost(self.classifier.tree)
        return "" if tree is None else tree.name

    def with_entries(self, content: Mapping[str, Any]) -> RunConfig:
        """The same with other entries of its parts; refused where those are no entries of a config."""
        found = self.model_dump()
        try:
            for key, told in content.items():
                found[key] = found[key] | told if isinstance(told, Mapping) else told
            return RunConfig.model_validate(plain(found))
        except (KeyError, TypeError, ValueError) as error:
            rule, remedy = "must have the entries of a run's config", "Leave out what follows from the rest."
            raise StoreError("config", rule, " ".join(str(error).split()), remedy) from error

    def differences(self, other: RunConfig) -> list[tuple[str, Any, Any]]:
        """(dotted key, our value, their value) for every setting that differs; ``migrated`` is no setting."""
        ours, theirs = (dict(flatten(one.model_dump(exclude={"migrated"}))) for one in (self, other))
        keys = [*ours, *(key for key in theirs if key not in ours)]
        pairs = [(key, ours.get(key, ABSENT), theirs.get(key, ABSENT)) for key in keys]
        return [(key, mine, yours) for key, mine, yours in pairs if mine != yours]

    def same_classifier(self, other: RunConfig) -> list[str]:
        """Why the two do not speak of one smoothed classifier, in words; empty where they do.

        Tree, weights, normalisation, noise, lift and lanes count. Precision does not: runs that differ in it are
        compared and the difference named, because the classifier is meant to be the same.
        """
        claimed = ("classifier.", "noise.", "lift.", "norm")
        found = []
        for key, ours, theirs in self.differences(other):
            if key == "classifier.digest":
                if changed := apart(str(ours), str(theirs)):
                    found.append(f"{key}: {changed}")
            elif key.startswith(claimed):
                found.append(f"{key}: {ours!r} and {theirs!r}")
        return found


def changed_settings(now: RunConfig, there: RunConfig) -> list[str]:
    """Every setting that differs, in words; digests say which of their parts."""
    told, found = [], now.differences(there)
    names = {key for key, _, _ in found if key.endswith(".name")}
    for key, ours, theirs in found:
        if ABSENT in (ours, theirs) and f"{key.partition('.')[0]}.name" in names:
            continue  # what one of two procedures has and the other has not
        what = _DIGESTS.get(key)
        if what is None or not (isinstance(ours, str) and isinstance(theirs, str)):
            told.append(f"{key}: {ours!r} now, {theirs!r} in the run")
        elif (changed := difference(what, ours, theirs)) is not None:
            told.append(f"{key}: {changed}")
    return told


def read_config(file: Path) -> RunConfig:
    """The config that a file holds; whatever else it holds is refused."""
    content = read_json(file)
    _refuse_other_schema(file, content)
    try:
        return RunConfig.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        received = f"{'.'.join(str(step) for step in first['loc'])}: {first['msg']}"
        remedy = "Restore config.json from a copy, or start a new run."
        if isinstance(content, dict) and {"arch", "plan"} <= set(content):
            received, remedy = "those of a training", "Name a folder that ringfence certify or predict wrote."
        raise StoreError(file, "must be a run's settings", received, remedy) from error


def _refuse_other_schema(file: Path, content: Any) -> None:
    """A number of another schema; what is no number is refused with the rest of the settings."""
    version = content.get("schema_version", SCHEMA_VERSION) if isinstance(content, dict) else SCHEMA_VERSION
    if isinstance(version, int) and version != SCHEMA_VERSION:
        rule = f"schema_version must be {SCHEMA_VERSION}, the one that this version of ringfence reads"
        raise StoreError(file, rule, version, "Read the run with the version of ringfence that wrote it.")


def flatten(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted key, leaf) pairs; lists are leaves."""
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
