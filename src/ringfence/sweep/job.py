"""A job of a sweep, and the folder that a sweep works in: what is there, what is done, what it took."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from ringfence.errors import ArgumentError, ModelError
from ringfence.models.zoo import zoo_place
from ringfence.store.atomic import write_json, writing_errors

MARKS = Path("jobs")
"""Folder of a note and a log for each job."""
LOG_END = 2**14
"""Bytes of a log that are read for its last words: some lines of each of many trainings that share it."""
Ignored = Callable[[str, list[str]], list[str]]
"""Of a folder and the names in it, those that a copy leaves out."""


@dataclass(frozen=True)
class Checked:
    """What a command said once all its settings were checked, nothing having been loaded.

    makes: what exists once it is done. shares: jobs with the same text may run in one process; None: each in its own.
    begins: minutes before its first step. first: share of its work that is lost unless it is done in one go.
    """

    makes: tuple[Path, ...]
    shares: str | None = None
    begins: float = 0.0
    first: float = 0.0


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

    entry: its name as the file has it, braces and all. needs: keys of the jobs that come before it. given: trainings it
    uses that the file does not make, below a zoo's folder. sweep: its file's name, where jobs of several run together.
    after: a digest of the words of all that comes before it; none if nothing does.
    """

    name: str
    command: str
    words: tuple[str, ...]
    out: Path
    entry: str
    line: int
    work: SweepFolder = field(repr=False)
    needs: tuple[str, ...] = ()
    minutes: float | None = None
    checked: Checked = Checked(())
    given: tuple[Path, ...] = ()
    sweep: str = ""
    after: str = ""

    @property
    def key(self) -> str:
        """Names it among all jobs: a training and a run may have the same name."""
        return key_of(self.sweep, self.command, self.name)

    @property
    def done(self) -> bool:
        """Whether it ended well with the settings that the file has now, and what it made is still there."""
        return self.work.done(self)

    def note(self, **more: Any) -> dict[str, Any]:
        """What is noted once it is done: its settings, and those of what it was made from."""
        return {"words": list(self.words), **({"after": self.after} if self.after else {}), **more}


def key_of(sweep: str, command: str, name: str) -> str:
    """What names a job among all that run together."""
    return f"{sweep}: {command} {name}" if sweep else f"{command} {name}"


@dataclass(frozen=True)
class SweepFolder:
    """The folder of a sweep: ``zoo`` (trained networks), ``runs``, ``jobs`` (notes and logs), ``data``, ``here``.

    name: what its files are filed under where they travel with those of other sweeps.
    """

    path: Path
    name: str = "sweep"

    def prepare(self, here: Path, data: Path | None, given: Iterable[Path], zoos: Iterable[Path]) -> None:
        """Make it; links lead to the data and to the sweep file's folder, and trainings made elsewhere are copied."""
        with writing_errors(self.path):
            for folder in (MARKS, Path("zoo"), Path("runs")):
                (self.path / folder).mkdir(parents=True, exist_ok=True)
            for name, target in (("here", here), ("data", data)):
                if target is not None:
                    self._link(name, target)
            for one in given:
                place = self.path / "zoo" / one
                begun = any(place.glob("member-*"))  # a training of our own, which nobody else has
                if not begun and found_in([self.path / "zoo"], one) is None:
                    copy_training(found_in(zoos, one), place)

    def outlined(self, path: Path, jobs: Iterable[Job]) -> SweepFolder:
        """Another folder in which the same is done: it has the notes, and empty files for what the jobs made."""
        (path / MARKS).mkdir(parents=True)
        for note in [file for file in (self.path / MARKS).glob("*") if file.suffix != ".log"]:
            shutil.copy(note, path / MARKS)
        outs = [self.path / job.out for job in jobs if (self.path / job.out).exists()]
        for there in [one for out in outs for one in (out, *out.rglob("*"))]:
            here = path / there.relative_to(self.path)
            here.parent.mkdir(parents=True, exist_ok=True)
            here.mkdir() if there.is_dir() else here.touch()
        return SweepFolder(path, self.name)

    def zoos(self) -> list[Path]:
        """Where trainings may lie that the file uses and does not make."""
        own, elsewhere = self.path / "zoo", None
        with suppress(ModelError):
            elsewhere = zoo_place()
        return [own] if elsewhere is None else [own, elsewhere]

    def _link(self, name: str, target: Path) -> None:
        link = self.path / name
        if link.exists() and not link.is_symlink():
            rule = f"leads to {'the sweep file' if name == 'here' else 'the data'} and is made by the sweep"
            raise ArgumentError(link, rule, "a file or folder", "Move it away, or choose another `out`.")
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
        for log in [self.path / self.log_of(job) for job in jobs]:
            with writing_errors(log):
                log.unlink(missing_ok=True)
                if log.name != first.name:
                    log.symlink_to(first.name)
        return first

    def done(self, job: Job) -> bool:
        """Whether it ended well with the settings that the file has now, and what it made is still there."""
        return self._as_now(job, self._note(job)) and (self.elsewhere(job) or self.there(job))

    def outdated(self, job: Job) -> bool:
        """Whether what it made is still there from other settings, its own or of what it was made from."""
        return bool(note := self._note(job)) and not self._as_now(job, note) and (self.path / job.out).exists()

    def _as_now(self, job: Job, note: dict[str, Any]) -> bool:
        """Whether a note has the settings that the file has now; older notes say nothing of what came before."""
        return note.get("words") == list(job.words) and note.get("after", job.after) == job.after

    def elsewhere(self, job: Job) -> bool:
        """Whether what it made is kept in another place."""
        return self._note(job).get("elsewhere") is True

    def adopted(self, job: Job) -> bool:
        """Whether what it made is kept in another place, too: it came from there, or was brought there."""
        return self.elsewhere(job) or self._note(job).get("adopted") is True

    def keep(self, job: Job) -> None:
        """Note that what it made was brought to another place, which may change from now on."""
        write_json(self.note_of(job), {**self._note(job), "adopted": True})

    def adopt(self, jobs: Sequence[Job], kept: Iterable[Path], zoos: Sequence[Path]) -> list[Job]:
        """Take jobs for done whose runs are kept in these folders, or whose trainings in a zoo, under their names.

        Of a training that something still needs the weights must be there, and are copied.
        """
        runs = {file.parent.name for folder in kept for file in folder.rglob("summary.json")}
        left = [job for job in jobs if not job.done]
        for job in [one for one in left if one.command != "train" and one.name in runs]:
            write_json(self.note_of(job), job.note(elsewhere=True))
        needed = {key for job in jobs if not job.done for key in job.needs}
        for job in [one for one in left if one.command == "train"]:
            place = found_in(zoos, job.out.relative_to("zoo"), "config.json")
            if place is None or place.is_file() or place == self.path / job.out:
                continue
            if all((place / one.relative_to(job.out)).exists() for one in job.checked.makes):
                copy_training(place, self.path / job.out)
                write_json(self.note_of(job), job.note(adopted=True))
            elif job.key not in needed:
                write_json(self.note_of(job), job.note(elsewhere=True))
        return [job for job in left if job.done]

    def there(self, job: Job) -> bool:
        """Whether what it makes is there, whoever made it; not where nobody may look."""
        return all(os.path.exists(self.path / one) for one in job.checked.makes)

    def measured(self, job: Job) -> float | None:
        """The minutes it took, if it is done."""
        minutes = self._note(job).get("minutes")
        return float(minutes) if isinstance(minutes, int | float) else None

    def end(self, job: Job, minutes: float) -> None:
        """Note that it ended well."""
        write_json(self.note_of(job), job.note(minutes=minutes))

    def last_words(self, job: Job, lines: int = 1, shared: bool = False) -> str:
        """The last lines of its log; shared: of several jobs, of which those with its name count, without it."""
        try:
            with (self.path / self.log_of(job)).open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - LOG_END))
                text = file.read().decode(errors="replace")
        except OSError:
            return ""
        own = speaks_as(job.out) if shared else ""
        said = [line.removeprefix(own) for line in text.splitlines() if line.strip() and line.startswith(own)]
        return "\n".join(said[-lines:])

    def _note(self, job: Job) -> dict[str, Any]:
        try:
            note = json.loads(self.note_of(job).read_text(encoding="utf-8"))
        except (OSError, ValueError):  # half a note is none: the command itself finds out what is left to do
            return {}
        return note if isinstance(note, dict) else {}


def speaks_as(out: Path) -> str:
    """The name that begins a training's lines in a log that several share."""
    return f"{out.name}, "


def found_in(zoos: Iterable[Path], name: Path, holds: str = "*.safetensors") -> Path | None:
    """Where a training, or a lone file of weights, lies in one of the zoos.

    holds: what its folder must hold. One without it is what a copy left that was broken off, or did not take files.
    """
    for zoo in zoos:
        if os.path.isfile(zoo / name) or (os.path.isdir(zoo / name) and any((zoo / name).glob(holds))):
            return zoo / name
        if os.path.isfile(lone := zoo / name.parent / f"{name.name}.safetensors"):
            return lone
    return None


def copy_training(source: Path | None, target: Path, ignore: Ignored | None = None) -> None:
    """A training's folder, or a lone file of weights, as found_in found it; whole or not at all.

    ignore: says what of each folder stays behind.
    """
    if source is None:  # it was there when the file was read
        return
    target = target if source.is_dir() else target.parent / source.name
    beside = target.with_name(f".{target.name}.part")
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.rmtree(beside, ignore_errors=True)
        shutil.copytree(source, beside, ignore=ignore)
        target.unlink() if target.is_symlink() else shutil.rmtree(target, ignore_errors=True)
    else:
        shutil.copy(source, beside)
    beside.replace(target)
