"""``ringfence train``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ringfence.cli import options as o
from ringfence.cli.console import friendly, numbers, remark, say

if TYPE_CHECKING:
    from ringfence.training.job import TrainJob


def train_command(
    data: Annotated[
        str, typer.Option(help="Training data: mnist:PATH, cifar10:PATH or an .npz with x_train, y_train.")
    ],
    out: Annotated[Path, typer.Option(help="Folder of the training; the same command again continues it.")],
    recipe: Annotated[
        str | None, typer.Option(help="A paper's settings by name, e.g. yang2022-mnist-gaussian-0.5.")
    ] = None,
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
    classifier: Annotated[
        str | None, typer.Option(help="denoise-stability, select, catrs: the fixed classifier.")
    ] = None,
    weight_decay: Annotated[float | None, typer.Option(help="Weight decay (default 1e-4).")] = None,
    momentum: Annotated[float | None, typer.Option(help="Momentum of SGD (default 0.9).")] = None,
    nesterov: Annotated[
        bool | None, typer.Option("--nesterov/--no-nesterov", help="Nesterov or plain momentum (default Nesterov).")
    ] = None,
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
        from ringfence.cli.train_job import make_job, pairs
        from ringfence.cli.train_progress import count_labels, show_training
        from ringfence.training.parallel import run_parallel

        named = {"rho1": rho1, "rho2": rho2}
        options = {
            "sigma": sigma,
            "epochs": epochs,
            "batch": batch,
            "weight_decay": weight_decay,
            "momentum": momentum,
            "nesterov": nesterov,
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
            settings=pairs(setting or []) | {key: value for key, value in named.items() if value is not None},
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
            say(str(one))
        if not quiet:
            remark(_what_next(job, files[0]))


def _what_next(job: TrainJob, weights: Path) -> str:
    if job.objective == "select":
        tree = f"aces(certify={job.classifier}, core=MODEL, select={job.arch}@{weights})"
        return f"select with: ringfence certify --model '{tree}' --sigma {_sigma(job):g} ..."
    model = f"{job.arch}@{weights}"
    if job.objective.startswith("denoise"):
        model = f"'denoised({model}, {job.classifier or 'CLASSIFIER'})'"
    return f"certify with: ringfence certify --model {model} --sigma {_sigma(job):g} ..."


def _sigma(job: TrainJob) -> float:
    return job.plan(0).sigma if job.objective != "denoise-stability" else float(job.options.get("sigma", 0.5))
