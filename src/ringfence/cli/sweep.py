"""``ringfence sweep``: many trainings and certifications from one file, in one go or in many sittings."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ringfence.cli import options as o
from ringfence.cli.console import as_options, friendly, print_json, remark, results, say
from ringfence.cli.groups import EngineOptions, grouped

if TYPE_CHECKING:
    from ringfence.sweep import Job, Schedule, Sweep, Work

NOT_FINISHED = 3
"""Exit code where the time was over: the same command goes on."""


@grouped
def sweep_command(
    file: Annotated[Path, typer.Argument(metavar="FILE.yaml", help="The sweep: what to train and what to certify.")],
    data: Annotated[Path | None, typer.Option(help="Folder of the data; jobs find it as `data`.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the sweep (default runs/NAME of the file).")] = None,
    only: Annotated[list[str] | None, typer.Option(help="Only jobs whose name begins so; several by commas.")] = None,
    phase: Annotated[str | None, typer.Option(help="Only jobs of this command: train, certify, ...")] = None,
    budget: Annotated[str | None, typer.Option(help="Stop cleanly after this time, e.g. 9m, 90s or 2h.")] = None,
    side_by_side: Annotated[str, typer.Option(help="Jobs at the same time; auto: 3 on a GPU, otherwise 1.")] = "auto",
    listed: Annotated[bool, typer.Option("--list", help="Print the commands and run nothing.")] = False,
    planned: Annotated[bool, typer.Option("--plan", help="Print the device minutes and run nothing.")] = False,
    tiny: Annotated[bool, typer.Option("--tiny", help="With the file's tiny settings, to see that it runs.")] = False,
    pack: Annotated[Path | None, typer.Option(help="Afterwards pack what jobs made into archives there.")] = None,
    pack_mib: Annotated[float, typer.Option(help="Size of an archive at most, in MiB.")] = 14.0,
    unpack: Annotated[Path | None, typer.Option(help="Before, unpack the archives of this folder.")] = None,
    where: EngineOptions = EngineOptions(),
    as_json: o.Json = False,
    quiet: o.Quiet = False,
) -> None:
    """Train and certify all that a file lists, each job after those it needs; the same command again goes on.

    Exit code 0: all is done; 1: a job failed; 3: the budget is over, and the same command goes on.
    """
    with friendly("Run the same command again to go on."):
        from ringfence.cli.sweep_commands import SweepCommands
        from ringfence.cli.sweep_progress import announce, conclude, show_sweep
        from ringfence.store.atomic import locked
        from ringfence.sweep import Schedule, Work, read_sweep
        from ringfence.sweep import pack as pack_work
        from ringfence.sweep import unpack as unpack_work

        work = Work(out or Path("runs") / f"{file.stem}{'-tiny' if tiny else ''}")
        zoos = _zoos(work)
        sweep = read_sweep(file, SweepCommands(), tiny, zoos)
        chosen = _chosen(sweep, only, phase)
        seconds, count, engine = _seconds(budget), _workers(side_by_side), where.on_ray()
        if listed:
            _print_list(chosen, as_json)
            return
        if planned:
            _print_plan(sweep, chosen, work, as_json)
            return
        if seconds != 0:
            _check_data(sweep, data, work)
        with locked(work.path), ExitStack() as connected:
            if unpack is not None:
                unpack_work(unpack, work)
            work.prepare(file.resolve().parent, data, sweep.given, zoos)
            schedule = Schedule(chosen, sweep.jobs, work, _hired(engine, connected, work.path, count))
            if not quiet:
                announce(schedule, sweep.jobs)
            with show_sweep(schedule, quiet) as watch:
                schedule.run(watch, seconds)
            for archive in pack_work(chosen, sweep.jobs, work, pack, pack_mib) if pack is not None else ():
                remark(f"packed: {archive} ({archive.stat().st_size / 2**20:.1f} MiB)")
            conclude(schedule)
        failed = "failed" in schedule.states.values() or schedule.blocked()
        more = len(schedule.waiting()) > len(schedule.blocked())
        code = 1 if failed else NOT_FINISHED if more else 0
        _print_results(sweep, schedule, as_json, whole=not more)
        if more and not quiet:
            remark("not finished: run the same command again to go on.")
    raise typer.Exit(code)


def _hired(engine: Any, connected: ExitStack, folder: Path, count: int) -> list[Any]:
    """Workers of this machine, or of a cluster that stays connected."""
    from ringfence.cli.sweep_commands import PROGRAM
    from ringfence.sweep import Worker

    if engine is None:
        return [Worker(PROGRAM, folder) for _ in range(count)]
    from ringfence.sweep.on_ray import RayWorker

    ray = connected.enter_context(engine.connected())
    return [RayWorker(ray, engine, PROGRAM, folder) for _ in range(engine.room)]


def _zoos(work: Work) -> list[Path]:
    """Where trainings may lie that the file uses and does not make."""
    from ringfence.errors import ModelError
    from ringfence.models.zoo import zoo_root

    try:
        return [work.path / "zoo", zoo_root()]
    except ModelError:
        return [work.path / "zoo"]


def _chosen(sweep: Sweep, only: list[str] | None, phase: str | None) -> list[Job]:
    from ringfence.errors import ArgumentError

    begins = tuple(part.strip() for one in only or [""] for part in one.split(","))
    found = [job for job in sweep.jobs if job.name.startswith(begins) and phase in (None, job.command)]
    if not found:
        asked = f"--only {','.join(begins)}" if only else f"--phase {phase}"
        raise ArgumentError(asked, f"must leave jobs of {sweep.file}", "none", "See what there is with --list.")
    return found


def _seconds(budget: str | None) -> float | None:
    """The seconds of a time such as 9m."""
    from ringfence.errors import ArgumentError

    if budget is None:
        return None
    number, unit = budget[:-1], {"s": 1, "m": 60, "h": 3600}.get(budget[-1:])
    try:
        seconds = float(number) * (unit or float("nan"))
    except ValueError:
        seconds = float("nan")
    if not 0 <= seconds < 1e9:
        raise ArgumentError("--budget", "must be a time in s, m or h", repr(budget), "Write e.g. 9m, 90s or 2h.")
    return seconds


def _workers(text: str) -> int:
    from ringfence.errors import ArgumentError

    if text == "auto":
        import torch

        return 3 if torch.cuda.is_available() else 1
    if not text.isdecimal() or not 1 <= int(text) <= 64:
        raise ArgumentError("--side-by-side", "must be auto or a number from 1 to 64", repr(text), "Use auto.")
    return int(text)


def _check_data(sweep: Sweep, data: Path | None, work: Work) -> None:
    from ringfence.errors import ArgumentError

    if data is not None and not data.is_dir():
        raise ArgumentError("--data", "must be a folder", data, "Jobs find its files as data/NAME.")
    if data is None and sweep.data is not None and not (work.path / "data").exists():
        raise ArgumentError("--data", f"{sweep.file.name} needs a folder with {sweep.data}", "none", "Name it.")


def _print_list(chosen: Sequence[Job], as_json: bool) -> None:
    if as_json:
        keys = ("name", "command", "words", "needs", "minutes")
        print_json([{key: getattr(job, key) for key in keys} for job in chosen])
        return
    for job in chosen:
        say(f"ringfence {shlex.join(job.words)}")


def _print_plan(sweep: Sweep, chosen: Sequence[Job], work: Work, as_json: bool) -> None:
    """Device minutes, entry by entry; those of jobs that are done were measured."""
    from ringfence.cli.tables import table
    from ringfence.sweep import Estimates

    estimates = Estimates(sweep.jobs, work)
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for job in chosen:
        at = {"command": job.command, "name": job.entry, "jobs": 0, "done": 0, "minutes": 0.0, "left": 0.0}
        row = rows.setdefault((job.command, job.entry), at)
        minutes, done = estimates.of(job), work.done(job)
        row["jobs"] += 1
        row["done"] += done
        row["minutes"] = None if None in (minutes, row["minutes"]) else row["minutes"] + minutes
        row["left"] = None if None in (minutes, row["left"]) else row["left"] + (0.0 if done else minutes)
    sums = {key: sum(row[key] or 0 for row in rows.values()) for key in ("jobs", "done", "minutes", "left")}
    if as_json:
        answer = {"sweep": str(sweep.file), "about": sweep.about, "rows": list(rows.values()), **sums}
        print_json(answer)
        return

    def told(value: Any) -> str:
        return "?" if value is None else f"{value:.1f}" if isinstance(value, float) else str(value)

    headings = ("command", "name", "jobs", "done", "minutes", "left")
    whole = (*rows.values(), {"command": "all", "name": "", **sums})
    results.print(table(headings, [[told(row[key]) for key in headings] for row in whole], ("command", "name")))


def _print_results(sweep: Sweep, schedule: Schedule, as_json: bool, whole: bool) -> None:
    """What became of each job, and, once all that can be done is done, the page about all runs with their table."""
    from ringfence.cli.report import write_report
    from ringfence.errors import RingfenceError

    work, report = schedule.work, None
    paths = [work.path / job.out for job in sweep.jobs if job.command != "train" and work.done(job)]
    if whole and paths:
        try:
            report = write_report(paths, work.path / "report.html", sweep.file.stem, shown=not as_json)
        except RingfenceError as error:  # what the page needs may not be installed here; the runs are there
            remark(f"no report: {as_options(error)} Later: ringfence report {work.path / 'runs'}/*")
    if not as_json:
        return
    jobs = [
        {
            "name": job.name,
            "command": job.command,
            "state": schedule.states[job.key],
            "minutes": work.measured(job),
            "out": str(work.path / job.out),
            "missing": schedule.missing(job),
        }
        for job in schedule.chosen
    ]
    print_json({"sweep": str(sweep.file), "jobs": jobs, "report": report})
