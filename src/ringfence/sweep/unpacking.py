"""What jobs made elsewhere comes out of its archives (packing.py) and into the folders of their sweeps."""

from __future__ import annotations

import errno
import gzip
import json
import shutil
import tarfile
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

from ringfence.errors import DataError
from ringfence.store.atomic import TEMPORARY_PREFIX, read_file, writing_errors
from ringfence.sweep.job import MARKS, Job
from ringfence.sweep.packing import COUNTS, TOGETHER, name_in_archive

UNPACKED = "unpacked.txt"
"""Which archives a work folder has taken in."""
ROOMS = (MARKS.parts, ("zoo",), ("runs",))
"""Folders of a work folder in which jobs make files."""
FRESH = f"{TEMPORARY_PREFIX}unpacking-"
"""Begins the name of the folder in which archives are unpacked before anything is touched."""
OF_THE_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO)
"""What no archive is to blame for."""


@dataclass(frozen=True)
class Header:
    """counts: how many files jobs have in all archives of a packing; packing: its name, None in those that had none."""

    counts: dict[str, int]
    packing: str | None


def unpack(place: Path, every: Iterable[Job]) -> list[str]:
    """Every archive of a folder into the jobs' work folders; what was not taken in, and why.

    That is what belongs to sweeps that no job is of, and jobs of which an archive is missing. What a job has there is
    replaced as a whole: records of an older state are none of the new one's. The same archives are taken in once, so
    that they never undo what was done since. Where one is broken, or they are of several packings, nothing is touched.
    """
    archives = sorted(place.glob("*.tgz"))
    if not archives:
        raise DataError(str(place), "must hold archives that a sweep packed", "no .tgz", "Name their folder.")
    these = sha256(b"".join(sha256(read_file(archive)).digest() for archive in archives)).hexdigest()
    jobs: dict[Path, list[Job]] = {}
    for job in every:
        jobs.setdefault(job.work.path, []).append(job)
    disks: dict[int, list[Path]] = {}
    for path in jobs:
        for left in path.glob(f"{FRESH}*"):  # by one that was killed
            shutil.rmtree(left, ignore_errors=True)
        known = path / MARKS / UNPACKED
        if known.is_file() and these in known.read_text(encoding="ascii", errors="replace").split():
            continue
        with writing_errors(path):
            known.parent.mkdir(parents=True, exist_ok=True)
            disks.setdefault(path.stat().st_dev, []).append(path)
    strangers, halves = set[str](), list[str]()
    for paths in disks.values():  # files are renamed into their places, which no other disk allows
        with writing_errors(paths[0]), TemporaryDirectory(prefix=FRESH, dir=paths[0]) as fresh:
            header = _extract_all(archives, Path(fresh))
            strangers |= {one.name for one in Path(fresh).iterdir()}
            for path in paths:
                halves += _take_in(Path(fresh), path, jobs[path], header)
                with (path / MARKS / UNPACKED).open("a", encoding="ascii") as file:
                    file.write(f"{these}\n")
    others = sorted(strangers - {own[0].work.name for own in jobs.values()})
    return [*(f"{name}: name its file, too" for name in others), *halves]


def _extract_all(archives: Sequence[Path], folder: Path) -> Header:
    """Unpack archives of one packing: files of two states of a job would pass for the whole of it."""
    counts: dict[str, int] = {}
    packings: dict[str | None, list[str]] = {}
    for archive in archives:
        header = _extract(archive, folder)
        counts |= header.counts
        packings.setdefault(header.packing, []).append(archive.name)
    if len(packings) > 1:
        found = "; ".join(f"{', '.join(names)} of {one or 'one without a name'}" for one, names in packings.items())
        remedy = "Give the archives of each packing a folder of their own, and unpack one folder after the other."
        raise DataError(str(archives[0].parent), "must hold archives of one packing", found, remedy)
    return Header(counts, next(iter(packings)))


def _take_in(fresh: Path, path: Path, own: Sequence[Job], header: Header) -> list[str]:
    """Put files where they belong; jobs of which some did not come are left as they are, and told.

    Whatever kills it leaves of every job the old folder, none or the new one, and none that is done and not whole.
    """
    halves = list[str]()
    for number, job in enumerate(own):
        note, log = (
            fresh / name_in_archive(job, file) for file in (job.work.note_of(job), path / job.work.log_of(job))
        )
        there = fresh / job.work.name / job.out
        came = [one for one in (note, log, *there.rglob("*")) if one.is_symlink() or one.is_file()]
        count = header.counts.get(name_in_archive(job, job.work.note_of(job)), 0)
        if len(came) < count or (header.packing is not None and len(came) != count):
            halves.append(f"{job.key}: an archive is missing that holds a part of it; bring that too, and unpack again")
            for file in came:
                file.unlink()
            shutil.rmtree(there, ignore_errors=True)
        elif there.exists():
            target = path / job.out
            job.work.note_of(job).unlink(missing_ok=True)
            if target.is_symlink() or target.exists():
                target.replace(fresh / f"{TEMPORARY_PREFIX}{job.work.name}-{number}")
            target.parent.mkdir(parents=True, exist_ok=True)
            there.replace(target)
    mine = fresh / own[0].work.name
    for file in [one for one in mine.rglob("*") if one.is_symlink() or not one.is_dir()]:
        target = path / file.relative_to(mine)
        target.parent.mkdir(parents=True, exist_ok=True)
        file.replace(target)
    return halves


def _extract(archive: Path, folder: Path) -> Header:
    """Unpack an archive; what its header says."""
    try:
        with gzip.open(archive) as content, tarfile.open(fileobj=content) as tar:
            if stray := next((one.name for one in tar if not _belongs(one)), None):
                raise ValueError(f"{stray}, which no job makes")
            counts = json.loads(tar.pax_headers.get(COUNTS, "{}"))
            if not isinstance(counts, dict) or not all(isinstance(one, int) for one in counts.values()):
                raise ValueError(f"{COUNTS} that are no numbers of files")
            tar.extractall(folder, filter="data")
            while content.read(2**20):  # only at the very end is its checksum, which tells damaged content
                pass
            return Header(counts, tar.pax_headers.get(TOGETHER))
    except (tarfile.TarError, OSError, EOFError, ValueError, RecursionError, OverflowError, zlib.error) as error:
        if isinstance(error, OSError) and error.errno in OF_THE_DISK:
            raise
        rule = "must be a whole archive that a sweep packed"
        raise DataError(str(archive), rule, error, "Copy it anew.") from error


def _belongs(entry: tarfile.TarInfo) -> bool:
    """Whether it goes where jobs make files. Links in a work folder lead to the data and to the sweep file, which are
    nobody's to change; those that jobs make, to the log of another."""
    place, link = Path(entry.name), Path(entry.linkname)
    beside = entry.issym() and link.name == entry.linkname and link.suffix != "" and place.parts[1:2] == MARKS.parts
    return (entry.isreg() or beside) and place.parts[1:2] in ROOMS and len(place.parts) > 2 and ".." not in place.parts
