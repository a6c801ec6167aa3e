"""What jobs made as archives small enough to travel, written again and again: whatever ends a sweep leaves them."""

from __future__ import annotations

import io
import json
import tarfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryDirectory
from threading import Event, Thread
from typing import final

from ringfence.errors import StoreError
from ringfence.store import RunFolder
from ringfence.store.atomic import LOCK, TEMPORARY_PREFIX, StoreWarning, drop_unfinished, writing_errors
from ringfence.store.manifest import INPUTS, SEAL
from ringfence.sweep.job import MARKS, Job

ENTRY = 1536
"""Bytes that a file's header and padding take in a tar at most."""
TRIES = 5
"""Times that a job's files are read until none of them changed meanwhile."""
PAUSE = 60.0
"""Seconds between two packings of what is being made."""
COUNTS = "RINGFENCE.files"
"""Header of every archive: how many files each job has in all of them, so that half a job is known for one."""
TOGETHER = "RINGFENCE.packing"
"""Header of every archive: the name of its packing, so that archives of two of them are never taken for one."""
NUMBER = "RINGFENCE.archives"
"""Header of every archive: how many its packing has, so that a whole one is known where a kill left some of another."""
Contents = dict[str, bytes | Path]
"""Name in an archive -> bytes, or what a link leads to."""


@dataclass(frozen=True)
class Limits:
    """mib: of an archive, unless a single file is larger; files: archives; total: MiB of all. None: as they come."""

    mib: float = 14.0
    files: int | None = None
    total: float | None = None


@dataclass(frozen=True)
class Packed:
    """Archives that were written, and the keys of jobs that found no room in them, or could not be read."""

    archives: list[Path]
    left_out: list[str]
    unread: list[str]


@final
@dataclass
class Packing:
    """``work-N.tgz`` in ``out``: what the chosen jobs made; where one is not done, what was made here for it, too.

    light: of what is done only the note that it is; trainings that are needed travel otherwise (carry.py). pictures:
    whether those of a run's inputs go along, which take more room than all else where inputs are many.
    """

    chosen: Sequence[Job]
    every: Sequence[Job]
    out: Path
    limits: Limits = Limits()
    light: bool = False
    pictures: bool = True
    _last: dict[str, Contents] = field(default_factory=dict)
    _whole: set[str] = field(default_factory=set)  # jobs that were done when they were read last, and change no more

    def pack(self) -> Packed:
        """Write all archives anew, then put them in the place of those before. What is done goes first."""
        needed = {key for job in self.chosen if not job.done for key in job.needs}
        wanted = {job.key: job for job in (*self.chosen, *(job for job in self.every if job.key in needed))}
        boxes, left_out, unread, counts = _Boxes(self.limits), list[str](), list[str](), dict[str, int]()
        for job in sorted(wanted.values(), key=lambda job: not job.done):  # a stable sort
            contents = self._contents(job, job.key in needed)
            if contents is None:
                unread.append(job.key)
            elif not boxes.put(contents):
                left_out.append(job.key)
            elif contents:
                counts[name_in_archive(job, job.work.note_of(job))] = len(contents)
        with self._temporary_folder() as fresh:
            names = [f"work-{number}.tgz" for number in range(1, len(boxes.boxes) + 1)]
            packing = token_hex(8)
            headers = {COUNTS: json.dumps(counts), TOGETHER: packing, NUMBER: str(len(names))}
            for name, box in zip(names, boxes.boxes, strict=True):
                _write(Path(fresh, name), box, headers)
            for name in names:  # beside those before: at every moment all archives of one packing are there
                Path(fresh, name).replace(self.out / f"work-{packing}-{name}")
            for name in names:
                (self.out / f"work-{packing}-{name}").replace(self.out / name)
            for old in self.out.glob("work-*.tgz"):
                if old.name not in names:
                    old.unlink()
        return Packed([self.out / name for name in names], left_out, unread)

    def check(self) -> None:
        """Refuse a place that nothing can be written to, before anything is made that must go there."""
        with self._temporary_folder() as fresh, TemporaryDirectory(prefix=TEMPORARY_PREFIX, dir=self.out) as there:
            Path(fresh, "place").touch()
            Path(fresh, "place").replace(Path(there, "place"))

    @contextmanager
    def _temporary_folder(self) -> Iterator[str]:
        """A folder on the same disk in which archives are written: half of one must not travel."""
        with writing_errors(self.out):
            self.out.mkdir(parents=True, exist_ok=True)
            beside = self.out.resolve().parent
            place = beside if beside.stat().st_dev == self.out.stat().st_dev else self.out
            name = f"{self.out.resolve().name}-"
            drop_unfinished(place, name)  # nobody else packs into this folder
            with TemporaryDirectory(prefix=TEMPORARY_PREFIX + name, dir=place) as fresh:
                yield fresh

    def _contents(self, job: Job, needed: bool) -> Contents | None:
        """What goes along of a job; None where its files could never be read at one moment."""
        if job.done and self.light and not needed:
            return {name_in_archive(job, job.work.note_of(job)): json.dumps(job.note(elsewhere=True)).encode()}
        if job.done and (job.command == "train" if self.light else job.work.adopted(job)):
            return {}
        done = job.done
        if done and job.key in self._whole:
            return self._last[job.key]
        found = _snapshot(job)
        if found is not None and not self.pictures:
            found = _without_pictures(job, found)
        if found is None:
            return self._last.get(job.key)
        self._last[job.key] = found
        if done:
            self._whole.add(job.key)
        return found

    @contextmanager
    def meanwhile(self, pause: float = PAUSE) -> Iterator[None]:
        """Pack every so many seconds while something else goes on; where that fails once, the next may not."""
        over = Event()

        def keep_packing() -> None:
            while not over.wait(pause):
                try:
                    self.pack()
                except StoreError as error:
                    warnings.warn(StoreWarning(f"not packed: {error}"), stacklevel=1)

        thread = Thread(target=keep_packing, name="packing", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


@final
class _Boxes:
    """Contents in as few archives as they fit in one by one, a job's all or none."""

    def __init__(self, limits: Limits) -> None:
        self.boxes: list[Contents] = []
        self._room: list[int] = []
        self._limits, self._all = limits, 0

    def put(self, contents: Contents) -> bool:
        """Whether there was room for them."""
        sizes = {name: ENTRY + (0 if isinstance(one, Path) else len(one)) for name, one in contents.items()}
        room, places = list(self._room), {}
        for name, size in sizes.items():
            place = next((i for i, left in enumerate(room) if left >= size), len(room))
            if place == len(room):
                room.append(int(self._limits.mib * 2**20))
            places[name] = place
            room[place] -= size
        taken, most = self._all + sum(sizes.values()), self._limits.total
        if (most is not None and taken > most * 2**20) or (self._limits.files or len(room)) < len(room):
            return False
        self._all, self._room = taken, room
        self.boxes += [{} for _ in range(len(room) - len(self.boxes))]
        for name, place in places.items():
            self.boxes[place][name] = contents[name]
        return True


def _write(archive: Path, contents: Contents, headers: Mapping[str, str]) -> None:
    with tarfile.open(archive, "w:gz", compresslevel=1, pax_headers=headers) as tar:  # weights hardly get smaller
        for name, one in contents.items():
            entry = tarfile.TarInfo(name)
            entry.mode = 0o644
            if isinstance(one, Path):
                entry.type, entry.linkname = tarfile.SYMTYPE, one.as_posix()
                tar.addfile(entry)
            else:
                entry.size = len(one)
                tar.addfile(entry, io.BytesIO(one))


def _snapshot(job: Job) -> Contents | None:
    """All files of a job at one moment; None where it went on writing all the time."""
    for _ in range(TRIES):
        try:
            before = {file: file.lstat() for file in _files(job)}
            found: Contents = {}
            for file in before:
                log = file.is_symlink() and file.parent.name == MARKS.name
                found[name_in_archive(job, file)] = file.readlink() if log else file.read_bytes()
            after = {file: file.lstat() for file in _files(job)}
        except OSError:  # it was replaced, or the disk is broken: of one job the others must not suffer
            continue
        if [(file, one.st_mtime_ns, one.st_size) for file, one in before.items()] == [
            (file, one.st_mtime_ns, one.st_size) for file, one in after.items()
        ]:
            return found
    return None


def _without_pictures(job: Job, contents: Contents) -> Contents:
    """The files of a run whose inputs have names and labels alone; as they are where they cannot be read as a run, or
    are sealed."""
    run = f"{job.work.name}/{job.out.as_posix()}/"
    if f"{run}{INPUTS}" not in contents or f"{run}{SEAL}" in contents:
        return contents
    inside = {name: one for name, one in contents.items() if name.startswith(run) and isinstance(one, bytes)}
    with writing_errors(Path("TMPDIR")), TemporaryDirectory(prefix=TEMPORARY_PREFIX) as place:
        for name, one in inside.items():
            file = Path(place, name)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(one)
        with suppress(StoreError):  # of one damaged run the others must not suffer
            RunFolder.open(Path(place, run)).drop_pictures()  # removes what a kill left, too
        changed = {name: Path(place, name).read_bytes() for name in inside if Path(place, name).is_file()}
    return {**{name: one for name, one in contents.items() if name not in inside}, **changed}


def name_in_archive(job: Job, file: Path) -> str:
    """What a file of a job is called there."""
    return f"{job.work.name}/{file.relative_to(job.work.path).as_posix()}"


def _files(job: Job) -> Iterator[Path]:
    """What a job made, its note and its log; checkpoints only of members that are not finished."""
    work = job.work
    yield from (file for file in (work.note_of(job), work.path / work.log_of(job)) if file.exists())
    folder = work.path / job.out
    for file in sorted(folder.rglob("*")) if folder.is_dir() else ():
        if not file.is_file() or file.name == LOCK or file.name.startswith(TEMPORARY_PREFIX):
            continue
        if job.command != "train" or file.parent == folder or file.name == "log.csv" or not _finished(file.parent):
            yield file


def needless(folder: str, names: list[str]) -> list[str]:
    """What copytree leaves out of a training's folder: its lock, and checkpoints of members that are finished."""
    inner = Path(folder)
    over = (inner.name == "joint" or inner.name.startswith("member-")) and _finished(inner)
    return [name for name in names if name == LOCK or (over and name != "log.csv")]


def _finished(folder: Path) -> bool:
    """Whether the weights of ``member-<i>``, or of all that are trained together in ``joint``, were exported."""
    training = folder.parent
    if folder.name.startswith("member-"):
        return (training / f"final-{folder.name.removeprefix('member-')}.safetensors").exists()
    try:
        members = int(json.loads((training / "config.json").read_text(encoding="utf-8"))["members"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):  # damaged: what is there is needed the more
        return False
    return all((training / f"final-{i}.safetensors").exists() for i in range(members))
