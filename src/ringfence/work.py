"""Engine: where the records of inputs are computed. Every engine gives the same ones."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from importlib import import_module
from typing import Any, ClassVar, final

from torch import nn

from ringfence.driver import Work
from ringfence.errors import ArgumentError, ModelError
from ringfence.models import load_model
from ringfence.models.grammar import Tree
from ringfence.record import Record


@final
@dataclass(frozen=True)
class Origin:
    """How another process loads the very classifier: its tree, what goes with it, and the digest it must have."""

    tree: Tree
    beside: Mapping[str, Any]
    shape: tuple[int, ...]
    digest: str

    def classifier(self) -> nn.Module:
        """The module behind the noise; refused if it is another one."""
        model = load_model(self.tree, **self.beside)
        if model.digest != self.digest:
            remedy = "Give all machines the same weights and code."
            raise ModelError(model.spec, f"must be the driver's network, {self.digest[:12]}", model.digest, remedy)
        return model.placed(self.shape)[0]


class Engine(ABC):
    """Says where and in which portions work is done; all lanes of an input come together, in one piece."""

    name: ClassVar[str]

    @abstractmethod
    def records(self, work: Work) -> Iterator[Record]:
        """Records of all inputs, in any order; ``replace(work, inputs=some).records()`` are those of some."""


@final
class Local(Engine):
    """This process: one driver for all inputs, which fills whole batches."""

    name: ClassVar[str] = "local"

    def records(self, work: Work) -> Iterator[Record]:
        """As they are decided."""
        return work.records()


ENGINES: dict[str, Engine] = {Local.name: Local()}
ELSEWHERE = {"ray": "ringfence.engines.ray"}
"""Engines of rooms above, which enter themselves in ENGINES when they are first asked for, and imported."""


def engine_named(name: str | Mapping[str, Any] | Engine) -> Engine:
    """The engine of a name, or of a mapping of its name and settings; an engine is returned as it is."""
    if isinstance(name, Engine):
        return name
    if isinstance(name, Mapping):
        given = dict(name)
        engine = engine_named(str(given.pop("name", "ray")))  # no other engine of the house has settings
        known = _settings_of(engine)
        if unknown := [key for key in given if key not in known]:
            rule = f"is no setting of the engine {engine.name}, which has {', '.join(known) or 'none'}"
            raise ArgumentError(str(unknown[0]), rule, repr(given[unknown[0]]), "Leave it out, or name another engine.")
        return replace(engine, **given) if given else engine  # type: ignore[type-var]
    if name not in ENGINES and name in ELSEWHERE:
        import_module(ELSEWHERE[name])
    if name not in ENGINES:
        near = get_close_matches(name, [*ENGINES, *ELSEWHERE], n=1)
        remedy = f"Did you mean {near[0]}?" if near else "Use local, or load the plugin that has it."
        raise ArgumentError(
            "engine", f"must be one of {', '.join(dict.fromkeys([*ENGINES, *ELSEWHERE]))}", repr(name), remedy
        )
    return ENGINES[name]


def engine_written(engine: str | Engine) -> Any:
    """The name of an engine, with the settings that differ from its defaults: what job files hold."""
    if isinstance(engine, str):
        return engine
    told = {name: value for name, usual in _settings_of(engine).items() if (value := getattr(engine, name)) != usual}
    return {"name": engine.name, **told} if told else engine.name


def _settings_of(engine: Engine) -> dict[str, Any]:
    """The settings of an engine, with their defaults: the fields of a dataclass."""
    return {one.name: one.default for one in getattr(engine, "__dataclass_fields__", {}).values()}
