"""Results go to standard output, everything else to standard error; errors end with exit code 2."""

from __future__ import annotations

import errno
import json
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from textwrap import fill
from typing import IO, Any, Final, NoReturn, TypeVar

import typer
from rich.console import Console
from rich.text import Text

from ringfence.errors import ArgumentError, Collected, Problems, RingfenceError, one_line, printable, renamed
from ringfence.signals import Terminated


class PlainConsole(Console):
    """Strings are printed as they are written: no markup, no emoji, and control characters are shown, not obeyed.

    Colours are for Text and styles, which our own code makes.
    """

    def __init__(self, stderr: bool = False, **how: Any) -> None:
        super().__init__(stderr=stderr, highlight=False, markup=False, emoji=False, **how)

    def render_str(self, text: str, **options: Any) -> Text:
        """Every string on its way to the terminal comes by here, those in the cells of tables too."""
        return super().render_str(printable(text), **options)

    def print(self, *objects: Any, crop: bool = False, **how: Any) -> None:
        """Lines that are too long for the terminal are broken by it, never cut: every digit of a number counts."""
        super().print(*objects, crop=crop, **how)

    def on_broken_pipe(self) -> None:
        """Nobody reads on, as behind ``| head``: rich would leave as code does that calls sys.exit."""
        leave_unread(self.file)


T = TypeVar("T")
results = PlainConsole()
remarks = PlainConsole(stderr=True)

INTERRUPTED, UNREAD, TERMINATED = 130, 141, 143
UNWRITTEN = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), "Make room"),
    errno.EIO: "Print to another place",  # a terminal that was closed says so, too
}
_WHOLE: Final[dict[str, Any]] = {"break_long_words": False, "break_on_hyphens": False, "replace_whitespace": False}
"""How text is broken: between words, which stay whole and can be pasted."""
_taken: ContextVar[list[Any] | None] = ContextVar("taken", default=None)
"""Takes the jobs of commands that are only checked; None where commands are run."""


def ready(job: Any) -> None:
    """A command calls this once all its options are checked; if only a check was asked for, the command ends here."""
    if (taken := _taken.get()) is not None:
        taken.append(job)
        raise typer.Exit


def is_check() -> bool:
    """Whether a command is only checked; who asked for that reports what is wrong."""
    return _taken.get() is not None


@contextmanager
def only_checked() -> Iterator[list[Any]]:
    """Commands in the block end where they are ready, before anything is loaded; what they would do is listed."""
    taken: list[Any] = []
    token = _taken.set(taken)
    try:
        yield taken
    finally:
        _taken.reset(token)


def fail(message: str) -> NoReturn:
    """Print an error as plain text and leave."""
    _marked("error", "bold red", message)
    raise typer.Exit(2)


def leave_unread(stream: IO[str]) -> NoReturn:
    """End where nobody reads a stream any more, with the exit code of a program that SIGPIPE ended."""
    _drop(stream)
    raise typer.Exit(UNREAD)


@contextmanager
def to_a_reader() -> Iterator[None]:
    """Around code that writes to standard output itself: end quietly where nobody reads it."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        leave_unread(sys.stdout)


@contextmanager
def quiet_when_unread() -> Iterator[None]:
    """Around the whole program: where nobody reads a help or an error of usage, typer and rich would leave with 1."""
    try:
        yield
    except SystemExit as over:
        if isinstance(over.__context__, BrokenPipeError):
            raise SystemExit(UNREAD) from None
        raise


@contextmanager
def told_when_full() -> Iterator[None]:
    """Say so where the disk is full or the terminal is gone. Never leave with 1, which is an answer about a run."""
    try:
        yield
    except OSError as error:
        if (remedy := UNWRITTEN.get(error.errno or 0)) is None:
            raise
        _drop(sys.stdout)
        what = "standard output" if error.filename is None else str(error.filename)
        with suppress(OSError):  # that may lead to the same disk
            _marked("error", "bold red", f"{what}: must be written; got {error.strerror}. {remedy} and run it again.")
        raise SystemExit(2) from None


def _drop(stream: IO[str]) -> None:
    """Let a stream lead nowhere: what is in its buffer would fail again at the end of the program."""
    with suppress(OSError, ValueError), open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), stream.fileno())


def remark(message: str) -> None:
    """A line on standard error."""
    remarks.print(_broken(_indented(message)), soft_wrap=True)


def aside(message: str) -> None:
    """A remark, unless the command that runs was asked to tell nothing on its way."""
    if not is_quiet():
        remark(message)


def hint(message: str) -> None:
    """A remark that ends in a command: one line, never broken, so that it can be pasted."""
    remarks.print(one_line(message), soft_wrap=True)


def relay(message: str) -> None:
    """The same for one of the library, whose arguments are named as the options of the command that runs."""
    aside(renamed(message, _options()))


def print_json(content: Any) -> None:
    """The result as one JSON object: NaN is none, and what JSON does not know is written as text."""
    text = json.dumps(content, indent=2, allow_nan=False, default=str)
    with to_a_reader():
        typer.echo(text)


def say(line: str) -> None:
    """One line of the result, whatever names it holds; never broken, so that it can be pasted."""
    results.print(one_line(line), soft_wrap=True)


def say_facts(facts: Mapping[str, object], indent: str = "") -> None:
    """Names and what they are, a line each, on a terminal broken between words; the values stand below each other."""
    width = max(map(len, facts), default=0)
    for name, value in facts.items():
        line = one_line(f"{indent}{name:<{width}}  {'none' if value is None else value}")
        hanging = " " * (len(indent) + width + 2)
        shown = fill(line, results.width, subsequent_indent=hanging, **_WHOLE) if results.is_terminal else line
        results.print(shown, soft_wrap=True)


def _marked(word: str, style: str, message: str) -> None:
    told = Text(_broken(f"{word}: {_indented(printable(message))}"))
    told.stylize(style, 0, len(word))
    remarks.print(told, soft_wrap=True)


def _indented(message: str) -> str:
    """No name in a message can begin a line of its own."""
    return message.replace("\n", "\n  ")


def _broken(message: str) -> str:
    """Broken between words on a terminal, longer ones left whole; elsewhere as it is, one line for programs."""
    if not is_terminal():
        return message
    return "\n".join(fill(line, remarks.width, subsequent_indent="  ", **_WHOLE) for line in message.split("\n"))


@contextmanager
def friendly(continue_with: str | None = None) -> Iterator[None]:
    """Turn what a user can mend into a message, and Ctrl-C into a clean end that says how to go on."""
    from ringfence.cli.progress import show_loops

    with warnings.catch_warnings():
        warnings.showwarning = show_warning
        try:
            with show_loops():
                yield
        except RingfenceError as error:
            if is_check():
                raise
            fail(as_options(error))
        except SystemExit as error:
            # Our own ways to leave are typer's: this came from a model or a factory, and must not look like success.
            fail(f"code that this command ran called sys.exit({error.code!r}), so it did not finish.")
        except KeyboardInterrupt as signal:
            name, code = ("SIGTERM", TERMINATED) if isinstance(signal, Terminated) else ("Ctrl-C", INTERRUPTED)
            told = f" by {name}; what was written is kept."
            hint = f" {continue_with}" if continue_with else ""
            remarks.print(Text.assemble("\n", ("stopped", "yellow"), told, hint), soft_wrap=True)
            raise typer.Exit(code) from None


def as_options(error: RingfenceError) -> str:
    """The message of an error, whose arguments are named as the options of the command that runs, where they are."""
    if isinstance(error, Problems):
        return "\n".join([f"{len(error.problems)} problems:", *(f"- {as_options(one)}" for one in error.problems)])
    return error.told(_options())


def together(make: Callable[[], T], *also: Callable[[], object], wrong: Collected | None = None) -> T:
    """What make returns. Where it refuses, also is called too, so that all that is wrong is told at once.

    wrong: mistakes that were found before.
    """
    wrong = wrong or Collected()
    with wrong:
        made = make()
    for one in also if wrong.problems and not is_check() else ():
        wrong.ask(one)
    wrong.tell()
    return made


def _context() -> Any:
    """Of the command that runs, None where none does; older versions of typer have it from click."""
    home = vars(typer.main)
    return (home.get("get_current_context") or home["click"].get_current_context)(silent=True)


def is_quiet() -> bool:
    """Whether the command that runs was asked to tell nothing on its way."""
    context = _context()
    if context and not context.params:  # its words are not read yet
        return "--quiet" in sys.argv
    return bool(context and context.params.get("quiet"))


def _options() -> dict[str, str]:
    """Parameter, or option without dashes -> its longest spelling (``best_lane`` -> ``--best-lane``), of the command
    that runs; first those that the library calls otherwise, of whichever command a remedy speaks."""
    known = {"num_classes": "--classes", "split_alpha": "--split-alpha", "stop": "--max"}
    context = _context()
    parameters = context.command.get_params(context) if context else []  # with those that procedures declare
    options = [one for one in parameters if one.param_type_name == "option"]
    spelled = {one.name: max(one.opts, key=len) for one in options}
    if any("--no-check" in (*one.opts, *one.secondary_opts) for one in options):  # elsewhere a job file says it
        known["check=False"] = "--no-check"
    return known | {option.removeprefix("--"): option for option in spelled.values()} | spelled


def numbers(text: str, name: str) -> list[float]:
    """A comma-separated list of numbers, as the user wrote it."""
    wrong = ArgumentError(name, "must be numbers separated by commas", repr(text), "Write e.g. 0,0.25,0.5.")
    try:
        found = [float(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise wrong from None
    if not found:
        raise wrong
    return found


def name_of(spec: str | Path) -> tuple[str, Path]:
    """Of ``NAME=PATH``; no name where it is a path alone, which may have an = itself: runs/sigma=0.25."""
    name, equals, place = str(spec).partition("=")
    return (name.strip(), Path(place)) if equals and not os.path.exists(spec) else ("", Path(spec))


def named_paths(specs: Sequence[Path]) -> tuple[list[Path], dict[str, str]]:
    """The paths of ``PATH`` or ``NAME=PATH``, and the names by path."""
    found = [name_of(one) for one in specs]
    return [path for _, path in found], {str(path): name for name, path in found if name}


def written_numbers(text: str | None, name: str) -> list[float] | None:
    """The same for an option that may be left out."""
    return None if text is None else numbers(text, name)


def whole_numbers(text: str, name: str) -> tuple[int, ...]:
    """A comma-separated list of whole numbers; 1e4 is one."""
    found = numbers(text, name)
    if not all(number.is_integer() for number in found):
        raise ArgumentError(name, "must be whole numbers", repr(text), "Write e.g. 1000,10000,125000.")
    return tuple(int(number) for number in found)


def show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: object = None,
    line: str | None = None,
) -> None:
    """As the standard library calls it: one plain line, marked as a warning; none for who writes against libraries."""
    if issubclass(category, DeprecationWarning | FutureWarning):
        return
    _marked("warning", "yellow", str(message))


def is_terminal() -> bool:
    """Whether progress can be drawn."""
    return sys.stderr.isatty()
