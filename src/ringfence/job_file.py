"""Job: a certification with where and how it runs, as a mapping: what YAML and JSON files hold and flags build.

classifier: soft(zoo:a:0, zoo:a:1)      # or {soft: [...]}, or {tree: ..., mean: [...], std: [...], classes: 10}
data: {source: "cifar10:data", skip: 20}
noise: {sigma: 0.25}
procedure: {name: sequential, radius: 0.5}
mechanisms: [neyman-pearson]
execution: {device: cuda, batch: 1024}
out: runs/x
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

from ringfence.certification import Certification
from ringfence.data import Data
from ringfence.errors import ArgumentError, Collected, RingfenceError, StoreError
from ringfence.mechanisms import mechanisms_named
from ringfence.models import lanes_of, procedure_for
from ringfence.models.compose import tree_of
from ringfence.models.grammar import Tree
from ringfence.named_parts import noise_of, resolved_precision
from ringfence.procedures import Procedure, usual_name
from ringfence.procedures import procedure as named_procedure
from ringfence.sampling import pick_device
from ringfence.stats.noise_law import FLOAT
from ringfence.store import SCHEMA_VERSION, RunConfig
from ringfence.store.atomic import write_output
from ringfence.store.config import ClassifierConfig, DataConfig
from ringfence.work import Execution, engine_named, engine_written

MOST_BYTES = 1_000_000
"""A description is short; anything longer is something else."""

_TREE, _INPUTS = {"tree", "mean", "std", "classes"}, {"source", "split", "size"}
FOLLOWING = {
    "classifier": {"digest": _TREE, "lanes": {"tree"}},
    "data": {"digest": _INPUTS, "count": {"source", "split", "skip", "limit", "stop"}},
    "noise": {"coordinates": {"form", "lattice"} | _INPUTS},
}
"""Entries of a config's parts that follow from others, by which they are made; whoever changes those drops them."""

EXECUTED = ("device", "batch", "compile", "autotune", "engine", "check")


@final
@dataclass(frozen=True)
class Job:
    """What is certified, how it runs, and the folder it goes to."""

    certification: Certification
    execution: Execution = field(default_factory=Execution)
    out: Path | None = None

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> Job:
        """The job of a mapping; everything that is wrong with it is told together."""
        wrong = Collected()
        # A config of a run is such a mapping, too: what it says beside follows from the rest.
        wrong.ask(lambda: _refuse_unknown("job", content, {*RunConfig.model_fields, "execution", "out"}))
        described = _classifier_entries(content.get("classifier", "default"))
        wrong.ask(lambda: _refuse_unknown("classifier", described, set(ClassifierConfig.model_fields)))
        tree = wrong.ask(lambda: _checked_tree(tree_of(described.get("tree"))))
        execution = wrong.ask(lambda: execution_of(content.get("execution") or {}))
        test = wrong.ask(lambda: _procedure(tree, content.get("procedure", "fixed")))
        # Configs from before there were forms name none, and are of float noise; none of theirs says auto.
        form, usual = ({"form": FLOAT}, "fp32") if "schema_version" in content else ({}, "auto")
        noise = wrong.ask(lambda: noise_of(form | _mapping("noise", content.get("noise"))))
        named, family = content.get("mechanisms"), "gaussian" if noise is None else noise.law.family
        proofs = None if named is None else wrong.ask(lambda: mechanisms_named(_names(named), family))
        data = wrong.ask(lambda: _data(content.get("data", "default")))
        split = wrong.ask(lambda: _typed("split_alpha", content.get("split_alpha", False), bool))
        seed = wrong.ask(lambda: _typed("seed", content.get("seed", 0), int))
        scales = wrong.ask(lambda: [_numbers(name, described.get(name)) for name in ("mean", "std")])
        mean, std = scales or (None, None)
        with wrong:
            made = Certification(
                "default" if tree is None else tree,
                data or Data(),
                noise=noise or noise_of({"sigma": 1.0}),
                procedure=None if noise is None else test,
                mechanism=proofs,
                precision=resolved_precision(str(content.get("precision", usual)), (execution or Execution()).device),
                split_alpha=split or False,
                seed=seed or 0,
                mean=mean,
                std=std,
                classes=described.get("classes"),
            )
            _refuse_contradicted(content, made)
        wrong.tell()
        out = content.get("out")
        return cls(
            made.expecting(following(content)), execution or Execution(), None if out is None else Path(str(out))
        )

    def written(self) -> dict[str, Any]:
        """The mapping that says the same; networks and data of a program have no such form."""
        value, data = self.certification, self.certification.data
        classifier = {"tree": str(value.classifier), "mean": value.mean, "std": value.std, "classes": value.classes}
        shared = {"classifier": classifier, "data": {"source": data.name, **data.choice}}
        settings = {"name": value.procedure.name, **value.procedure.settings()}
        content = {
            **shared,
            "noise": value.noise.settings(),
            "procedure": settings,
            "mechanisms": [one.name for one in value.mechanisms],
            "split_alpha": value.split_alpha,
            "precision": value.precision,
            "seed": value.seed,
            "execution": {name: getattr(self.execution, name) for name in EXECUTED}
            | {"engine": engine_written(self.execution.engine)},
            "out": None if self.out is None else str(self.out),
        }
        said: dict[str, Any] = _without_none(content)
        return said

    def save(self, path: Path) -> None:
        """Write it as YAML, or as JSON where the name ends so."""
        import yaml

        told = json.loads(json.dumps(self.written()))
        text = json.dumps(told, indent=2) + "\n" if path.suffix == ".json" else yaml.safe_dump(told, sort_keys=False)
        write_output(path, text.encode())


def read_job(path: Path) -> dict[str, Any]:
    """The mapping of a YAML or JSON file, read without running anything."""
    import yaml

    from ringfence.yaml_files import EachOnce, refuse_too_many

    try:
        if path.stat().st_size > MOST_BYTES:
            raise StoreError(path, f"has at most {MOST_BYTES} bytes", path.stat().st_size, "Give a job file.")
        content = yaml.load(path.read_bytes(), EachOnce)  # JSON is YAML
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        told = (isinstance(error, OSError) and error.strerror) or " ".join(str(error).split())
        remedy = "Name a run folder by `out`." if path.is_dir() else "Check the file."
        raise StoreError(path, "must be a readable YAML or JSON file", told, remedy) from error
    refuse_too_many(path, content, StoreError)
    if not isinstance(content, Mapping):
        rule = "must describe a certification: classifier, data, noise, procedure"
        raise StoreError(path, rule, f"a {type(content).__name__}", "Write one with `save`.")
    return {str(key): value for key, value in content.items()}


MAIN = {"classifier": "tree", "data": "source", "procedure": "name", "engine": "name"}
"""The entry that stands for a part which is written as a single word."""


def following(content: Mapping[str, Any]) -> dict[str, Any]:
    """What a config says that was found when it was made, and must be found again: digests, lanes, the lift."""
    parts = {part: content[part] for part in FOLLOWING if isinstance(content.get(part), Mapping)}
    found = {part: {key: told[key] for key in FOLLOWING[part] if key in told} for part, told in parts.items()}
    return {key: told for key, told in {**found, "lift": content.get("lift")}.items() if told}


def merged(content: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """A job's mapping with further entries in the place of its own; those that are None say nothing."""
    found, changed = dict(content), set[str]()
    for key, value in more.items():
        if not isinstance(value, dict):
            found |= {} if value is None else {key: value}
            continue
        told = {name: entry for name, entry in value.items() if entry is not None}
        whole = _whole(key, found.get(key))
        if isinstance(told.get("engine"), dict):  # its settings are entries of their own
            told |= merged({"engine": whole.get("engine")}, {"engine": told["engine"]})
            told = {name: entry for name, entry in told.items() if entry is not None}
        changed |= {name for name, entry in told.items() if whole.get(name) != entry}
        before = whole.get("name", "fixed")
        if key in ("procedure", "engine") and told.get("name", before) != before:
            whole = {}  # settings of another procedure or engine are not its own
        if key == "noise" and told.get("form", whole.get("form")) != whole.get("form"):
            whole = {name: entry for name, entry in whole.items() if name != "lattice"}  # nor is another form's lattice
        both = {name: entry for name, entry in {**whole, **told}.items() if name is not None and entry is not None}
        found |= {key: both} if both else {}
    for part, rules in FOLLOWING.items():
        if isinstance(found.get(part), Mapping):
            gone = {name for name, made_by in rules.items() if changed & made_by}
            found[part] = {name: entry for name, entry in found[part].items() if name not in gone}
    if changed & (_TREE | _INPUTS):
        found.pop("lift", None)
    return found


def _whole(key: str, content: Any) -> dict[Any, Any]:
    """A part of a job as the mapping it stands for; of all mappings only a classifier's may be the tree itself."""
    if key == "classifier" and content is not None:
        return _classifier_entries(content)
    return dict(content) if isinstance(content, Mapping) else {MAIN.get(key): content}


def execution_of(content: Any) -> Execution:
    """Device, batch (a number or auto), compile, autotune, engine and check."""
    given = _mapping("execution", content)
    _refuse_unknown("execution", given, set(EXECUTED))
    batch, device = given.get("batch", "auto"), str(given.get("device", "auto"))
    pick_device(device)
    if isinstance(batch, str) and batch.isdecimal() and len(batch) < 19:
        batch = int(batch)
    if batch in ("auto", None):
        batch = None
    elif type(batch) is not int or batch < 1:
        raise ArgumentError("batch", "must be auto or a number of rows", repr(batch), "Use auto.")
    named = given.get("engine", "local")
    engine = engine_named(named) if isinstance(named, Mapping) else engine_named(str(named)).name
    compile = None if given.get("compile") is None else _typed("compile", given["compile"], bool)
    check = _typed("check", given.get("check", True), bool)
    return Execution(device, batch, compile, given.get("autotune"), engine=engine, check=check)


def _procedure(tree: Tree | None, content: Any) -> Procedure:
    """The procedure of its entries; that of the tree's root where it has its own for the name."""
    given = {"name": content} if isinstance(content, str) else _mapping("procedure", content)
    name = str(given.pop("name", usual_name(given)))
    implied: dict[str, Any] = {}
    if tree is not None:
        name, implied = procedure_for(tree, name)
    settings = {key: tuple(value) if isinstance(value, list) else value for key, value in given.items()}
    try:
        return named_procedure(name, {**settings, **implied})
    except RingfenceError:
        raise
    except (TypeError, ValueError, ArithmeticError) as error:
        listed = ", ".join(f"{key}={value!r}" for key, value in settings.items() if value is not None)
        rule = f"has settings that the procedure {name} cannot use"
        raise ArgumentError(
            "procedure", rule, f"{listed} ({error})", "Give numbers where numbers are meant."
        ) from error


def _refuse_contradicted(content: Mapping[str, Any], made: Certification) -> None:
    """What follows from the rest may be said as well, as configs do, and must then be what follows."""
    norm, version = made.mechanisms[0].norm, content.get("schema_version", SCHEMA_VERSION)
    if content.get("norm", norm) != norm:
        raise ArgumentError(
            "norm", f"is that of {made.mechanisms[0].spelled}, {norm}", content["norm"], "Leave it out."
        )
    if version != SCHEMA_VERSION:
        raise ArgumentError("schema_version", f"must be {SCHEMA_VERSION}", version, "Leave it out.")


def _checked_tree(tree: Tree) -> Tree:
    """The tree, whose nodes and settings are all known."""
    lanes_of(tree)
    return tree


def _data(content: Any) -> Data:
    given = {"source": content} if isinstance(content, str) else _mapping("data", content)
    _refuse_unknown("data", given, set(DataConfig.model_fields))
    said: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    chosen = {key: value for key, value in said.items() if key not in FOLLOWING["data"]}
    if not isinstance(chosen.get("source", ""), str):
        raise ArgumentError("data", "names a source", repr(chosen["source"]), "Write e.g. source: default.")
    return Data(**chosen)


def _classifier_entries(content: Any) -> dict[str, Any]:
    """A classifier with what stands beside its tree."""
    beside = isinstance(content, Mapping) and ("tree" in content or content.keys() <= {"mean", "std", "classes"})
    return {"tree": "default", **content} if beside else {"tree": content}


def _mapping(name: str, content: Any) -> dict[str, Any]:
    if not isinstance(content, Mapping):
        raise ArgumentError(name, "is a mapping of settings", repr(content)[:80], f"Write e.g. {name}: {{...}}.")
    return {str(key): value for key, value in content.items()}


def _refuse_unknown(name: str, content: Mapping[str, Any], known: set[str]) -> None:
    unknown = sorted(str(key) for key in content if key not in known)
    if unknown:
        raise ArgumentError(name, f"has the entries {', '.join(sorted(known))}", unknown, "Correct the name.")


def _names(content: Any) -> Any:
    texts = [content] if isinstance(content, str) else content
    if not isinstance(texts, list | tuple) or not all(isinstance(one, str) for one in texts) or not texts:
        raise ArgumentError("mechanisms", "is a list of names", repr(content)[:80], "Write e.g. [neyman-pearson].")
    return content


def _numbers(name: str, content: Any) -> list[float] | None:
    if content is None:
        return None
    listed = content if isinstance(content, list | tuple) else [content]
    if not all(type(one) in (int, float) for one in listed):
        raise ArgumentError(name, "is a list of numbers", repr(content)[:80], "Write one number per channel.")
    return [float(one) for one in listed]


def _typed(name: str, value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise ArgumentError(name, f"must be {kind.__name__}", repr(value), "Correct it.")
    return value


def _without_none(content: Any) -> Any:
    """The entries that say something."""
    if not isinstance(content, dict):
        return content
    return {key: _without_none(value) for key, value in content.items() if value is not None}
