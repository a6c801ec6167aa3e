"""``ringfence train``."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import typer

from ringfence.cli import options as o
from ringfence.cli.console import friendly, is_terminal, numbers, remark, remarks, results

if TYPE_CHECKING:
    from ringfence.training.course import Status
    from ringfence.training.job import TrainJob


class Report(Protocol):
    """Takes how far a member is."""

    def __call__(self, member: int, status: Status, /) -> None:
        """Show it."""


def train_command(
    data: Annotated[
        str, typer.Option(help="Training data: mnist:PATH, cifar10:PATH or an .npz with x_train, y_train.")
    ],
    out: Annotated[Path, typer.Option(help="Folder of the training; the same command again continues it.")],
    recipe: Annotated[str | None, typer.Option(help="A paper's settings by name, e.g. paper001-mnist-0.5.")] = None,
    objective: Annotated[str | None, typer.Option(help="gaussian, smoothadv, macer, ..., drt, select.")] = None,
    base: Annotated[str | None, typer.Option(help="What drt or select builds upon (default gaussian).")] = None,
    members: Annotated[int | None, typer.Option(help="How many networks; independent unless drt, adp or gal.")] = None,
    arch: Annotated[str | None, typer.Option(help="lenet, resnet20, ..., dncnn, or file.py:factory.")] = None,
    sigma: Annotated[float | None, typer.Option(help="Noise level, in [0,1] pixel units.")] = None,
    epochs: Annotated[int | None, typer.Option(help="Passes over the data.")] = None,
    batch: Annotated[int | None, typer.Option(help="Inputs per step.")] = None,
    lr: Annotated[float | None, typer.Option(help="Learning rate (one-cycle: its peak).")] = None,
    schedule: Annotated[str | None, typer.Option(help="step, one-cycle or constant.")] = None,
    lr_every: Annotated[int | None, typer.Option(help="Epochs between two steps down (default: a third).")] = None,
    setting: Annotated[
        list[str] | None, typer.Option("--set", help="A setting of the objective, e.g. --set rho1=0.5.")
    ] = None,
    rho1: Annotated[float | None, typer.Option(help="DRT: weight of gradient diversity.")] = None,
    rho2: Annotated[float | None, typer.Option(help="DRT: weight of confidence margins.")] = None,
    init: Annotated[Path | None, typer.Option(help="Folder of a training to start from (DRT fine-tunes).")] = None,
    classifier: Annotated[str | None, typer.Option(help="denoise-stability, select: the fixed classifier.")] = None,
    weight_decay: Annotated[float | None, typer.Option(help="Weight decay (default 1e-4).")] = None,
    momentum: Annotated[float | None, typer.Option(help="Nesterov momentum (default 0.9).")] = None,
    noise_warmup: Annotated[int | None, typer.Option(help="Epochs over which sigma grows.")] = None,
    attack_warmup: Annotated[int | None, typer.Option(help="Epochs over which the attack grows (default 10).")] = None,
    accumulate: Annotated[int | None, typer.Option(help="Micro-batches per step.")] = None,
    ema: Annotated[float | None, typer.Option(help="Decay of averaged weights, e.g. 0.999; off by default.")] = None,
    clip: Annotated[float | None, typer.Option(help="Largest gradient norm.")] = None,
    crop: Annotated[int | None, typer.Option(help="Random crops after so many pixels of padding.")] = None,
    flip: Annotated[bool | None, typer.Option("--flip/--no-flip", help="Random mirror images.")] = None,
    holdout: Annotated[int, typer.Option(help="Training inputs held out to measure noisy accuracy.")] = 0,
    keep: Annotated[str, typer.Option(help="Export the last epoch or the best one on the held-out inputs.")] = "last",
    limit: Annotated[int | None, typer.Option(help="Use only the first so many inputs.")] = None,
    classes: o.Classes = None,
    mean: o.Mean = None,
    std: o.Std = None,
    parallel: Annotated[
        int,
        typer.Option(help="Members trained side by side (with --graph in one process)."),
    ] = 1,
    device: o.Device = "auto",
    devices: Annotated[int, typer.Option(help="GPUs (or CPU processes) that share each batch.")] = 1,
    precision: Annotated[str | None, typer.Option(help="fp32 or bf16.")] = None,
    compile: o.Compile = False,
    graph: Annotated[bool, typer.Option("--graph", help="Replay each step as a CUDA graph.")] = False,
    export: Annotated[Path | None, typer.Option(help="Also copy the first member's weights to this file.")] = None,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Also log to TensorBoard.")] = False,
    seed: Annotated[int, typer.Option(help="Seed of member 0; member i has seed + i.")] = 0,
    as_json: o.Json = False,
    quiet: o.Quiet = False,
) -> None:
    """Train noise-robust networks: single ones, or ensembles trained together."""
    with friendly("Run the same command again to continue."):
        from ringfence.training.parallel import run_parallel

        named = {"rho1": rho1, "rho2": rho2}
        options = {
            "sigma": sigma,
            "epochs": epochs,
            "batch": batch,
            "weight_decay": weight_decay,
            "momentum": momentum,
            "noise_warmup": noise_warmup,
            "attack_warmup": attack_warmup,
            "accumulate": accumulate,
            "ema": ema,
            "clip": clip,
            "crop": crop,
            "flip": flip,
            "precision": precision,
            "compile": compile or None,
            "graph": graph or None,
            "seed": seed,
        }
        job = make_job(
            data,
            out,
            recipe,
            objective,
            base,
            members,
            arch,
            settings=_pairs(setting or []) | {key: value for key, value in named.items() if value is not None},
            schedule={"lr": lr, "kind": schedule, "every": lr_every},
            options=options,
            init=init,
            classifier=classifier,
            classes=classes,
            mean=tuple(numbers(mean, "--mean")) if mean else None,
            std=tuple(numbers(std, "--std")) if std else None,
            holdout=holdout,
            limit=limit,
            keep=keep,
            device=device,
            devices=devices,
            tensorboard=tensorboard,
        )
        if job.objective == "select":
            count_labels(job, quiet)
        with show_training(job, quiet) as report:
            files = run_parallel(job, parallel, report)
        if export is not None:
            from ringfence.store.atomic import write_atomically

            write_atomically(export, files[0].read_bytes())
        if as_json:
            answer = {"out": str(out), "weights": [str(one) for one in files], "settings": job.described()}
            typer.echo(json.dumps(answer, indent=2, allow_nan=False))
            return
        for one in files:
            results.print(str(one), soft_wrap=True, markup=False)
        if not quiet:
            remark(_what_next(job, files[0]))


def make_job(
    data: str,
    out: Path,
    recipe: str | None,
    objective: str | None,
    base: str | None,
    members: int | None,
    arch: str | None,
    *,
    settings: dict[str, Any],
    schedule: dict[str, Any],
    options: dict[str, Any],
    **others: Any,
) -> TrainJob:
    """The recipe's settings with what the user gave on top; values of None were not given."""
    from ringfence.errors import ArgumentError
    from ringfence.training.job import TrainJob
    from ringfence.training.recipes import find_recipe

    options = {key: value for key, value in options.items() if value is not None}
    schedule = {key: value for key, value in schedule.items() if value is not None}
    if recipe is None:
        return TrainJob(
            data=data,
            out=out,
            arch=arch or "lenet",
            objective=objective or "gaussian",
            base=base,
            members=1 if members is None else members,
            settings=settings,
            schedule=schedule,
            options=options,
            **others,
        )
    known = find_recipe(recipe)
    if known.needs_init and others.get("init") is None:
        rule = f"{recipe} fine-tunes trained members"
        raise ArgumentError("--init", rule, "none", "Train them first (its gaussian or smoothadv recipe), then --init.")
    return TrainJob(
        data=data,
        out=out,
        arch=arch or known.arch,
        objective=objective or known.objective,
        base=base or known.base,
        members=known.members if members is None else members,
        settings={**known.settings, **settings},
        schedule={**known.schedule, **schedule},
        options={"sigma": known.sigma, **known.options, **options},
        recipe=recipe,
        **others,
    )


def count_labels(job: TrainJob, quiet: bool) -> None:
    """Count, with progress, what the labels of ``select`` are made from; what is counted stays in the job's folder."""
    from ringfence.cli.progress import show_progress
    from ringfence.driver import Progress
    from ringfence.sampling import pick_device
    from ringfence.training.checkpoints import freeze_settings
    from ringfence.training.objectives import Select
    from ringfence.training.running import right_answers

    objective = job.plan(0).objective
    if job.finished or not isinstance(objective, Select):
        return
    freeze_settings(job.out, job.described())  # before the work: a folder of another training is refused at once
    answers = right_answers(job)
    total = len(answers.hits)
    with show_progress(total, answers.done, quiet, "labelling") as report:
        answers.count(pick_device(job.device), lambda *seen: report(Progress(*seen)))
    worth = int(answers.labels(objective.eta).y.sum())
    if not quiet:
        enough = f"right on a share of at least {objective.eta:g} of {objective.n} noisy copies"
        remark(f"labels: {job.classifier} is {enough} for {worth} of {total} training inputs")


@contextmanager
def show_training(job: TrainJob, quiet: bool) -> Iterator[Report]:
    """A callback for run_job: bars on a terminal, plain lines elsewhere."""
    if quiet:
        yield lambda member, status: None
    elif is_terminal():
        yield from _bars(job)
    else:
        yield _Lines(job)


def _bars(job: TrainJob) -> Iterator[Report]:
    from rich.progress import BarColumn, Progress, TaskID, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(bar_width=None), TextColumn("{task.fields[told]}"))
    with Progress(*columns, console=remarks, transient=True, expand=True) as bar:
        tasks: dict[int, TaskID] = {}

        def show(member: int, status: Status, /) -> None:
            if member not in tasks:
                name = "ensemble" if job.joint else f"member {member}"
                tasks[member] = bar.add_task(name, total=status.epochs * status.steps, told="")
            done = (status.epoch - 1) * status.steps + status.step
            bar.update(tasks[member], completed=done, told=_in_short(status))

        yield show


class _Lines:
    """A line after an epoch, ten at most per member and minute."""

    def __init__(self, job: TrainJob) -> None:
        self._job = job
        self._last: dict[int, float] = {}

    def __call__(self, member: int, status: Status, /) -> None:
        """The line, if it is due."""
        before = self._last.get(member, -1e9)
        if status.seconds - before < 6 and status.epoch < status.epochs:
            return
        self._last[member] = status.seconds
        name = "ensemble" if self._job.joint else f"member {member}"
        remark(f"{name}: {describe(status)}")


def describe(status: Status) -> str:
    """Epoch, loss terms, noisy accuracy and time left in one line."""
    terms = ", ".join(f"{name} {value:.4g}" for name, value in status.terms.items())
    right = "" if math.isnan(status.accuracy) else f", noisy accuracy {100 * status.accuracy:.2f}%"
    held = "" if status.held_out is None else f", held out {100 * status.held_out:.2f}%"
    where = f"epoch {status.epoch}/{status.epochs} step {status.step}/{status.steps}"
    return f"{where}: {terms}{right}{held}, about {status.left:.0f} s left"


def _in_short(status: Status) -> str:
    """The same for a bar beside it in a narrow window; terms and step are in the log."""
    held = "" if status.held_out is None else f", held out {100 * status.held_out:.1f}%"
    right = "" if math.isnan(status.accuracy) else f", noisy {100 * status.accuracy:.1f}%"
    told = f"epoch {status.epoch}/{status.epochs}, loss {status.loss:.3g}{right}{held}"
    return f"{told}, {status.left:.0f} s left"


def _pairs(words: list[str]) -> dict[str, Any]:
    from ringfence.errors import ArgumentError

    found: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise ArgumentError("--set", "must be name=value", repr(word), "Write e.g. --set rho1=0.5.")
        found[name.strip().replace("-", "_")] = value.strip()
    return found


def _what_next(job: TrainJob, weights: Path) -> str:
    if job.objective == "select":
        parts = f"--certify {job.classifier} --select {job.arch}@{weights} --core SPEC"
        return f"select with: ringfence aces run {parts} --sigma {_sigma(job):g} ..."
    model = f"{job.arch}@{weights}"
    if job.objective.startswith("denoise"):
        model = f"denoised:{model}+{job.classifier or 'CLASSIFIER'}"
    return f"certify with: ringfence certify --model {model} --sigma {_sigma(job):g} ..."


def _sigma(job: TrainJob) -> float:
    return job.plan(0).sigma if job.objective != "denoise-stability" else float(job.options.get("sigma", 0.5))
