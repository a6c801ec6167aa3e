"""Configs for tests, from a few settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ringfence.store import RunConfig
from ringfence.store.upgrade import upgrade


def small_config(**settings: Any) -> RunConfig:
    """The config with these settings, named as schema 1 named them, in the form of today."""
    usual = {"model": "model", "data": "data", "num_classes": 2, "sigma": 0.5, "procedure": "fixed"}
    told = usual | {"mechanism": "neyman_pearson"} | settings
    return RunConfig.model_validate({**upgrade(told), "migrated": None})


PLACES = {
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
    """The config with other settings, named likewise."""
    content = config.model_dump()
    for key, value in settings.items():
        if key == "lanes":
            content["classifier"]["lanes"] = [{"name": name} for name in value]
        elif key == "procedure_settings":
            content["procedure"] = {"name": config.procedure.name, **value}
        else:
            *path, last = PLACES[key]
            place = content
            for step in path:
                place = place[step]
            place[last] = value
    return RunConfig.model_validate(content)
