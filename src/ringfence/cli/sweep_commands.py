"""The commands a sweep is made of, and the program that runs them: ``python -m ringfence.cli.sweep_commands``."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any, final

import typer

from ringfence.beginning import keep_freed_memory
from ringfence.cli.console import INTERRUPTED, TERMINATED, friendly, only_checked
from ringfence.cli.help import ClickException
from ringfence.cli.progress import show_training
from ringfence.errors import ArgumentError, did_you_mean
from ringfence.sources import flush_files, have_run, read_sources
from ringfence.sweep.job import Checked, speaks_as
from ringfence.sweep.worker import answer_work

PROGRAM = (sys.executable, "-P", "-m", "ringfence.cli.sweep_commands")
BEGINS = {"train": 1.0, "certify": 0.25}
"""Minutes of a GPU before the first step of a command that is compiled or recorded."""
SUMMARY = "summary.json"
"""What a run folder holds once the run has ended."""


def run(commands: list[list[str]]) -> int:
    """One command, or several trainings at the same time in this process; the exit code."""
    try:
        if len(commands) > 1:
            return train_together(commands)
        return int(_program().main(commands[0], "ringfence", standalone_mode=False) or 0)
    finally:
        if (compiler := sys.modules.get("torch._dynamo")) is not None:
            compiler.reset()  # what one command compiled would be tried, and refused, by all that follow
        flush_files()


def train_together(commands: list[list[str]]) -> int:
    """Each ends with the weights that its own command gives, and goes on where it stopped, whoever ran it before."""
    from ringfence.training.side_by_side import run_together

    with friendly(), ExitStack() as shown:
        runs = [job_of(words) for words in commands]
        report = {run.out: shown.enter_context(show_training(run, named=speaks_as(run.out))) for run in runs}
        run_together(runs, lambda run, training, status: report[run.out](training, status))
    return 0


def answered(commands: list[list[str]]) -> int:
    """The exit code of what was run, whatever came of it: the commands after it may still run."""
    try:
        return run(commands)
    except typer.Exit as left:
        return left.exit_code
    except ClickException as error:
        print(f"error: {error.format_message()}", file=sys.stderr, flush=True)
        return 2
    except Exception as error:
        print(f"error: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        return 1


def job_of(words: Sequence[str]) -> Any:
    """What the words of a command describe; a RingfenceError says what is wrong with them."""
    try:
        with only_checked() as taken:
            _program().main(list(words), "ringfence", standalone_mode=False)
    except ClickException as error:
        told = error.format_message().strip().rstrip(".")
        raise ArgumentError(words[0], "must be a command line it takes", told, "See its --help.") from None
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


@final
class SweepCommands:
    """``train``, and those that write a run folder."""

    names = ("train", "certify", "predict", "attack")
    words, settings = staticmethod(words_of), staticmethod(settings_of)

    def check(self, words: Sequence[str]) -> Checked:
        """What the command makes, and which trainings may share a process with it."""
        described, out = job_of(words), Path(words[list(words).index("--out") + 1])
        begins = BEGINS.get(words[0], 0.0) if "--compile" in words or "--graph" in words else 0.0
        if words[0] != "train":
            return Checked((out / ("attack.json" if words[0] == "attack" else SUMMARY),), None, begins)
        return Checked(tuple(described.files), described.process, begins, 1 / max(described.job.epochs, 1))


def _option(command: str, key: str) -> Any:
    options = _options(command)
    if (option := options.get(f"--{key}")) is None:
        otherwise = f"See ringfence {command} --help."
        remedy = did_you_mean(f"--{key}", options, otherwise, cutoff=0.7, most=2, written=lambda one: one[2:])
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


def work() -> None:
    """Be a worker."""
    read_sources()
    keep_freed_memory()
    answer_work(answered, (INTERRUPTED, TERMINATED), again=lambda: not have_run())


if __name__ == "__main__":
    work()
