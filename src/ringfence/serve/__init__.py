"""Predictions with certificates over HTTP: a certification answers requests while they come.

served.py is the whole of it without a network: requests that are in flight share batches of one engine. app.py puts
HTTP around it, certificates.py signs what it says, client.py asks and checks.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ringfence.errors import ArgumentError

__all__ = ["extra"]


@contextmanager
def extra() -> Iterator[None]:
    """Around imports of the ``serve`` extra: says how to install it where it is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        rule, remedy = f"needs {str(error.name).partition('.')[0]}", "Install it: pip install 'ringfence[serve]'."
        raise ArgumentError("serve", rule, "not installed", remedy) from error
