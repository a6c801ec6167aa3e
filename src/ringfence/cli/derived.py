"""Commands whose options come from declared fields: of procedures, of trainings and their objectives, of groups."""

from __future__ import annotations

import dataclasses
import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from inspect import Parameter, Signature, signature
from typing import TYPE_CHECKING, Annotated, Any, final, get_type_hints

import typer
import typer.main

from ringfence.cli.help import HelpfulCommand, completing
from ringfence.errors import Collected
from ringfence.extending import load_plugins

if TYPE_CHECKING:
    from ringfence.settings import Setting


class DerivedCommand(HelpfulCommand, ABC):
    """A command with further options; what they got is the context's object, a dictionary by their names.

    They are made when somebody asks for them, not when the program starts: reading the fields imports more than all
    the rest of ``ringfence --help``.
    """

    _params: list[Any]
    _derived: list[Any]

    @abstractmethod
    def derived(self) -> list[Parameter]:
        """The further options, as parameters that typer reads; None where they are left out."""

    @property
    def params(self) -> list[Any]:
        """Those of the function, and those of the fields: one list, which the parser changes."""
        if not self._derived:
            load_plugins()  # a shell that completes calls no command before
            own = {one.name for one in self._params}  # a field that is called like one of them keeps its default
            self._derived = options_of([one for one in self.derived() if one.name not in own])
            self._params += self._derived
        return self._params

    @params.setter
    def params(self, written: list[Any]) -> None:
        self._params, self._derived = written, []

    def invoke(self, ctx: Any) -> Any:
        """Call the function, which need not list the fields."""
        ctx.obj = {one.name: ctx.params.pop(one.name) for one in self._derived}
        return super().invoke(ctx)


def parameter(
    name: str,
    kind: Any,
    *flags: str,
    help: str,
    panel: str | None = None,
    metavar: str | None = None,
    words: Sequence[str] = (),
) -> Parameter:
    """An option without a default of its own, so that what stands behind it keeps its; words: completes to these."""
    completed = completing(*words) if words else None
    told = typer.Option(*flags, help=help, metavar=metavar, autocompletion=completed, rich_help_panel=panel)
    return Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, told])


def field_option(name: str, one: Setting, panel: str | None = None, help: str | None = None) -> Parameter:
    """The option of a field, whose help names choices and default; a switch can be turned off too.

    Lists are taken as text, which the setting parses.
    """
    default = "" if one.default is False or not one.usual else f"default {one.usual}"
    more = "; ".join(part for part in (", ".join(one.choices), default) if part)
    told = f"{(help or one.help).removesuffix('.')} ({more})." if more else help or one.help
    flag = f"{one.flag}/{one.flag.replace('--', '--no-', 1)}" if one.kind is bool else one.flag
    kind, metavar = (str, one.metavar) if one.many else (one.kind, None)
    return parameter(name, kind, flag, help=told, panel=panel, metavar=metavar, words=one.choices)


def options_of(parameters: Sequence[Parameter]) -> list[Any]:
    """Options as typer makes them of a signature."""

    def fields(**given: Any) -> None:
        """Only its signature counts."""

    fields.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    fields.__annotations__ = {one.name: one.annotation for one in parameters}
    made = typer.Typer(add_completion=False)
    made.command()(fields)
    return list(typer.main.get_command(made).params)


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

        proofs = [one.spelled for one in MECHANISMS.values()]
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

    def wrong_fields(self, given: Mapping[str, Any]) -> list[str]:
        """Settings of the procedure, which are numbers or words as it says."""
        wrong = Collected()
        for meant, text in _given(given):
            wrong.ask(partial(meant.check, meant.parse(text)))
        return [one.told({one.argument: f"--{one.argument.replace('_', '-')}"}) for one in wrong.problems]


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

    return dict.fromkeys(_declared(PROCEDURES)) | {one.name: one.parse(text) for one, text in _given(ctx.obj)}


def _given(options: Mapping[str, Any]) -> list[tuple[Setting, str]]:
    """The settings that were given, each as the procedure that was named means it, and the text that they got."""
    from ringfence.procedures import PROCEDURES

    named = {name: each for name, each in _declared(PROCEDURES).items() if options.get(name) is not None}
    meant = [each.get(options.get("procedure") or "", next(iter(each.values()))) for each in named.values()]
    return [(one, options[name]) for name, one in zip(named, meant, strict=True)]


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


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """The command with every parameter of a dataclass type spread into one option per field.

    Typer reads the signature, so that is what is rewritten: each field keeps its own annotation and default.
    """
    hints = get_type_hints(command, include_extras=True)
    parameters: list[Parameter] = []
    groups: dict[str, tuple[Callable[..., Any], list[str]]] = {}
    for name, parameter in signature(command).parameters.items():
        kind = hints[name]
        if not dataclasses.is_dataclass(kind):
            parameters.append(parameter.replace(annotation=kind, kind=Parameter.KEYWORD_ONLY))
            continue
        types, fields = get_type_hints(kind, include_extras=True), dataclasses.fields(kind)
        groups[name] = (kind, [field.name for field in fields])  # type: ignore[assignment]
        for field in fields:
            default = Parameter.empty if field.default is dataclasses.MISSING else field.default
            option = Parameter(field.name, Parameter.KEYWORD_ONLY, default=default, annotation=types[field.name])
            parameters.append(option)

    @functools.wraps(command)
    def spread(**given: Any) -> None:
        for name, (build, fields) in groups.items():
            given[name] = build(**{field: given.pop(field) for field in fields})
        command(**given)

    spread.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    spread.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return spread
