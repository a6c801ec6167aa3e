"""``ringfence smooth-reduce``: what it did is a tree of patches or clips given to ``certify``."""

from __future__ import annotations

import typer

from ringfence.cli.moved import ANYTHING, smooth_reduce_certify

smooth_reduce_app = typer.Typer(help="Moved: patches(...) and clips(...) are models of certify.")
smooth_reduce_app.command("certify", context_settings=ANYTHING)(smooth_reduce_certify)


@smooth_reduce_app.callback()
def _root() -> None:
    """So that certify stays a command of its own."""
