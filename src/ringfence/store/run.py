"""RunFolder: one run on disk. Created once, continued with the same settings only, its records read by everything."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self, final

import pyarrow as pa
import pyarrow.compute as pc

from ringfence.errors import StoreError
from ringfence.progress import followed
from ringfence.record import Record
from ringfence.stats.norms import InNorm
from ringfence.store.atomic import LOCK, TEMPORARY_PREFIX, json_bytes, locked, writing_errors
from ringfence.store.config import RunConfig, changed_settings, read_config
from ringfence.store.folder import Folder
from ringfence.store.guarded import begin
from ringfence.store.manifest import CONFIG, FILES, MANIFEST, PART
from ringfence.store.parts import DAMAGE, conditions, part_bytes, read_part, sorted_rows
from ringfence.store.schema import RECORD_SCHEMA, from_table, in_other_norm, refuse_nonsense, to_table

_KEYS = ("input_id", "lane", "config_hash")


@final
@dataclass(frozen=True, repr=False)
class RunFolder(Folder):
    """A run in its folder.

    unlocked: write although the disk knows no locks. shown: the norm that radii are read in; None: the one they were
    proved in, which is the one that is stored.
    """

    unlocked: bool = field(default=False, compare=False)
    shown: InNorm | None = None

    @classmethod
    def create_or_resume(cls, path: str | Path, config: RunConfig, unlocked: bool = False) -> Self:
        """A new run in path, or the run that is there if its settings are these; anything else is refused."""
        path = Path(path)
        found = cls._continued(path, config, unlocked)
        if found is not None:
            return found
        with locked(path, unlocked):  # and look once more: another command may have begun here meanwhile
            found = cls._continued(path, config, unlocked)
            if found is not None:
                return found
            # Nothing was certified yet: a corrected command may use the folder that a failed one left behind.
            with writing_errors(path):
                for name in FILES:
                    if name != CONFIG:
                        (path / name).unlink(missing_ok=True)
            begin(path, config.digest, config.data.count, {CONFIG: json_bytes(config.model_dump())})
        return cls(path, config, unlocked=unlocked)

    @classmethod
    def _continued(cls, path: Path, config: RunConfig, unlocked: bool) -> Self | None:
        """The run in path if it has these settings, None if path is free for one; writes nothing."""
        if os.path.exists(path / CONFIG):
            empty = not any((path / "parts").glob("*"))
            if empty and not (path / MANIFEST).exists():
                cls._refuse_strange(path)
                return None
            run = cls.open(path)
            changed = changed_settings(config, run.config)
            if changed and not empty:
                remedy = "Choose another `out` for the new settings, or repeat the old ones to continue this run."
                rule = "a run is continued with the settings it was started with"
                raise StoreError(f"out {path}", rule, "; ".join(changed), remedy)
            return None if changed else cls(path, run.config, unlocked=unlocked)
        if file := next((one for one in (path, *path.parents) if os.path.isfile(one)), None):
            rule = "must be a run or an empty folder" if file == path else "must be a folder below folders"
            raise StoreError(f"out {path}", rule, f"{file.name}, a file", "Choose another `out`.")
        with writing_errors(path):
            names = [entry.name for entry in path.iterdir()] if path.exists() else []
        strangers = [name for name in names if name not in (LOCK, MANIFEST) and not name.startswith(TEMPORARY_PREFIX)]
        if strangers:
            found = f"{len(strangers)} entries, among them {min(strangers)}"
            raise StoreError(f"out {path}", "must be a run or an empty folder", found, "Choose another `out`.")
        return None

    @staticmethod
    def _refuse_strange(path: Path) -> None:
        """Trainings and models have a config.json, too, which a run would replace."""
        try:
            read_config(path / CONFIG)
        except StoreError as error:
            rule, received = "must be a run or an empty folder", f"a {CONFIG} that is no run's: {error.received}"
            raise StoreError(f"out {path}", rule, received, "Choose another `out`.") from error

    def check_unchanged(self) -> None:
        """Refuse to write under settings that config.json no longer holds; its writer asks once it holds the lock."""
        changed = changed_settings(self.config, type(self).open(self.path).config)
        if changed:
            rule, remedy = "must still hold the settings of this run", "Choose another `out` for one of the two."
            raise StoreError(self.path / CONFIG, rule, "; ".join(changed), remedy)

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """The run in path, for reading."""
        path = Path(path)
        file = path / CONFIG
        if not os.path.exists(file):  # unlike Path's, it knows no name too long to ask about
            there = "a file" if os.path.exists(path) else "nothing there"
            found = "a folder without config.json" if os.path.isdir(path) else there
            remedy = "Give the folder that a certification wrote."
            if os.path.isdir(path) and (within := sorted(path.glob(f"*/{CONFIG}"))):
                remedy = f"Give a folder that a certification wrote, such as {within[0].parent}."
            if os.path.isfile(path):
                remedy = f"{remedy[:-1]}; of a published log, ringfence import makes one."
            raise StoreError(path, "must be a run folder", found, remedy)
        run = cls(path, read_config(file))
        run._files.manifest()
        return run

    def in_norm(self, shown: InNorm | None) -> Self:
        """The same run, for reading its radii in another norm."""
        return replace(self, shown=shown)

    @property
    def norm(self) -> str:
        """The norm of the radii that are read."""
        return (self.shown or self.config).norm

    @property
    def factor(self) -> float:
        """What proved radii are multiplied by to be read."""
        shape = () if self.shown is None else self.shape or ()
        told = self.config.noise.coordinates or (math.prod(shape) if shape else None)
        return 1.0 if self.shown is None else self.shown.factor(self.config.norm, told)

    # The records

    def append(self, records: Sequence[Record], environment: int = -1) -> Path:
        """Write the records as the next part; environment is the number that add_environment gave (-1: none)."""
        foreign = {record.config_hash for record in records} - {self.digest}
        if foreign:
            rule = f"records must be of the run's own settings, {self.digest}"
            raise StoreError(self.path, rule, sorted(foreign), "Certify with config_hash=run.digest.")
        content = part_bytes(to_table(records), environment, self._last_plan())
        return self._files.add_part(content, len(records), taken=self.problems)

    def tables(self, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """Every part that counts, as a table of the named columns and the keys; one with other settings does not."""
        wanted = RECORD_SCHEMA.names if columns is None else list(dict.fromkeys([*columns, *_KEYS]))
        whole = list(self._whole_parts().items())
        factor = self.factor if whole else 1.0  # one for all parts, and nothing to convert where there are none
        for name, rows in followed(whole, "reading"):
            try:
                table = read_part(self.path / name, wanted)
                if rows != len(table):
                    raise ValueError(f"it has {len(table)} rows, not {rows}")
                foreign = len(table) - pc.sum(pc.equal(table["config_hash"], self.digest), min_count=0).as_py()
                if foreign:
                    raise ValueError(f"{foreign} rows are of other settings")
                refuse_nonsense(table, self.config.classifier.classes, self.config.classifier.names)
            except DAMAGE as error:
                reason = str(error).splitlines()[0] if str(error) else type(error).__name__
                self._note_problem(name, f"is damaged ({reason})")
            else:
                yield table if self.shown is None else in_other_norm(table, self.shown.norm, factor)

    def records(self, columns: Sequence[str] | None = None) -> pa.Table:
        """All records as a table sorted by (input_id, lane), without repetitions; only the named columns are read."""
        wanted = list(RECORD_SCHEMA.names if columns is None else columns)
        schema = pa.schema([RECORD_SCHEMA.field(name) for name in dict.fromkeys([*wanted, *_KEYS])])
        found = sorted_rows(pa.concat_tables([schema.empty_table(), *self.tables(wanted)]))
        self.announce(pc.count_distinct(found["input_id"]).as_py())
        return found.select(wanted)

    def read(self) -> list[Record]:
        """All records, sorted by (input_id, lane)."""
        return from_table(self.records())

    def read_lanes(self, names: Sequence[str] | None = None) -> dict[str, list[Record]]:
        """All records by lane, or those of the named lanes, each sorted by input; a run without any is refused."""
        lanes: dict[str, list[Record]] = {}
        table = self.records()
        wanted = table if names is None else table.filter(pc.is_in(table["lane"], pa.array(names, pa.string())))
        for record in from_table(wanted):
            lanes.setdefault(record.lane, []).append(record)
        if not lanes:
            raise no_records(self)
        return lanes

    def done_ids(self) -> set[int]:
        """Inputs that have a record for every lane of the run, and so need no further work.

        Whole parts are read: one with a damaged column must be made again, whichever column that is.
        """
        lanes: dict[int, set[str]] = {}
        for table in self.tables():
            for one, lane in zip(table["input_id"].to_pylist(), table["lane"].to_pylist(), strict=True):
                lanes.setdefault(one, set()).add(lane)
        return {one for one, present in lanes.items() if present.issuperset(self.config.classifier.names)}

    def written_since(self, moment: float) -> int:
        """Inputs in the parts whose files are of that time or later: how far the session that writes now has come."""
        rows = 0
        for name, entry in self._files.manifest().parts.items():
            with suppress(OSError):  # it may be joined with others just now
                rows += entry if (self.path / name).stat().st_mtime >= moment else 0
        return rows // len(self.config.classifier.names)

    def made_under(self) -> set[tuple[int, int]]:
        """The entries of environment.json and forward.json that its parts name, by their numbers, -1 for none."""
        found = set()
        for name in self._whole_parts():
            with suppress(*DAMAGE):  # it does not count, and ``tables`` tells why
                found.add(conditions(self.path / name))
        return found

    def merge_parts(self) -> None:
        """Join the small parts of a finished run that were made under the same conditions.

        Only its writer may call this, and not while parts are damaged.
        """
        alike: dict[tuple[int, int], list[str]] = {}
        for name in self._whole_parts():
            alike.setdefault(conditions(self.path / name), []).append(name)
        for (environment, segment), names in alike.items():
            if len(names) > 1:
                table = sorted_rows(pa.concat_tables([read_part(self.path / name) for name in names]))
                self._files.replace_parts(names, part_bytes(table, environment, segment), len(table))

    def set_damaged_aside(self) -> None:
        """Rename the damaged parts, once their inputs have been certified again: kept for the curious, never read."""
        for name in [name for name in self.problems if PART.fullmatch(name)]:
            self._files.set_aside(name)
            del self.problems[name]

    def settle(self) -> None:
        """Bring the manifest to what is there, at the end of a session."""
        self._files.settle()


def no_records(run: RunFolder | None = None) -> StoreError:
    """The refusal of a run, or a list, without records: there are none, or only in parts that do not count."""
    damaged = (
        [] if run is None else [f"{name}, which {run.problems[name]}" for name in run.problems if PART.match(name)]
    )
    received, remedy = "none", "Certify some inputs first."
    if damaged:
        received, remedy = f"none that counts: {damaged[0]}", "Mend that file, or certify into the same folder again."
    return StoreError("records" if run is None else run.path, "must hold at least one record", received, remedy)
