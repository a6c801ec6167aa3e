"""``ringfence info``: what is installed here, or what a run folder holds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ringfence.bars import in_words
from ringfence.cli import options as o
from ringfence.cli.console import friendly, print_json, say_facts

if TYPE_CHECKING:
    from ringfence.store import RunFolder


def info_command(
    run: Annotated[Path | None, typer.Argument(help="A run folder; without it, this installation.")] = None,
    as_json: o.Json = False,
) -> None:
    """Versions, devices and the names that can be chosen; or a run's settings and state."""
    with friendly():
        answer = _installation() if run is None else _run(run)
    if as_json:
        print_json(answer)
        return
    lists = {key: ", ".join(map(str, one)) or None for key, one in answer.items() if isinstance(one, list | tuple)}
    say_facts(answer | lists)


def _installation() -> dict[str, Any]:
    import torch

    from ringfence.classifiers.architectures import ARCHITECTURES, DENOISERS
    from ringfence.mechanisms import MECHANISMS
    from ringfence.noise import NOISES
    from ringfence.procedures import PROCEDURES
    from ringfence.store.writer import describe_environment
    from ringfence.work import ELSEWHERE, ENGINES

    cuda = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return {
        **describe_environment(),
        "devices": ["cpu", *cuda],
        "procedures": list(PROCEDURES),
        "mechanisms": [one.spelled for one in MECHANISMS.values()],
        "noises": list(NOISES),
        "engines": list(dict.fromkeys([*ENGINES, *ELSEWHERE])),
        "architectures": list(ARCHITECTURES),
        "denoisers": list(DENOISERS),
    }


def _run(path: Path) -> dict[str, Any]:
    from ringfence.store import RunFolder
    from ringfence.store.config import flatten
    from ringfence.store.exchange import IMPORTED

    run = RunFolder.open(path)
    done = run.done_ids()
    expected = run.expected
    return {
        "run": str(path),
        "inputs done": f"{len(done)} of {expected}" if expected else len(done),
        "finished": run.summary() is not None or run.config.procedure.name == IMPORTED,
        **({"failed": len(run.failed)} if run.failed else {}),
        **_live(run, 0 if expected is None else expected - len(done) - len(run.failed)),
        **dict(flatten(run.config.model_dump())),
        "config_hash": run.config.digest,
        "forward plans": run.forward_plans(),
        "environments": len(run.environments()),
        "damaged parts": run.damaged,
    }


def _live(run: RunFolder, left: int) -> dict[str, Any]:
    """Who writes into the run now, how fast, and for how long still; nothing where nobody does."""
    import time
    from datetime import datetime

    from ringfence.store.atomic import writer_of

    writer = writer_of(run.path)
    if writer is None:
        return {}
    told = {
        "writing now": "process {pid} on {host} since {start}".format(
            **{"pid": "?", "host": "?", "start": "?"} | writer
        )
    }
    try:
        begun = datetime.fromisoformat(str(writer.get("start"))).timestamp()
    except ValueError:
        return told
    inputs = run.written_since(begun)
    rate = inputs / max(time.time() - begun, 1e-9)
    if not inputs:
        return told
    return told | {"inputs a second": round(rate, 3), "time left": f"about {in_words(max(left, 0) / rate)}"}
