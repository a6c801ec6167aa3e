"""``ringfence train``: its options are the fields of a job, of its schedule and of the objectives."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any, final

import typer

from ringfence.cli import options as o
from ringfence.cli.console import friendly, numbers, remark, say
from ringfence.cli.derived import DerivedCommand, parameter
from ringfence.cli.ready import ready
from ringfence.errors import ArgumentError, DataError, ModelError


@final
class TrainCommand(DerivedCommand):
    """The fields of a job, of its schedule and of the objectives."""

    def derived(self) -> list[Parameter]:
        """Every field as typer makes options of parameters."""
        from ringfence.settings import settings_of
        from ringfence.training.job import Schedule
        from ringfence.training.options import job_options, named_options, objective_options

        rates = [one.option for one in settings_of(Schedule).values()]
        found = [parameter(name, str, f"--{name}", help=help) for name, help in named_options().items()]
        for name, one in job_options().items():
            default = "" if one.default in (None, False, "") else f"default {one.default}"
            panel = "Learning rate" if name in rates else "Training"
            found.append(_parameter(name, one, _told(one, one.help, default), panel))
        for name, (one, help) in objective_options().items():
            found.append(_parameter(name, one, _told(one, help), "Settings of the objective"))
        return found


def _told(one: Any, help: str, default: str = "") -> str:
    """The help with choices and default."""
    more = "; ".join(part for part in (", ".join(one.choices), default) if part)
    return f"{help.removesuffix('.')} ({more})." if more else help


def _parameter(name: str, one: Any, help: str, panel: str) -> Parameter:
    """An option of a field; a switch can be turned off too."""
    flag = f"{one.flag}/{one.flag.replace('--', '--no-', 1)}" if one.kind is bool else one.flag
    return parameter(name, one.kind, flag, help=help, panel=panel)


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
    parallel: Annotated[int, typer.Option(help="Members trained side by side (with --graph in one process).")] = 1,
    device: o.Device = "auto",
    devices: Annotated[int, typer.Option(help="GPUs (or CPU processes) that share each batch.")] = 1,
    export: Annotated[Path | None, typer.Option(help="Also copy the first member's weights to this file.")] = None,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Also log to TensorBoard.")] = False,
    log: o.Log = None,
    as_json: o.Json = False,
    quiet: o.Quiet = False,
) -> None:
    """Train noise-robust networks: single ones, or ensembles trained together."""
    with friendly("Run the same command again to continue."), _flags_named():
        from ringfence.cli.train_progress import count_labels, show_training
        from ringfence.loggers import all_of, logger_named
        from ringfence.training.options import described_job, objective_options
        from ringfence.training.run import TrainingRun
        from ringfence.training.side_by_side import run_training

        fields = dict(context.obj)
        settings = {name: fields.pop(name) for name in objective_options()} | _pairs(setting or [])
        given = {"data": data, "members": members, "arch": arch, **fields}
        given |= {name: tuple(numbers(text, f"--{name}")) for name, text in (("mean", mean), ("std", std)) if text}
        job = described_job(given, {name: value for name, value in settings.items() if value is not None})
        run, loggers = TrainingRun(job, out, device, devices, tensorboard), [logger_named(one) for one in log or ()]
        ready(run)
        count_labels(run, quiet)
        with show_training(run, quiet) as report:
            files = run_training(run, parallel, all_of(report, *(one.training for one in loggers)))
        if export is not None:
            from ringfence.store.atomic import write_atomically

            write_atomically(export, files[0].read_bytes())
        if as_json:
            answer = {"out": str(out), "weights": [str(one) for one in files], "settings": job.config()}
            typer.echo(json.dumps(answer, indent=2, allow_nan=False))
            return
        for one in files:
            say(str(one))
        if not quiet:
            models = [f"{arch}@{file}" for arch, file in zip(job.members, files, strict=True)]
            remark(f"use it: ringfence {job.objective.certified_with(models, job.classifier or '', job.sigma)}")


def _pairs(words: list[str]) -> dict[str, Any]:
    """Settings of the objective, each name=value."""
    found: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise ArgumentError("--set", "must be name=value", repr(word), "Write e.g. --set rho1=0.5.")
        found[name.strip().replace("-", "_")] = value.strip()
    return found


@contextmanager
def _flags_named() -> Iterator[None]:
    """Errors of the library name arguments; a user of this command wrote options."""
    try:
        yield
    except (ArgumentError, DataError, ModelError) as error:
        from ringfence.training.options import flags

        flag = flags().get(error.argument)
        raise error if flag is None else type(error)(flag, error.rule, error.received, error.remedy) from error
