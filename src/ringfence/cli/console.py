"""Results go to standard output, everything else to standard error; errors end with exit code 2."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import typer
from rich.console import Console

from ringfence.errors import RingfenceError

results = Console(highlight=False)
remarks = Console(stderr=True, highlight=False)

INTERRUPTED = 130


def fail(message: str, code: int = 2) -> NoReturn:
    """Print an error as plain text and leave."""
    remarks.print(f"[bold red]error[/]: {_escape(message)}", soft_wrap=True)
    raise typer.Exit(code)


def remark(message: str) -> None:
    """A line on standard error."""
    remarks.print(_escape(message), soft_wrap=True)


@contextmanager
def friendly(continue_with: str | None = None) -> Iterator[None]:
    """Turn what a user can mend into a message, and Ctrl-C into a clean end that says how to go on."""
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        try:
            yield
        except RingfenceError as error:
            fail(str(error))
        except KeyboardInterrupt:
            hint = f" {continue_with}" if continue_with else ""
            remarks.print(f"\n[yellow]stopped[/] by Ctrl-C; nothing that was finished is lost.{hint}", soft_wrap=True)
            raise typer.Exit(INTERRUPTED) from None


def numbers(text: str, name: str) -> list[float]:
    """A comma-separated list of numbers, as the user wrote it."""
    from ringfence.errors import ArgumentError

    try:
        return [float(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise ArgumentError(name, "must be numbers separated by commas", repr(text), "Write e.g. 0,0.25,0.5.") from None


def written_numbers(text: str | None, name: str) -> list[float] | None:
    """The same for an option that may be left out."""
    return numbers(text, name) if text else None


def whole_numbers(text: str, name: str) -> tuple[int, ...]:
    """A comma-separated list of whole numbers; 1e4 is one."""
    from ringfence.errors import ArgumentError

    found = numbers(text, name)
    if not all(number.is_integer() for number in found):
        raise ArgumentError(name, "must be whole numbers", repr(text), "Write e.g. 1000,10000,125000.")
    return tuple(int(number) for number in found)


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: object = None,
    line: str | None = None,
) -> None:
    remarks.print(f"[yellow]warning[/]: {_escape(str(message))}", soft_wrap=True)


def _escape(text: str) -> str:
    from rich.markup import escape

    return escape(text)


def is_terminal() -> bool:
    """Whether progress can be drawn."""
    return sys.stderr.isatty()
