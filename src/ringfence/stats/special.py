"""Special functions of scipy, which is imported when one is first called: help and completion need none of them."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any


def _named(name: str) -> Callable[..., Any]:
    def function(*arguments: Any, **options: Any) -> Any:
        return getattr(import_module("scipy.special"), name)(*arguments, **options)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"As ``scipy.special.{name}``."
    return function


bdtr, betainc, betaincc, betainccinv, betaln, log_ndtr, ndtr, ndtri = map(
    _named, ("bdtr", "betainc", "betaincc", "betainccinv", "betaln", "log_ndtr", "ndtr", "ndtri")
)
