"""Text from elsewhere (names of files, factories, lanes, labels) in a form that a terminal shows and does not obey."""

from __future__ import annotations

import unicodedata

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


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
