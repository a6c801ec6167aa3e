"""The zoo: networks trained with ``ringfence train``, as folders of weights beside the settings that made them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any, final

from ringfence.errors import ModelError, did_you_mean
from ringfence.models.weights import read_weights
from ringfence.models.zoo_weights import check_kept, digest_of, kept_weights

PLACE = "RINGFENCE_ZOO"
"""Environment variable that names the zoo's folder."""
SUMS = "SHA256SUMS"
"""File with the hash of every member of a training of which not all are kept."""
LIST = "zoo.json"
"""The package's own list of the repository's zoo: settings and hashes, no weights."""


@final
@dataclass(frozen=True)
class ZooEntry:
    """A training: its name below the zoo's folder, the weights of its members by their names there, its settings.

    settings are those of the training's config.json; of a lone file only the architecture is known. known: hashes by
    name, where they are written down (SHA256SUMS, the package's list); those whose files are not here are absent.
    """

    name: str
    files: Mapping[str, Path]
    settings: Mapping[str, Any]
    known: Mapping[str, str] = field(default_factory=dict)

    @property
    def plan(self) -> Mapping[str, Any]:
        """How it was trained; empty where that was not kept."""
        found: Mapping[str, Any] = self.settings.get("plan", {})
        return found

    @property
    def absent(self) -> Mapping[str, str]:
        """Hashes by name, of the members that are not here."""
        return {name: digest for name, digest in self.known.items() if name not in self.files}

    @property
    def names(self) -> list[str]:
        """Of all members that were trained, here or not, in their order."""
        return sorted({*self.files, *self.known}, key=lambda name: (len(name), name))

    def digests(self) -> dict[str, str]:
        """SHA-256 of every file by name."""
        return {name: digest_of(file) for name, file in self.files.items()}


def zoo_place(given: Path | None = None) -> Path | None:
    """The given folder, that of the environment, ``zoo`` here, or the one of the checkout this package runs from; None,
    the package's own list, where nobody names one and there is none."""
    named = given or os.environ.get(PLACE)
    places = [Path(named)] if named else [Path("zoo"), Path(__file__).resolve().parents[3] / "zoo"]
    found = next((place for place in places if place.is_dir()), None)
    if named and found is None:
        rule, remedy = "must be a folder of trained networks", f"Name it, or set {PLACE}; the repository has one."
        raise ModelError("zoo", rule, named, remedy)
    return found


def known_entries(place: Path | None) -> list[ZooEntry]:
    """Those of a zoo's folder, or of the package's own list."""
    if place is not None:
        return zoo_entries(place)
    listed = json.loads((files("ringfence") / "data" / "embedded" / LIST).read_text(encoding="utf-8"))
    return [ZooEntry(name, _added(one["files"]), one["settings"], one["files"]) for name, one in sorted(listed.items())]


def _added(known: Mapping[str, str]) -> dict[str, Path]:
    """Files that were added, by the names whose hashes they have."""
    return {name: path for name, digest in known.items() if (path := kept_weights(digest))}


def zoo_entries(root: Path, added: Callable[[Mapping[str, str]], Mapping[str, Path]] = _added) -> list[ZooEntry]:
    """Every training that has its members here, or hashes of those that are not; every lone file; by name.

    added: finds weights elsewhere by their hashes.
    """
    found: list[ZooEntry] = []
    for config in sorted(root.rglob("config.json")):
        folder = config.parent
        try:
            settings = json.loads(_text(config))
            members = int(settings["members"])
            if plan := settings.get("plan"):
                _ = (plan["objective"]["name"], float(plan["sigma"]), int(plan["epochs"]))
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise ModelError(config, "must be the settings of a training", error, "Copy it anew.") from error
        names, sums = [f"final-{i}.safetensors" for i in range(members)], read_sums(folder)
        here = {name: folder / name for name in names if (folder / name).is_file()}
        known = {name: sums[name] for name in names if name in sums}
        if {*here, *known} == set(names):
            found.append(ZooEntry(folder.relative_to(root).as_posix(), {**added(known), **here}, settings, known))
    for file in sorted(root.rglob("*.safetensors")):
        if not (file.parent / "config.json").exists():
            name = file.relative_to(root).with_suffix("").as_posix()
            found.append(ZooEntry(name, {file.name: file}, {"arch": read_weights(file).arch, "members": 1}))
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
        raise ModelError(path, "must be a readable text file", error, "Copy it anew.") from error


def zoo_file(name: str, root: Path | None = None) -> Path:
    """The weights that ``data/training`` (its only or first member) or ``data/training:i`` names."""
    entries = {entry.name: entry for entry in known_entries(zoo_place(root))}
    training, _, member = name.partition(":")
    if training not in entries:
        rule, any_of_them = "must be a name that ringfence zoo list shows", f"Did you mean {' or '.join(entries)}?"
        remedy = did_you_mean(training, entries, any_of_them, cutoff=0.3, most=3) if entries else "It is empty."
        raise ModelError("model", rule, repr(training), remedy)
    entry = entries[training]
    names = entry.names
    number = int(member or 0) if (member or "0").isdigit() else len(names)
    if number >= len(names):
        rule = f"{training} has the members 0 to {len(names) - 1}"
        raise ModelError("model", rule, repr(member), f"Write zoo:{training}:0.")
    chosen = names[number]
    if chosen not in entry.files:
        here = [str(place) for place, name in enumerate(names) if name in entry.files]
        kept = f"the members {', '.join(here)} are here" if here else "no weights are here"
        found = f"member {number}, of sha256 {entry.known[chosen]}"
        remedy = (
            "Add a file, folder or archive that has it: ringfence zoo add FILE. Or train it: zoo/README.md tells how."
        )
        raise ModelError("model", f"of {training} {kept}", found, remedy)
    path = entry.files[chosen]
    if chosen in entry.known:
        check_kept(path, entry.known[chosen])
    return path
