"""``ringfence study drt``: paper 001's ablations as one command (appendix G and figure 9)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ringfence.cli import options as o
from ringfence.cli.console import friendly, numbers, remark, results

if TYPE_CHECKING:
    from rich.table import Table

study_app = typer.Typer(help="Studies of the papers as one command each.", no_args_is_help=True)


@study_app.callback()
def _root() -> None:
    """Studies of the papers."""


@study_app.command("drt")
def drt_command(
    data: Annotated[str, typer.Option(help="mnist:PATH, cifar10:PATH or an .npz with x_train, x_test, ...")],
    out: Annotated[Path, typer.Option(help="Folder of the study; the same command again continues it.")],
    init: Annotated[
        Path | None, typer.Option(help="Trained members to fine-tune; else they are trained first.")
    ] = None,
    base: Annotated[str, typer.Option(help="gaussian or smoothadv.")] = "gaussian",
    arch: Annotated[str, typer.Option(help="Architecture of the members.")] = "lenet",
    members: Annotated[int, typer.Option(help="Networks in the ensemble.")] = 3,
    sigma: Annotated[float, typer.Option(help="Noise level.")] = 0.5,
    epochs: Annotated[int, typer.Option(help="Epochs of the members and of every fine-tuning.")] = 90,
    batch: Annotated[int, typer.Option(help="Inputs per step.")] = 256,
    lr: Annotated[float, typer.Option(help="Learning rate of the members.")] = 0.01,
    tune_lr: Annotated[float, typer.Option(help="Learning rate of the fine-tuning.")] = 0.001,
    rho1: Annotated[float, typer.Option(help="Weight of gradient diversity.")] = 0.5,
    rho2: Annotated[float, typer.Option(help="Weight of confidence margins.")] = 2.0,
    sweep: Annotated[str, typer.Option(help="Further values of rho1, by commas; empty: none.")] = "0.1,1.0,10.0",
    limit: Annotated[int | None, typer.Option(help="Train on the first so many inputs only.")] = None,
    skip: o.Skip = 10,
    inputs: Annotated[int | None, typer.Option(help="Certify at most so many inputs.")] = None,
    n: Annotated[int, typer.Option("--n", help="Draws that bound the class.")] = 100_000,
    holdout: Annotated[int, typer.Option(help="Training inputs that judge the grid of weights.")] = 1000,
    radii: Annotated[str, typer.Option(help="Radii of the table.")] = "0,0.25,0.5,0.75,1.0,1.25,1.5,1.75",
    device: o.Device = "auto",
    graph: Annotated[bool, typer.Option("--graph", help="CUDA graphs while training.")] = False,
    seed: Annotated[int, typer.Option(help="Seed of the members.")] = 0,
    as_json: o.Json = False,
    quiet: o.Quiet = False,
) -> None:
    """Gradient diversity alone, margin alone, pairwise against summed, rho1 sweep, single members, grid weights."""
    with friendly("Run the same command again to continue."):
        from ringfence.cli.study_job import DrtStudy, run_study
        from ringfence.store.atomic import write_json

        study = DrtStudy(
            data=data,
            out=out,
            init=init,
            base=base,
            arch=arch,
            members=members,
            sigma=sigma,
            epochs=epochs,
            batch=batch,
            lr=lr,
            tune_lr=tune_lr,
            rho1=rho1,
            rho2=rho2,
            sweep=tuple(numbers(sweep, "--sweep")),
            limit=limit,
            skip=skip,
            inputs=inputs,
            n=n,
            holdout=holdout,
            radii=tuple(numbers(radii, "--radii")),
            device=device,
            graph=graph,
            seed=seed,
        )
        rows = run_study(study, (lambda text: None) if quiet else remark)
        write_json(out / "study.json", rows)
        if as_json:
            typer.echo(json.dumps({"rows": rows}, indent=2, allow_nan=False))
        else:
            results.print(_table(rows, study.radii))


def _table(rows: list[dict[str, Any]], radii: tuple[float, ...]) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(title="Certified accuracy (%) at radius r", title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("variant")
    table.add_column("vote")
    for heading in ("ACR", *(f"{radius:g}" for radius in radii)):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        shares = [f"{100 * row['certified_accuracy'][f'{radius:g}']:.1f}" for radius in radii]
        table.add_row(row["variant"], row["vote"], f"{row['acr']:.3f}", *shares)
    return table
