"""Groups of options that several commands share: a dataclass each, taken by a command as one argument."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, get_type_hints

from ringfence.cli import options as o


@dataclass(frozen=True)
class InputOptions:
    """Which inputs are taken, and how the model wants them."""

    skip: o.Skip[int | None] = None
    limit: o.Limit = None
    stop_index: o.Max = None
    split: o.Split[str | None] = None
    size: o.Size = None
    range: o.Range = None
    mean: o.Mean = None
    std: o.Std = None
    classes: o.Classes = None


@dataclass(frozen=True)
class NoiseOptions:
    """The noise and the form in which it is drawn."""

    sigma: o.Sigma[float | None] = None
    noise: o.NoiseName = None
    noise_form: o.NoiseForm = None
    lattice: o.Lattice = None

    def settings(self) -> dict[str, Any]:
        """What was said of the noise, in the words of a job file."""
        return {"family": self.noise, "sigma": self.sigma, "form": self.noise_form, "lattice": self.lattice}


@dataclass(frozen=True)
class EngineOptions:
    """Where the work is done."""

    engine: o.EngineName = None
    address: o.Address = None
    workers: o.Workers = None
    gpus_per_worker: o.GpusPerWorker = None
    gpus: o.Gpus = None
    patience: o.Patience = None

    def engine_settings(self) -> dict[str, Any]:
        """The engine and its settings, in the words of a job file."""
        named = {one.name: getattr(self, one.name) for one in dataclasses.fields(EngineOptions)}
        return {"name": named.pop("engine"), **named}

    def on_ray(self) -> Any:
        """The engine of commands that know this machine and Ray; None for this machine."""
        from ringfence.engines.ray import Ray
        from ringfence.errors import ArgumentError
        from ringfence.work import engine_named

        told = {name: value for name, value in self.engine_settings().items() if value is not None}
        engine = engine_named(told or "local")
        if engine.name not in ("local", Ray.name):
            raise ArgumentError("engine", "must be local or ray here", engine.name, "Use one of these.")
        return engine if isinstance(engine, Ray) else None


@dataclass(frozen=True)
class RunningOptions(EngineOptions):
    """How the network runs, and from which seed; what is left out is decided by the certification."""

    batch: o.Batch = None
    device: o.Device[str | None] = None
    precision: o.PrecisionName = None
    compile: o.Compile = None
    fast: o.Fast = False
    autotune: o.Autotune = None
    seed: o.Seed[int | None] = None
    no_check: o.NoCheck = False


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """The command with every parameter of a dataclass type spread into one option per field.

    Typer reads the signature, so that is what is rewritten: each field keeps its own annotation and default.
    """
    hints = get_type_hints(command, include_extras=True)
    parameters: list[inspect.Parameter] = []
    groups: dict[str, tuple[Callable[..., Any], list[str]]] = {}
    for name, parameter in inspect.signature(command).parameters.items():
        kind = hints[name]
        if not dataclasses.is_dataclass(kind):
            parameters.append(parameter.replace(annotation=kind, kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        types, fields = get_type_hints(kind, include_extras=True), dataclasses.fields(kind)
        groups[name] = (kind, [field.name for field in fields])  # type: ignore[assignment]
        for field in fields:
            default = inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default
            option = inspect.Parameter(
                field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=types[field.name]
            )
            parameters.append(option)

    @functools.wraps(command)
    def spread(**given: Any) -> None:
        for name, (build, fields) in groups.items():
            given[name] = build(**{field: given.pop(field) for field in fields})
        command(**given)

    spread.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    spread.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return spread
