"""``ringfence attack RUN``: tries to break a certified run, and reports what stands beside what was proved."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ringfence.cli import options as o
from ringfence.cli.console import friendly, numbers, remark, results

if TYPE_CHECKING:
    from rich.table import Table

    from ringfence.cli.attack_job import AttackResult


def attack_command(
    run: Annotated[Path, typer.Argument(help="The run folder to attack.")],
    model: Annotated[str | None, typer.Option(help="The run's model, where its folder does not name it fully.")] = None,
    weights: o.Weights = None,
    members: o.MemberSpecs = None,
    vote: o.VoteNames = "soft",
    data: Annotated[str | None, typer.Option(help="The run's data, where it has moved.")] = None,
    split: o.Split = "test",
    lane: Annotated[str | None, typer.Option(help="Which lane, for runs with several.")] = None,
    radii: Annotated[str, typer.Option(help="Radii of the attack, by commas.")] = "0.25,0.5,0.75,1.0",
    attack: Annotated[str, typer.Option(help="pgd or ddn.")] = "pgd",
    steps: Annotated[int, typer.Option(help="Steps of the attack.")] = 20,
    copies: Annotated[int, typer.Option(help="Noise draws that stay fixed during the attack.")] = 32,
    box: Annotated[bool, typer.Option("--box", help="Keep attacked inputs in [0,1] (a certificate does not).")] = False,
    n: Annotated[int, typer.Option("--n", help="Draws of PREDICT at every attacked point.")] = 1000,
    recheck: Annotated[int, typer.Option(help="Fresh draws of PREDICT where a certificate seems broken.")] = 100_000,
    limit: o.Limit = None,
    batch: Annotated[int, typer.Option(help="Inputs attacked at once.")] = 64,
    device: o.Device = "auto",
    seed: Annotated[int, typer.Option(help="Seed of the attack's noise and of the fresh draws.")] = 1,
    out: Annotated[Path | None, typer.Option(help="Folder for the result and the broken inputs, as evidence.")] = None,
    as_json: o.Json = False,
    quiet: o.Quiet = False,
) -> None:
    """Attack a certified run: empirical accuracy at each radius beside the certified one.

    Exit code 1 if a point inside a certified radius is predicted as another class by PREDICT with fresh draws.
    """
    with friendly():
        from ringfence.cli.attack_job import AttackJob, run_attack, write_evidence

        job = AttackJob(
            run=run,
            model=model,
            weights=weights,
            members=members,
            vote=vote,
            data=data,
            split=split,
            lane=lane,
            radii=tuple(sorted(numbers(radii, "--radii"))),
            attack=attack,
            steps=steps,
            copies=copies,
            box=box,
            n=n,
            recheck=recheck,
            limit=limit,
            batch=batch,
            device=device,
            seed=seed,
        )
        found = run_attack(job, (lambda text: None) if quiet else remark)
        if out is not None:
            write_evidence(found, out)
        if as_json:
            answer = {**asdict(found), "broken": [one.described() for one in found.broken]}
            typer.echo(json.dumps(answer, indent=2, allow_nan=False))
        else:
            results.print(_table(found))
            _tell(found, quiet)
    if found.broken:
        raise typer.Exit(1)


def _table(found: AttackResult) -> Table:
    from rich import box
    from rich.table import Table

    from ringfence.cli.tables import percent

    title = f"Accuracy (%) under {found.attack} within radius r, {found.run}"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False)
    for heading in ("r", "certified", "empirical"):
        table.add_column(heading, justify="right")
    for radius, certified, empirical in zip(found.radii, found.certified, found.empirical, strict=True):
        table.add_row(f"{radius:g}", percent(certified), percent(empirical))
    table.caption = f"{found.inputs} inputs; {found.attacked} certificates attacked inside their radius"
    table.caption_justify = "left"
    return table


def _tell(found: AttackResult, quiet: bool) -> None:
    for one in found.broken:
        results.print(
            f"[bold red]certificate broken[/]: input {one.input_id}: class {one.certified_class} was certified within "
            f"{one.radius:.4f}, but at distance {one.distance:.4f} PREDICT says {one.attacked_class} "
            f"({one.votes} of {one.draws} fresh draws)",
            soft_wrap=True,
        )
    if not found.broken and not quiet:
        remark("no certificate was broken; the empirical accuracy is an upper bound on the true one.")
    if found.broken and not quiet:
        allowed = found.alpha * found.attacked
        remark(f"at alpha {found.alpha:g}, up to {allowed:.2g} of {found.attacked} certificates may fail by chance.")
