"""manifest.json: what belongs to a run folder, byte by byte, so that what does not is noticed.

It lists every file but itself and the lock, and is replaced BEFORE a file is made, replaced or removed, with both
states allowed; a kill at any moment leaves a folder that its manifest describes. A later save drops the earlier state.
It is evidence against accidents and careless edits, not against somebody who writes a new manifest: that is what
``verify`` is for, which recomputes what the files claim.
"""

from __future__ import annotations

import json
import os
import re
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from ringfence.digests import hashed
from ringfence.errors import StoreError
from ringfence.store.atomic import json_bytes, read_file, write_atomically

MANIFEST = "manifest.json"
ABSENT = "absent"
CONFIG, INPUTS = "config.json", "inputs.parquet"
ENVIRONMENTS, PLANS, ANSWERS, SUMMARY = "environment.json", "forward.json", "answers.json", "summary.json"
FILES = (CONFIG, ENVIRONMENTS, PLANS, ANSWERS, INPUTS, SUMMARY)
"""What may stand beside the parts; other names in the folder are none of the run's business."""

SEAL = "seal.json"
"""Signs the manifest, and so stands in none; it is made and read in serve/certificates.py, where signatures are."""

PART = re.compile(r"parts/part-\d{6,12}\.parquet")
_CHUNK = 1 << 20

Hash = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$")]


class _Stored(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Entry(_Stored):
    """One file. rows: of a part that counts; earlier: the other state it may be in, a hash or "absent"."""

    blake2b: Hash
    rows: Annotated[int, Field(ge=0)] | None = None
    earlier: Hash | Literal["absent"] | None = None


class Manifest(_Stored):
    """config: the digest that every row must name; inputs: how many the whole run has; failed: input id -> reason."""

    schema_version: Literal[2] = 2
    config: str
    inputs: Annotated[int, Field(ge=0)] | None = None
    failed: dict[Annotated[str, StringConstraints(pattern=r"^-?\d{1,19}$")], str] = Field(default_factory=dict)
    files: dict[str, Entry] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _only_known_files(self) -> Self:
        for name, entry in self.files.items():
            if name not in FILES and not PART.fullmatch(name):
                raise ValueError(f"{name!r} is no file of a run")
            if entry.rows is not None and name in FILES:
                raise ValueError(f"{name!r} is no part")
        return self

    @property
    def parts(self) -> dict[str, int]:
        """The parts that count, in the order they were written, and their rows."""
        named = {name: entry.rows for name, entry in self.files.items() if entry.rows is not None}
        return dict(sorted(named.items(), key=lambda one: part_number(one[0])))

    def with_file(self, name: str, entry: Entry | None) -> Manifest:
        """The same with this file, or without it."""
        files = {key: value for key, value in self.files.items() if key != name}
        return self.model_copy(update={"files": files if entry is None else {**files, name: entry}})

    def text(self) -> bytes:
        """The file's bytes; the last line holds the hash of everything before."""
        body = self.model_dump(exclude_defaults=False)
        body["files"] = {name: entry.model_dump(exclude_none=True) for name, entry in sorted(self.files.items())}
        return json_bytes({**body, "hash": digest_of(json_bytes(body))})

    def save(self, folder: Path) -> None:
        """Replace the folder's manifest."""
        write_atomically(folder / MANIFEST, self.text())

    @classmethod
    def read(cls, folder: Path) -> Self:
        """The folder's manifest; an error where it is not exactly what was written."""
        path, remedy = folder / MANIFEST, "Restore the folder from a copy, or start a new run."
        content = read_file(path)
        try:
            body = json.loads(content)
            body.pop("hash")
            found = cls.model_validate(body)
        except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
            shown = "; ".join(one["msg"] for one in error.errors()[:3]) if isinstance(error, ValidationError) else error
            raise StoreError(path, "must be a run's manifest", shown or "something else", remedy) from error
        if found.text() != content:
            raise StoreError(path, "must be as it was written", "a hash that does not fit", remedy)
        return found


def part_number(name: str) -> int:
    """The number in a part's name."""
    return int(re.sub(r"\D", "", name))


def is_digest(text: str) -> bool:
    """Whether it is one, not a word for what is in a file's place."""
    return re.fullmatch(r"[0-9a-f]{32}", text) is not None


@dataclass(frozen=True)
class Digests:
    """Digests of files, computed once as long as a file's size, times and place on the disk stay the same."""

    _known: dict[Path, tuple[tuple[int, ...], str]] = field(default_factory=dict)

    def of(self, path: Path) -> str:
        """The digest, "absent", or a word for what is there and cannot be a file of ours."""
        try:
            found = os.stat(path)
            if not stat.S_ISREG(found.st_mode):
                return "not a file"
            seen = (found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino)
            if path not in self._known or self._known[path][0] != seen:
                self._known[path] = (seen, _hash_file(path))
            return self._known[path][1]
        except FileNotFoundError:
            return ABSENT if not path.is_symlink() else "a link to nothing"
        except OSError as error:
            return error.strerror or str(error)

    def fault(self, path: Path, entry: Entry | None) -> str | None:
        """What is wrong with the file, in words; None where it is as listed (or neither listed nor there)."""
        found = self.of(path)
        if found in (entry.blake2b, entry.earlier) if entry else found == ABSENT:
            return None
        if found == ABSENT:
            return "is missing"
        if not is_digest(found):
            return f"cannot be read ({found})"
        return "was changed after it was written" if entry else "was not written by this run"


def digest_of(content: bytes) -> str:
    """32 hexadecimal digits of BLAKE2b."""
    return hashed([content])


def _hash_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashed(iter(lambda: file.read(_CHUNK), b""))
