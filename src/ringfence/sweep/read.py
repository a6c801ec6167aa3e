"""A sweep file as jobs, checked as a whole before anything starts: all that is wrong is told at once.

    about: what it is for
    zoo: digits                            trained networks are zoo:digits/NAME:0, zoo:digits/NAME:1, ...
    data: what the folder after --data must hold, where jobs name it (cifar10:data)
    shared:
      images: {data: cifar10:data}         settings that entries take by `use`; texts are written {images}
    always: {train: {batch: 256}}          settings of every job of a command, unless it has its own
    full: {train: {precision: bf16}}       the same, left out with --tiny
    tiny: {train: {epochs: 1}}             with --tiny: settings of every job, whatever it has
    train:
    - name: gaussian-{sigma}
      each: {sigma: [0.25, 0.5]}           all combinations; of a list of mappings those of each
      use: [images]
      settings: {sigma: "{sigma}"}         options of `ringfence train` without dashes; or a text: --sigma {sigma}
      minutes: 9                           device minutes, for the estimate
    certify:
    - name: gaussian-{sigma}-fixed
      settings: {model: "zoo:digits/gaussian-{sigma}:0", sigma: "{sigma}"}

A job that names zoo:digits/NAME, zoo/digits/NAME or runs/NAME waits for the job that makes it; `needs` adds others.
"""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
from hashlib import blake2b
from pathlib import Path
from typing import Any

from ringfence.errors import ArgumentError, DataError, RingfenceError
from ringfence.sweep.document import Lines, combinations, filled, is_plain, read_document, text_of
from ringfence.sweep.job import Commands, Job, SweepFolder, found_in, key_of

SWEEP = {"about": str, "zoo": str, "data": str, "shared": dict, "always": dict, "full": dict, "tiny": dict}
ENTRY = {"name": str, "each": (dict, list), "use": list, "settings": (dict, str), "arguments": list, "needs": list}
ENTRY |= {"minutes": str, "tiny": (dict, str), "about": str, "published": (dict, str)}
"""What a sweep and its entries hold; `published` is for the page that compares."""
KINDS = {dict: "a mapping", list: "a list", str: "text", (dict, list): "a mapping or a list"}
KINDS |= {(dict, str): "a mapping or a text"}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}")
_PART = _NAME.pattern
_MADE = re.compile(rf"(?<![\w./-])(zoo|runs)(?:(?<=zoo)[:/]({_PART}(?:/{_PART})?)|(?<=runs)/({_PART}))")


@dataclass(frozen=True)
class Sweep:
    """A file that can run, in its folder."""

    file: Path
    about: str
    data: str | None
    jobs: tuple[Job, ...]
    work: SweepFolder

    @property
    def given(self) -> list[Path]:
        """Trainings that its jobs use and that it does not make, below a zoo's folder."""
        return sorted({one for job in self.jobs for one in job.given})

    def chosen(self, only: Sequence[str] = (), command: str | None = None) -> list[Job]:
        """The jobs whose name begins so (several by commas), of this command."""
        found = [job for job in self.jobs if asked_for(job, only, command)]
        if not found:
            asked = ("only", ",".join(only)) if only else ("phase", command)
            raise ArgumentError(asked[0], f"must leave jobs of {self.file}", asked[1], "See what there is with `list`.")
        return found

    def outlined(self, path: Path) -> Sweep:
        """The same in another folder, as far as a plan asks: what is done, and what it took."""
        work = self.work.outlined(path, self.jobs)
        return replace(self, work=work, jobs=tuple(replace(job, work=work) for job in self.jobs))

    def check_data(self, data: Path | None) -> None:
        """Refuse to begin without the data that the jobs need."""
        if data is not None and not data.is_dir():
            raise ArgumentError("data", "must be a folder", data, "Jobs find its files as data/NAME.")
        if data is None and self.data is not None and not (self.work.path / "data").exists():
            raise ArgumentError("data", f"{self.file.name} needs a folder with {self.data}", "none", "Name it.")


def asked_for(job: Job, only: Sequence[str] = (), command: str | None = None) -> bool:
    """Whether the job's name begins so (several by commas), and it is of this command."""
    begins = tuple(part.strip() for one in only or [""] for part in one.split(","))
    return job.name.startswith(begins) and command in (None, job.command)


def read_sweep(
    file: Path,
    commands: Commands,
    tiny: bool = False,
    zoos: Iterable[Path] = (),
    work: SweepFolder | None = None,
    sweep: str = "",
    wanted: Callable[[Job], bool] = lambda _: True,
) -> Sweep:
    """The file, checked as a whole; a DataError lists everything that is wrong with it.

    work: its folder. sweep: begins the keys of its jobs. wanted: the jobs whose given trainings a zoo must have.
    """
    work = work or SweepFolder(Path("runs") / file.stem, file.stem)
    reader = _Reader(read_document(file), commands, tiny, list(zoos), work, sweep, wanted)
    jobs = reader.jobs()
    if reader.problems:
        count = len(reader.problems)
        told = "\n".join([f"{count} problem{'s'[: count != 1]}", *dict.fromkeys(reader.problems)]).rstrip(".")
        raise DataError(file, "must be a sweep that can run", told, "See docs/sweep.md.")
    about, data = reader.document.get("about"), reader.document.get("data")
    return Sweep(file, str(about or "").strip(), data, jobs, work)


class _Reader:
    """Collects jobs and problems."""

    def __init__(
        self,
        document: Lines,
        commands: Commands,
        tiny: bool,
        zoos: list[Path],
        work: SweepFolder,
        sweep: str,
        wanted: Callable[[Job], bool],
    ) -> None:
        self.document, self.problems = document, list[str]()
        self._commands, self._tiny, self._zoos = commands, tiny, zoos
        self._work, self._sweep, self._wanted = work, sweep, wanted
        self._makers, self._first = dict[Path, str](), dict[tuple[int, str], int]()
        self._kinds = {**SWEEP, **dict.fromkeys(commands.names, list)}
        for key in list(document):
            self._typed(document, key, self._kinds, "")
        self._zoo = document.get("zoo", "sweep")
        if not _NAME.fullmatch(self._zoo):
            self.problems.append(f"zoo: must be a plain name such as cifar10; got {self._zoo!r}")
        shared = document.get("shared", {})
        self._texts = {key: value for key, value in shared.items() if is_plain(value)}
        self._mappings = {key: value for key, value in shared.items() if isinstance(value, dict)}
        for key in shared.keys() - self._texts.keys() - self._mappings.keys():
            self.problems.append(f"shared, {key}: must be a text, or a mapping of settings")

    def jobs(self) -> tuple[Job, ...]:
        """Every job in the order of the file, each after those it needs."""
        found: list[Job] = []
        for command in self._commands.names:
            for at, entry in enumerate(self.document.get(command, ())):
                where = f"{command} {at + 1}"
                if not isinstance(entry, Lines):
                    self.problems.append(f"{where}: must be a mapping with a name and settings")
                    continue
                where = f"line {entry.line}, {command} {str(entry.get('name', '?'))[:60]}"
                if self._entry_fits(entry, where):
                    found += self._spread(entry, command, where)
        if not found and not self.problems:
            self.problems.append("it holds no job: a job stands under train or certify")
        self._refuse_twins(found)
        self._makers |= {job.out: job.key for job in found}
        return self._ordered([self._connected(one) for one in found])

    def _entry_fits(self, entry: Lines, where: str) -> bool:
        before = len(self.problems)
        for key in list(entry):
            self._typed(entry, key, ENTRY, f"{where}: ")
        if "name" not in entry:
            self.problems.append(f"{where}: a job needs a name")
        for name in entry.get("use", ()):
            if not isinstance(name, str) or name not in self._mappings:
                known = ", ".join(self._mappings) or "none"
                self.problems.append(f"{where}: use: {name!r} is no mapping under shared; there are: {known}")
        return len(self.problems) == before

    def _typed(self, mapping: Lines, key: str, kinds: Mapping[str, Any], where: str) -> None:
        """Refuse a key that nothing reads, and a value of a kind that nothing can read; an empty value is none."""
        if key not in kinds:
            self.problems.append(f"{where}unknown key {key!r}; known: {', '.join(kinds)}")
        elif mapping[key] is None:
            del mapping[key]
        elif not isinstance(mapping[key], kinds[key]):
            self.problems.append(f"{where}{key}: must be {KINDS[kinds[key]]}")
            del mapping[key]

    def _spread(self, entry: Lines, command: str, where: str) -> Iterator[Job]:
        """One job for each value of its braces."""
        try:
            for values in combinations(entry.get("each")):
                known = {**self._texts, **values}
                name = text_of(filled(entry["name"], known))
                if not _NAME.fullmatch(name):
                    raise ValueError(f"{name[:60]!r} is no name of a folder: letters, digits and . _ + - alone")
                yield from self._job(entry, command, f"{where} ({name})" if values else where, name, known)
        except ValueError as error:
            self.problems.append(f"{where}: {error}")

    def _job(self, entry: Lines, command: str, where: str, name: str, known: dict[str, Any]) -> Iterator[Job]:
        out = Path("zoo", self._zoo, name) if command == "train" else Path("runs", name)
        try:
            words = [*command.split(), *map(text_of, filled(entry.get("arguments", []), known))]
            words += self._commands.words(command, self._settings(entry, command, known))
            words += ["--out", out.as_posix()]
            needs = tuple(text_of(filled(one, known)) for one in entry.get("needs", ()))
            minutes = _minutes(entry["minutes"]) if "minutes" in entry else None
            checked = self._commands.check(words)
        except RingfenceError as error:
            first = self._first.setdefault((entry.line, str(error)), len(self.problems))
            if first == len(self.problems):  # the same mistake in every job of a grid is told once
                self.problems.append(f"{where}: {error}")
            self._makers[out] = key_of(self._sweep, command, name)  # those that wait for it are not wrong
            return
        minutes = None if self._tiny else minutes  # those of the full form
        at = (entry["name"], entry.line, self._work)
        yield Job(name, command, tuple(words), out, *at, needs, minutes, checked, sweep=self._sweep)

    def _settings(self, entry: Lines, command: str, known: dict[str, Any]) -> dict[str, Any]:
        """Everything that is said about a job; what stands nearer to it wins, and with --tiny what is tiny."""
        always, full, tiny = (self.document.get(key, {}).get(command) for key in ("always", "full", "tiny"))
        parts = [always, None if self._tiny else full, *(self._mappings[name] for name in entry.get("use", ()))]
        parts += [entry.get("settings"), *([tiny, entry.get("tiny")] if self._tiny else [])]
        merged: dict[str, Any] = {}
        for part in parts:
            if not isinstance(part, dict | str | None):
                raise ValueError(f"always, full and tiny hold a mapping of settings, or a text, for {command}")
            if isinstance(part, str):
                merged |= self._commands.settings(command, shlex.split(text_of(filled(part, known))))
            else:
                merged |= filled(part or {}, known)
        if "out" in merged:
            raise ValueError("out: the sweep says where results go")
        return merged

    def _refuse_twins(self, jobs: list[Job]) -> None:
        first: dict[Path, Job] = {}
        for job in jobs:
            if (other := first.setdefault(job.out, job)) is not job:
                self.problems.append(f"line {job.line}, {job.key}: the job of line {other.line} has the same name")

    def _connected(self, job: Job) -> Job:
        """The job with the keys of those it needs: those it names, and those that make what its words name."""
        by_out = self._makers
        needed: dict[str, None] = {}
        given: dict[Path, None] = {}
        for name in job.needs:
            places = (Path("zoo", self._zoo, name), Path("runs", name))
            key = next((by_out[place] for place in places if place in by_out and place != job.out), None)
            if key is None:
                self.problems.append(f"line {job.line}, {job.key}: needs: no job is called {name!r}")
            else:
                needed[key] = None
        for word in job.words[: job.words.index("--out")]:
            for kind, training, run in _MADE.findall(word):
                name = training or run
                if (place := Path(kind, name)) in by_out:
                    needed[by_out[place]] = None
                elif run or (found_in(self._zoos, Path(name), "*") is None and self._wanted(job)):
                    told = f"{place.as_posix()} is made by no job of this file{'' if run else ', and no zoo has it'}"
                    self.problems.append(f"line {job.line}, {job.key}: {told}")
                else:
                    given[Path(name)] = None
        return replace(job, needs=tuple(needed), given=tuple(given))

    def _ordered(self, jobs: list[Job]) -> tuple[Job, ...]:
        """In the order of the file, each with a digest of what comes before it; a ring of jobs is a problem."""
        try:
            first_to_last = list(TopologicalSorter({job.key: job.needs for job in jobs}).static_order())
        except CycleError as error:
            self.problems.append(f"jobs wait for each other: {' <- '.join(error.args[1])}")
            return tuple(jobs)
        by_key = {job.key: job for job in jobs}
        for job in [by_key[key] for key in first_to_last if key in by_key]:
            before = [(one.words, one.after) for key in sorted(job.needs) if (one := by_key.get(key))]
            after = blake2b(json.dumps(before).encode(), digest_size=8).hexdigest() if before else ""
            by_key[job.key] = replace(job, after=after)
        return tuple(by_key[job.key] for job in jobs)


def _minutes(text: str) -> float:
    try:
        minutes = float(text)
    except ValueError:
        minutes = math.nan
    if not 0 <= minutes < math.inf:
        raise ValueError(f"minutes: must be a number of at least 0; got {text!r}")
    return minutes
