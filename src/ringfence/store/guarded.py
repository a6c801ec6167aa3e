"""A folder under its manifest: the one place where files of a run are checked, made, replaced and removed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import final

from ringfence.errors import StoreError
from ringfence.store.atomic import create_exclusively, read_file, write_atomically, writing_errors
from ringfence.store.manifest import (
    ABSENT,
    ANSWERS,
    FILES,
    INPUTS,
    MANIFEST,
    PART,
    SUMMARY,
    Digests,
    Entry,
    Manifest,
    digest_of,
    is_digest,
    part_number,
)

_LOOKS = 5
"""A live run may change between a look at its manifest and one at its files: so often both are looked at."""

_DELETED = ", or delete it and run the same command again, which makes it anew"
MADE_AGAIN = {
    INPUTS: _DELETED,
    SUMMARY: _DELETED,
    ANSWERS: ", or run the same command again where the run began: it is made again if the network still says the same",
}
"""What else than a copy brings a file back."""


@final
@dataclass(frozen=True)
class Guarded:
    """The files of one run folder, of schema 2; every reader and writer comes by here."""

    path: Path
    _digests: Digests = field(default_factory=Digests)

    def manifest(self) -> Manifest:
        """What the manifest says now."""
        if not (self.path / MANIFEST).exists():
            remedy = "Restore it from a copy, or start a new run."
            raise StoreError(self.path, f"must hold its {MANIFEST}", "a run without", remedy)
        return Manifest.read(self.path)

    def check(self) -> tuple[dict[str, int], dict[str, str], Manifest]:
        """Parts that count, with their rows; what is wrong, by file; the manifest. Every file is hashed once."""
        manifest = self.manifest()
        for _ in range(_LOOKS):
            problems = self._problems(manifest)
            before, manifest = manifest, self.manifest() if problems else manifest
            if before == manifest:
                break
        whole = {name: rows for name, rows in manifest.parts.items() if name not in problems}
        there = {name: rows for name, rows in whole.items() if self._digests.of(self.path / name) != ABSENT}
        return there, problems, manifest

    def _problems(self, manifest: Manifest) -> dict[str, str]:
        there = {f"parts/{name}" for name in names_in(self.path / "parts")}
        parts = {*(name for name in there if PART.fullmatch(name)), *manifest.files} - {*FILES}
        found = {}
        for name in (*FILES, *sorted(parts, key=part_number)):
            entry = manifest.files.get(name)
            fault = self._digests.fault(self.path / name, entry)
            if fault and not entry and (original := self._original(manifest, name)):
                fault = f"is {original} once more"
            if fault:
                found[name] = fault
        return found

    def _original(self, manifest: Manifest, name: str) -> str | None:
        digest = self._digests.of(self.path / name)
        return next((one for one, entry in manifest.files.items() if entry.blake2b == digest), None)

    def read(self, name: str) -> bytes | None:
        """A file as it was written; None where there is none, an error where it is another."""
        if self._digests.of(self.path / name) == ABSENT:
            return None
        fault = self._digests.fault(self.path / name, self.manifest().files.get(name))
        if fault:
            raise self.not_as_written(name, fault)
        return read_file(self.path / name)

    def lost(self, name: str) -> str | None:
        """What is wrong with a file that was written, in words; None where it is there as it was, or never was."""
        entry = self.manifest().files.get(name)
        return None if entry is None else self._digests.fault(self.path / name, entry)

    def restore(self, name: str, content: bytes) -> None:
        """A file that was lost, where this is what it held: the manifest knows it by its digest."""
        if self.manifest().files[name].blake2b != digest_of(content):
            raise self.not_as_written(name, self.lost(name) or "is another now")
        write_atomically(self.path / name, content)

    def not_as_written(self, name: str, fault: str) -> StoreError:
        """Of a file that was changed or lost since it was written."""
        remedy = f"Restore it from a copy{MADE_AGAIN.get(name, '')}."
        return StoreError(self.path / name, "must be as it was written", f"a file that {fault}", remedy)

    def replace(self, name: str, content: bytes) -> None:
        """Replace or make a file that is no part."""
        manifest = self.settled()
        old = manifest.files.get(name)
        entry = Entry(blake2b=digest_of(content), earlier=old.blake2b if old else ABSENT)
        if old is None or old.blake2b != entry.blake2b:
            manifest.with_file(name, entry).save(self.path)
        write_atomically(self.path / name, content)

    def add_part(self, content: bytes, rows: int, taken: Iterable[str] = ()) -> Path:
        """Make the next part, exclusively, and under none of the names that are taken.

        What was written at an end goes first, for it was none: where the run is killed now it would stay for good.
        """
        manifest = self._without(SUMMARY, INPUTS)
        name = self._next(manifest, taken)
        entry = Entry(blake2b=digest_of(content), rows=rows, earlier=ABSENT)
        manifest.with_file(name, entry).save(self.path)
        return self._create(name, content)

    def replace_parts(self, old: Iterable[str], content: bytes, rows: int) -> None:
        """One part in the place of several, with one moment at which the new one begins to count and they end to."""
        manifest = self.settled()
        name = self._next(manifest)
        made = Entry(blake2b=digest_of(content), earlier=ABSENT)  # without rows it does not count: a kill leaves litter
        manifest.with_file(name, made).save(self.path)
        self._create(name, content)
        gone = {one: Entry(blake2b=manifest.files[one].blake2b, earlier=ABSENT) for one in old}
        whole = {name: Entry(blake2b=made.blake2b, rows=rows)}
        manifest.model_copy(update={"files": {**manifest.files, **gone, **whole}}).save(self.path)
        self.settle()

    def set_aside(self, name: str) -> None:
        """Take a part that is not to be believed out of the manifest and out of the way."""
        self.settled().with_file(name, None).save(self.path)
        part = self.path / name
        with writing_errors(part):
            if part.exists() or part.is_symlink():
                part.rename(part.with_name(f"damaged-{part.name}"))

    def note(self, **facts: object) -> None:
        """Change what the manifest says beside its files, if that is new."""
        manifest = self.settled()
        if any(getattr(manifest, name) != value for name, value in facts.items()):
            manifest.model_copy(update=facts).save(self.path)

    def settle(self) -> None:
        """Write the manifest without earlier states, if there are any."""
        settled = self.settled()
        if settled != self.manifest():
            settled.save(self.path)

    def settled(self) -> Manifest:
        """The manifest as the disk has it: of two allowed states the one that is there; litter is removed.

        Only a writer may ask: it holds the lock, so that nothing is on its way.
        """
        manifest = self.manifest()
        for name, entry in manifest.files.items():
            if entry.earlier is None:
                continue
            if entry.rows is None and name not in FILES and not self._digests.fault(self.path / name, entry):
                with writing_errors(self.path / name):
                    (self.path / name).unlink(missing_ok=True)
            found = self._digests.of(self.path / name)
            if found == ABSENT == entry.earlier:
                manifest = manifest.with_file(name, None)
            elif found in (entry.blake2b, entry.earlier):
                manifest = manifest.with_file(name, Entry(blake2b=found, rows=entry.rows))
        return manifest

    def _without(self, *names: str) -> Manifest:
        """The manifest as the disk has it, once these files are taken away."""
        manifest = self.settled()
        for name in names:
            if (old := manifest.files.get(name)) is not None:
                manifest.with_file(name, Entry(blake2b=old.blake2b, earlier=ABSENT)).save(self.path)
                with writing_errors(self.path / name):
                    (self.path / name).unlink(missing_ok=True)
                manifest = manifest.with_file(name, None)
        return manifest

    def _next(self, manifest: Manifest, taken: Iterable[str] = ()) -> str:
        with writing_errors(self.path / "parts"):
            (self.path / "parts").mkdir(exist_ok=True)
        there = {f"parts/{name}" for name in names_in(self.path / "parts")}
        numbers = [part_number(name) for name in {*there, *manifest.files, *taken} if PART.fullmatch(name)]
        return f"parts/part-{max(numbers, default=-1) + 1:06d}.parquet"

    def _create(self, name: str, content: bytes) -> Path:
        path = self.path / name
        with writing_errors(path):
            create_exclusively(path, content)
        return path


def begin(path: Path, config: str, inputs: int | None, files: Mapping[str, bytes]) -> None:
    """A manifest and these files in a folder that holds no run yet, in an order that a kill cannot spoil."""
    there = {name: Digests().of(path / name) for name in files}
    listed = {
        name: Entry(blake2b=digest_of(content), earlier=there[name] if is_digest(there[name]) else ABSENT)
        for name, content in files.items()
    }
    Manifest(config=config, inputs=inputs, files=listed).save(path)
    for name, content in files.items():
        write_atomically(path / name, content)


def names_in(folder: Path) -> list[str]:
    """Names in a folder; none where there is no folder."""
    try:
        return sorted(entry.name for entry in folder.iterdir())
    except OSError:
        return []
