"""Settings declare themselves: a procedure's fields say what they mean and what they may be.

Checks, the run's config, the options of the command line, their help and completion all come from here.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import MISSING, dataclass
from difflib import get_close_matches
from functools import lru_cache
from numbers import Integral, Real
from typing import Any, Final, Literal, get_args, get_origin, get_type_hints

from ringfence.errors import ArgumentError

MOST_DRAWS: Final = 10**12
"""More draws than this no machine makes, and counts of more would not be exact."""

_BOUNDS = ("low", "high", "above", "below")


def setting(
    default: Any = MISSING,
    *,
    help: str,
    low: float | None = None,
    high: float | None = None,
    above: float | None = None,
    below: float | None = None,
) -> Any:
    """A field of a procedure, with what it means; low and high are allowed themselves, above and below are not."""
    bounds = {"low": low, "high": high, "above": above, "below": below}
    return dataclasses.field(default=default, metadata={"help": help, **bounds})


def share(default: float, *, help: str) -> Any:
    """A probability strictly between 0 and 1."""
    return setting(default, help=help, above=0, below=1)


def count(default: int, *, help: str) -> Any:
    """A number of draws."""
    return setting(default, help=help, low=1, high=MOST_DRAWS)


def distance(default: Any = MISSING, *, help: str) -> Any:
    """A radius, or several."""
    return setting(default, help=help, low=0)


@dataclass(frozen=True)
class Setting:
    """One setting: kind is int, float or str; many: several of them; choices: the words it may be."""

    name: str
    kind: type
    default: Any
    help: str = ""
    many: bool = False
    optional: bool = False
    choices: tuple[str, ...] = ()
    low: float | None = None
    high: float | None = None
    above: float | None = None
    below: float | None = None

    @property
    def required(self) -> bool:
        """Whether there is no default."""
        return self.default is MISSING

    def check(self, value: Any) -> Any:
        """The value as it is kept (lists become tuples, whole numbers floats where those are meant), or an error."""
        if (value is None and self.optional) or self.kind not in (int, float, str):
            return value  # a procedure of one's own may have fields of other kinds, which it checks itself
        if not self.many:
            return self._one(value)
        if isinstance(value, str) or not hasattr(value, "__iter__"):
            raise ArgumentError(self.name, "must be a list of numbers", repr(value), self._remedy)
        return tuple(self._one(one) for one in value)

    def parse(self, text: str) -> Any:
        """What a command line gives as text, several separated by commas; what is no number is left to the check."""
        if not self.many:
            return self._number(text)
        return tuple(self._number(part) for part in text.split(",") if part.strip())

    def _number(self, text: str) -> Any:
        if self.kind not in (int, float):
            return text
        try:
            value = float(text)
            whole = self.kind is int and value.is_integer()  # 1e4 is one
            return (int(text) if text.strip().lstrip("+-").isdecimal() else int(value)) if whole else value
        except ValueError:
            return text

    @property
    def metavar(self) -> str:
        """How a command line writes what is wanted."""
        kind = {int: "WHOLE NUMBER", float: "NUMBER", str: "WORD"}.get(self.kind, "VALUE")
        return f"{kind},..." if self.many else kind

    @property
    def usual(self) -> str:
        """The default as a command line would write it; empty where there is none."""
        return "" if self.required or self.default in (None, ()) else _written(self.default)

    def _one(self, value: Any) -> Any:
        if self.kind is str:
            if value not in self.choices:
                rule, near = (
                    f"must be one of {', '.join(self.choices)}",
                    get_close_matches(str(value), self.choices, n=1),
                )
                remedy = f"Did you mean {near[0]}?" if near else self._remedy
                raise ArgumentError(self.name, rule, repr(value), remedy)
            return value
        if not isinstance(value, Integral if self.kind is int else Real) or isinstance(value, bool):
            rule = "must be a whole number" if self.kind is int else "must be a number"
            raise ArgumentError(self.name, rule, repr(value), self._remedy)
        if not self._inside(float(value)):
            raise ArgumentError(self.name, self._rule, value, self._remedy)
        return self.kind(value)

    def _inside(self, value: float) -> bool:
        return (
            math.isfinite(value)
            and (self.low is None or value >= self.low)
            and (self.high is None or value <= self.high)
            and (self.above is None or value > self.above)
            and (self.below is None or value < self.below)
        )

    @property
    def _rule(self) -> str:
        if self.above is not None and self.below is not None:
            return f"must lie strictly between {self.above:g} and {self.below:g}"
        least = f"[{self.low:g}" if self.low is not None else f"({self.above or 0:g}"
        if self.below is not None or self.high not in (None, MOST_DRAWS):
            return f"must lie in {least}, " + (f"{self.high:g}]" if self.high is not None else f"{self.below:g})")
        if self.above == 0:
            return "must be positive and finite"
        return f"must be at least {self.low:g}" + (f" and at most {self.high:g}" if self.high else ", and finite")

    @property
    def _remedy(self) -> str:
        if self.default is None:
            return f"Leave it out, or give what it is: {self.help}"
        return f"The usual value is {self.usual}." if self.default and not self.required else f"It is: {self.help}"


def _written(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


@lru_cache(maxsize=64)
def settings_of(kind: Any) -> tuple[Setting, ...]:
    """The settings of a procedure class, in the order of its fields; a plain dataclass field is one too."""
    hints = get_type_hints(kind)
    return tuple(_declared(field, hints[field.name]) for field in dataclasses.fields(kind))


def check_settings(procedure: Any) -> None:
    """Refuse a procedure one of whose settings breaks its rule, and keep the rest as declared."""
    kind: Any = type(procedure)
    for one in settings_of(kind):
        object.__setattr__(procedure, one.name, one.check(getattr(procedure, one.name)))


def fitting(kind: type, name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that are given, None being none; all that this procedure does not know or lacks in one error."""
    given = {key: value for key, value in settings.items() if value is not None}
    declared = {one.name: one for one in settings_of(kind)}
    unknown = [key for key in given if key not in declared]
    missing = [one.name for one in declared.values() if one.required and one.name not in given]
    if unknown:
        received = ", ".join(str(given[key]) for key in unknown)
        noun = "is no setting" if len(unknown) == 1 else "are no settings"
        remedy = f"It knows {', '.join(f'`{one}`' for one in declared)}."
        raise ArgumentError(", ".join(unknown), f"{noun} of the {name} procedure", received, remedy)
    if missing:
        remedy = f"Give {', '.join(f'`{one}`' for one in missing)}, or another procedure."
        raise ArgumentError(", ".join(missing), f"is needed by the {name} procedure", "none", remedy)
    return given


def _declared(field: dataclasses.Field[Any], hint: Any) -> Setting:
    """What a field says; annotated as int, float, a Literal of words, a tuple of numbers, or one of them or None."""
    parts = [part for part in get_args(hint) if part is not type(None)]
    optional = type(None) in get_args(hint)
    inner = parts[0] if optional else hint
    many = get_origin(inner) is tuple
    words = get_args(inner) if get_origin(inner) is Literal else ()
    kind = str if words else get_args(inner)[0] if many else inner
    rules = {key: field.metadata.get(key) for key in _BOUNDS}
    return Setting(field.name, kind, field.default, field.metadata.get("help", ""), many, optional, words, **rules)
