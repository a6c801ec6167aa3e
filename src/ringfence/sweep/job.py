"""A job of a sweep, and the folder that a sweep works in: what is there, what is done, what it took, and the folder as
archives small enough to travel."""

from __future__ import annotations

import json
import os
import shutil
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

from ringfence.errors import ArgumentError, DataError, ModelError
from ringfence.models.zoo import zoo_root
from ringfence.store.atomic import LOCK, TEMPORARY_PREFIX, write_json, writing_errors

MARKS = Path("jobs")
"""Folder of a note and a log for each job."""


@dataclass(frozen=True)
class Checked:
    """What a command said once all its settings were checked, nothing having been loaded.

    makes: what exists once it is done. shares: jobs with the same text may run in one process; None: each in its own.
    """

    makes: tuple[Path, ...]
    shares: str | None = None


class Commands(Protocol):
    """The commands that jobs are made of."""

    @property
    def names(self) -> tuple[str, ...]:
        """In the order in which a file's jobs are run."""

    def words(self, command: str, settings: dict[str, Any]) -> list[str]:
        """Settings by the names of options as words; a RingfenceError for those that the command does not have."""

    def settings(self, command: str, words: Sequence[str]) -> dict[str, Any]:
        """The other way round: options as words, by their names."""

    def check(self, words: Sequence[str]) -> Checked:
        """Check a whole command without running it; a RingfenceError says what is wrong with it."""


@dataclass(frozen=True)
class Job:
    """One command of a sweep. All paths are relative to the work folder, so that settings name no machine.

    entry: its name as the file has it, braces and all. needs: keys of the jobs that come before it.
    """

    name: str
    command: str
    words: tuple[str, ...]
    out: Path
    entry: str
    line: int
    needs: tuple[str, ...] = ()
    minutes: float | None = None
    checked: Checked = Checked(())

    @property
    def key(self) -> str:
        """Names it among all jobs: a training and a run may have the same name."""
        return f"{self.command} {self.name}"


@dataclass(frozen=True)
class SweepFolder:
    """The folder of a sweep: ``zoo`` (trained networks), ``runs``, ``jobs`` (notes and logs), ``data``, ``here``."""

    path: Path

    def prepare(self, here: Path, data: Path | None, given: Iterable[Path], zoos: Iterable[Path]) -> None:
        """Make it; links lead to the data and to the sweep file's folder, and trainings made elsewhere are copied."""
        with writing_errors(self.path):
            for folder in (MARKS, Path("zoo"), Path("runs")):
                (self.path / folder).mkdir(parents=True, exist_ok=True)
            for name, target in (("here", here), ("data", data)):
                if target is not None:
                    self._link(name, target)
            for one in given:
                if not (self.path / "zoo" / one).exists():
                    _copy(found_in(zoos, one), self.path / "zoo" / one)

    def zoos(self) -> list[Path]:
        """Where trainings may lie that the file uses and does not make."""
        try:
            return [self.path / "zoo", zoo_root()]
        except ModelError:
            return [self.path / "zoo"]

    def _link(self, name: str, target: Path) -> None:
        link = self.path / name
        if link.exists() and not link.is_symlink():
            rule = f"leads to {'the sweep file' if name == 'here' else 'the data'} and is made by the sweep"
            raise ArgumentError(str(link), rule, "a file or folder", "Move it away, or choose another `out`.")
        link.unlink(missing_ok=True)
        link.symlink_to(target.resolve(), target_is_directory=True)

    def note_of(self, job: Job) -> Path:
        """The note that it is done."""
        return self.path / MARKS / f"{job.command}-{job.name}.json"

    def log_of(self, job: Job) -> Path:
        """What it printed the last time, relative to the work folder."""
        return MARKS / f"{job.command}-{job.name}.log"

    def begin_log(self, jobs: Sequence[Job]) -> Path:
        """An empty log for jobs that run together; each of them has it."""
        first = self.log_of(jobs[0])
        for job in jobs:
            (self.path / self.log_of(job)).unlink(missing_ok=True)
            if job is not jobs[0]:
                (self.path / self.log_of(job)).symlink_to(first.name)
        return first

    def done(self, job: Job) -> bool:
        """Whether it ended well with the settings that the file has now, and what it made is still there."""
        return self._note(job).get("words") == list(job.words) and self.there(job)

    def there(self, job: Job) -> bool:
        """Whether what it makes is there, whoever made it."""
        return all((self.path / one).exists() for one in job.checked.makes)

    def measured(self, job: Job) -> float | None:
        """The minutes it took, if it is done."""
        minutes = self._note(job).get("minutes")
        return float(minutes) if isinstance(minutes, int | float) else None

    def end(self, job: Job, minutes: float) -> None:
        """Note that it ended well."""
        write_json(self.note_of(job), {"words": list(job.words), "minutes": minutes})

    def last_words(self, job: Job, lines: int = 1) -> str:
        """The end of its log."""
        try:
            with (self.path / self.log_of(job)).open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - 4096))
                text = file.read().decode(errors="replace")
        except OSError:
            return ""
        return "\n".join([line for line in text.splitlines() if line.strip()][-lines:])

    def _note(self, job: Job) -> dict[str, Any]:
        try:
            note = json.loads(self.note_of(job).read_text(encoding="utf-8"))
        except (OSError, ValueError):  # half a note is none: the command itself finds out what is left to do
            return {}
        return note if isinstance(note, dict) else {}


def found_in(zoos: Iterable[Path], name: Path) -> Path | None:
    """Where a training, or a lone file of weights, lies in one of the zoos."""
    for zoo in zoos:
        for place in (zoo / name, zoo / name.parent / f"{name.name}.safetensors"):
            if place.exists():
                return place
    return None


def _copy(source: Path | None, target: Path) -> None:
    if source is None:  # it was there when the file was read
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target)
    else:
        shutil.copy(source, target.parent / source.name)


LIMIT = 14
"""MiB of an archive at most; only a single file that is larger goes beyond it."""
ENTRY = 1536
"""Bytes that a file's header and padding take in a tar at most."""


def pack(chosen: Sequence[Job], every: Sequence[Job], work: SweepFolder, out: Path, mib: float = LIMIT) -> list[Path]:
    """``work-N.tgz``: what the chosen jobs made; where one is not done, what it needs too, so that it can go on."""
    by_key = {job.key: job for job in every}
    wanted = {job.key: job for job in chosen}
    for job in chosen:
        if not work.done(job):
            wanted |= {key: by_key[key] for key in job.needs}
    files = sorted({file for job in wanted.values() for file in _files(job, work)})
    out.mkdir(parents=True, exist_ok=True)
    for old in out.glob("work-*.tgz"):
        old.unlink()
    made = []
    for number, group in enumerate(_groups(files, int(mib * 2**20)), 1):
        made.append(out / f"work-{number}.tgz")
        with tarfile.open(made[-1], "w:gz", compresslevel=6) as tar:
            for file in group:
                tar.add(file, arcname=file.relative_to(work.path).as_posix(), recursive=False)
    return made


def unpack(place: Path, every: Iterable[Job], work: SweepFolder) -> list[Path]:
    """Every archive of a folder into the work folder. What a job has there is replaced as a whole: records of an older
    state are none of the new one's. Where an archive is broken nothing is touched.
    """
    archives = sorted(place.glob("*.tgz"))
    if not archives:
        raise DataError(str(place), "must hold archives that a sweep packed", "no .tgz", "Name their folder.")
    with writing_errors(work.path):
        work.path.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=TEMPORARY_PREFIX, dir=work.path) as fresh:
            for archive in archives:
                _extract(archive, Path(fresh))
            for job in every:
                if (Path(fresh) / job.out).exists():
                    shutil.rmtree(work.path / job.out, ignore_errors=True)
            for file in [one for one in Path(fresh).rglob("*") if one.is_symlink() or not one.is_dir()]:
                target = work.path / file.relative_to(fresh)
                target.parent.mkdir(parents=True, exist_ok=True)
                file.replace(target)
    return archives


def _extract(archive: Path, folder: Path) -> None:
    try:
        with tarfile.open(archive) as tar:
            tar.extractall(folder, filter="data")
    except (tarfile.TarError, OSError, EOFError) as error:
        rule = "must be a whole archive that a sweep packed"
        raise DataError(str(archive), rule, error, "Copy it anew.") from error


def _files(job: Job, work: SweepFolder) -> Iterator[Path]:
    """What a job made, its note and its log; checkpoints only of members that are not finished."""
    yield from (file for file in (work.note_of(job), work.path / work.log_of(job)) if file.exists())
    folder = work.path / job.out
    for file in sorted(folder.rglob("*")) if folder.is_dir() else ():
        if not file.is_file() or file.name == LOCK or file.name.startswith(TEMPORARY_PREFIX):
            continue
        if job.command != "train" or file.parent == folder or file.name == "log.csv" or not _finished(file.parent):
            yield file


def _finished(folder: Path) -> bool:
    """Whether the weights of ``member-<i>``, or of all that are trained together in ``joint``, were exported."""
    training = folder.parent
    if folder.name.startswith("member-"):
        return (training / f"final-{folder.name.removeprefix('member-')}.safetensors").exists()
    members = int(json.loads((training / "config.json").read_text(encoding="utf-8"))["members"])
    return all((training / f"final-{i}.safetensors").exists() for i in range(members))


def _groups(files: Iterable[Path], limit: int) -> list[list[Path]]:
    """In as few groups as they fit in one by one."""
    groups: list[list[Path]] = []
    room: list[int] = []
    for file in files:
        size = file.stat().st_size + ENTRY
        place = next((i for i, left in enumerate(room) if left >= size), len(groups))
        if place == len(groups):
            groups.append([])
            room.append(limit)
        groups[place].append(file)
        room[place] -= size
    return groups
