"""``ringfence zoo``: the networks trained here, and where their weights are."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ringfence.cli import options as o
from ringfence.cli.console import friendly, print_json, remark, results, say
from ringfence.cli.help import HelpfulCommand
from ringfence.cli.tables import table

zoo_app = typer.Typer(
    help="Networks trained with Ringfence: list them, find or add their weights.", no_args_is_help=True
)

Zoo = Annotated[Path | None, typer.Option("--zoo", help="Folder of the zoo (default: RINGFENCE_ZOO, then ./zoo).")]


@zoo_app.command("list", cls=HelpfulCommand)
def list_command(zoo: Zoo = None, as_json: o.Json = False) -> None:
    """What there is; --json adds hashes and the command that made each."""
    with friendly():
        from ringfence.models.zoo import known_entries, zoo_place

        place = zoo_place(zoo)
        entries = known_entries(place)
        if as_json:
            print_json({"zoo": place, "trainings": [described(one) for one in entries]})
            return
        rows = []
        for one in entries:
            plan = one.plan
            cells = (plan["objective"]["name"], f"{plan['sigma']:g}", str(plan["epochs"])) if plan else ("-",) * 3
            count = str(len(one.files)) + (f"/{len(one.names)}" if one.absent else "")
            rows.append((one.name, count, str(one.settings.get("arch") or "-"), *cells))
        headings = ("name", "files", "arch", "objective", "sigma", "epochs")
        made = table(headings, rows, ("name", "arch", "objective"))
        made.columns[0].no_wrap = True  # the name is there to be copied
        results.print(made)
        if here := [one.name for one in entries if one.files]:
            remark(f"certify one:  ringfence certify --model zoo:{here[0]} --data ... --sigma ... --out RUN")


@zoo_app.command("path", cls=HelpfulCommand)
def path_command(
    name: Annotated[str, typer.Argument(help="As `zoo list` shows it; NAME:i is member i, the first without.")],
    zoo: Zoo = None,
) -> None:
    """Print where the weights of a member are."""
    with friendly():
        from ringfence.models.zoo import zoo_file

        typer.echo(str(zoo_file(name, zoo)))


@zoo_app.command("add", cls=HelpfulCommand)
def add_command(
    files: Annotated[list[Path], typer.Argument(help="Weights, or a folder, .tar, .tar.gz or .zip that holds some.")],
    zoo: Zoo = None,
) -> None:
    """Keep copies of weights that the zoo knows by their hash, in $RINGFENCE_WEIGHTS or the user's cache."""
    with friendly():
        from ringfence.models.zoo import known_entries, zoo_place
        from ringfence.models.zoo_weights import add_weights, weights_folder

        place = zoo_place(zoo)
        entries = known_entries(place)
        named = {digest: f"{one.name}:{one.names.index(name)}" for one in entries for name, digest in one.known.items()}
        added = add_weights(files, named)
        for digest in added:
            say(f"zoo:{named[digest]}")
        left = sum(len(one.absent) for one in known_entries(place))
        remark(f"{len(added)} added to {weights_folder()}; {left} of the zoo are still absent")


def described(entry: Any) -> dict[str, Any]:
    """A training as JSON: its files with their hashes, its settings, its command."""
    from ringfence.training.job import TrainingJob
    from ringfence.training.options import training_command

    return {
        "name": entry.name,
        "files": [{"path": str(entry.files[name]), "sha256": digest} for name, digest in entry.digests().items()],
        "absent": dict(entry.absent),
        "command": training_command(TrainingJob.of(entry.settings), entry.name) if entry.plan else None,
        "settings": dict(entry.settings),
    }
