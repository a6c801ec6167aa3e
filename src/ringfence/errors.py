"""One tree of exceptions, and text that a terminal shows and does not obey.

Every message names the argument, the rule, the value received and the remedy. Names of files, factories, lanes and
labels come from elsewhere: wherever they are shown they are made printable here.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


class RingfenceError(Exception):
    """A mistake a user can mend; the command line prints it and exits with code 2.

    argument: what was wrong, as the user wrote it (``sigma``, ``out FOLDER``, a path, which may be called like one);
    rule: what must hold; received: what was found instead; remedy: what to do now. Where rule or remedy name another
    argument it stands in backticks: whoever has other names for arguments finds it there.
    """

    def __init__(self, argument: str | Path, rule: str, received: object, remedy: str) -> None:
        self.argument = str(argument)
        self.is_path = isinstance(argument, Path)
        self.rule = rule
        self.received = received
        self.remedy = remedy
        super().__init__(self.told({}))

    def __reduce__(self) -> tuple[object, ...]:
        """For another process: made of its parts again, not of its message; what was received is told there."""
        return _again, (type(self), self.args, {**vars(self), "received": str(self.received)})

    def told(self, names: Mapping[str, str]) -> str:
        """The message for a reader who calls arguments by these names, as the command line does (``--size``)."""
        written = (one.partition(" ") for one in self.argument.split(", "))
        said = ", ".join(names.get(name, name) + space + value for name, space, value in written)
        argument = self.argument if self.is_path else said
        rule, remedy = (renamed(part, names) for part in (self.rule, self.remedy))
        received = str(self.received)
        end = "" if received.endswith("?") else "."  # of several problems the last may end in a question
        return printable(f"{argument}: {rule}; got {received}{end} {remedy}")


def _again(kind: type[RingfenceError], message: tuple[object, ...], parts: Mapping[str, object]) -> RingfenceError:
    """An error as another process raised it, whatever its kind is made of."""
    error = kind.__new__(kind, *message)
    vars(error).update(parts)
    return error


class ArgumentError(RingfenceError):
    """A setting outside its range, or settings that contradict each other."""


class ModelError(RingfenceError):
    """A model that cannot be found, built or loaded."""


class ClassifierError(RingfenceError):
    """A classifier whose answers cannot be certified: wrong shape, rows that influence each other."""


class DataError(RingfenceError):
    """Inputs or labels that cannot be read or do not fit the classifier."""


class StoreError(RingfenceError):
    """A run folder or a log that cannot be written, read or continued."""


class AlphaError(RingfenceError):
    """More failure probability was asked for than the budget holds."""


class Problems(RingfenceError):
    """Several mistakes at once: whoever mends one would only meet the next."""

    def __init__(self, problems: Sequence[RingfenceError]) -> None:
        self.problems = tuple(problems)
        listed = "\n".join(f"- {one}" for one in problems)
        super().__init__("certification", f"has {len(problems)} problems", listed, "")
        self.args = (f"{len(problems)} problems:\n{listed}",)


class Collected:
    """Mistakes of the parts of one thing, gathered so that all of them are told together: those made in its block."""

    def __init__(self) -> None:
        self.problems: list[RingfenceError] = []

    def __enter__(self) -> Collected:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if isinstance(error, RingfenceError):
            self.problems += error.problems if isinstance(error, Problems) else [error]
        return isinstance(error, RingfenceError)

    def ask(self, make: Callable[[], T]) -> T | None:
        """What is made, or None where that is refused."""
        with self:
            return make()
        return None

    def tell(self) -> None:
        """Raise what was gathered, each mistake once: a single one as itself."""
        found = list({(one.argument, one.rule, str(one.received)): one for one in self.problems}.values())
        if found:
            raise found[0] if len(found) == 1 else Problems(found)


def check_word(argument: str, value: object, known: Collection[str], remedy: str) -> None:
    """Refuse a word that is none of the known ones."""
    if value not in tuple(known):  # of a table: what cannot be looked up is no word either
        rule = f"must be {' or '.join(known)}" if len(known) == 2 else f"must be one of {', '.join(known)}"
        raise ArgumentError(argument, rule, repr(value), remedy)


def package(name: str, argument: str, remedy: str) -> Any:
    """A module of a package that not everybody has installed; argument: what was asked for that needs it."""
    try:
        return import_module(name)
    except ImportError as error:
        root = name.partition(".")[0]
        received = "not installed" if str(error.name).partition(".")[0] == root else error
        raise ArgumentError(argument, f"needs the package {root}", received, remedy) from error


LOAD_PLUGIN = "load the plugin that has it: ringfence --plugin FILE COMMAND, or rf.load_plugins([FILE])."
"""How a part that is not known here may become so."""


def did_you_mean(
    asked: str,
    known: Iterable[str],
    otherwise: str,
    cutoff: float = 0.6,
    most: int = 1,
    written: Callable[[str], str] = str,
) -> str:
    """The remedy for a name that nobody knows: the nearest known ones, ``most`` of them, as ``written`` shows them; or
    ``otherwise``, where none is near."""
    from difflib import get_close_matches

    near = get_close_matches(asked, list(known), most, cutoff)
    if not near:
        return otherwise
    also = f" Or {LOAD_PLUGIN}" if LOAD_PLUGIN in otherwise else ""
    return f"Did you mean {' or '.join(map(written, near))}?{also}"


def first_line(error: BaseException) -> str:
    """What another library raised, in a line: its kind, and how its message begins."""
    return f"{type(error).__name__}: {next(iter(str(error).strip().splitlines()), '')}"


def renamed(text: str, names: Mapping[str, str]) -> str:
    """The text, whose arguments in backticks have other names for its reader."""
    for name, other in names.items():
        text = text.replace(f"`{name}`", other)
    return text


def printable(text: str) -> str:
    """The text with control characters, terminal escapes and direction marks written out (``\\x1b``).

    Line ends stay: messages have several lines. Inside a name they are written out by one_line.
    """
    if text.isprintable():
        return text
    return "".join(one if _plain(one) else one.encode("unicode_escape").decode() for one in text)


def one_line(text: object) -> str:
    """The same for a name, which could otherwise bring lines of its own into what is printed."""
    return printable(str(text)).replace("\n", "\\n")


def cell(value: object) -> object:
    """A value for a CSV file that no spreadsheet takes for a formula: such text gets an apostrophe in front."""
    if not isinstance(value, str) or len(value) < 2 or not value.startswith(_FORMULA):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value


def _plain(one: str) -> bool:
    return one == "\n" or one.isprintable() or unicodedata.category(one) == "Zs"
