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
    return [word for key, value in settings.items() for word in _words(key, value, _option(command, key))]


def settings_of(command: str, words: Sequence[str]) -> dict[str, Any]:
    """The other way round: words of a command line as settings; of an option that stands twice the last counts."""
    found: dict[str, Any] = {}
    left = list(words)
    while left:
        name, equals, value = left.pop(0).partition("=")
        if not name.startswith("--"):
            rule = f"must be options of {command}, each --name value"
            raise ArgumentError(name, rule, "a word that belongs to none", "Quote values that hold spaces.")
        option = _option(command, name[2:])
        key = option.opts[0][2:]
        if option.is_flag:
            found[key] = name in option.opts
        elif not equals and not left:
            raise ArgumentError(key, "must have a value", "none", f"Write {name} VALUE.")
        else:
            given = value if equals else left.pop(0)
            found[key] = [*found.get(key, []), given] if option.multiple else given
    return found


def _option(command: str, key: str) -> Any:
    options = _options(command)
    if (option := options.get(f"--{key}")) is None:
        near = get_close_matches(f"--{key}", options, 2, 0.7)
        remedy = f"Did you mean {' or '.join(one[2:] for one in near)}?" if near else f"See ringfence {command} --help."
        raise ArgumentError(key, f"must be an option of {command}", "none of that name", remedy)
    return option


def _words(key: str, value: Any, option: Any) -> list[str]:
    if value is None:
        return []
    if option.is_flag:
        if value not in (True, False, "true", "false") or f"--{key}" not in option.opts:
            name = option.opts[0][2:]
            raise ArgumentError(key, f"{name} must be true or false", repr(value), f"Write {name}: true.")
        chosen: list[str] = option.opts if value in (True, "true") else option.secondary_opts
        return chosen[:1]  # none where a switch cannot be turned off
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
    return {name: one for one in options for name in (*one.opts, *one.secondary_opts)}
