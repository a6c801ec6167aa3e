"""Options that procedures declare: one for every setting of any of them, with its help, read from their fields."""

from __future__ import annotations

from collections.abc import Iterable
from inspect import Parameter
from typing import TYPE_CHECKING, Any, final

import typer

from ringfence.cli.derived import DerivedCommand, parameter

if TYPE_CHECKING:
    from ringfence.procedures import Setting

COHENS = {"n": "--N", "n0": "--N0"}
"""Names of Cohen's program, which are accepted too."""


@final
class ProcedureCommand(DerivedCommand):
    """A command that takes a procedure and a mechanism by name, and the settings of all procedures."""

    brief = True

    def derived(self) -> list[Parameter]:
        """--procedure, --mechanism and one option per setting."""
        from ringfence.mechanisms import MECHANISMS
        from ringfence.procedures import PROCEDURES

        proofs = [name.replace("_", "-") for name in MECHANISMS]
        tests = f"{', '.join(PROCEDURES)}; without it, sequential with a radius and fixed without one."
        return [
            parameter("procedure", str, help=tests, words=list(PROCEDURES)),
            parameter(
                "mechanism",
                str,
                help=f"{', '.join(proofs)}, best-of:a+b, or all (default {proofs[0]}, under other noise its l1 form).",
                words=[*proofs, "best-of:", "all"],
            ),
            *_parameters(PROCEDURES),
        ]


@final
class PredictCommand(DerivedCommand):
    """A command with the settings of PREDICT."""

    brief = True

    def derived(self) -> list[Parameter]:
        """One option per setting."""
        return _parameters(["predict"])


def given_settings(ctx: typer.Context) -> dict[str, Any]:
    """What was given on the command line, as numbers where those are meant; None where an option was left out."""
    from ringfence.procedures import PROCEDURES

    found = {}
    for name, each in _declared(PROCEDURES).items():
        text, meant = ctx.obj.get(name), each.get(ctx.obj.get("procedure") or "", next(iter(each.values())))
        found[name] = None if text is None else meant.parse(text)
    return found


def _declared(procedures: Iterable[str]) -> dict[str, dict[str, Setting]]:
    """Every setting by name, then by the procedure that has it; alike wherever it occurs but for default and help."""
    from ringfence.procedures import declared

    found: dict[str, dict[str, Setting]] = {}
    for procedure in procedures:
        for one in declared(procedure):
            found.setdefault(one.name, {})[procedure] = one
    return found


def _parameters(procedures: Iterable[str]) -> list[Parameter]:
    return [_option(name, each) for name, each in _declared(procedures).items()]


def _option(name: str, each: dict[str, Setting]) -> Parameter:
    """Flags and help, which says for which procedures the setting means what."""
    told: dict[str, dict[str, list[str]]] = {}
    for procedure, one in each.items():
        words = one.help.rstrip(".") + (f": {', '.join(one.choices)}" if one.choices else "")
        told.setdefault(words, {}).setdefault(one.usual, []).append(procedure)
    lines = []
    for words, usual in told.items():
        named = [", ".join(names) + (f": {value}" if value else "") for value, names in usual.items()]
        lines.append(f"{words} ({'; '.join(named)})")
    flags = [f"--{name.replace('_', '-')}", *([COHENS[name]] if name in COHENS else [])]
    return parameter(
        name,
        str,
        *flags,
        help=". ".join(lines) + ".",
        panel="Settings of procedures",
        metavar=next(iter(each.values())).metavar,
        words=sorted({word for one in each.values() for word in one.choices}),
    )
