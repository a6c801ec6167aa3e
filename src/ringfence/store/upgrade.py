"""A config of schema 1 in the words of schema 2: ``ringfence migrate`` writes it so, and readers see it so.

Schema 1 said what was certified in several places: the classifier in ``model``, in ``extra.ensemble`` and in
``extra.smooth_reduce``, lanes in their names. This is the only code that reads those.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ringfence.digests import SCHEME
from ringfence.errors import StoreError
from ringfence.record import Lane
from ringfence.store.atomic import read_file
from ringfence.store.manifest import CONFIG, MANIFEST, Manifest, digest_of

if TYPE_CHECKING:
    from ringfence.models.grammar import Tree

STATE_V1 = "state-v1"
"""Marks a digest over weights alone, as the first scheme made them."""

_FLAT = {"model", "data", "num_classes", "sigma", "procedure", "mechanism"}
_MORE = {"schema_version", "weights_hash", "data_hash", "skip", "limit", "noise", "lift", "procedure_settings"}
_MORE |= {"mechanisms", "lanes", "precision", "compile", "seed", "mean", "std", "extra"}
"""What schema 1 had, and no more: a setting that nobody reads might have changed what was certified."""


def upgrade(config: Mapping[str, Any]) -> dict[str, Any]:
    """Schema 1 -> schema 2; what is missing or of the wrong type raises a ValueError that names it."""
    missing = sorted(_FLAT - config.keys())
    if missing:
        raise ValueError(f"{missing[0]}: Field required")
    if unknown := sorted(config.keys() - _FLAT - _MORE):
        raise ValueError(f"{unknown[0]}: no setting of schema 1")
    extra, settings, lift = (_dictionary(config, key) for key in ("extra", "procedure_settings", "lift"))
    if "name" in settings:
        raise ValueError("procedure_settings.name: the procedure is named beside them")
    if lift.get("name", "identity") != "identity" and "norm_bound" not in lift:
        raise ValueError("lift.norm_bound: Field required")
    names = _list(config, "lanes") or ["main"]
    weights, mechanism = str(config.get("weights_hash") or ""), config["mechanism"]
    others = [one for one in _list(config, "mechanisms") if one != mechanism]
    old = bool(weights) and not weights.startswith(f"{SCHEME} ")
    return {
        "schema_version": 2,
        "classifier": {
            "tree": str(_tree(str(config["model"]), extra, names)),
            "digest": weights,
            "classes": config["num_classes"],
            "mean": config.get("mean"),
            "std": config.get("std"),
            "lanes": [_lane(str(name)).settings() for name in names],
        },
        "data": {
            "source": config["data"],
            "digest": config.get("data_hash"),
            "split": extra.get("split") or "test",
            "skip": config.get("skip", 1),
            "limit": config.get("limit"),
            "stop": extra.get("stop_index"),
            "size": extra.get("size"),
            "count": extra.get("count"),
        },
        "noise": {"family": config.get("noise", "gaussian"), "sigma": config["sigma"]},
        "norm": "l2",
        "lift": {"name": "identity", "norm_bound": 1.0, **lift},
        "procedure": {"name": config["procedure"], **settings},
        "mechanisms": [mechanism, *others],
        "split_alpha": extra.get("alpha_split") is True,
        "precision": config.get("precision", "fp32"),
        "seed": config.get("seed", 0),
        "migrated": {"from": 1, "weights": STATE_V1 if old else None},
    }


def _dictionary(config: Mapping[str, Any], key: str) -> dict[str, Any]:
    found = config.get(key) or {}
    if not isinstance(found, Mapping):
        raise ValueError(f"{key}: Input should be a valid dictionary")
    return dict(found)


def _list(config: Mapping[str, Any], key: str) -> list[Any]:
    found = config.get(key) or []
    if not isinstance(found, list):
        raise ValueError(f"{key}: Input should be a valid list")
    return found


def _lane(name: str) -> Lane:
    """What the name of a lane meant."""
    if found := re.fullmatch(r"theta=([0-9.eE+-]+)", name):
        return Lane(name, theta=float(found[1]))
    if found := re.fullmatch(r"(member|consensus|[a-z-]+)-(\d{1,6})", name):
        kind, number = found[1], int(found[2])
        if kind == "member":
            return Lane(name, member=number)
        if kind == "consensus":
            return Lane(name, agree=number)
        if kind in ("soft", "softmax", "hard", "max-margin", "weighted", "sween"):
            return Lane(name, vote=kind.replace("sween", "weighted"), prefix=number)
    return Lane(name)


def _tree(model: str, extra: Mapping[str, Any], names: list[str]) -> Tree:
    """The classifier as one tree, from wherever its parts were said."""
    from ringfence.models.compose import composed, ensemble

    stored = extra.get("ensemble")
    if isinstance(stored, Mapping) and "thetas" in stored:
        parts = {key: _source(str(stored[key])) for key in ("certify", "core", "select")}
        return composed("aces", **parts, theta=tuple(map(float, stored["thetas"])))
    if isinstance(stored, Mapping) and stored.get("members"):
        members = [_source(str(one)) for one in stored["members"]]
        keys = {"votes": "votes", "consensus": "consensus", "weights": "weights", "on": "weights_on"}
        chosen: dict[str, Any] = {key: stored[name] for key, name in keys.items() if name in stored}
        chosen |= {key: stored.get(key) is True for key in ("prefixes", "singles")}
        return ensemble(members, **chosen)
    several = [] if model.startswith("denoised:") else model.split("+")
    if len(several) > 1 and "(" not in model:
        return _joined(several, extra, names)
    return _reduced(_source(model), extra.get("smooth_reduce"))


def _joined(members: list[str], extra: Mapping[str, Any], names: list[str]) -> Tree:
    """``a+b+c``, of which the names of the lanes said what is done with them."""
    from ringfence.models.compose import composed, ensemble

    lanes = [_lane(name) for name in names]
    votes = list(dict.fromkeys(lane.vote for lane in lanes if lane.vote))
    weights = extra.get("sween_weights") or ()
    if not votes or bool(weights) != ("weighted" in votes):
        return composed("lanes", *members, votes="none", singles=True)
    kind = "softmax" if weights else "logits"  # what the weights learned for the tables of MNIST multiplied
    prefixes = any(lane.prefix != len(members) for lane in lanes if lane.vote)
    singles, agree = any(lane.member for lane in lanes), [lane.agree for lane in lanes if lane.agree]
    return ensemble(members, votes, agree, weights, kind, prefixes, singles)


def _source(spec: str) -> Tree:
    """A leaf; ``denoised:A+B`` was one word."""
    from ringfence.models.compose import composed, tree_of

    if spec.startswith("denoised:") and "+" in spec:
        return composed("denoised", *spec.removeprefix("denoised:").split("+", 1))
    return tree_of(spec)


def _reduced(model: Tree, stored: Any) -> Tree:
    """Patches, sub-videos and chunks around the model. Several cuts in one pass had no tree: the model alone stays."""
    from ringfence.models.compose import composed

    if not isinstance(stored, Mapping):
        return model
    inner = model if stored.get("chunk") is None else composed("chunks", model, frames=stored["chunk"])
    place = {"reduce": stored.get("reduce", "mean"), "noise": stored.get("mode", "input"), "form": stored.get("form")}
    for node, key in (("patches", "crops"), ("clips", "clips")):
        cut = stored.get(key)
        if isinstance(cut, Mapping):
            told = {name: value for name, value in {**cut, **place}.items() if value is not None}
            return composed(node, inner, **told)
    return inner


def refuse_downgraded(path: Path) -> None:
    """Settings of schema 1 beside a manifest are those that a migration is about to replace, or an edit."""
    if (path / MANIFEST).exists():
        entry = Manifest.read(path).files.get(CONFIG)
        if entry is None or entry.earlier != digest_of(read_file(path / CONFIG)):
            rule, found = "must be as it was written", "settings of schema 1 that its manifest does not know"
            raise StoreError(path / CONFIG, rule, found, "Restore it from a copy.")
