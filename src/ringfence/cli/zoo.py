"""``ringfence zoo``: the networks trained here, and where their weights are."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ringfence.cli import options as o
from ringfence.cli.console import friendly, print_json, remark, results
from ringfence.cli.help import HelpfulCommand

zoo_app = typer.Typer(help="Networks trained with Ringfence: list them, find their weights.", no_args_is_help=True)

Zoo = Annotated[Path | None, typer.Option("--zoo", help="Folder of the zoo (default: RINGFENCE_ZOO, then ./zoo).")]


@zoo_app.command("list", cls=HelpfulCommand)
def list_command(zoo: Zoo = None, as_json: o.Json = False) -> None:
    """What there is; --json adds hashes and the command that made each."""
    with friendly():
        from ringfence.cli.tables import table
        from ringfence.models.zoo import zoo_entries, zoo_root

        root = zoo_root(zoo)
        entries = zoo_entries(root)
        if as_json:
            print_json({"zoo": str(root), "trainings": [described(one) for one in entries]})
            return
        rows = []
        for one in entries:
            plan = one.plan
            cells = (plan["objective"]["name"], f"{plan['sigma']:g}", str(plan["epochs"])) if plan else ("-",) * 3
            count = str(len(one.files)) + (f" of {one.members}" if one.absent else "")
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


def described(entry: Any) -> dict[str, Any]:
    """A training as JSON: its files with their hashes, its settings, its command."""
    from ringfence.training.job import TrainingJob
    from ringfence.training.options import training_command

    return {
        "name": entry.name,
        "files": [
            {"path": str(file), "sha256": digest} for file, digest in zip(entry.files, entry.digests(), strict=True)
        ],
        "absent": dict(entry.absent),
        "command": training_command(TrainingJob.of(entry.settings), entry.name) if entry.plan else None,
        "settings": dict(entry.settings),
    }
