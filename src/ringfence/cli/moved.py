"""Commands that were front doors of their own and are trees of ``certify`` now: each answers with its new form."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

import typer

from ringfence.cli.console import friendly

ANYTHING = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": list[str]()}

ACES = {"--certify": "certify", "--core": "core", "--select": "select", "--thetas": "theta"}
PATCHES = {
    "--patch-size": "size",
    "--patches": "count",
    "--resize": "resize",
    "--resize-kind": "kind",
    "--pad": "pad",
    "--crop": "crop",
    "--patch-stride": "stride",
    "--sampling": "sampling",
    "--reduce": "reduce",
    "--mode": "noise",
    "--form": "form",
}
CLIPS = {"--clip-frames": "frames", "--clips": "count", "--clip-stride": "stride"}


def aces_run(context: typer.Context) -> None:
    """Now: ringfence certify --model 'aces(certify=A, core=B)'."""
    told, rest = parted(context.args, ACES)
    settings = {"certify": "default", "core": "CORE", **told}
    if "theta" in settings:
        settings["theta"] = settings["theta"].replace(",", "/")
    _refuse("aces run", f"aces({_written(settings)})", rest)


def smooth_reduce_certify(context: typer.Context) -> None:
    """Now: ringfence certify --model 'patches(A, size=32, resize=36, count=4)'."""
    cut, rest = parted(context.args, CLIPS)
    told, rest = parted(rest, PATCHES)
    apart, rest = parted(rest, {"--model": "model", "--weights": "weights", "--chunk": "chunk"})
    model = apart.get("model", "default") + (f"@{apart['weights']}" if "weights" in apart else "")
    model = f"chunks({model}, frames={apart['chunk']})" if "chunk" in apart else model
    if cut:
        places: dict[str, str] = {key: told[key] for key in ("reduce", "noise", "form") if key in told}
        model = f"clips({model}, {_written({'frames': 'FRAMES', **cut, **places})})"
    elif told:
        model = f"patches({model}, {_written({'size': 'SIZE', **told})})"
    _refuse("smooth-reduce certify", model, rest)


def parted(words: Sequence[str], names: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """The values of these options under their new names, and all other words."""
    found: dict[str, str] = {}
    rest: list[str] = []
    left = list(words)
    while left:
        word = left.pop(0)
        name, equals, value = word.partition("=")
        if name in names and (equals or left):
            found[names[name]] = value if equals else left.pop(0)
        else:
            rest.append(word)
    return found, rest


def _written(settings: Mapping[str, str]) -> str:
    return ", ".join(f"{key}={value}" for key, value in settings.items())


def _refuse(old: str, tree: str, rest: Sequence[str]) -> None:
    from ringfence.errors import ArgumentError

    with friendly():
        new = shlex.join(["ringfence", "certify", "--model", tree, *rest])
        raise ArgumentError(old, "is a tree of models given to certify now", f"ringfence {old}", f"Write: {new}")
