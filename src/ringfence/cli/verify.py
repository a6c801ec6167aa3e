"""``ringfence verify``."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from ringfence.cli import options as o
from ringfence.cli.console import friendly, say

SHOWN = 20


def verify_command(
    runs: Annotated[list[Path], typer.Argument(help="Run folders.")],
    as_json: o.Json = False,
) -> None:
    """Recompute every bound and radius from the stored counts; exit code 1 if anything disagrees."""
    with friendly():
        from ringfence.store import RunFolder
        from ringfence.verification import verify

        answers = []
        for path in runs:
            run = RunFolder.open(path)
            found = verify(run)
            answers.append(
                {
                    "run": str(path),
                    "records": run.records(["input_id"]).num_rows,
                    "damaged": run.damaged,
                    "disagreements": [asdict(one) for one in found],
                }
            )
        if as_json:
            typer.echo(json.dumps({"runs": answers}, indent=2, default=str))
        else:
            for answer in answers:
                _print(answer)
    if any(answer["disagreements"] or answer["damaged"] for answer in answers):
        raise typer.Exit(1)


def _print(answer: dict[str, object]) -> None:
    wrong, damaged = answer["disagreements"], answer["damaged"]
    assert isinstance(wrong, list)
    assert isinstance(damaged, list)
    verdict = (
        "every claim follows from its counts" if not wrong else f"{len(wrong)} claims do not follow from their counts"
    )
    say(f"{answer['run']}: {answer['records']} records, {verdict}")
    for one in wrong[:SHOWN]:
        say(
            f"  input {one['input_id']} lane {one['lane']}: {one['what']} is stored as {one['stored']}, "
            f"the counts give {one['recomputed']}"
        )
    if len(wrong) > SHOWN:
        say(f"  ... and {len(wrong) - SHOWN} more (--json shows all)")
    for name in damaged:
        say(f"  damaged part, not read: {name}")
