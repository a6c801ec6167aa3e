"""The zoo: networks trained with ``ringfence train``, as folders of weights beside the settings that made them."""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import takewhile
from pathlib import Path
from typing import Any, final

from ringfence.errors import ModelError
from ringfence.models.weights import read_weights

PLACE = "RINGFENCE_ZOO"
"""Environment variable that names the zoo's folder."""
SUMS = "SHA256SUMS"
"""File with the hash of every member of a training of which not all are kept."""


@final
@dataclass(frozen=True)
class ZooEntry:
    """A training: its name below the zoo's folder, its members' weights in order, its settings.

    settings are those of the training's config.json; of a lone file only the architecture is known. absent: hashes by
    name of the last members where only the first ones, or none, are kept here: SHA256SUMS names all that were measured.
    """

    name: str
    files: tuple[Path, ...]
    settings: Mapping[str, Any]
    absent: Mapping[str, str] = field(default_factory=dict)

    @property
    def plan(self) -> Mapping[str, Any]:
        """How it was trained; empty where that was not kept."""
        found: Mapping[str, Any] = self.settings.get("plan", {})
        return found

    @property
    def members(self) -> int:
        """How many were trained, kept here or not."""
        return len(self.files) + len(self.absent)

    def digests(self) -> list[str]:
        """SHA-256 of every file."""
        return [sha256(file.read_bytes()).hexdigest() for file in self.files]


def zoo_root(given: Path | None = None) -> Path:
    """The given folder, that of the environment, ``zoo`` here, or the one of the checkout this package runs from."""
    named = given or (Path(os.environ[PLACE]) if os.environ.get(PLACE) else None)
    places = [named] if named else [Path("zoo"), Path(__file__).resolve().parents[3] / "zoo"]
    for place in places:
        if place.is_dir():
            return place
    rule = "must be a folder of trained networks"
    raise ModelError("zoo", rule, ", ".join(map(str, places)), f"Name it, or set {PLACE}; the repository has one.")


def zoo_entries(root: Path) -> list[ZooEntry]:
    """Every training that has its members here, or hashes of those that are not; every lone file; by name."""
    found: list[ZooEntry] = []
    for config in sorted(root.rglob("config.json")):
        folder = config.parent
        try:
            settings = json.loads(_text(config))
            members = int(settings["members"])
            if plan := settings.get("plan"):
                _ = (plan["objective"]["name"], float(plan["sigma"]), int(plan["epochs"]))
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise ModelError(str(config), "must be the settings of a training", error, "Copy it anew.") from error
        every = [folder / f"final-{i}.safetensors" for i in range(members)]
        files, known = tuple(takewhile(Path.is_file, every)), read_sums(folder)
        absent = {file.name: known[file.name] for file in every[len(files) :] if file.name in known}
        if len(files) + len(absent) == members:
            found.append(ZooEntry(folder.relative_to(root).as_posix(), files, settings, absent))
    for file in sorted(root.rglob("*.safetensors")):
        if not (file.parent / "config.json").exists():
            name = file.relative_to(root).with_suffix("").as_posix()
            found.append(ZooEntry(name, (file,), {"arch": read_weights(file).arch, "members": 1}))
    return sorted(found, key=lambda entry: entry.name)


def read_sums(folder: Path) -> dict[str, str]:
    """Hashes by file name from SHA256SUMS, as ``sha256sum`` writes it; empty where there is none."""
    path = folder / SUMS
    lines = _text(path).splitlines() if path.exists() else []
    return {name.strip(): digest for digest, _, name in (line.partition(" ") for line in lines)}


def _text(path: Path) -> str:
    """What a file says; a folder or a pipe in its place, or other bytes, are refused."""
    try:
        if not path.is_file():  # opening a pipe would wait for its writer
            raise OSError("not a file")
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ModelError(str(path), "must be a readable text file", error, "Copy it anew.") from error


def zoo_file(name: str, root: Path | None = None) -> Path:
    """The weights that ``data/training`` (its only or first member) or ``data/training:i`` names."""
    entries = {entry.name: entry for entry in zoo_entries(zoo_root(root))}
    training, _, member = name.partition(":")
    if training not in entries:
        near = difflib.get_close_matches(training, entries, 3, 0.3) or list(entries)
        rule = "must be a name that ringfence zoo list shows"
        raise ModelError(
            "model", rule, repr(training), f"Did you mean {' or '.join(near)}?" if near else "It is empty."
        )
    entry = entries[training]
    here, every = len(entry.files), entry.members
    number = int(member or 0) if (member or "0").isdigit() else every
    if number >= every:
        rule = f"{training} has the members 0 to {every - 1}"
        raise ModelError("model", rule, repr(member), f"Write zoo:{training}:0.")
    if number >= here:
        kept = f"the first {here} members are kept" if here else "no weights are kept here"
        raise ModelError(
            "model", f"of {training} {kept}", f"member {number}", "Train it: zoo/README.md has the command."
        )
    return entry.files[number]
