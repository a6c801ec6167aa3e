"""RunFolder: one run on disk. Created once, continued with the same settings only, read by everything later."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
from pydantic import ValidationError

from ringfence.digests import difference
from ringfence.errors import RingfenceError, StoreError
from ringfence.record import Record
from ringfence.store.atomic import TEMPORARY_PREFIX, StoreWarning, read_json, write_json, writing_errors
from ringfence.store.config import SCHEMA_VERSION, RunConfig, content_hash, plain
from ringfence.store.environment import describe_environment
from ringfence.store.inputs import InputInfo, read_inputs, write_inputs
from ringfence.store.lock import LOCK, locked
from ringfence.store.parts import merge_parts, read_parts, sorted_rows, write_part
from ringfence.store.schema import RECORD_SCHEMA, from_table, to_table
from ringfence.store.upgrade import upgrade

_KEYS = ("input_id", "lane")
_DIGESTS = {"classifier.digest": "the model", "data.digest": "the data"}
"""Settings that are digests, and of what."""


@dataclass(frozen=True)
class RunFolder:
    """A run: config.json, environment.json, forward.json, parts/, inputs.parquet, summary.json.

    written: the hash of config.json as it stands, another than the config's where its schema is an earlier one;
    damaged collects the names of parts that could not be read; their inputs count as not done.
    """

    path: Path
    config: RunConfig
    written: str = field(default="", compare=False)
    damaged: list[str] = field(default_factory=list, compare=False)

    @classmethod
    def create_or_resume(cls, path: str | Path, config: RunConfig) -> Self:
        """A new run in path, or the run that is there if its settings are these; anything else is refused."""
        path = Path(path)
        found = cls._continued(path, config)
        if found is not None:
            return found
        with locked(path):  # and look once more: another command may have begun here meanwhile
            found = cls._continued(path, config)
            if found is not None:
                return found
            # Nothing was certified yet: a corrected command may use the folder that a failed one left behind.
            with writing_errors(path):
                (path / "forward.json").unlink(missing_ok=True)
            write_json(path / "config.json", config.model_dump())
        return cls(path, config)

    @classmethod
    def _continued(cls, path: Path, config: RunConfig) -> Self | None:
        """The run in path if it has these settings, None if path is free for one; writes nothing."""
        if (path / "config.json").exists():
            run = cls.open(path)
            changed = changed_settings(config, run.config)
            if run.config.digest != config.digest and not changed and run.config.migrated is not None:
                # Its records carry the hash of what stands in the folder, and so do those that are added.
                return run
            if changed and any((path / "parts").glob("*")):
                remedy = "Choose another --out for the new settings, or repeat the old ones to continue this run."
                rule = "a run is continued with the settings it was started with"
                raise StoreError(f"--out {path}", rule, "; ".join(changed), remedy)
            return None if changed else run
        with writing_errors(path):
            names = [entry.name for entry in path.iterdir()] if path.exists() else []
        strangers = [name for name in names if name != LOCK and not name.startswith(TEMPORARY_PREFIX)]
        if strangers:
            found = f"{len(strangers)} entries, among them {min(strangers)}"
            raise StoreError(f"--out {path}", "must be a run or an empty folder", found, "Choose another --out.")
        return None

    def check_unchanged(self) -> None:
        """Refuse to write under settings that config.json no longer holds; its writer asks once it holds the lock."""
        changed = changed_settings(self.config, type(self).open(self.path).config)
        if changed:
            rule, remedy = "must still hold the settings of this run", "Choose another --out for one of the two."
            raise StoreError(str(self.path / "config.json"), rule, "; ".join(changed), remedy)

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """The run in path, for reading."""
        path = Path(path)
        file = path / "config.json"
        if not file.exists():
            found = "a folder without config.json" if path.is_dir() else "a file" if path.exists() else "nothing there"
            raise StoreError(str(path), "must be a run folder", found, "Give the folder that --out named.")
        content = read_json(file)
        return cls(path, read_config(file, content), content_hash(content))

    # The records

    def append(self, records: Sequence[Record], environment: int = -1) -> Path:
        """Write the records as the next part; environment is the number that add_environment gave (-1: none)."""
        folder = self.path / "parts"
        with writing_errors(folder):
            folder.mkdir(exist_ok=True)
        return write_part(folder, to_table(records), environment, self._last_plan())

    def records(self, columns: Sequence[str] | None = None) -> pa.Table:
        """All records as a table sorted by (input_id, lane), without repetitions; only the named columns are read."""
        wanted = list(RECORD_SCHEMA.names if columns is None else columns)
        needed = None if columns is None else [*wanted, *(key for key in _KEYS if key not in wanted)]
        schema = pa.schema([RECORD_SCHEMA.field(name) for name in needed or wanted])
        tables = list(read_parts(self.path / "parts", needed, self._note_damage))
        return self._rehashed(sorted_rows(pa.concat_tables([schema.empty_table(), *tables])).select(wanted))

    def _rehashed(self, table: pa.Table) -> pa.Table:
        """Rows of an earlier schema carry the hash of their config as it was; they get that of the same, upgraded."""
        if self.config.migrated is None or "config_hash" not in table.column_names:
            return table
        hashes = [self.config.digest if one == self.written else one for one in table["config_hash"].to_pylist()]
        place = table.column_names.index("config_hash")
        return table.set_column(place, RECORD_SCHEMA.field("config_hash"), pa.array(hashes, pa.string()))

    def read(self) -> list[Record]:
        """All records, sorted by (input_id, lane)."""
        return from_table(self.records())

    def done_ids(self) -> set[int]:
        """Inputs that have a record for every lane of the run, and so need no further work.

        Whole parts are read: one with a damaged column must be made again, whichever column that is.
        """
        lanes: dict[int, set[str]] = {}
        for table in read_parts(self.path / "parts", None, self._note_damage):
            for one, lane in zip(table["input_id"].to_pylist(), table["lane"].to_pylist(), strict=True):
                lanes.setdefault(one, set()).add(lane)
        return {one for one, present in lanes.items() if present.issuperset(self.config.classifier.names)}

    def merge_parts(self) -> None:
        """Join the small parts of a finished run; only its writer may call this, and not while parts are damaged."""
        folder = self.path / "parts"
        with writing_errors(folder):
            merge_parts(folder)

    def set_damaged_aside(self) -> None:
        """Rename the damaged parts, once their inputs have been certified again: kept for the curious, never read."""
        while self.damaged:
            part = self.path / "parts" / self.damaged.pop()
            with writing_errors(part):
                part.rename(part.with_name(f"damaged-{part.name}"))

    def _note_damage(self, path: Path, error: Exception) -> None:
        if path.name not in self.damaged:
            self.damaged.append(path.name)
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            message = f"{path} is damaged and was left out ({reason}); certify with the same --out makes it again"
            warnings.warn(StoreWarning(message), stacklevel=2)

    # What stands beside the records

    def environments(self) -> list[dict[str, Any]]:
        """Where the parts were computed, one entry per kind of machine and forward plan."""
        return self._list("environment.json")

    def add_environment(self, entry: Mapping[str, Any] | None = None) -> int:
        """Number of this process's entry (or the given one), added where it is new; differences are warned about."""
        described = plain(describe_environment() if entry is None else entry) | {"forward_plan": self._last_plan()}
        known = self.environments()
        if described in known:
            return known.index(described)
        write_json(self.path / "environment.json", [*known, described])
        before = known[-1] if known else described
        changed = [key for key in described if key != "forward_plan" and described[key] != before.get(key)]
        if changed:
            listed = "; ".join(f"{key}: {described[key]} now, {before.get(key)} before" for key in changed)
            message = f"{self.path} continues in another environment ({listed}); scores may differ in their last digits"
            warnings.warn(StoreWarning(message), stacklevel=2)
        return len(known)

    def forward_plans(self) -> list[dict[str, Any]]:
        """The forward shapes used, oldest first; a run has one unless memory ran out."""
        return self._list("forward.json")

    def add_forward_plan(self, plan: Mapping[str, Any]) -> int:
        """Store the plan as the one now in use and return its number."""
        plans = self.forward_plans()
        write_json(self.path / "forward.json", [*plans, plain(plan)])
        return len(plans)

    def write_inputs(self, inputs: Sequence[InputInfo]) -> None:
        """Write inputs.parquet."""
        write_inputs(self.path / "inputs.parquet", inputs)

    def inputs(self) -> list[InputInfo]:
        """The inputs as they were written; empty where none were."""
        return read_inputs(self.path / "inputs.parquet")

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        """Write summary.json."""
        write_json(self.path / "summary.json", plain(summary))

    def summary(self) -> dict[str, Any] | None:
        """What summary.json holds; None while the run has not ended."""
        path = self.path / "summary.json"
        return dict(read_json(path)) if path.exists() else None

    def _last_plan(self) -> int:
        return len(self.forward_plans()) - 1

    def _list(self, name: str) -> list[dict[str, Any]]:
        path = self.path / name
        return list(read_json(path)) if path.exists() else []


def read_config(file: Path, content: Any) -> RunConfig:
    """The config that a file holds, of this schema or an earlier one; whatever else it holds is refused."""
    _refuse_newer(file, content)
    try:
        earlier = isinstance(content, dict) and content.get("schema_version") == 1
        return RunConfig.model_validate(upgrade(content) if earlier else content)
    except ValidationError as error:
        first = error.errors()[0]
        received = f"{'.'.join(str(step) for step in first['loc'])}: {first['msg']}"
    except (ValueError, TypeError, LookupError, ArithmeticError, RingfenceError) as error:
        received = str(error)
    remedy = "Restore config.json from a copy, or start a new run."
    raise StoreError(str(file), "must be a run's settings", received, remedy)


def _refuse_newer(file: Path, content: Any) -> None:
    version = content.get("schema_version", 0) if isinstance(content, dict) else 0
    if isinstance(version, int) and version > SCHEMA_VERSION:
        rule = f"schema_version must be at most {SCHEMA_VERSION}, the newest this version of ringfence knows"
        raise StoreError(str(file), rule, version, "Update ringfence to read this run.")


def changed_settings(now: RunConfig, there: RunConfig) -> list[str]:
    """Every setting that differs, in words; digests say which of their parts."""
    told = []
    for key, ours, theirs in now.differences(there):
        what = _DIGESTS.get(key)
        if what is None or not (isinstance(ours, str) and isinstance(theirs, str)):
            told.append(f"{key}: {ours!r} now, {theirs!r} in the run")
        elif (changed := difference(what, ours, theirs)) is not None:
            told.append(f"{key}: {changed}")
    return told
