"""What jobs made elsewhere comes out of its archives (packing.py) and into the folders of their sweeps."""

from __future__ import annotations

import errno
import gzip
import json
import tarfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

from ringfence.errors import DataError
from ringfence.store.atomic import TEMPORARY_PREFIX, drop_unfinished, read_file, writing_errors
from ringfence.sweep.job import MARKS, Job
from ringfence.sweep.packing import COUNTS, NUMBER, TOGETHER, name_in_archive

UNPACKED = "unpacked.txt"
"""Which archives a work folder has taken in."""
ROOMS = (MARKS.parts, ("zoo",), ("runs",))
"""Folders of a work folder in which jobs make files."""
UNPACKING = "unpacking-"
"""Begins the name of the folder in which archives are unpacked before anything is touched."""
OF_THE_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO)
"""What no archive is to blame for."""


@dataclass(frozen=True)
class Header:
    """counts: how many files jobs have in all archives of a packing; packing: its name, None in those that had none;
    number: of its archives, 0 where that was not said."""

    counts: dict[str, int]
    packing: str | None
    number: int


def unpack(place: Path, every: Iterable[Job]) -> list[str]:
    """Every archive of a folder into the jobs' work folders; what was not taken in, and why.

    That is what belongs to other sweeps or jobs, and jobs of which an archive is missing. What a job has there is
    replaced as a whole: records of an older state are none of the new one's. The same archives are taken in once, so
    that they never undo what was done since. Where one is broken, or they are of several packings of which not exactly
    one is whole, nothing is touched.
    """
    archives = sorted(place.glob("*.tgz"))
    if not archives:
        raise DataError(f"unpack {place}", "must hold archives that a sweep packed", "no .tgz", "Name their folder.")
    these = sha256(b"".join(sha256(read_file(archive)).digest() for archive in archives)).hexdigest()
    jobs: dict[Path, list[Job]] = {}
    for job in every:
        jobs.setdefault(job.work.path, []).append(job)
    disks: dict[int, list[Path]] = {}
    for path in jobs:
        drop_unfinished(path, UNPACKING)
        known = path / MARKS / UNPACKED
        with writing_errors(known):
            if known.is_file() and these in known.read_text(encoding="ascii", errors="replace").split():
                continue
            known.parent.mkdir(parents=True, exist_ok=True)
            disks.setdefault(path.stat().st_dev, []).append(path)
    strangers, left = set[str](), list[str]()
    chosen, header = _one_packing(archives) if disks else (archives, Header({}, None, 0))
    for paths in disks.values():  # files are renamed into their places, which no other disk allows
        with writing_errors(paths[0]), TemporaryDirectory(prefix=TEMPORARY_PREFIX + UNPACKING, dir=paths[0]) as fresh:
            for archive in chosen:
                _extract(archive, Path(fresh))
            strangers |= {one.name for one in Path(fresh).iterdir()}
            for path in paths:
                left += _take_in(Path(fresh), path, jobs[path], header)
                with (path / MARKS / UNPACKED).open("a", encoding="ascii") as file:
                    file.write(f"{these}\n")
    others = sorted(strangers - {own[0].work.name for own in jobs.values()})
    parts = [f"{one.name}: of another packing, which is not whole" for one in archives if one not in chosen]
    return [*(f"{name}: name its file, too" for name in others), *parts, *left]


def _one_packing(archives: Sequence[Path]) -> tuple[list[Path], Header]:
    """Archives of one packing, and what all of their headers say: all archives, or, where a kill left some of another,
    those of the only one that is whole."""
    packings: dict[str | None, dict[Path, Header]] = {}
    whole: set[str | None] = set()
    said = True
    for archive in archives:
        with _opened(archive) as (tar, _):
            header = _header(tar)
        packings.setdefault(header.packing, {})[archive] = header
        said = said and header.number > 0  # of those that do not say, nobody knows whether all are there
        if len(packings[header.packing]) == header.number:
            whole.add(header.packing)
    if len(packings) > 1 and not (said and len(whole) == 1):
        told = {one or "one without a name": ", ".join(each.name for each in own) for one, own in packings.items()}
        found = "; ".join(f"{names} of {one}" for one, names in told.items())
        remedy = "Give the archives of each packing a folder of their own, and unpack one folder after the other."
        raise DataError(f"unpack {archives[0].parent}", "must hold archives of one packing", found, remedy)
    chosen = packings[next(iter(whole or packings))]
    counts = {name: count for header in chosen.values() for name, count in header.counts.items()}
    return list(chosen), replace(next(iter(chosen.values())), counts=counts)


def _take_in(fresh: Path, path: Path, own: Sequence[Job], header: Header) -> list[str]:
    """Put the jobs' files where they belong, and nothing else; what is left where it was, and why.

    Whatever kills it leaves of every job the old folder, none or the new one, and none that is done and not whole.
    """
    left, mine = list[str](), fresh / own[0].work.name
    others = set(_files(mine))
    for number, job in enumerate(own):
        there, target, note = mine / job.out, path / job.out, job.work.note_of(job)
        marks = {fresh / name_in_archive(job, file): file for file in (path / job.work.log_of(job), note)}
        came = others & {*marks, *_files(there)}
        others -= came
        count = header.counts.get(name_in_archive(job, note), 0)
        if len(came) < count or (header.packing is not None and len(came) != count):
            left.append(f"{job.key}: an archive is missing that holds a part of it; bring that too, and unpack again")
            continue
        if there.exists():
            note.unlink(missing_ok=True)
            if target.is_symlink() or target.exists():
                target.replace(fresh / f"{TEMPORARY_PREFIX}{job.work.name}-{number}")
            target.parent.mkdir(parents=True, exist_ok=True)
            there.replace(target)
        for mark in came & marks.keys():
            mark.replace(marks[mark])
    if others:
        told = f"{len(others)} files of jobs that are not in its file, such as {min(others).relative_to(mine)}"
        left.append(f"{mine.name}: {told}; unpack them with the file that has them, into a folder of their own")
    return left


def _files(folder: Path) -> Iterator[Path]:
    """Files and links below a folder."""
    return (one for one in folder.rglob("*") if one.is_symlink() or one.is_file())


def _extract(archive: Path, folder: Path) -> None:
    """Unpack an archive."""
    with _opened(archive) as (tar, content):
        if stray := next((one.name for one in tar if not _belongs(one)), None):
            raise ValueError(f"{stray}, which no job makes")
        tar.extractall(folder, filter="data")
        while content.read(2**20):  # only at the very end is its checksum, which tells damaged content
            pass


def _header(tar: tarfile.TarFile) -> Header:
    """What an archive says of its packing."""
    counts = json.loads(tar.pax_headers.get(COUNTS, "{}"))
    if not isinstance(counts, dict) or not all(isinstance(one, int) for one in counts.values()):
        raise ValueError(f"{COUNTS} that are no numbers of files")
    return Header(counts, tar.pax_headers.get(TOGETHER), int(tar.pax_headers.get(NUMBER, "0")))


@contextmanager
def _opened(archive: Path) -> Iterator[tuple[tarfile.TarFile, gzip.GzipFile]]:
    """An archive, and the content that it is read of; a DataError for all that its bytes are to blame for."""
    try:
        with gzip.open(archive) as content, tarfile.open(fileobj=content) as tar:
            yield tar, content
    except (tarfile.TarError, OSError, EOFError, ValueError, RecursionError, OverflowError, zlib.error) as error:
        if isinstance(error, OSError) and error.errno in OF_THE_DISK:
            raise
        rule = "must be a whole archive that a sweep packed"
        raise DataError(archive, rule, error, "Copy it anew.") from error


def _belongs(entry: tarfile.TarInfo) -> bool:
    """Whether it goes where jobs make files. Links in a work folder lead to the data and to the sweep file, which are
    nobody's to change; those that jobs make, to the log of another."""
    place, link = Path(entry.name), Path(entry.linkname)
    beside = entry.issym() and link.name == entry.linkname and link.suffix != "" and place.parts[1:2] == MARKS.parts
    return (entry.isreg() or beside) and place.parts[1:2] in ROOMS and len(place.parts) > 2 and ".." not in place.parts
