"""attack.json: what an attack on a run found, stored so that a report can show it and a reader can check it."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self, final

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from ringfence.errors import StoreError
from ringfence.store.atomic import read_json, write_atomically, write_json, writing_errors

FORMAT: Literal["ringfence-attack"] = "ringfence-attack"
ATTACK_VERSION = 1
"""Raised whenever a reader of the old version could misread a new file."""

FILE, POINTS = "attack.json", "broken.npz"

_AGAIN = "Run ringfence attack once more."


class _Stored(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


@final
class Broken(_Stored):
    """Evidence against a certificate: PREDICT says attacked_class at that distance, votes of draws fresh ones."""

    input_id: int
    certified_class: int
    radius: float
    distance: float
    attacked_class: int
    votes: int
    draws: int


@final
class AttackResult(_Stored):
    """Certified and empirical accuracy (0 to 1) per radius, the settings behind them, and the certificates that broke.

    run: the folder's name, with its config_hash and the lane that was attacked. inputs were attacked at every radius,
    ``attacked`` certificates inside their own; certified is None where the run tried smaller radii only.
    norm: in which inputs were moved; steps, copies, box: of the attack; n: draws of PREDICT at an attacked point;
    recheck: fresh draws where a certificate seemed broken; seed: of all of them.
    """

    format: Literal["ringfence-attack"] = FORMAT
    version: int = ATTACK_VERSION
    run: str
    config_hash: str
    lane: str
    attack: str
    norm: str = "l2"
    steps: int
    copies: int
    box: bool
    n: int
    recheck: int
    seed: int
    sigma: float
    alpha: float
    inputs: int = Field(ge=1)
    attacked: int = Field(ge=0)
    radii: tuple[float, ...]
    certified: tuple[float | None, ...]
    empirical: tuple[float, ...]
    broken: tuple[Broken, ...] = ()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if not len(self.radii) == len(self.certified) == len(self.empirical):
            raise ValueError("radii, certified and empirical must be of one length")
        if not all(share is None or 0 <= share <= 1 for share in (*self.certified, *self.empirical)):
            raise ValueError("accuracies must lie between 0 and 1")
        if len(self.broken) > self.attacked:
            raise ValueError("no more certificates can break than were attacked")
        return self

    @property
    def chance(self) -> float:
        """How many certificates are false on average, at most, without any error in the proof: alpha of the inputs.

        Inputs that abstained are among them: what is attacked are the lucky ones of their like, too."""
        return self.alpha * self.inputs

    def to_dict(self) -> dict[str, Any]:
        """What attack.json holds and ``ringfence attack --json`` prints."""
        return self.model_dump(mode="json")


def write_attack(found: AttackResult, points: Mapping[int, NDArray[np.floating[Any]]], out: Path) -> None:
    """attack.json, and the attacked points of broken certificates by input id as broken.npz, into the folder."""
    with writing_errors(out):
        out.mkdir(parents=True, exist_ok=True)
        if not points:
            (out / POINTS).unlink(missing_ok=True)  # what an earlier attack left here is no evidence of this one
    if points:
        arrays = io.BytesIO()
        np.savez(arrays, x=np.stack(list(points.values())), index=np.array(list(points), np.int64))
        write_atomically(out / POINTS, arrays.getvalue())
    write_json(out / FILE, found.to_dict())


def is_attack(content: object) -> bool:
    """Whether this JSON value says that it is an attack's result."""
    return isinstance(content, Mapping) and content.get("format") == FORMAT


def read_attack(path: Path, content: object = None) -> AttackResult:
    """The result in the file (whose JSON may already be known), or an error that says what is wrong with it."""
    found = read_json(path) if content is None else content
    if not isinstance(found, Mapping) or not is_attack(found):
        raise StoreError(path, "must be what ringfence attack wrote", "something else", _AGAIN)
    version = found.get("version")
    if not isinstance(version, int) or version > ATTACK_VERSION:
        rule = f"this version of Ringfence reads versions up to {ATTACK_VERSION}"
        raise StoreError(path, rule, f"version {version!r}", "Update ringfence.")
    try:
        return AttackResult.model_validate(found)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the result"
        raise StoreError(path, "must be whole", f"{where}: {first['msg']}", _AGAIN) from error
