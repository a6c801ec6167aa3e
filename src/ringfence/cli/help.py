"""How a command explains itself: everyday options in panels (what, how, where, output), then examples.

``--help-all`` shows every option. Words are never broken: a flag too long for its column takes a line of its own.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from inspect import Parameter
from textwrap import TextWrapper
from typing import Annotated, Any, ClassVar

import typer
from typer.core import TyperCommand

from ringfence.settings import without_comma

_RAISED = {one.__name__: one for one in typer.BadParameter.__mro__}
UsageError: Any = _RAISED["UsageError"]
ClickException: Any = _RAISED["ClickException"]
"""What a wrong option raises, and any wrong command line: of the click that typer uses, which may be its own."""

_PANELS = {
    "What": (
        "model weights members vote member_weights weights_on consensus prefixes singles classes mean std "
        "data split limit skip stop_index size range no_check"
    ),
    "How": "sigma radius n n0 alpha procedure mechanism noise noise_form lattice seed strict split_alpha",
    "Where": "device fast precision batch compile autotune engine unlocked",
    "Output": "out csv as_json quiet log save radii norm coordinates",
}
_PANEL_OF = {name: panel for panel, names in _PANELS.items() for name in names.split()}
_RANKS = {name: rank for rank, name in enumerate(_PANEL_OF)}
_EVERYDAY = {
    "model": "timm:NAME, torchvision:NAME, hf:FOLDER, onnx:FILE, file.py:factory, a checkpoint, zoo:NAME or default.",
    "data": "An image folder, file.npz, mnist:PATH, cifar10:PATH, imagenet:PATH or default.",
    "classes": None,
    "limit": None,
    "sigma": None,
    "radius": "Prove this radius; without it, the largest that can be proved.",
    "n": "Draws per input, at most.",
    "alpha": "Allowed failure probability per input.",
    "procedure": "How radii are proved; without it sequential with --radius, else fixed.",
    "device": None,
    "fast": None,
    "precision": None,
    "out": None,
    "csv": None,
    "as_json": None,
}
"""What ``--help`` shows of commands that certify, and in which words if not in its own."""
_BEFORE = "--plugin stands before the command: ringfence --plugin FILE COMMAND ..."
_FLAGS = 26
SEVERAL = ",..."
"""Ends what is written in place of a value, where an option takes several by commas."""
_KINDS = {"str": "TEXT", "text": "TEXT", "int": "N", "integer": "N", "float": "X", "path": "PATH", "list[str]": "TEXT"}

EXAMPLES = {
    "certify": (
        "ringfence certify --sigma 0.5 --radius 0.5 --out runs/first",
        "ringfence certify --model net.py:make --data pictures --sigma 0.25 --n 10000 --out run",
        "ringfence certify --model timm:resnet50 --data pictures --sigma 0.25 --radius 0.5 --out runs/resnet50",
    ),
    "predict": ("ringfence predict --sigma 0.5 --out runs/answers",),
    "plan": ("ringfence plan --sigma 0.5 --radius 0.5",),
    "metrics": ("ringfence metrics runs/first --radii 0,0.25,0.5",),
    "compare": ("ringfence compare runs/a runs/b",),
    "report": ("ringfence report runs/a runs/b --out report.html",),
    "plot": ("ringfence plot runs/a --kind curve --out curve.pdf",),
    "train": ("ringfence train --data default --sigma 0.25 --out nets/a",),
    "attack": ("ringfence attack runs/first --out runs/first",),
    "verify": ("ringfence verify runs/first",),
    "gate": ("ringfence gate runs/first --certified 0.60@0.5 --confidence 0.95",),
}
"""By command."""


def completing(*words: str) -> Callable[[str], list[str]]:
    """What a shell completes an option's value to."""
    return lambda incomplete: [word for word in words if word.startswith(incomplete)]


class HelpfulCommand(TyperCommand):
    """A command whose help is laid out here; brief: it has more options than a screen holds, and shows a few."""

    brief: ClassVar[bool] = False

    def get_params(self, ctx: Any) -> list[Any]:
        """With --help-all, where --help leaves options out."""
        own = super().get_params(ctx)
        return [*own[:-1], _help_all(), *own[-1:]] if self.brief else own

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """As usual, but all wrong options are told together, with what they got."""
        if not ctx.resilient_parsing and (
            wrong := _wrong_options(self, ctx, list(args)) or _lost(self, ctx, list(args))
        ):
            raise UsageError("\n".join(wrong), ctx)
        return super().parse_args(ctx, args)

    def wrong_fields(self, given: Mapping[str, Any]) -> list[str]:
        """What is wrong with options that are checked later, when the others are right."""
        return []

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Options, then arguments as they are called below; typer has another form for each kind."""
        arguments = [one for one in self.get_params(ctx) if one.param_type_name == "argument"]
        return ["[OPTIONS]", *(_metavar(one) if one.required else f"[{_metavar(one)}]" for one in arguments)]

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the everyday options."""
        formatter.write(self.explained(ctx, everyday=True))

    def explained(self, ctx: Any, everyday: bool) -> str:
        """Usage, what it does, options by panel, examples; everyday: without those that few need."""
        shown = [one for one in self.get_params(ctx) if not getattr(one, "hidden", False)]
        options = [one for one in shown if one.param_type_name == "option"]
        few = everyday and self.brief
        kept = sorted([one for one in options if one.name in _EVERYDAY or one.required] if few else options, key=_rank)
        width = max(60, min(shutil.get_terminal_size().columns, 100))
        lines = [f"Usage: {ctx.command_path} {' '.join(self.collect_usage_pieces(ctx))}", ""]
        lines += _paragraphs(self.help or "", width)
        arguments = [one for one in shown if one.param_type_name == "argument" and one.help]
        lines += _panel("Arguments", [(_metavar(one), one.help) for one in arguments], width)
        for panel in dict.fromkeys([*_PANELS, "Options", *map(_place, kept)]):
            own = [one for one in kept if _place(one) == panel and one.name not in ("help", "help_all")]
            lines += _panel(panel, [(_flags(one), _help_with_default(one, few)) for one in own], width)
        if self.name in EXAMPLES:
            lines += [_heading("Examples"), *(f"  {line}" for line in _commands(EXAMPLES[self.name], width)), ""]
        if few:
            hidden = len(options) - len(kept) - 2  # help and help-all are known by now
            lines += [f"{hidden} more options: {ctx.command_path} --help-all"]
        return "\n".join(lines).rstrip() + "\n"


def _wrong_options(command: Any, ctx: Any, words: list[str]) -> list[str]:
    """What is wrong with options: names that are none, values that are missing or of another kind."""
    wrong: list[str] = []
    while True:
        try:
            given = command.make_parser(ctx).parse_args(args=list(words))[0]
            break
        except UsageError as error:
            name = getattr(error, "option_name", None)
            place = next((place for place, word in enumerate(words) if word.partition("=")[0] == name), None)
            if place is None:
                return wrong
            wrong.append(_BEFORE if name == "--plugin" else error.format_message())
            del words[place]
    for one in command.get_params(ctx):
        if one.param_type_name == "option" and one.name in given and not one.is_eager:
            try:
                one.handle_parse_result(ctx, given, [])
            except UsageError as error:
                meant = without_comma(given[one.name], {"N": int, "X": float}.get(_metavar(one), str))
                remedy = f" Write {meant}." if meant else ""
                wrong.append(f"{error.format_message().removesuffix('.')}; got {given[one.name]!r}.{remedy}")
    return [*wrong, *command.wrong_fields(given)] if wrong else []


def _lost(command: Any, ctx: Any, words: list[str]) -> list[str]:
    """Values that would get lost: empty ones, all but the last of an option that takes one, and switches on and off."""
    parser = type(command.make_parser(ctx))(ctx)
    known = command.get_params(ctx)
    for one in map(copy, known):
        one.multiple = one.param_type_name == "option"  # so that the parser keeps what each of them got
        one.add_to_parser(parser, ctx)
    given = parser.parse_args(args=words)[0]
    wrong = []
    for one in known:
        values = [" ".join(got) if isinstance(got, tuple) else got for got in _listed(given.get(one.name))]
        name = max(one.opts, key=len) if one.param_type_name == "option" else _metavar(one)
        if any(isinstance(value, str) and not value.strip() for value in values):
            wrong.append(f"{name}: must have a value; got an empty one. Give it one, or leave it out.")
        if one.param_type_name != "option" or one.multiple:
            continue
        if one.is_flag:
            values = [(one.opts if on else one.secondary_opts)[0] for on in dict.fromkeys(values)]
        if len(values) > 1:
            several = _metavar(one).endswith(SEVERAL)
            remedy = f"Write {name} {','.join(values)}." if several else "Keep the one that you mean."
            wrong.append(f"{name}: must be given once; got {' and '.join(values)}. {remedy}")
    return wrong


def _listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else [] if value is None else [value]


def _help_all() -> Any:
    """The option, as typer makes it of a signature."""
    from ringfence.cli.derived import options_of

    def show(ctx: typer.Context, asked: bool) -> None:
        if asked and not ctx.resilient_parsing:
            command: Any = ctx.command
            typer.echo(command.explained(ctx, everyday=False))
            raise typer.Exit

    told = typer.Option("--help-all", is_eager=True, expose_value=False, callback=show, help="Show every option.")
    (made,) = options_of(
        [Parameter("help_all", Parameter.KEYWORD_ONLY, default=False, annotation=Annotated[bool, told])]
    )
    return made


def _place(option: Any) -> str:
    """Its own panel, if it is not an everyday option."""
    own: str | None = getattr(option, "rich_help_panel", None)
    return (own if own and option.name not in _EVERYDAY else _PANEL_OF.get(option.name)) or "Options"


def _rank(option: Any) -> int:
    """Place within its panel; options of no panel stay in their order."""
    return _RANKS.get(option.name, len(_RANKS))


def _flags(option: Any) -> str:
    words = ", ".join(sorted(option.opts, key=len, reverse=True)) + "".join(f"/{one}" for one in option.secondary_opts)
    return words if getattr(option, "is_flag", False) else f"{words} {_metavar(option)}"


def _metavar(parameter: Any) -> str:
    """What is written in place of a value: its kind in a letter or a word; of arguments their name, RUN... of runs."""
    if parameter.metavar:
        return str(parameter.metavar)
    if parameter.param_type_name == "argument":
        name = str(parameter.name).upper()
        return name if parameter.nargs == 1 else f"{name.removesuffix('S')}..."
    held = getattr(parameter, "type_descriptor", None)  # older versions of typer have click's types
    kind = getattr(held.annotation, "__name__", "") if held else parameter.type.name
    return _KINDS.get(kind.lower(), "TEXT")


def usual(option: Any) -> Any:
    """What an option is if it is left out, as far as somebody says: its own default, or that of what it stands for."""
    default = option.default if not callable(option.default) else None
    return option.show_default if default is None and isinstance(option.show_default, str) else default


def _help_with_default(option: Any, few: bool) -> str:
    default = usual(option)
    told = (few and _EVERYDAY.get(option.name)) or (option.help or "").strip()
    if option.required:
        return f"{told} Required."
    plain = default not in (None, False, True, "", ()) and "default" not in told
    return f"{told.removesuffix('.')} (default {default})." if plain else told


def _heading(name: str) -> str:
    return typer.style(name, bold=True)


def _panel(name: str, rows: Iterable[tuple[str, str]], width: int) -> list[str]:
    """Two columns, the second wrapped between words."""
    indent = " " * (_FLAGS + 2)
    lines: list[str] = []
    for flags, told in rows:
        first = f"  {flags:<{_FLAGS - 1}} " if len(flags) < _FLAGS else indent
        if len(flags) >= _FLAGS:
            lines += _wrapped(flags, width, "  ", "      ")
        lines += _wrapped(told, width, first, indent) or [first.rstrip()]
    return [_heading(name), *lines, ""] if lines else []


def _paragraphs(text: str, width: int) -> list[str]:
    return [line for part in text.strip().split("\n\n") for line in (*_wrapped(" ".join(part.split()), width), "")]


def _wrapped(text: str, width: int, first: str = "", rest: str = "") -> list[str]:
    shape = TextWrapper(
        width, initial_indent=first, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False
    )
    return shape.wrap(text)


def _commands(examples: Sequence[str], width: int) -> list[str]:
    """Examples that can be pasted: one that is too long goes on after a backslash."""
    lines: list[str] = []
    for example in examples:
        kept = example.replace(" --", "\0--").replace(" ", "\1").replace("\0", " ")  # an option stays with its value
        pieces = [piece.replace("\1", " ") for piece in _wrapped(kept, width - 4, rest="    ")]
        lines += [f"{piece} \\" for piece in pieces[:-1]] + pieces[-1:]
    return lines
