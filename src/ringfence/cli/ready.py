"""A command's job without its work: everything it was told is checked, and handed over before anything is loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from difflib import get_close_matches
from functools import cache
from typing import Any

import typer

from ringfence.errors import ArgumentError

ClickException: Any = next(one for one in typer.BadParameter.__mro__ if one.__name__ == "ClickException")
"""What a wrong command line raises: of the click that typer uses, which may be its own."""
_asked: ContextVar[list[Any] | None] = ContextVar("asked", default=None)


def ready(job: Any) -> None:
    """Called by a command once all it was told is checked: where only that was asked for, it ends here."""
    if (taken := _asked.get()) is not None:
        taken.append(job)
        raise typer.Exit


def is_check() -> bool:
    """Whether a command is only checked, so that what is wrong belongs to whoever asked."""
    return _asked.get() is not None


def job_of(words: Sequence[str]) -> Any:
    """What the words of a command describe; a RingfenceError says what is wrong with them."""
    taken: list[Any] = []
    token = _asked.set(taken)
    try:
        _program().main(list(words), "ringfence", standalone_mode=False)
    except ClickException as error:
        told = error.format_message().strip().rstrip(".")
        raise ArgumentError(words[0], "must be a command line it takes", told, "See its --help.") from None
    finally:
        _asked.reset(token)
    return taken[0] if taken else None


def words_of(command: str, settings: Mapping[str, Any]) -> list[str]:
    """Settings by the names of a command's options, without dashes, as words of a command line.

    true and false are switches, null leaves an option out, a list is written by commas, or one after the other where
    the option may stand more than once; a mapping is a list of name=value.
    """
    options = _options(command)
    words: list[str] = []
    for key, value in settings.items():
        if (option := options.get(f"--{key}")) is None:
            near = get_close_matches(f"--{key}", options, 2, 0.7)
            remedy = (
                f"Did you mean {' or '.join(one[2:] for one in near)}?" if near else f"See ringfence {command} --help."
            )
            raise ArgumentError(key, f"must be an option of {command}", "none of that name", remedy)
        words += _words(key, value, option)
    return words


def _words(key: str, value: Any, option: Any) -> list[str]:
    if value is None:
        return []
    if option.is_flag:
        if value not in (True, False, "true", "false"):
            raise ArgumentError(key, "must be true or false", repr(value), f"Write {key}: true.")
        off = option.secondary_opts[:1]  # a switch that cannot be turned off is left out
        return [f"--{key}"] if value in (True, "true") else off
    values = [f"{name}={one}" for name, one in value.items()] if isinstance(value, dict) else value
    texts = list(map(str, values)) if isinstance(values, list) else [str(values)]
    if any(isinstance(one, bool | dict | list) for one in (values if isinstance(values, list) else [values])):
        raise ArgumentError(key, "must be a text, a number or a list of them", repr(value), "See docs/sweep.md.")
    given = texts if option.multiple else [",".join(texts)]
    # A value that begins with a dash would be taken for an option.
    return [word for one in given for word in ([f"--{key}={one}"] if one.startswith("-") else [f"--{key}", one])]


@cache
def _program() -> Any:
    from ringfence.cli import app

    return typer.main.get_command(app)


@cache
def _options(command: str) -> dict[str, Any]:
    found: Any = _program()
    for word in command.split():
        found = found.commands[word]
    options = [one for one in found.params if one.param_type_name == "option"]
    return {name: one for one in options for name in one.opts}
