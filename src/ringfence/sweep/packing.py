"""A sweep's work folder as archives small enough to travel, with all that is needed to go on elsewhere."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from ringfence.errors import DataError
from ringfence.store.atomic import LOCK, TEMPORARY_PREFIX
from ringfence.sweep.job import Job, SweepFolder

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


def unpack(place: Path, work: SweepFolder) -> list[Path]:
    """Every archive of a folder into the work folder; files that are there already are replaced."""
    archives = sorted(place.glob("*.tgz"))
    if not archives:
        raise DataError(str(place), "must hold archives that a sweep packed", "no .tgz", "Name their folder.")
    work.path.mkdir(parents=True, exist_ok=True)
    for archive in archives:
        try:
            with tarfile.open(archive) as tar:
                tar.extractall(work.path, filter="data")
        except (tarfile.TarError, OSError, EOFError) as error:
            raise DataError(
                str(archive), "must be a whole archive that a sweep packed", error, "Copy it anew."
            ) from error
    return archives


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
