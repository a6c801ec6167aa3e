"""Grids and braces: one entry of a sweep file as many jobs, each with its own values."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

MOST_JOBS = 5_000
"""Jobs of one entry at most."""
LONGEST = 20_000
"""Characters that braces may grow a text to."""
_BRACE = re.compile(r"\{([A-Za-z][A-Za-z0-9_-]*)\}")
Values = Mapping[str, Any]


def is_plain(value: Any) -> bool:
    """Whether it is one word on a command line, or says that there is none."""
    return value is None or isinstance(value, str | bool | int | float)


def combinations(each: Any) -> Iterator[dict[str, Any]]:
    """Every assignment of values: of one mapping all combinations, of a list of mappings those of each in turn."""
    for one in each if isinstance(each, list) else [each or {}]:
        if not isinstance(one, dict):
            raise ValueError("each must be a mapping of lists of values, or a list of such mappings")
        lists = [value if isinstance(value, list) else [value] for value in one.values()]
        if not all(is_plain(value) for values in lists for value in values):
            raise ValueError("each holds texts and numbers, or lists of them")
        if math.prod(map(len, lists)) > MOST_JOBS:
            raise ValueError(f"each makes more than {MOST_JOBS:,} jobs")
        for values in itertools.product(*lists):
            yield dict(zip(one, values, strict=True))


def filled(value: Any, known: Values) -> Any:
    """The value with every {name} replaced; a text that is nothing but {name} becomes what the name stands for."""
    if isinstance(value, dict):
        return {key: filled(one, known) for key, one in value.items()}
    if isinstance(value, list):
        return [filled(one, known) for one in value]
    if not isinstance(value, str):
        return value
    for _ in range(10):  # what a name stands for may hold names
        names = _BRACE.findall(value)
        if not names:
            return value
        if missing := [name for name in names if name not in known]:
            raise ValueError(f"nothing says what {{{missing[0]}}} is")
        if value == f"{{{names[0]}}}" and not isinstance(known[names[0]], str):
            return known[names[0]]
        value = _BRACE.sub(lambda found: text_of(known[found[1]]), value)
        if len(value) > LONGEST:
            raise ValueError("braces make a text that is too long")
    raise ValueError(f"{value[:60]!r} holds names that stand for each other")


def text_of(value: Any) -> str:
    """A value as it is written on a command line; a list by commas."""
    if isinstance(value, list):
        return ",".join(map(text_of, value))
    if isinstance(value, dict):
        raise ValueError("a mapping has no place inside a text: name it by `use`")
    return str(value).lower() if isinstance(value, bool) else str(value)
