"""Writes docs/cli-reference.md from the command line itself: every command, every option, its help text.

python tools/cli_reference.py [--check]
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer.main
from typer import Context

from ringfence.cli import app
from ringfence.cli.help import usual

PAGE = Path(__file__).resolve().parents[1] / "docs" / "cli-reference.md"


def reference() -> str:
    """The page."""
    lines = ["# Command reference", "", "Every command and option; written by `tools/cli_reference.py`.", ""]
    for name, command in commands(typer.main.get_command(app), "ringfence"):
        words = [f"`{one.name.upper()}`" for one in command.params if one.param_type_name == "argument"]
        lines += [f"## {name}", "", (command.help or "").strip().split("\n\n")[0], ""]
        if words:
            lines += [f"Arguments: {', '.join(words)}.", ""]
        lines += ["| option | meaning |", "|---|---|"]
        for option in command.get_params(Context(command)):
            if option.param_type_name == "option" and option.name not in ("help", "help_all"):
                flags = ", ".join(f"`{flag}`" for flag in option.opts)
                default = usual(option)
                shown = "" if default in (None, False, "") or option.required else f" (default `{default}`)"
                needed = " **required**" if option.required else ""
                lines.append(f"| {flags} | {cell(option.help)}{shown}{needed} |")
        lines.append("")
    return "\n".join(lines)


def commands(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Every leaf command with its full name."""
    inner = getattr(command, "commands", None)
    if inner is None:
        yield name, command
        return
    for word in sorted(inner):
        yield from commands(inner[word], f"{name} {word}")


def cell(text: str | None) -> str:
    return " ".join((text or "").split()).replace("|", "\\|")


def main() -> None:
    page = reference()
    if "--check" in sys.argv:
        sys.exit(0 if PAGE.read_text(encoding="utf-8") == page else f"{PAGE.name} is out of date: run {sys.argv[0]}")
    PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
