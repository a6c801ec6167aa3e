"""``ringfence attack RUN``: tries to break a certified run, and reports what stands beside what was proved."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ringfence.cli import options as o
from ringfence.cli.console import friendly, numbers, remark, results, say
from ringfence.cli.ready import ready

if TYPE_CHECKING:
    from ringfence.store.attack import AttackResult


def attack_command(
    run: Annotated[Path, typer.Argument(help="The run folder to attack.")],
    model: Annotated[str | None, typer.Option(help="The run's model, where its folder does not name it fully.")] = None,
    trust: Annotated[
        bool, typer.Option("--trust", help="Run the code of the model that the run's folder names (a factory, a .pt2).")
    ] = False,
    weights: o.Weights = None,
    members: o.MemberSpecs = None,
    vote: o.VoteNames = "soft",
    data: Annotated[str | None, typer.Option(help="The run's data, where it has moved.")] = None,
    split: o.Split = "test",
    lane: Annotated[str | None, typer.Option(help="Which lane, for runs with several.")] = None,
    radii: Annotated[str, typer.Option(help="Radii of the attack, by commas.")] = "0.25,0.5,0.75,1.0",
    attack: Annotated[str | None, typer.Option(help="pgd (default) or ddn for l2 radii, pgd-l1 for l1 radii.")] = None,
    steps: Annotated[int, typer.Option(help="Steps of the attack.")] = 20,
    copies: Annotated[int, typer.Option(help="Noise draws that stay fixed during the attack.")] = 32,
    box: Annotated[bool, typer.Option("--box", help="Keep attacked inputs in [0,1] (a certificate does not).")] = False,
    n: Annotated[int, typer.Option("--n", help="Draws of PREDICT at every attacked point.")] = 1000,
    recheck: Annotated[int, typer.Option(help="Fresh draws of PREDICT where a certificate seems broken.")] = 100_000,
    limit: o.Limit = None,
    batch: Annotated[int, typer.Option(help="Inputs attacked at once.")] = 64,
    device: o.Device = "auto",
    seed: Annotated[int, typer.Option(help="Seed of the attack's noise and of the fresh draws.")] = 1,
    out: Annotated[
        Path | None, typer.Option(help="Folder for attack.json (ringfence report shows it) and the broken inputs.")
    ] = None,
    as_json: o.Json = False,
    quiet: o.Quiet = False,
) -> None:
    """Attack a certified run: empirical accuracy at each radius beside the certified one.

    Exit code 1 if a point inside a certified radius is predicted as another class by PREDICT with fresh draws.
    """
    with friendly():
        from ringfence.attacks.on_run import run_attack
        from ringfence.attacks.target import AttackJob
        from ringfence.store.attack import write_attack

        spec = _spec(run, model, members, vote)
        job = AttackJob(
            run=run,
            model=spec,
            weights=weights if spec == model else None,
            trust=trust or model is not None or members is not None,
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
        ready(job)
        found, points = run_attack(job, (lambda text: None) if quiet else remark)
        if out is not None:
            write_attack(found, points, out)
        if as_json:
            typer.echo(json.dumps(found.to_dict(), indent=2, allow_nan=False))
        else:
            _print(found)
            _tell(found, quiet)
    if found.broken:
        raise typer.Exit(1)


def _spec(run: Path, model: str | None, members: str | None, vote: str) -> str | None:
    """The model that was named; members that were named stand in the places of the run's members."""
    from ringfence.models.compose import ensemble
    from ringfence.models.grammar import Node, as_tree, split_models
    from ringfence.store import RunFolder

    if members is None:
        return model
    root, named = as_tree(RunFolder.open(run).config.classifier.tree), tuple(map(as_tree, split_models(members)))
    return str(Node(root.name, named, root.settings) if isinstance(root, Node) else ensemble(named, vote.split(",")))


def _print(found: AttackResult) -> None:
    from rich import box
    from rich.table import Table

    from ringfence.cli.tables import percent

    say(f"Accuracy (%) under {found.attack} within {found.norm} radius r, {found.run}")
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False, show_edge=False)
    for heading in ("r", "certified", "empirical"):
        table.add_column(heading, justify="right")
    for radius, certified, empirical in zip(found.radii, found.certified, found.empirical, strict=True):
        table.add_row(f"{radius:g}", percent(certified), percent(empirical))
    results.print(table)
    say(f"{found.inputs} inputs; {found.attacked} certificates attacked inside their radius")


def _tell(found: AttackResult, quiet: bool) -> None:
    from rich.text import Text

    for one in found.broken:
        told = (
            f": input {one.input_id}: class {one.certified_class} was certified within "
            f"{one.radius:.4f}, but at distance {one.distance:.4f} PREDICT says {one.attacked_class} "
            f"({one.votes} of {one.draws} fresh draws)"
        )
        results.print(Text.assemble(("certificate broken", "bold red"), told), soft_wrap=True)
    if quiet:
        return
    if found.broken:
        words = f"up to {found.chance:.2g} of {found.attacked} certificates may fail by chance"
        remark(f"at alpha {found.alpha:g}, {words}.")
    else:
        said = f"no certificate was broken ({found.attacked} attacked)"
        remark(f"{said}; the empirical accuracy is an upper bound on the true one.")
