"""A run's folder: which of its files count, and what stands beside the records. store/run.py has the records."""

from __future__ import annotations

import json
import warnings
from abc import ABC
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from ringfence.errors import StoreError
from ringfence.store.atomic import StoreWarning, json_bytes
from ringfence.store.config import RunConfig, plain
from ringfence.store.guarded import Guarded
from ringfence.store.manifest import ANSWERS, CONFIG, ENVIRONMENTS, FILES, INPUTS, PART, PLANS, SUMMARY
from ringfence.store.parts import InputInfo, inputs_bytes, parse_inputs

Kind = TypeVar("Kind", dict[str, Any], list[Any])


class Answers(BaseModel):
    """What was said of each of these inputs, None for a grey one: lines of scores (sampling/answers.py)."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    inputs: list[int | None]
    said: list[list[str]]

    @model_validator(mode="after")
    def _of_each(self) -> Self:
        if len(self.inputs) != len(self.said):
            raise ValueError(f"{len(self.inputs)} inputs, and answers about {len(self.said)}")
        if None not in self.inputs:  # others may be where nobody can read them: then no network would be asked at all
            raise ValueError("no answer about a grey input")
        return self


@dataclass(frozen=True, repr=False)
class Folder(ABC):
    """manifest.json, config.json, environment.json, forward.json, answers.json, parts/, inputs.parquet, summary.json.

    problems: file -> what is wrong with it, as far as anybody looked; what it names is not counted, and its inputs are
    not done.
    """

    path: Path
    config: RunConfig
    problems: dict[str, str] = field(default_factory=dict, compare=False)
    _told: set[str] = field(default_factory=set, compare=False, repr=False)
    _files: Guarded = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_files", Guarded(self.path))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.path)!r})"

    @property
    def digest(self) -> str:
        """The config_hash that every row of this run names."""
        return self.config.digest

    @property
    def damaged(self) -> list[str]:
        """Names of the parts that do not count."""
        return [Path(name).name for name in self.problems if PART.fullmatch(name)]

    @property
    def expected(self) -> int | None:
        """How many inputs the whole run has, where that is known."""
        return self._files.manifest().inputs

    @property
    def failed(self) -> dict[int, str]:
        """Inputs that could not be read, and why."""
        return {int(one): why for one, why in self._files.manifest().failed.items()}

    def note_inputs(self, expected: int, failed: Mapping[int, str]) -> None:
        """Say how many inputs the whole run has, and which of them failed."""
        self._files.note(inputs=expected, failed={str(one): why for one, why in sorted(failed.items())})

    def check(self) -> dict[str, str]:
        """Every file of the folder against its manifest: what is wrong, by file; each is warned about once."""
        self._whole_parts()
        return self.problems

    def _whole_parts(self) -> Mapping[str, int]:
        """Parts that may be read, and how many rows each must have."""
        parts, wrong, manifest = self._files.check()
        if manifest.config != self.config.digest:
            wrong.setdefault(CONFIG, "holds other settings than the manifest names")
        for name in [name for name in self.problems if name not in wrong and name in FILES]:
            del self.problems[name]  # mended since
        for name, reason in wrong.items():
            self._note_problem(name, reason)
        return parts

    def _note_problem(self, name: str, reason: str) -> None:
        self.problems[name] = reason
        again = "; certifying into the same folder makes it again" if PART.fullmatch(name) else ""
        self._warn(f"{self.path / name} {reason} and is not counted{again}")

    def _warn(self, message: str) -> None:
        if message not in self._told:
            self._told.add(message)
            warnings.warn(StoreWarning(message), stacklevel=4)

    def announce(self, inputs: int) -> None:
        """Warn, once, of what is missing where so many inputs are there."""
        if self.expected is not None and inputs < self.expected:
            are_there = f"the run is not whole, {inputs} of {self.expected} inputs are there"
            self._warn(f"{self.path}: {are_there}; every number is about those")
        for one, why in self.failed.items():
            self._warn(f"{self.path}: input {one} failed: {why}")

    # What stands beside the records

    def environments(self) -> list[dict[str, Any]]:
        """Where the parts were computed, one entry per kind of machine and forward plan."""
        return self._list(ENVIRONMENTS)

    def add_environment(self, entry: Mapping[str, Any]) -> int:
        """Number of this entry, added where it is new; differences are warned about."""
        described = plain(entry) | {"forward_plan": self._last_plan()}
        known = self.environments()
        if described in known:
            return known.index(described)
        self._files.replace(ENVIRONMENTS, json_bytes([*known, described]))
        before = known[-1] if known else described
        changed = [key for key in described if key != "forward_plan" and described[key] != before.get(key)]
        if changed:
            listed = "; ".join(f"{key}: {described[key]} now, {before.get(key)} before" for key in changed)
            message = f"{self.path} continues in another environment ({listed}); scores may differ in their last digits"
            warnings.warn(StoreWarning(message), stacklevel=2)
        return len(known)

    def forward_plans(self) -> list[dict[str, Any]]:
        """The forward shapes used, oldest first; a run has one unless memory ran out."""
        return self._list(PLANS)

    def add_forward_plan(self, plan: Mapping[str, Any]) -> int:
        """Store the plan as the one now in use and return its number."""
        plans = self.forward_plans()
        self._files.replace(PLANS, json_bytes([*plans, plain(plan)]))
        return len(plans)

    def answers(self) -> Answers | None:
        """What the networks said when the run began; None where nobody asked. Lost ones are an error: without them any
        network would go for the run's."""
        if fault := self.answers_lost:
            raise self._files.not_as_written(ANSWERS, fault)
        found = self._json(ANSWERS, dict)
        try:
            return None if found is None else Answers.model_validate(found)
        except ValidationError as error:
            rule = "must hold what networks said of inputs"
            raise StoreError(self.path / ANSWERS, rule, error.errors()[0]["msg"], "Restore it from a copy.") from error

    def write_answers(self, answers: Answers) -> None:
        """Write answers.json; where records stand on answers that were lost, these must be the same."""
        content = json_bytes(answers.model_dump())
        if self.answers_lost and self._files.manifest().parts:
            self._files.restore(ANSWERS, content)
        else:
            self._files.replace(ANSWERS, content)

    @property
    def answers_lost(self) -> str | None:
        """What became of the answers that were written, in words; None where they are there, or never were."""
        return self._files.lost(ANSWERS)

    def write_inputs(self, inputs: Sequence[InputInfo]) -> None:
        """Write inputs.parquet."""
        self._files.replace(INPUTS, inputs_bytes(inputs))

    def drop_pictures(self) -> None:
        """Keep ids, labels and names of the inputs, and no pictures of them."""
        self.write_inputs([replace(one, thumbnail=None) for one in self.inputs()])

    def inputs(self) -> list[InputInfo]:
        """The inputs as they were written; empty where none were."""
        content = self._files.read(INPUTS)
        return [] if content is None else parse_inputs(self.path / INPUTS, content)

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        """Write summary.json."""
        self._files.replace(SUMMARY, json_bytes(plain(summary)))

    def summary(self) -> dict[str, Any] | None:
        """What summary.json holds; None while the run has not ended."""
        return self._json(SUMMARY, dict)

    @property
    def shape(self) -> tuple[int, ...] | None:
        """The shape of the inputs, which the summary tells; None where it tells none."""
        return self._listed_in_summary("shape", lambda side: type(side) is int and side > 0)

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """What its data call the classes, which the summary tells; None where it tells none."""
        return self._listed_in_summary("class_names", lambda name: isinstance(name, str))

    def _listed_in_summary(self, key: str, fits: Callable[[Any], bool]) -> tuple[Any, ...] | None:
        """An entry that is a list of what fits; None where it is anything else."""
        found = (self.summary() or {}).get(key)
        return tuple(found) if isinstance(found, list) and all(map(fits, found)) else None

    def _last_plan(self) -> int:
        return len(self.forward_plans()) - 1

    def _json(self, name: str, kind: type[Kind]) -> Kind | None:
        content = self._files.read(name)
        try:
            found = None if content is None else json.loads(content)
        except (ValueError, RecursionError):
            found = content
        if found is not None and not isinstance(found, kind):
            raise StoreError(self.path / name, f"must hold a JSON {kind.__name__}", "something else", "Delete it.")
        return found

    def _list(self, name: str) -> list[dict[str, Any]]:
        found = self._json(name, list) or []
        if not all(isinstance(entry, dict) for entry in found):
            raise StoreError(self.path / name, "must be a list of objects", "something else", "Delete it.")
        return list(found)
