"""Schema 1 to schema 2, once: counts and claims stay, the settings get their new form, and a manifest guards it all."""

from __future__ import annotations

import warnings
from pathlib import Path

import pyarrow as pa

from ringfence.progress import followed
from ringfence.store.atomic import (
    StoreWarning,
    create_exclusively,
    json_bytes,
    locked,
    read_file,
    write_atomically,
    writing_errors,
)
from ringfence.store.guarded import Guarded
from ringfence.store.manifest import ABSENT, CONFIG, CONFIG_V1, FILES, Digests, Entry, Manifest, digest_of, part_number
from ringfence.store.parts import DAMAGE, conditions, part_bytes, part_paths, read_part
from ringfence.store.run import RunFolder


def migrate(path: str | Path, unlocked: bool = False) -> RunFolder:
    """Rewrite the run in path for schema 2; nothing happens to one that is of schema 2 already.

    The old settings stay as config.v1.json. Until the new config.json is in its place the folder is a run of schema 1
    and is read as one; from then on one of schema 2. A killed migration is finished by another one.
    """
    path = Path(path)
    old = RunFolder.open(path)
    with locked(path, unlocked):
        old = RunFolder.open(path)
        if old.v1_digest is None:
            old.settle()
            return old
        new = json_bytes(old.config.model_dump())
        before = read_file(path / CONFIG)
        entries = _rewritten(old)
        write_atomically(path / CONFIG_V1, before)
        digests = Digests()
        there = {name: digests.of(path / name) for name in FILES}
        entries |= {name: Entry(blake2b=digest) for name, digest in there.items() if digest != ABSENT}
        entries[CONFIG] = Entry(blake2b=digest_of(new), earlier=digest_of(before))
        Manifest(config=old.config.digest, inputs=_inputs(old), files=entries).save(path)
        write_atomically(path / CONFIG, new)
        Guarded(path).settle()
    return RunFolder.open(path)


def _inputs(run: RunFolder) -> int | None:
    """How many inputs the whole run has: as its settings say, or as many as a finished one has written."""
    return run.config.data.count or len(run.inputs()) or None


def _rewritten(run: RunFolder) -> dict[str, Entry]:
    """Every part once more, its rows naming the new settings; the old ones are listed as going."""
    entries: dict[str, Entry] = {}
    parts = part_paths(run.path / "parts")
    number = max((part_number(part.name) for part in parts), default=-1) + 1
    for part in followed(parts, "rewriting"):
        try:
            table = read_part(part)
            hashes = set(table["config_hash"].to_pylist())
            if hashes - {run.digest} and hashes != {run.config.digest}:
                raise ValueError("rows are of other settings")  # it did not count before, and must not afterwards
        except DAMAGE as error:
            warnings.warn(StoreWarning(f"{part} is damaged ({error}) and was set aside"), stacklevel=3)
            with writing_errors(part):
                part.rename(part.with_name(f"damaged-{part.name}"))
            continue
        if hashes == {run.config.digest}:  # an earlier migration was killed after it had made this one
            with writing_errors(part):
                part.unlink()
            continue
        place = table.schema.get_field_index("config_hash")
        named = pa.array([run.config.digest] * len(table), table.schema.field(place).type)
        content = part_bytes(table.set_column(place, table.schema.field(place), named), *conditions(part))
        made = part.with_name(f"part-{number:06d}.parquet")
        with writing_errors(made):
            create_exclusively(made, content)
        entries[f"parts/{made.name}"] = Entry(blake2b=digest_of(content), rows=len(table))
        entries[f"parts/{part.name}"] = Entry(blake2b=Digests().of(part), earlier=ABSENT)
        number += 1
    return entries
