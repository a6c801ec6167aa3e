"""``ringfence serve``, ``ringfence keygen`` and ``ringfence seal``."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from socket import AF_INET, AF_INET6, create_server, socket
from typing import Annotated, Any

import typer

from ringfence.cli import options as o
from ringfence.cli.console import aside, friendly, is_quiet, name_of, say, show_warning
from ringfence.cli.help import SEVERAL


def serve_command(
    certifications: Annotated[
        list[str], typer.Argument(help="Run folders or job files, each as PATH or NAME=PATH; the first answers first.")
    ],
    host: Annotated[str, typer.Option(help="Address; others than loopback ones need tokens.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 chooses one.")] = 8000,
    tokens: Annotated[
        Path | None, typer.Option(help="File of bearer tokens, one a line; also $RINGFENCE_TOKENS.")
    ] = None,
    secret: Annotated[
        Path, typer.Option(help="File of the secret that noise is drawn by; made where there is none.")
    ] = Path("ringfence.secret"),
    key: Annotated[Path | None, typer.Option(help="Private key that signs certificates (ringfence keygen).")] = None,
    jobs: Annotated[Path | None, typer.Option(help="Folder of the queue of jobs; without it there are none.")] = None,
    device: Annotated[
        str, typer.Option(help="auto, cpu, cuda, or several by commas: cuda:0,cuda:1.", metavar=f"TEXT{SEVERAL}")
    ] = "auto",
    batch: o.Batch = None,
    limit: Annotated[
        list[str] | None, typer.Option("--limit", help="NAME=VALUE of a limit, e.g. --limit seconds=5; repeat it.")
    ] = None,
    trust: Annotated[
        bool, typer.Option("--trust", help="Run the code of models that run folders name (a factory, a .pt2).")
    ] = False,
    apart: Annotated[
        bool | None,
        typer.Option("--apart/--together", help="Models in a process of their own or not; where not said: on GPUs."),
    ] = None,
    quiet: o.Quiet = False,
) -> None:
    """Answer requests over HTTP: predictions with certificates, by exactly what a run or a job file certified."""
    with friendly():
        from ringfence.serve import extra

        with extra():
            from ringfence.serve.app import create_app
        from ringfence.serve.apart import in_own_process
        from ringfence.serve.certificates import SigningKey
        from ringfence.serve.guards import check_address, read_tokens
        from ringfence.serve.served import read_secret

        known = read_tokens(tokens, os.environ.pop("RINGFENCE_TOKENS", None))  # a process of models would inherit it
        check_address(host, known)
        limits = limits_of(limit or [])
        signing = None if key is None else SigningKey.read(key)
        read_secret(secret)  # made, or refused, before anything is loaded; kept where noise is drawn, not here
        named = names_and_paths(certifications)
        execution, devices = execution_on(device, batch)
        make = partial(served_models, named, trust, secret, execution, devices, limits=limits)
        _log()
        _listening(host, port).close()  # what is taken is told before anything is loaded, which can take minutes
        names = ", ".join(name for name, _ in named)
        aside(f"loading {names}{'; compiling for a GPU can take minutes' if execution.compile is True else ''}")
        apart = execution.compile is True if apart is None else apart
        with in_own_process(make) if apart else nullcontext() as process:
            models = make() if process is None else process.models
            app = create_app(models, tokens=known, limits=limits, jobs=jobs, key=signing, loopback=not known)
            listening = _listening(host, port)
            text = f"serving {names} at {_address(host, listening)} (a page to try it; Ctrl-C stops it)"
            _run(app, listening, round(limits.drain), process, partial(aside, text))


def _run(app: Any, listening: socket, drain: int, process: Any, ready: Callable[[], None]) -> None:
    """Until it is told to stop, or its models' process, where it has one, ends by itself."""
    from ringfence.serve.host import tune_process
    from ringfence.serve.service import http_server

    server = http_server(app, drain, ready)
    if process is not None:
        process.when_lost(partial(setattr, server, "should_exit", True))
    tune_process()
    server.run(sockets=[listening])


def _log() -> None:
    """What the server tells of itself; steps by which others start and stop tell a user nothing."""
    logging.basicConfig(level=logging.WARNING if is_quiet() else logging.INFO, format="%(message)s")
    for other in ("httpx", "uvicorn.error"):
        logging.getLogger(other).setLevel(logging.WARNING)


def _address(host: str, listening: socket) -> str:
    """Where a browser finds it."""
    return f"http://{f'[{host}]' if ':' in host else host}:{listening.getsockname()[1]}/"


def _listening(host: str, port: int) -> socket:
    """A socket at the address, or why there is none."""
    from ringfence.errors import ArgumentError

    try:
        return create_server((host, port), family=AF_INET6 if ":" in host else AF_INET)
    except OSError as error:
        why = str(error.strerror).partition(" (")[0]  # Python adds the address, which is told already
        rule, received = "must be an address of this machine that is free", f"{host}:{port} ({why})"
        remedy = "Choose another --port (0 takes one that is free), or stop what listens there."
        raise ArgumentError("host, port", rule, received, remedy) from error


def execution_on(device: str, batch: str | None) -> tuple[Any, list[str]]:
    """How models work on the first device, and all devices that were named."""
    from ringfence.job_file import execution_of
    from ringfence.sampling import pick_device

    devices = [one.strip() for one in device.split(",") if one.strip()]
    execution = execution_of({"device": devices[0] if devices else "auto", "batch": batch or "auto"})
    if pick_device(execution.device).type == "cuda":
        execution = replace(execution, compile=True)  # which pays for whoever runs as long as a server
    return execution, devices


def served_models(
    named: list[tuple[str, Path]], trust: bool, secret: Path, execution: Any, devices: list[str], **how: Any
) -> list[Any]:
    """Every certification loaded, checked and ready to answer; called where they work."""
    from ringfence.serve.served import Served, read_secret
    from ringfence.serve.stored import certification_at

    warnings.showwarning = show_warning
    said = None if devices == ["auto"] else execution.device
    how = {**how, "execution": execution, "devices": devices}
    return [Served(certification_at(path, trust, said), read_secret(secret), name=name, **how) for name, path in named]


def names_and_paths(specs: list[str]) -> list[tuple[str, Path]]:
    """Of every model, each under a name of its own."""
    from ringfence.errors import ArgumentError

    named = [name_and_path(one) for one in specs]
    names = [name for name, _ in named]
    if len(set(names)) < len(names):
        raise ArgumentError("certifications", "must have names of their own", names, "Write NAME=PATH.")
    return named


def name_and_path(spec: str) -> tuple[str, Path]:
    """Of ``NAME=PATH``, or of a path, whose own name may have an = and a folder's a dot: runs/sigma=0.25."""
    name, path = name_of(spec)
    return name or (path.resolve().name if path.is_dir() else path.stem), path


def limits_of(told: list[str]) -> Any:
    """Limits with those that were named."""
    from ringfence.errors import ArgumentError, Collected, renamed
    from ringfence.serve.limits import Limits
    from ringfence.settings import settings_of

    known, given = settings_of(Limits), dict[str, Any]()
    for one in told:
        name, _, value = one.partition("=")
        if name not in known:
            raise ArgumentError("--limit", f"must be one of {', '.join(known)}", repr(name), "Write NAME=VALUE.")
        if name in given:
            raise ArgumentError(f"--limit {name}", "takes one value", f"{given[name]} and {value}", "Leave one out.")
        given[name] = known[name].parse(value)
    wrong, names = Collected(), {name: f"--limit {name}" for name in known}
    limits = wrong.ask(lambda: Limits(**given))
    wrong.problems = [
        ArgumentError(names[one.argument], renamed(one.rule, names), one.received, renamed(one.remedy, names))
        for one in wrong.problems
    ]
    wrong.tell()
    return limits


def keygen_command(
    out: Annotated[Path, typer.Argument(help="File of the private key; the public one stands beside it as OUT.pub.")],
) -> None:
    """Make an Ed25519 key that signs certificates and seals."""
    with friendly():
        from ringfence.serve.certificates import SigningKey

        made = SigningKey.make(out)
        say(f"{out}: key {made.id}; give {out}.pub to those who verify")


def seal_command(
    runs: Annotated[list[Path], typer.Argument(help="Run folders.")],
    key: Annotated[Path, typer.Option(help="Private key (ringfence keygen).")],
) -> None:
    """Verify runs and sign their manifests, as seal.json beside them; whoever changes a run breaks its seal."""
    with friendly():
        from ringfence.serve.certificates import SigningKey, seal
        from ringfence.store import RunFolder

        signing = SigningKey.read(key)
        for path in runs:
            seal(RunFolder.open(path), signing)
            say(f"{path}: sealed with the key {signing.id}")
