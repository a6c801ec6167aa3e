"""``ringfence certify`` and ``ringfence predict``: flags or a file become one certification, whose result is shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ringfence.cli import options as o
from ringfence.cli.console import (
    friendly,
    numbers,
    print_json,
    remark,
    results,
    together,
    whole_numbers,
    written_numbers,
)
from ringfence.cli.groups import InputOptions, NoiseOptions, RunningOptions, grouped
from ringfence.cli.procedure_options import given_settings
from ringfence.cli.ready import ready
from ringfence.cli.shown import Shown

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


@grouped
def certify_command(
    ctx: typer.Context,
    job: JobFile = None,
    noise: NoiseOptions = NoiseOptions(),
    out: o.OutUnlessFile = None,
    model: o.ModelUnlessMembers = None,
    data: o.DataUnlessFile = None,
    weights: o.Weights = None,
    inputs: InputOptions = InputOptions(),
    running: RunningOptions = RunningOptions(),
    ensemble: EnsembleOptions = EnsembleOptions(),
    split_alpha: o.SplitAlpha = False,
    strict: Annotated[bool, typer.Option("--strict", help="Refuse forms that have no proven guarantee.")] = False,
    save: Save = None,
    unlocked: o.Unlocked = False,
    csv: o.Csv = None,
    log: o.Log = None,
    as_json: o.Json = False,
    quiet: o.Quiet = False,
) -> None:
    """Certify a data set: every prediction with the radius within which it cannot change."""
    with friendly("Run the same command again to continue."):
        name = ctx.obj["procedure"]
        after = (name or "").replace("_", "-") == "after-smoothing"
        flags = described(noise, out, chosen_tree(model, weights, ensemble, after), data, inputs, running)
        flags["procedure"] = {"name": name, **given_settings(ctx)}
        flags |= {"mechanisms": ctx.obj["mechanism"], "split_alpha": split_alpha or None}
        shown = Shown(as_json, quiet, csv, tuple(log or ()))
        run_or_save(job_of(flags, job), save, shown, strict, unlocked)


@grouped
def predict_command(
    ctx: typer.Context,
    job: JobFile = None,
    noise: NoiseOptions = NoiseOptions(),
    out: o.OutUnlessFile = None,
    model: o.ModelUnlessMembers = None,
    data: o.DataUnlessFile = None,
    weights: o.Weights = None,
    inputs: InputOptions = InputOptions(),
    running: RunningOptions = RunningOptions(),
    ensemble: EnsembleOptions = EnsembleOptions(),
    save: Save = None,
    csv: o.Csv = None,
    as_json: o.Json = False,
    quiet: o.Quiet = False,
) -> None:
    """Predict with the smoothed classifier, without radii: wrong with probability at most alpha per input."""
    with friendly("Run the same command again to continue."):
        flags = described(noise, out, chosen_tree(model, weights, ensemble), data, inputs, running)
        flags["procedure"] = {"name": "predict", **given_settings(ctx)}
        run_or_save(job_of(flags, job), save, Shown(as_json, quiet, csv))


def described(
    noise: NoiseOptions, out: Path | None, tree: Any, data: str | None, inputs: InputOptions, running: RunningOptions
) -> dict[str, Any]:
    """What the flags say, in the words of a job file; None where they say nothing."""
    mean, std = written_numbers(inputs.mean, "--mean"), written_numbers(inputs.std, "--std")
    chosen = {"skip": inputs.skip, "limit": inputs.limit, "stop": inputs.stop_index, "split": inputs.split}
    shared: dict[str, Any] = {"device": running.device, "batch": running.batch, "compile": running.compile or None}
    shared["check"] = False if running.no_check else None
    return {
        "classifier": {"tree": tree, "mean": mean, "std": std, "classes": inputs.classes},
        "data": {"source": data, **chosen, "size": inputs.size, "range": inputs.range},
        "noise": noise.settings(),
        "precision": running.precision,
        "seed": running.seed,
        "execution": {**shared, "autotune": running.autotune, "engine": running.engine_settings()},
        "out": None if out is None else str(out),
    }


def job_of(flags: dict[str, Any], file: Path | None) -> Job:
    """The job of a file, or of none, with what the flags say in its place."""
    from ringfence.data import load_dataset
    from ringfence.errors import ArgumentError
    from ringfence.job_file import Job, merged, read_job
    from ringfence.models import load_model

    def job() -> Job:
        content = merged(read_job(file) if file is not None else {}, flags)
        if not content.get("noise"):
            raise ArgumentError("sigma", "is needed, the standard deviation of the noise", "none", "Give e.g. 0.25.")
        return Job.of(content)

    tree, data = flags["classifier"]["tree"] or "default", flags["data"]["source"] or "default"
    of = {"split": flags["data"]["split"] or "test", "size": flags["data"]["size"], "limit": 1}
    return together(job, lambda: load_model(tree), lambda: load_dataset(data, **of))


def chosen_tree(model: str | None, weights: Path | None, given: EnsembleOptions, after: bool = False) -> str | None:
    """The tree that --model and --weights, or --members and its companions, say; None where they say nothing."""
    from ringfence.errors import ArgumentError
    from ringfence.models.compose import ensemble, with_weights
    from ringfence.models.grammar import split_models

    if given.members is None:
        if given != EnsembleOptions():
            rule = "--vote, --member-weights, --weights-on, --consensus, --prefixes and --singles need members"
            raise ArgumentError("--members", rule, "none", "Write --members a,b,c.")
        return model if weights is None else str(with_weights(model or "default", weights))
    for option, value in (("--model", model), ("--weights", weights)):
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


def run_or_save(job: Job, save: Path | None, shown: Shown, strict: bool = False, unlocked: bool = False) -> None:
    """Write the job as a file, or certify into its folder and print the result."""
    from ringfence.errors import ArgumentError
    from ringfence.loggers import logger_named

    quiet, loggers = shown.quiet, [logger_named(name) for name in shown.log]

    if save is not None:
        job.save(save)
        if not quiet:
            remark(f"written: {save}; certify it with: ringfence certify {save}")
        return
    if job.out is None:
        raise ArgumentError("out", "is needed, the folder of the run", "none", "Give e.g. --out runs/first.")
    if strict and not job.certification.sound:
        value, rule = job.certification, "refuses the paper form, which proves nothing"
        told = f"{value.classifier} with the procedure {value.procedure.name}"
        raise ArgumentError("strict", rule, told, "Use the sound form, or no --strict.")
    ready(job)
    run = certify_folder(job, job.out, quiet, unlocked, loggers)
    print_run(job.certification, run, shown.as_json, quiet)
    shown.answers(run)
    if run.failed:
        raise typer.Exit(SOME_FAILED)


def certify_folder(
    job: Job, out: Path, quiet: bool, unlocked: bool = False, loggers: Sequence[Logger] = ()
) -> RunFolder:
    """Certify into the folder with progress."""
    from ringfence.analysis.metrics import metrics_by_lane
    from ringfence.cli.progress import show_progress
    from ringfence.loggers import all_of
    from ringfence.models.normalization import preprocessing_in_words

    execution = replace(job.execution, unlocked=unlocked)
    started = job.certification.start(out, execution if quiet else replace(execution, on_remark=remark))
    total, done = len(started.loaded.dataset), len(started.run.done_ids())
    if not quiet:
        norm = job.certification.mechanisms[0].norm
        for told in (lift_in_words(started.loaded.lift, norm), preprocessing_in_words(started.loaded.module)):
            if told:
                remark(told)
        if done:
            there = f"{done} of {total} inputs are already there; going on with the rest"
            remark(f"{out}: {there if done < total else f'all {total} inputs are already there'}")
    test = job.certification.test
    doing, draws = "certifying" if test.claims_radius else "predicting", None if test.stops_early else test.most_draws
    with show_progress(total, done, quiet, doing, draws) as report:
        for _ in started.records(all_of(report, *(one.progress for one in loggers))):
            pass
    for found in metrics_by_lane(started.run, None) if loggers else ():
        all_of(*(one.metrics for one in loggers))(found)
    return started.run


def lift_in_words(lift: Any, norm: str) -> str | None:
    """What noise elsewhere than at the input costs, in one line."""
    facts = lift.settings_in(norm)
    if not lift.sound:
        return f"paper form (UNSOUND): radii are not divided by {facts['norm_left_out']:.6g}, so they prove nothing."
    if facts["name"] == "identity":
        return None
    return f"noise mode {facts['name']}: every {norm} radius is divided by {facts['norm_bound']:.6g}."


def print_run(value: Certification, run: RunFolder, as_json: bool, quiet: bool) -> None:
    """The figures of a finished run, and what they mean."""
    from ringfence.analysis.aces_runs import AcesRun, is_aces
    from ringfence.analysis.metrics import default_radii, metrics_by_lane
    from ringfence.cli.tables import metrics_table

    out = run.path
    if is_aces(run):
        print_aces(value, AcesRun.read(run), as_json, quiet)
        return
    lanes = metrics_by_lane(run, default_radii(run), str(out))
    if as_json:
        print_json(result_json(lanes, run))
        return
    results.print(metrics_table(lanes, results.width))
    if not quiet:
        remark(guarantee(value, lanes[0].sound))
        remark(f"run folder: {out}")


def print_aces(value: Certification, run: AcesRun, as_json: bool, quiet: bool) -> None:
    """Figures of every threshold, and what may be done with them."""
    from ringfence.cli.aces_tables import points_json, points_of, print_points

    points, out = points_of(run.answers(), None), run.run.path
    if as_json:
        print_json(points_json(points))
        return
    print_points(points)
    if not quiet:
        remark(guarantee(value, value.test.sound, "input and theta"))
        if len(points) > 1 and not value.split_alpha:
            remark("choose ONE theta for all inputs: picking it input by input from these counts would not be sound.")
        remark(f"run folder: {out}" + ("" if points[0].acr is None else f"; see ringfence aces frontier {out}"))


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

    return ("guarantee: " if sound else "") + guarantee(value.test, value.mechanisms[0].norm, sound, each)
