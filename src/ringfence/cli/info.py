"""``ringfence info``: what is installed here, or what a run folder holds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ringfence.cli import options as o
from ringfence.cli.console import friendly, print_json, say_facts


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
    say_facts({key: ", ".join(map(str, one)) if isinstance(one, list) else one for key, one in answer.items()})


def _installation() -> dict[str, Any]:
    import torch

    from ringfence.classifiers.architectures import ARCHITECTURES, DENOISERS
    from ringfence.mechanisms import MECHANISMS
    from ringfence.procedures import PROCEDURES
    from ringfence.store.environment import describe_environment

    cuda = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return {
        **describe_environment(),
        "devices": ["cpu", *cuda],
        "procedures": list(PROCEDURES),
        "mechanisms": [name.replace("_", "-") for name in MECHANISMS],
        "architectures": list(ARCHITECTURES),
        "denoisers": list(DENOISERS),
    }


def _run(path: Path) -> dict[str, Any]:
    from ringfence.store import RunFolder
    from ringfence.store.config import flatten

    run = RunFolder.open(path)
    done = run.done_ids()
    expected = run.config.data.count
    return {
        "run": str(path),
        "inputs done": f"{len(done)} of {expected}" if expected else len(done),
        "finished": run.summary() is not None,
        **dict(flatten(run.config.model_dump())),
        "config_hash": run.config.digest,
        "forward plans": run.forward_plans(),
        "environments": len(run.environments()),
        "damaged parts": run.damaged,
    }
