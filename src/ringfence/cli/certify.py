"""``ringfence certify`` and ``ringfence predict``: flags or a file become one certification, whose result is shown."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, fields, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ringfence.cli import options as o
from ringfence.cli.console import (
    aside,
    friendly,
    is_check,
    numbers,
    print_json,
    ready,
    relay,
    results,
    together,
    whole_numbers,
    written_numbers,
)
from ringfence.cli.derived import given_settings, grouped
from ringfence.cli.progress import show_progress, show_waiting
from ringfence.cli.tables import metrics_table, points_json, print_points, show_answers
from ringfence.cli.waking import FIRST, wake_driver, wake_libraries
from ringfence.errors import ArgumentError, Collected

if TYPE_CHECKING:
    from ringfence.analysis.aces_runs import AcesRun
    from ringfence.certification import Certification
    from ringfence.job_file import Job
    from ringfence.loggers import Logger
    from ringfence.store import RunFolder

JobFile = Annotated[
    Path | None,
    typer.Argument(help="A YAML or JSON file that says what the options say; options given too come first."),
]
Save = Annotated[
    Path | None, typer.Option("--save", help="Write what is asked for as a file for certify, and certify nothing.")
]

SOME_FAILED = 3
"""Exit code where some inputs could not be read or answered, and all others are certified."""


@dataclass(frozen=True)
class EnsembleOptions:
    """Which members vote how."""

    members: o.MemberSpecs = None
    vote: o.VotesUnlessFile = None
    member_weights: o.MemberWeights = None
    weights_on: o.WeightsOn = None
    consensus: o.Consensus = None
    prefixes: o.Prefixes = False
    singles: o.Singles = False


@dataclass(frozen=True)
class JobOptions(EnsembleOptions, o.RunningOptions, o.InputOptions, o.NoiseOptions):
    """What ``certify`` and ``predict`` share."""

    out: o.Out[Path | None] = None
    model: o.ModelUnlessMembers = None
    data: o.Data[str | None] = None
    weights: o.Weights = None
    save: Save = None
    csv: o.Csv = None
    as_json: o.Json = False
    quiet: o.Quiet = False

    def described(self, wrong: Collected, after: bool = False) -> dict[str, Any]:
        """What the flags say, in the words of a job file; None where they say nothing.

        after: the procedure smooths every member by itself, so that none of them vote.
        """
        mean = wrong.ask(lambda: written_numbers(self.mean, "--mean"))
        std = wrong.ask(lambda: written_numbers(self.std, "--std"))
        tree = wrong.ask(lambda: chosen_tree(self, after))
        chosen = {"skip": self.skip, "limit": self.limit, "stop": self.stop_index, "split": self.split}
        shared: dict[str, Any] = {"device": self.device, "batch": self.batch}
        compiled = wrong.ask(self.fast_compiles) or None
        shared["compile"] = compiled if self.compile is None else self.compile
        shared["check"] = False if self.no_check else None
        return {
            "classifier": {"tree": tree, "mean": mean, "std": std, "classes": self.classes},
            "data": {"source": self.data, **chosen, "size": self.size, "range": self.range},
            "noise": self.settings(),
            "precision": "bf16" if self.fast and self.precision is None else self.precision,
            "seed": self.seed,
            "execution": {**shared, "autotune": self.autotune, "engine": self.engine_settings()},
            "out": None if self.out is None else str(self.out),
        }

    @property
    def works_here(self) -> bool:
        """Whether these options alone ask for work on this machine's first GPU, if it has one."""
        return self.save is None and self.engine in (None, "local") and self.device in FIRST

    def fast_compiles(self) -> bool:
        """Whether --fast compiles: on a GPU, while a CPU measures whether that pays; refused where bf16 is slow."""
        from ringfence.sampling import multiplies_in_bf16, pick_device

        if not self.fast:
            return False
        device = pick_device(self.device or "auto")
        if not multiplies_in_bf16(device):
            rule = "needs a GPU, or a CPU with instructions for bf16"
            raise ArgumentError("fast", rule, f"device {device} without them", "Leave it out.")
        return device.type == "cuda"


@grouped
def certify_command(
    ctx: typer.Context,
    job: JobFile = None,
    given: JobOptions = JobOptions(),
    split_alpha: o.SplitAlpha = False,
    strict: Annotated[bool, typer.Option("--strict", help="Refuse forms that have no proven guarantee.")] = False,
    unlocked: o.Unlocked = False,
    log: o.Log = None,
) -> None:
    """Certify a data set: every prediction with the radius within which it cannot change."""
    with friendly("Run the same command again to continue."):
        if wakes := job is None and given.works_here and not is_check():
            wake_driver()
        _import_libraries()
        name = ctx.obj["procedure"]
        wrong, after = Collected(), (name or "").replace("_", "-") == "after-smoothing"
        flags = given.described(wrong, after)
        flags["procedure"] = {"name": name, **given_settings(ctx)}
        flags |= {"mechanisms": ctx.obj["mechanism"], "split_alpha": split_alpha or None}
        described = job_of(flags, job, wrong)
        if wakes:
            wake_libraries()
        run_or_save(described, given, strict, unlocked, log)


@grouped
def predict_command(ctx: typer.Context, job: JobFile = None, given: JobOptions = JobOptions()) -> None:
    """Predict with the smoothed classifier, without radii: wrong with probability at most alpha per input."""
    with friendly("Run the same command again to continue."):
        _import_libraries()
        wrong = Collected()
        flags = {**given.described(wrong), "procedure": {"name": "predict", **given_settings(ctx)}}
        run_or_save(job_of(flags, job, wrong), given)


def _import_libraries() -> None:
    """All that a job needs, torch with it, before anything else of it asks for a part."""
    with show_waiting("loading libraries"):
        import_module("ringfence.job_file")


def job_of(flags: dict[str, Any], file: Path | None, wrong: Collected) -> Job:
    """The job of a file, or of none, with what the flags say in its place; what is wrong with those is told too."""
    from ringfence.data import load_dataset
    from ringfence.job_file import Job, merged, read_job
    from ringfence.models import load_model

    def job() -> Job:
        content = merged(read_job(file) if file is not None else {}, flags)
        if not content.get("noise"):
            raise ArgumentError("sigma", "is needed, the standard deviation of the noise", "none", "Give e.g. 0.25.")
        return Job.of(content)

    tree, data = flags["classifier"]["tree"] or "default", flags["data"]["source"] or "default"
    of = {"split": flags["data"]["split"] or "test", "size": flags["data"]["size"], "limit": 1}
    return together(job, lambda: load_model(tree), lambda: load_dataset(data, **of), wrong=wrong)


def chosen_tree(given: JobOptions, after: bool) -> str | None:
    """The tree that --model and --weights, or --members and its companions, say; None where they say nothing."""
    from ringfence.models.compose import ensemble, with_weights
    from ringfence.models.grammar import split_models

    if given.members is None:
        if any(getattr(given, one.name) != one.default for one in fields(EnsembleOptions)):
            rule = "--vote, --member-weights, --weights-on, --consensus, --prefixes and --singles need members"
            raise ArgumentError("--members", rule, "none", "Write --members a,b,c.")
        return given.model if given.weights is None else str(with_weights(given.model or "default", given.weights))
    for option, value in (("--model", given.model), ("--weights", given.weights)):
        if value is not None:
            rule = f"does not go with {option}: the members are the models"
            remedy = f"Leave out {option}, or write one tree: --model 'soft(A, B)'."
            raise ArgumentError("--members", rule, f"{option} {value}", remedy)
    tree = ensemble(
        split_models(given.members),
        votes=[part.strip().replace("_", "-") for part in (given.vote or "soft").split(",") if part.strip()],
        consensus=whole_numbers(given.consensus, "--consensus") if given.consensus else (),
        weights=numbers(given.member_weights, "--member-weights") if given.member_weights else (),
        on=given.weights_on or "logits",
        prefixes=given.prefixes,
        singles=given.singles,
        after_smoothing=after,
    )
    return str(tree)


def run_or_save(
    job: Job, given: JobOptions, strict: bool = False, unlocked: bool = False, log: Sequence[str] | None = None
) -> None:
    """Write the job as a file, or certify into its folder and print the result."""
    from ringfence.loggers import loggers_named

    watched = loggers_named(log or ())
    if given.save is not None:
        job.save(given.save)
        out = "" if job.out is not None else " --out runs/NAME"
        aside(f"written: {given.save}; certify it with: ringfence certify {given.save}{out}")
        return
    if job.out is None:
        raise ArgumentError("out", "is needed, the folder of the run", "none", "Give e.g. --out runs/first.")
    if given.csv is not None and given.csv.is_dir():  # told now, not after the run
        raise ArgumentError("csv", "must be the name of a file", f"{given.csv}, a folder", "Name a file in it.")
    if strict and not job.certification.sound:
        value, rule = job.certification, "refuses the paper form, which proves nothing"
        told = f"{value.classifier} with the procedure {value.procedure.name}"
        raise ArgumentError("strict", rule, told, "Use the sound form, or no --strict.")
    ready(job)
    with watched as loggers:
        run = certify_folder(job, job.out, unlocked, loggers)
    print_run(job.certification.in_form(run.config.noise.lattice), run, given.as_json)
    show_answers(run, given.csv, given.as_json)
    if run.failed:
        raise typer.Exit(SOME_FAILED)


def certify_folder(job: Job, out: Path, unlocked: bool = False, loggers: Sequence[Logger] = ()) -> RunFolder:
    """Certify into the folder with progress."""
    from ringfence.analysis.metrics import metrics_by_lane
    from ringfence.loggers import tell_metrics
    from ringfence.progress import all_of
    from ringfence.sampling import one_thread, pick_device
    from ringfence.store.atomic import writer_of

    with one_thread() if pick_device(job.execution.device).type == "cuda" else nullcontext():
        with show_waiting("loading the model and the data"):
            started = job.certification.start(out, replace(job.execution, unlocked=unlocked, on_remark=relay))
        doing, total, done, draws = started.outlook
        if done and writer_of(out) is None:  # or it will be refused
            there = f"{done} of {total} inputs are already there; going on with the rest"
            aside(f"{out}: {there if done < total else f'all {total} inputs are already there'}")
        with show_progress(total, done, doing, draws) as report:
            run = started.finished(all_of(report, *(one.progress for one in loggers)))
        if loggers:
            tell_metrics(loggers, metrics_by_lane(run, None))
        return run


def print_run(value: Certification, run: RunFolder, as_json: bool) -> None:
    """The figures of a finished run, and what they mean."""
    from ringfence.analysis.aces import measured
    from ringfence.analysis.aces_runs import AcesRun
    from ringfence.analysis.metrics import default_radii, metrics_by_lane

    out, aces = run.path, "selection" in value.test.needs
    if aces and not as_json:
        print_aces(value, AcesRun.read(run))
        return
    lanes = metrics_by_lane(run, default_radii(run), str(out))
    if as_json:
        thetas = points_json(measured(AcesRun.read(run).answers())) if aces else {}
        print_json({**result_json(lanes, run), **thetas})
        return
    results.print(metrics_table(lanes, results.width))
    aside(guarantee(value, lanes[0].sound))
    aside(f"run folder: {out}")


def print_aces(value: Certification, run: AcesRun) -> None:
    """Figures of every threshold, and what may be done with them."""
    from ringfence.analysis.aces import measured

    points, out = measured(run.answers()), run.run.path
    print_points(points)
    aside(guarantee(value, value.test.sound, "input and theta"))
    if len(points) > 1 and not value.split_alpha:
        aside("choose ONE theta for all inputs: picking it input by input from these counts would not be sound.")
    aside(f"run folder: {out}" + ("" if points[0].acr is None else f"; see ringfence aces frontier {out}"))


def result_json(lanes: list[Any], run: RunFolder) -> dict[str, Any]:
    """The keys of a ``metrics --json`` run, with what the run cost; one entry per lane under ``runs``."""
    costs = ("draws", "forwards", "seconds")
    entries = [
        {**lane.to_dict(), **{name: getattr(lane, name) for name in costs}, "run": str(run.path)} for lane in lanes
    ]
    lift = {} if run.config.lift.name == "identity" else {"lift": run.config.lift.model_dump()}
    return {**entries[0], **lift, "runs": entries}


def guarantee(value: Certification, sound: bool, each: str = "input") -> str:
    """What the numbers mean, in one sentence."""
    from ringfence.analysis.metrics import guarantee

    about = (value.test, value.mechanisms[0].norm, sound, each, value.noise.law.lattice)
    return ("guarantee: " if sound else "") + guarantee(*about)
