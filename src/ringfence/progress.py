"""How far long work is, told to whoever listens: loops say that they may take long, the command line shows them.

    with listening(tell):
        for part in followed(parts, "reading"): ...   # tell("reading", share of the work that is done)

Loops within loops are parts of the outermost one, each of whose steps counts the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import ParamSpec, Protocol, TypeVar

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
What = ParamSpec("What")


class Counted(Protocol[T_co]):
    """Items whose number is known: a list, a range, a data set."""

    def __len__(self) -> int:
        """How many."""

    def __iter__(self) -> Iterator[T_co]:
        """One after the other."""


Listener = Callable[[str, float], None]
"""Takes the name of the work and the share of it that is done; 1 at its end."""

_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)
_part: ContextVar[tuple[str, float, float] | None] = ContextVar("part", default=None)
"""The outermost loop's name, the share done before this step of it, and the share that the step is."""


@contextmanager
def listening(tell: Listener | None) -> Iterator[None]:
    """While this lasts, work tells how far it is; None: nobody listens."""
    before = _listener.get()
    _listener.set(tell)
    try:
        yield
    finally:
        _listener.set(before)


def followed(items: Counted[T], doing: str) -> Iterator[T]:
    """The items one after the other, while whoever listens is told how many are done."""
    tell, outer = _listener.get(), _part.get()
    if tell is None or not len(items):
        yield from items
        return
    name, low, width = outer or (doing, 0.0, 1.0)
    try:
        for done, item in enumerate(items):
            share = low + width * done / len(items)
            tell(name, share)
            _part.set((name, share, width / len(items)))
            yield item
    finally:
        _part.set(outer)
        if outer is None:
            tell(name, 1.0)


def all_of(*told: Callable[What, None]) -> Callable[What, None]:
    """One function that tells all of them."""

    def tell(*what: What.args, **named: What.kwargs) -> None:
        for one in told:
            one(*what, **named)

    return tell
