"""Options that procedures declare: one for every setting of any of them, with its help, read from their fields."""

from __future__ import annotations

from inspect import Parameter, Signature
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

if TYPE_CHECKING:
    from ringfence.procedures import Setting

COHENS = {"n": "--N", "n0": "--N0"}
"""Names of Cohen's program, which are accepted too."""

_KEPT = "ringfence.settings"


class ProcedureCommand(TyperCommand):
    """A command to which the settings of all procedures are given; ``given_settings`` hands them over.

    The options are made when the command is parsed or explained, not when the program starts: reading procedures
    takes longer than all the rest of ``ringfence --help``.
    """

    def get_params(self, ctx: Any) -> list[Any]:
        """The command's own parameters, and the procedures'."""
        *own, helping = super().get_params(ctx)
        return [*own, *_options(), helping]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Settings are taken out of the parameters, so that the command's function need not list them."""
        rest = super().parse_args(ctx, args)
        ctx.meta[_KEPT] = {name: ctx.params.pop(name) for name in _declared()}
        return rest


def given_settings(ctx: typer.Context) -> dict[str, Any]:
    """What was given on the command line, as numbers where those are meant; None where an option was left out."""
    texts, declared = ctx.meta[_KEPT], _declared()
    return {
        name: None if text is None else next(iter(declared[name].values())).parse(text) for name, text in texts.items()
    }


def _declared() -> dict[str, dict[str, Setting]]:
    """Every setting by name, then by the procedure that has it; alike wherever it occurs but for default and help."""
    from ringfence.procedures import PROCEDURES, declared

    found: dict[str, dict[str, Setting]] = {}
    for procedure in PROCEDURES:
        for one in declared(procedure):
            found.setdefault(one.name, {})[procedure] = one
    return found


def _options() -> list[Any]:
    """One option per setting, made by typer from a signature."""

    def command(**given: str | None) -> None:
        """Never called."""

    made = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[str | None, _option(name, each)])
        for name, each in _declared().items()
    ]
    command.__signature__ = Signature(made)  # type: ignore[attr-defined]
    command.__annotations__ = {one.name: one.annotation for one in made}
    app = typer.Typer(add_completion=False)
    app.command()(command)
    return list(typer.main.get_command(app).params)


def _option(name: str, each: dict[str, Setting]) -> Any:
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
    metavar = next(iter(each.values())).metavar
    choices = sorted({word for one in each.values() for word in one.choices})
    return typer.Option(
        *flags,
        metavar=metavar,
        help=". ".join(lines) + ".",
        autocompletion=(lambda incomplete: [word for word in choices if word.startswith(incomplete)])
        if choices
        else None,
        rich_help_panel="Settings of procedures",
    )
