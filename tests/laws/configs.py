"""Configs for tests, from a few settings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ringfence.classifiers import VOTES
from ringfence.record import Lane
from ringfence.store import RunConfig


def small_config(**settings: Any) -> RunConfig:
    """A config with these settings, each by the name that PLACES has for it."""
    bare = {
        "classifier": {"tree": "model", "classes": 2},
        "data": {"source": "data"},
        "noise": {"sigma": 0.5},
        "procedure": {"name": "fixed"},
        "mechanisms": ["neyman_pearson"],
    }
    return altered(RunConfig.model_validate(bare), settings)


PLACES = {
    "data": ("data", "source"),
    "num_classes": ("classifier", "classes"),
    "split_alpha": ("split_alpha",),
    "count": ("data", "count"),
    "noise": ("noise", "family"),
    "model": ("classifier", "tree"),
    "mean": ("classifier", "mean"),
    "std": ("classifier", "std"),
    "sigma": ("noise", "sigma"),
    "norm": ("norm",),
    "precision": ("precision",),
    "weights_hash": ("classifier", "digest"),
    "data_hash": ("data", "digest"),
    "lift": ("lift",),
    "seed": ("seed",),
    "procedure_settings": ("procedure",),
    "mechanisms": ("mechanisms",),
    "procedure": ("procedure", "name"),
}


def altered(config: RunConfig, settings: Mapping[str, Any]) -> RunConfig:
    """The config with other settings, by the same names."""
    content = config.model_dump()
    if "procedure" in settings:
        content["procedure"] = {"name": settings["procedure"]}
    for key, value in settings.items():
        if key == "lanes":
            content["classifier"]["lanes"] = [_lane(name).settings() for name in value]
        elif key == "procedure_settings":
            content["procedure"] = {"name": content["procedure"]["name"], **value}
        else:
            *path, last = PLACES[key]
            place = content
            for step in path:
                place = place[step]
            place[last] = value
    return RunConfig.model_validate(content)


def _lane(name: str) -> Lane:
    """The lane that the program calls so."""
    kind, _, number = name.rpartition("-")
    if name.startswith("theta="):
        return Lane(name, theta=float(name[6:]))
    if kind == "member":
        return Lane(name, member=int(number))
    if kind == "consensus":
        return Lane(name, agree=int(number))
    return Lane(name, vote=kind, prefix=int(number)) if kind in (*VOTES, "weighted") else Lane(name)


def part_paths(folder: Path) -> list[Path]:
    """The parts in a folder, in the order they were written."""
    return sorted(folder.glob("part-*.parquet"))
