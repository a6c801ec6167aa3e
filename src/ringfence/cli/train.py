"""``ringfence train``: its options are the fields of a job, of its schedule and of the objectives."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from inspect import Parameter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, final

import typer

from ringfence.cli import options as o
from ringfence.cli.console import aside, friendly, hint, is_quiet, numbers, print_json, ready, say, together
from ringfence.cli.derived import DerivedCommand, field_option, grouped, parameter
from ringfence.cli.progress import show_progress, show_training, show_waiting
from ringfence.errors import ArgumentError, RingfenceError

if TYPE_CHECKING:
    from ringfence.loggers import Logger
    from ringfence.training.job import TrainingJob
    from ringfence.training.run import TrainingRun


@final
class TrainCommand(DerivedCommand):
    """The fields of a job, of its schedule and of the objectives."""

    def derived(self) -> list[Parameter]:
        """Every field as typer makes options of parameters."""
        with show_waiting("loading libraries"):  # with torch, whose objectives they are
            from ringfence.settings import settings_of
            from ringfence.training.job import Schedule
            from ringfence.training.options import job_options, named_options, objective_options

        rates = [one.option for one in settings_of(Schedule).values()]
        found = [parameter(name, str, f"--{name}", help=help) for name, help in named_options().items()]
        for name, one in job_options().items():
            found.append(field_option(name, one, "Learning rate" if name in rates else "Training"))
        for name, (one, help) in objective_options().items():
            own = replace(one, default=None)  # which differs from objective to objective
            found.append(field_option(name, own, "Settings of the objective", help))
        return found


@grouped
def train_command(
    context: typer.Context,
    data: Annotated[
        str,
        typer.Option(
            help="Training data: default (500 digits), mnist:PATH, cifar10:PATH or an .npz with x_train, y_train."
        ),
    ],
    out: Annotated[Path, typer.Option(help="Folder of the training; the same command again continues it.")],
    members: Annotated[int | None, typer.Option(help="How many networks.")] = None,
    arch: Annotated[
        str | None, typer.Option(help="lenet, resnet20, ..., dncnn or file.py:factory; one for each member: a,a,b.")
    ] = None,
    setting: Annotated[
        list[str] | None, typer.Option("--set", help="A setting of the objective as name=value, e.g. --set rho1=0.5.")
    ] = None,
    mean: o.Mean = None,
    std: o.Std = None,
    where: o.EngineOptions = o.EngineOptions(),
    parallel: Annotated[int, typer.Option(help="Members trained side by side (with --graph in one process).")] = 1,
    device: o.Device[str] = "auto",
    devices: Annotated[int, typer.Option(help="GPUs (or CPU processes) that share each batch.")] = 1,
    export: Annotated[Path | None, typer.Option(help="Also copy the first member's weights to this file.")] = None,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Also log to TensorBoard.")] = False,
    log: o.Log = None,
    as_json: o.Json = False,
    quiet: o.Quiet = False,
) -> None:
    """Train noise-robust networks: single ones, or ensembles trained together."""
    with friendly("Run the same command again to continue."):
        with show_waiting("loading libraries"):
            from ringfence.data import load_dataset
            from ringfence.loggers import loggers_named
            from ringfence.training.options import described_job, objective_options
            from ringfence.training.run import TrainingRun

        watched, fields = loggers_named(log or ()), dict(context.obj)
        settings = {name: fields.pop(name) for name in objective_options()} | _pairs(setting or [])
        given = {"data": data, "members": members, "arch": arch, **fields}
        given |= {name: tuple(numbers(text, f"--{name}")) for name, text in (("mean", mean), ("std", std)) if text}
        asked = {name: value for name, value in settings.items() if value is not None}
        job = together(lambda: described_job(given, asked), lambda: load_dataset(data, split="train", limit=1))
        run = TrainingRun(job, out, device, devices, tensorboard)
        ready(run)
        if run.finished:
            aside(f"{out}: all members are already trained")
        with watched as loggers:  # before labels are counted, which may take hours
            count_labels(run)
            files = _trained(run, parallel, loggers, where)
        if export is not None:
            from ringfence.store.atomic import write_output

            write_output(export, files[0].read_bytes())
        if as_json:
            print_json({"out": str(out), "weights": [str(one) for one in files], "settings": job.config()})
            return
        for one in files:
            say(str(one))
        if not is_quiet():
            _print_use(job, files, out)


def _trained(run: TrainingRun, parallel: int, loggers: Sequence[Logger], where: o.EngineOptions) -> list[Path]:
    """The files of the weights."""
    from ringfence.progress import all_of
    from ringfence.training.side_by_side import run_training

    with show_training(run, parallel) as report:
        return run_training(run, parallel, all_of(report, *(one.training for one in loggers)), where.on_ray())


def _print_use(job: TrainingJob, files: Sequence[Path], out: Path) -> None:
    """The command that certifies what was trained: one radius takes minutes where the largest takes hours."""
    models = [f"{arch}@{file}" for arch, file in zip(job.members, files, strict=True)]
    use = job.objective.certified_with(models, job.classifier or "", job.sigma)
    noise = "" if job.noise == "gaussian" else f" --noise {job.noise}"
    run = "runs/certified" if Path("runs", out.name).resolve() == out.resolve() else f"runs/{out.name}"
    rest = f"{noise} --radius {job.sigma:g} --data {shlex.quote(job.data)} --out {shlex.quote(run)}"
    hint(f"use it: ringfence {use}{rest}")
    if _tests_on_itself(job.data):
        aside(f"{job.data} has no inputs apart for tests: accuracies on those of the training say little about others")


def _tests_on_itself(data: str) -> bool:
    """Whether the inputs that are certified by default are those of the training."""
    from ringfence.data import load_dataset

    try:
        train, test = (load_dataset(data, split=split, limit=1)[0].x for split in ("train", "test"))
    except RingfenceError:  # nothing to be certified on
        return False
    return train.equal(test)


def count_labels(run: TrainingRun) -> None:
    """Count, with progress, what labels are made from where the objective asks for it; it stays in the run's folder."""
    from ringfence.driver import Progress
    from ringfence.sampling import pick_device
    from ringfence.store.atomic import locked

    objective = run.job.objective
    if run.finished or objective.questions(run.job.sigma) is None:
        return
    with locked(run.out, unlocked=True):
        run.keep_settings()  # before the work: a folder of another training is refused at once
        data = run.load_data()
        answers = run.answers(data)
        assert answers is not None
        with show_progress(len(data), answers.done, "labelling") as report:
            answers.count(pick_device(run.device), lambda *seen: report(Progress(*seen)))
    said = objective.about_labels(objective.labelled(data, answers.votes))
    if said:
        aside(f"labels: {run.job.classifier} is {said}")


def _pairs(words: list[str]) -> dict[str, Any]:
    """Settings of the objective, each name=value."""
    found: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise ArgumentError("--set", "must be name=value", repr(word), "Write e.g. --set rho1=0.5.")
        found[name.strip().replace("-", "_")] = value.strip()
    return found
