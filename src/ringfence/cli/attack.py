"""``ringfence attack RUN``: tries to break a certified run, and reports what stands beside what was proved."""

from __future__ import annotations

from inspect import Parameter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, final

import typer

from ringfence.cli import options as o
from ringfence.cli.console import aside, friendly, print_json, ready, results, say, together
from ringfence.cli.derived import DerivedCommand, field_option
from ringfence.cli.progress import show_waiting
from ringfence.cli.tables import percent, table
from ringfence.errors import ArgumentError
from ringfence.rounding import written
from ringfence.settings import settings_of

if TYPE_CHECKING:
    from ringfence.store.attack import AttackResult


@final
class AttackCommand(DerivedCommand):
    """The fields of a job."""

    def derived(self) -> list[Parameter]:
        """All but the run, which is the argument."""
        from ringfence.attack_job import AttackJob

        return [field_option(name, one) for name, one in settings_of(AttackJob).items()]


def attack_command(
    context: typer.Context,
    run: Annotated[Path, typer.Argument(help="The run folder to attack.")],
    members: o.MemberSpecs = None,
    vote: o.VoteNames = "soft",
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
        with show_waiting("loading libraries"):
            from ringfence.attack_job import AttackJob
            from ringfence.attacks.on_run import run_attack
            from ringfence.store import RunFolder
            from ringfence.store.attack import write_attack

        known = settings_of(AttackJob)
        given = {key: value for key, value in context.obj.items() if value is not None}
        given |= {key: known[key].parse(text) for key, text in given.items() if known[key].many}
        if members is not None:
            given = {**given, "model": _tree(run, members, vote), "weights": None}
        given["trust"] = "model" in given or given.get("trust", False)
        job = together(lambda: AttackJob(run=run, **given), lambda: RunFolder.open(run))
        if out is not None and out.is_file():  # told now, not after the attack
            raise ArgumentError("out", "must be a folder", f"{out}, a file", "Name another place.")
        ready(job)
        found, points = run_attack(job, aside)
        if as_json:
            print_json(found.to_dict())
        else:
            _print(found)
            _print_verdict(found)
        if out is not None:  # last: where it cannot be written, it is at least seen
            write_attack(found, points, out)
    if found.broken:
        raise typer.Exit(1)


def _tree(run: Path, members: str, vote: str) -> str:
    """The run's model with the named members in the places of its own."""
    from ringfence.models.compose import ensemble
    from ringfence.models.grammar import Node, as_tree, split_models
    from ringfence.store import RunFolder

    root, named = as_tree(RunFolder.open(run).config.classifier.tree), tuple(map(as_tree, split_models(members)))
    return str(Node(root.name, named, root.settings) if isinstance(root, Node) else ensemble(named, vote.split(",")))


def _print(found: AttackResult) -> None:
    say(f"Accuracy (%) under {found.attack} within {found.norm} radius r, {found.run}")
    columns = zip(found.radii, found.certified, found.empirical, strict=True)
    rows = [(written(radius), percent(certified), percent(empirical)) for radius, certified, empirical in columns]
    results.print(table(("r", "certified", "empirical"), rows))
    say(f"{found.inputs} inputs; {found.attacked} certificates attacked inside their radius")


def _print_verdict(found: AttackResult) -> None:
    from rich.text import Text

    for one in found.broken:
        told = (
            f": input {one.input_id}: class {one.certified_class} was certified within "
            f"{one.radius:.4f}, but at distance {one.distance:.4f} PREDICT says {one.attacked_class} "
            f"({one.votes} of {one.draws} fresh draws)"
        )
        results.print(Text.assemble(("certificate broken", "bold red"), told), soft_wrap=True)
    if found.broken:
        words = f"certificates of up to {found.chance:.2g} of {found.inputs} inputs fail by chance, on average"
        aside(f"at alpha {found.alpha:g}, {words}.")
    else:
        said = f"no certificate was broken ({found.attacked} attacked)"
        aside(f"{said}; the empirical accuracy is an upper bound on the true one.")
