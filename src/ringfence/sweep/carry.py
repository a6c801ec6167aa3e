"""Everything that jobs need on a machine without network, as folders of limited size.

1/lib     libraries that are missing there: PYTHONPATH=1/lib
1/zoo     trained networks that the jobs use
1/*.tgz   what was begun or made before (packing.py)
1/data    data; what finds no room is in 2/data, 3/data, ..., in the order in which jobs need it
"""

from __future__ import annotations

import json
import re
import shutil
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from ringfence.data.load import files_of
from ringfence.errors import ArgumentError
from ringfence.store.atomic import write_atomically, writing_errors
from ringfence.sweep.job import Job, copy_training, found_in
from ringfence.sweep.packing import Limits, Packing, needless
from ringfence.sweep.strips import SUFFIX, restore, shrink

_DATA = re.compile(r"(?:([\w-]+):)?(?<![\w./-])data(?![\w.-])(?:/([\w./+-]+))?")
COMPILED = (".so", ".pyd", ".dylib")
SUMS = "sha256"
"""Ends the name of a file that says which file a carried one was made of."""


@dataclass(frozen=True)
class Part:
    """One folder to carry, and what it holds, by name and MiB."""

    path: Path
    holds: tuple[tuple[str, float], ...]

    @property
    def mib(self) -> float:
        """Its size."""
        return sum(size for _, size in self.holds)


def make_carry(
    chosen: Sequence[Job],
    every: Sequence[Job],
    data: Path | None,
    zoos: Sequence[Path],
    libraries: Sequence[str],
    to: Path,
    mib: float,
) -> list[Part]:
    """What the chosen jobs that are not done need, in folders of at most so many MiB; old ones are replaced."""
    left = [job for job in chosen if not job.done]
    with writing_errors(to):
        first = to / "1"
        for part in ("lib", "zoo"):
            shutil.rmtree(first / part, ignore_errors=True)
        first.mkdir(parents=True, exist_ok=True)
        for name in libraries:
            copy_library(name, first / "lib")
        for training in sorted({one for job in left for one in job.given}):
            copy_training(found_in(zoos, training), first / "zoo" / training)
        needed = {key for job in left for key in job.needs}
        for job in [one for one in every if one.key in needed and one.command == "train" and one.done]:
            if not (first / job.out).exists():
                copy_training(job.work.path / job.out, first / job.out, needless)
        Packing(chosen, every, first, Limits(mib), light=True).pack()
        holds = {first: [(one.name, _mib(one)) for one in sorted(first.iterdir()) if one.name != "data"]}
        room = {first: mib - sum(size for _, size in holds[first])}
        if room[first] < 0:
            told = ", ".join(f"{name} {size:.1f}" for name, size in holds[first])
            raise ArgumentError("carry_mib", f"must hold what every job needs ({told} MiB)", mib, "Carry less.")
        for name, content in _shrunk(data_files(left, data), data, to):
            size = content.stat().st_size / 2**20
            place = next((one for one, free in room.items() if free >= size), to / str(len(room) + 1))
            if size > room.setdefault(place, mib):
                raise ArgumentError("carry_mib", f"must hold {name} ({size:.1f} MiB)", mib, "Carry less data.")
            room[place] -= size
            holds.setdefault(place, []).append((name, size))
            _move(content, place / "data" / name)
        _drop_others(to, {place: [name for name, _ in names] for place, names in holds.items()})
    return [Part(place, tuple(names)) for place, names in sorted(holds.items(), key=lambda one: int(one[0].name))]


def data_files(jobs: Iterable[Job], data: Path | None) -> list[Path]:
    """The files of the data folder that the words of jobs name, in the order of the jobs."""
    found: dict[Path, None] = {}
    for job in jobs:
        split = _split(job)
        for word in job.words[1 : job.words.index("--out")]:
            for kind, path in _DATA.findall(word):
                if data is None:
                    raise ArgumentError("data", f"{job.key} needs data", "none", "Name its folder.")
                place = data / path
                if not place.exists():
                    raise ArgumentError("data", f"must hold {path}, which {job.key} needs", data, "Add it.")
                found |= dict.fromkeys(files_of(kind, place, split))
    return list(found)


def _split(job: Job) -> str:
    words = list(job.words)
    return words[words.index("--split") + 1] if "--split" in words else "train" if job.command == "train" else "test"


def _shrunk(files: Sequence[Path], data: Path | None, to: Path) -> Iterable[tuple[str, Path]]:
    """Each file in its smallest form, and its name; one that was made of the same file before is taken again."""
    for file in files:
        assert data is not None
        name = file.relative_to(data).as_posix()
        made_of = sha256(file.read_bytes()).hexdigest()
        for form in (name, name + SUFFIX):
            known = next((one for one in to.glob(f"*/data/{form}") if _made_of(one) == made_of), None)
            if known is not None:
                yield form, known
                break
        else:
            small = shrink(file)
            fresh = to / "new" / "data" / (name if small is None else name + SUFFIX)
            fresh.parent.mkdir(parents=True, exist_ok=True)
            _note_of(fresh).unlink(missing_ok=True)
            fresh.write_bytes(file.read_bytes() if small is None else small)
            _note_of(fresh).write_text(made_of, encoding="ascii")
            yield fresh.relative_to(to / "new" / "data").as_posix(), fresh


def _note_of(file: Path) -> Path:
    return file.with_name(f"{file.name}.{SUMS}")


def _made_of(file: Path) -> str:
    note = _note_of(file)
    return note.read_text(encoding="ascii") if note.is_file() else ""


def _move(file: Path, target: Path) -> None:
    """In an order in which a kill leaves no note beside what was not made of that file."""
    if file != target:
        target.parent.mkdir(parents=True, exist_ok=True)
        _note_of(target).unlink(missing_ok=True)
        file.replace(target)
        _note_of(file).replace(_note_of(target))


def _drop_others(to: Path, wanted: dict[Path, list[str]]) -> None:
    for folder in to.iterdir():
        if folder not in wanted and (folder.name.isdecimal() or folder.name == "new"):
            shutil.rmtree(folder)
    for place, names in wanted.items():
        kept = {place / "data" / name for name in names} | {place / "data" / f"{name}.{SUMS}" for name in names}
        for file in [one for one in (place / "data").rglob("*") if one.is_file() and one not in kept]:
            file.unlink()


def copy_library(name: str, to: Path) -> None:
    """A wheel, or what is installed here under that name: Python alone, for the machine may run another version."""
    if name.endswith(".whl"):
        try:
            with zipfile.ZipFile(name) as wheel:
                wheel.extractall(to)
        except (FileNotFoundError, zipfile.BadZipFile) as error:
            raise ArgumentError("libraries", "must be a wheel", f"{name} ({error})", "See pip download.") from None
        return
    try:
        found = distribution(name)
    except PackageNotFoundError:
        raise ArgumentError("libraries", "must be installed here, or be a wheel", name, "See pip download.") from None
    if json.loads(found.read_text("direct_url.json") or "{}").get("dir_info", {}).get("editable"):
        rule, remedy = (
            "must not be an editable install, whose files lie elsewhere",
            "Give its wheel, which pip wheel makes.",
        )
        raise ArgumentError("libraries", rule, name, remedy)
    for file in found.files or ():
        if ".." in file.parts or "__pycache__" in file.parts or file.suffix in COMPILED:
            continue
        target = to / file
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(str(file.locate()), target)


def unpack_data(carried: Path, data: Path) -> list[str]:
    """The data of a carried folder into a folder that jobs read; what is there already is left alone."""
    made = []
    for file in sorted(one for one in (carried / "data").rglob("*") if one.is_file() and one.suffix != f".{SUMS}"):
        name = file.relative_to(carried / "data").as_posix()
        target = data / name.removesuffix(SUFFIX)
        if target.exists():
            continue
        with writing_errors(target):
            target.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith(SUFFIX):
            restore(file, target)
        else:
            write_atomically(target, file.read_bytes())  # half of one would be left alone the next time
        made.append(name)
    return made


def _mib(place: Path) -> float:
    files = [one for one in place.rglob("*") if one.is_file()] if place.is_dir() else [place]
    return sum(file.stat().st_size for file in files) / 2**20
