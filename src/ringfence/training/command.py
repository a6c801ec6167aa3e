"""The command that repeats a training, from the settings its folder keeps."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

_PLAIN = ("data", "arch", "members", "init", "classifier", "holdout", "limit", "keep")
_SWITCHES = ("flip", "compile", "graph")
_SCHEDULE = {"lr": "lr", "kind": "schedule", "every": "lr-every"}


def training_command(config: Mapping[str, Any], out: str = "CKPT") -> str:
    """``ringfence train ...`` with every setting written out: nothing depends on a default of today."""
    return shlex.join(["ringfence", "train", *_words(config), "--out", out])


def _words(config: Mapping[str, Any]) -> Iterator[str]:
    plan = config["plan"]
    objective = dict(plan["objective"])
    yield from ("--objective", objective.pop("name"))
    base = objective.pop("base", None)
    if base is not None:
        yield from ("--base", base["name"])
        objective = {**{key: value for key, value in base.items() if key != "name"}, **objective}
    yield from _named({key: config[key] for key in _PLAIN})
    for name in ("mean", "std"):
        if config[name] is not None:
            yield from (f"--{name}", ",".join(map(str, config[name])))
    yield from _named({_SCHEDULE[key]: value for key, value in plan["schedule"].items() if key in _SCHEDULE})
    left_out = ("objective", "schedule", "nesterov", *_SWITCHES)
    yield from _named({key: value for key, value in plan.items() if key not in left_out})
    yield from (f"--{name}" for name in _SWITCHES if plan[name])
    yield "--nesterov" if plan.get("nesterov", True) else "--no-nesterov"  # older settings: there was no other momentum
    for key, value in objective.items():
        yield from ("--set", f"{key}={value}")


def _named(values: Mapping[str, Any]) -> Iterator[str]:
    for name, value in values.items():
        if value is not None:
            yield from (f"--{name.replace('_', '-')}", str(value))
