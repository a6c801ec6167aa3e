"""``ringfence sweep``: many trainings and certifications from one file, in one go or in many sittings."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Annotated, Any, final

import typer

from ringfence.bars import in_words
from ringfence.cli import options as o
from ringfence.cli.console import as_options, aside, friendly, is_quiet, is_terminal, print_json, remark, results, say
from ringfence.cli.derived import grouped
from ringfence.cli.progress import Meter, meter
from ringfence.cli.report import write_report
from ringfence.cli.tables import table
from ringfence.cli.travel import TravelOptions
from ringfence.cli.waking import memory_of_first
from ringfence.errors import ArgumentError, RingfenceError, one_line

if TYPE_CHECKING:
    from ringfence.cli.stem import Stem
    from ringfence.sweep import Job, Schedule, State, Sweep, Watch


ROOMY, MOST = 32 << 30, 6
"""Bytes of a GPU that holds the batches of so many certifications at a time: while some start, others draw."""
NOT_FINISHED = 3
"""Exit code where the time was over: the same command goes on."""


@grouped
def sweep_command(
    files: Annotated[
        list[str],
        typer.Argument(metavar="FILE.yaml[:NAMES]...", help="What to train and to certify; of it jobs that begin so."),
    ],
    data: Annotated[Path | None, typer.Option(help="Folder of the data; jobs find it as `data`.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the sweep (default runs/NAME of the file).")] = None,
    only: Annotated[list[str] | None, typer.Option(help="Only jobs whose name begins so; several by commas.")] = None,
    phase: Annotated[str | None, typer.Option(help="Only jobs of this command: train, certify, ...")] = None,
    budget: Annotated[str | None, typer.Option(help="Stop cleanly after this time, e.g. 9m, 90s or 2h.")] = None,
    side_by_side: Annotated[str, typer.Option(help="Jobs at the same time; auto: 3 or 6 on a GPU, else 1.")] = "auto",
    listed: Annotated[bool, typer.Option("--list", help="Print the commands and run nothing.")] = False,
    planned: Annotated[bool, typer.Option("--plan", help="Print the device minutes and run nothing.")] = False,
    tiny: Annotated[bool, typer.Option("--tiny", help="With the file's tiny settings, to see that it runs.")] = False,
    travel: TravelOptions = TravelOptions(),
    where: o.EngineOptions = o.EngineOptions(),
    as_json: o.Json = False,
    quiet: o.Quiet = False,
) -> None:
    """Train and certify all that files list, each job after those it needs; the same command again goes on.

    Exit code 0: all is done; 1: a job failed; 3: the budget is over, and the same command goes on.
    """
    with friendly("Run the same command again to go on."), ExitStack() as planted:
        stem = None if listed or planned or travel.carry is not None else _planted(planted, where)
        from ringfence.sweep import Schedule, seconds_of

        travel.check()
        asked = [(file, names or list(only or ())) for file, names in map(_asked, files)]
        by_file, zoos = _read(asked, phase, out, tiny, travel)
        chosen = list({job.key: job for file, names in asked for job in by_file[file].chosen(names, phase)}.values())
        sweeps = list(by_file.values())
        every = [job for sweep in sweeps for job in sweep.jobs]
        seconds, count, engine = seconds_of(budget), _workers(side_by_side, chosen), where.on_ray()
        if listed:
            _print_list(chosen, as_json)
            return
        with ExitStack() as held:
            if planned:
                _print_plan(travel.planned(sweeps, held), [job.key for job in chosen], as_json)
                return
            _make_ready(sweeps, chosen, data, zoos, travel, held, runs=seconds != 0)
            if travel.carry is not None:
                travel.gather(chosen, every, data, zoos)
                return
            schedule = Schedule(chosen, every, _hired(engine, held, count, stem))
            if not is_quiet():
                announce(schedule, every)
            Thread(target=_import_drawing, daemon=True).start()  # while the jobs run there is nothing to do here
            with travel.packed(chosen, every), show_sweep(schedule) as watch:
                schedule.run(watch, seconds)
            conclude(schedule)
        more = len(schedule.waiting()) > len(schedule.blocked())
        _print_results(sweeps, schedule, as_json, whole=not more)
        if more:
            aside("not finished: run the same command again to go on.")
    failed = "failed" in schedule.states.values() or schedule.blocked()
    raise typer.Exit(1 if failed else NOT_FINISHED if more else 0)


def _make_ready(
    sweeps: Sequence[Sweep],
    chosen: Sequence[Job],
    data: Path | None,
    zoos: Sequence[Path],
    travel: TravelOptions,
    held: ExitStack,
    runs: bool,
) -> None:
    """Lock every work folder and put into it what came from elsewhere, and what the chosen jobs need.

    runs: whether they will begin.
    """
    from ringfence.store.atomic import locked

    travel.make_room(data)
    for sweep in sweeps:
        if runs and travel.carry is None:
            sweep.check_data(data)
        held.enter_context(locked(sweep.work.path))
    travel.bring_data(data)
    travel.bring([job for sweep in sweeps for job in sweep.jobs])
    for sweep in sweeps:
        given = {one for job in chosen for one in job.given if job.work is sweep.work}
        sweep.work.prepare(sweep.file.resolve().parent, data, sorted(given), zoos)
    travel.adopt(sweeps, zoos)


def _asked(text: str) -> tuple[Path, list[str]]:
    """A file, and the beginnings of the names of its jobs where there are some."""
    file, mark, names = text.rpartition(":")
    if mark and Path(file).suffix in (".yaml", ".yml") and not Path(text).exists():
        return Path(file), [names]
    return Path(text), []


def _read(
    asked: Sequence[tuple[Path, list[str]]], phase: str | None, out: Path | None, tiny: bool, travel: TravelOptions
) -> tuple[dict[Path, Sweep], list[Path]]:
    """Every file once, each with a folder of its own, and the zoos that their networks may come from."""
    from ringfence.cli.sweep_commands import SweepCommands
    from ringfence.sweep import SweepFolder, asked_for, read_sweep

    files = list(dict.fromkeys(file for file, _ in asked))
    if len({file.stem for file in files}) < len(files):
        raise ArgumentError("files", "must differ in their names", ", ".join(map(str, files)), "Run them one by one.")
    names = {file: f"{file.stem}{'-tiny' if tiny else ''}" for file in files}
    places = {file: (out or Path("runs")) / name for file, name in names.items()}
    if out is not None and len(files) == 1:
        places = {files[0]: out}
    works = {file: SweepFolder(places[file], names[file]) for file in files}
    zoos = list(dict.fromkeys([*(zoo for work in works.values() for zoo in work.zoos()), *travel.zoos()]))

    def read(file: Path) -> Sweep:
        chosen = [which for one, which in asked if one == file]
        key = names[file] if len(files) > 1 else ""
        wanted = lambda job: any(asked_for(job, which, phase) for which in chosen)  # noqa: E731
        return read_sweep(file, SweepCommands(), tiny, zoos, works[file], key, wanted)

    return {file: read(file) for file in files}, zoos


def _planted(held: ExitStack, where: o.EngineOptions) -> Stem | None:
    """What forks the workers of this machine, on Linux: elsewhere no descriptor tells one process from the next.

    Asked for before anything heavy is imported here, so that both import at the same time.
    """
    from ringfence.cli.stem import Stem

    here = where.engine in (None, "local")
    return held.enter_context(closing(Stem())) if here and hasattr(os, "pidfd_open") else None


def _hired(engine: Any, connected: ExitStack, count: int, stem: Stem | None) -> list[Any]:
    """Workers of this machine, or of a cluster that stays connected."""
    from ringfence.cli.sweep_commands import PROGRAM
    from ringfence.sweep import Worker

    if engine is None:
        return [Worker(PROGRAM, count, stem) for _ in range(count)]
    from ringfence.sweep.on_ray import RayWorker

    ray = connected.enter_context(engine.connected())
    return [RayWorker(ray, engine, PROGRAM) for _ in range(engine.room)]


def _workers(text: str, chosen: Sequence[Job]) -> int:
    if text == "auto":
        import torch

        if not torch.cuda.is_available():
            return 1
        small = all(job.command != "train" for job in chosen) and memory_of_first() >= ROOMY
        return MOST if small else 3
    if not text.isdecimal() or not 1 <= int(text) <= 64:
        raise ArgumentError("--side-by-side", "must be auto or a number from 1 to 64", repr(text), "Use auto.")
    return int(text)


def _print_list(chosen: Sequence[Job], as_json: bool) -> None:
    if as_json:
        keys = ("name", "command", "words", "needs", "minutes")
        print_json({"jobs": [{key: getattr(job, key) for key in keys} for job in chosen]})
        return
    for job in chosen:
        say(f"ringfence {shlex.join(job.words)}")


def _print_plan(sweeps: Sequence[Sweep], chosen: Sequence[str], as_json: bool) -> None:
    """Device minutes of the jobs with these keys, entry by entry; those of jobs that are done were measured."""
    from ringfence.sweep import Estimates, known_sum

    every = {job.key: job for sweep in sweeps for job in sweep.jobs}
    rows = Estimates(list(every.values())).rows([every[key] for key in chosen])
    sums = {key: known_sum([row[key] for row in rows]) for key in ("jobs", "done", "minutes", "left")}
    if as_json:
        about = "\n".join(sweep.about for sweep in sweeps)
        print_json({"sweep": _names(sweeps), "about": about, "rows": rows, **sums})
        return

    def told(value: Any) -> str:
        return "?" if value is None else f"{value:.1f}" if isinstance(value, float) else str(value)

    headings = ("command", "name", "jobs", "done", "minutes", "left")
    whole = (*rows, {"command": "all", "name": "", **sums})
    results.print(table(headings, [[told(row[key]) for key in headings] for row in whole], ("command", "name")))


def _import_drawing() -> None:
    """What the report at the end takes longest for; where it is missing, that is told then."""
    from ringfence.report import need

    with suppress(Exception):
        need("vl_convert")
        need("altair")


def _names(sweeps: Sequence[Sweep]) -> str:
    return ", ".join(str(sweep.file) for sweep in sweeps)


def _print_results(sweeps: Sequence[Sweep], schedule: Schedule, as_json: bool, whole: bool) -> None:
    """What became of each job, and, once all that can be done is done, the page about all runs with their table."""
    report, first = None, sweeps[0].work.path
    runs = [job for sweep in sweeps for job in sweep.jobs if job.command != "train" and job.work.there(job)]
    if whole and (paths := [job.work.path / job.out for job in runs if job.done]):
        page = (first if len(sweeps) == 1 else first.parent) / "report.html"
        try:
            report = write_report(paths, page, sweeps[0].file.stem if len(sweeps) == 1 else "sweeps", shown=not as_json)
        except RingfenceError as error:  # what the page needs may not be installed here; the runs are there
            remark(f"no report: {as_options(error)} Later: ringfence report {first / 'runs'}/*")
    if not as_json:
        return
    jobs = [
        {
            "name": job.name,
            "command": job.command,
            "state": schedule.states[job.key],
            "minutes": job.work.measured(job),
            "out": str(job.work.path / job.out),
            "missing": schedule.missing(job),
        }
        for job in schedule.chosen
    ]
    print_json({"sweep": _names(sweeps), "jobs": jobs, "report": report})


@contextmanager
def show_sweep(schedule: Schedule) -> Iterator[Watch]:
    """What a schedule tells how far it is."""
    # A log shows what begins and ends, not that time passes.
    with meter(shown=is_terminal()) as show:
        yield Shown(schedule, show)


@final
class Shown:
    """A line when a job begins and one when it ends; bars for the sweep and for the jobs that run."""

    def __init__(self, schedule: Schedule, show: Meter) -> None:
        self._schedule, self._show = schedule, show
        self._together: dict[str, bool] = {}

    def begin(self, jobs: Sequence[Job]) -> None:
        """These start now."""
        self._together |= {job.key: len(jobs) > 1 for job in jobs}
        together = " (together in one process)" if len(jobs) > 1 else ""
        aside(f"begins: {', '.join(job.key for job in jobs)}{together}")

    def end(self, job: Job, state: State, minutes: float) -> None:
        """It ended."""
        self._show(job.key, 1, 1, state)
        aside(f"{state}: {job.key} after {in_words(60 * minutes)}; {self._done()} jobs done")

    def look(self, running: Sequence[Job], left: float | None) -> None:
        """How far everything is, and the last words of every job that runs."""
        states = self._schedule.states
        self._show(
            "sweep",
            len(states) - len(self._schedule.waiting()),
            len(states),
            f"{self._done()} jobs",
            None if left is None else 60 * left,
        )
        for job in running:
            self._show(job.key, 0, None, one_line(job.work.last_words(job, shared=self._together.get(job.key, False))))

    def _done(self) -> str:
        states = self._schedule.states.values()
        return f"{sum(one == 'done' for one in states)} of {len(states)}"


def announce(schedule: Schedule, every: Sequence[Job]) -> None:
    """What there is to do, and about how long it takes."""
    from ringfence.sweep import Estimates

    waiting = schedule.waiting()
    estimates = Estimates(every)
    known = [minutes for job in waiting if (minutes := estimates.of(job)) is not None]
    unknown = len(waiting) - len(known)
    took = [] if not known else [f"about {in_words(60 * sum(known))} of device time"]
    took += [] if not unknown else [f"{unknown} of unknown length"]
    told = f"{len(waiting)} of {len(schedule.chosen)} jobs to do" + (f" ({', '.join(took)})" if waiting else "")
    remark(f"{told}, in {', '.join(dict.fromkeys(str(job.work.path) for job in schedule.chosen))}")


def conclude(schedule: Schedule) -> None:
    """What is not done, and why."""
    for job in schedule.chosen:
        work = job.work
        if schedule.states[job.key] == "failed":
            told = f"failed: {job.key}: {work.last_words(job, 3)}\nall it printed: {work.path / work.log_of(job)}"
            if work.outdated(job):  # which the command refuses, and knows nothing of sweeps
                told += f"\n{work.path / job.out} is of other settings: delete it, or give the job another name"
            remark(told)
    for job in schedule.blocked():
        remark(f"not run: {job.key} needs {', '.join(schedule.missing(job))}")
