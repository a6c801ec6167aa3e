"""Settings: fields of a dataclass that say what they mean and which values they take.

    sigma: float = setting(0.5, "Noise level.", low=0)

Options and config come from them: ``check_settings`` in ``__post_init__`` refuses what does not fit, ``settings_of``
lists them for the command line. A field without a help is no setting.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from types import NoneType
from typing import Any, Literal, final, get_args, get_origin, get_type_hints

from ringfence.errors import ArgumentError

_WORDS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
_NAMED = {int: "whole number", float: "number", bool: "truth value", str: "text"}


def setting(
    default: Any,
    help: str,
    *,
    low: float | None = None,
    high: float | None = None,
    above: float | None = None,
    below: float | None = None,
    option: str | None = None,
    remedy: str | None = None,
) -> Any:
    """A field with its help and its bounds: low and high belong to the allowed values, above and below do not.

    option: its name among options, where it is not the field's. remedy: what the sources use, told with an error.
    """
    about = {"help": help, "low": low, "high": high, "above": above, "below": below, "option": option, "remedy": remedy}
    return field(default=default, metadata=about)


@final
@dataclass(frozen=True)
class Setting:
    """What a class says of one of its settings. kind: int, float, bool or str; choices: of a Literal."""

    name: str
    kind: type
    optional: bool
    choices: tuple[str, ...]
    default: Any
    about: Mapping[str, Any]

    @property
    def help(self) -> str:
        """One sentence."""
        return str(self.about["help"])

    @property
    def option(self) -> str:
        """Its name among options, and in errors: that of the field, unless it says otherwise."""
        return str(self.about["option"] or self.name)

    @property
    def flag(self) -> str:
        """How the command line writes it."""
        return f"--{self.option.replace('_', '-')}"

    @property
    def rule(self) -> str:
        """What its values must be."""
        if self.choices:
            return f"must be one of {', '.join(self.choices)}"
        low, high, above, below = (self.about[key] for key in ("low", "high", "above", "below"))
        least, most = low if above is None else above, high if below is None else below
        if least is not None and most is not None:
            return f"must lie in {'[' if above is None else '('}{least:g}, {most:g}{']' if below is None else ')'}"
        if least is not None:
            return f"must be at least {least:g}" if above is None else f"must be above {least:g}"
        return f"must be a {_NAMED[self.kind]}"

    def check(self, value: Any) -> None:
        """Refuse a value that does not fit."""
        if value is None and self.optional:
            return
        kinds: tuple[type, ...] = (int, float) if self.kind is float else (self.kind,)
        if not isinstance(value, kinds) or (isinstance(value, bool) and self.kind is not bool):
            self._refuse(f"must be a {_NAMED[self.kind]}", value)
        if self.choices and value not in self.choices:
            self._refuse(self.rule, value)
        if isinstance(value, int | float):
            low, high, above, below = (self.about[key] for key in ("low", "high", "above", "below"))
            fits = math.isfinite(value) and (low is None or value >= low) and (high is None or value <= high)
            if not fits or (above is not None and value <= above) or (below is not None and value >= below):
                self._refuse(self.rule, value)

    def parsed(self, text: str) -> Any:
        """A value as a user writes it."""
        try:
            return _WORDS[text.lower()] if self.kind is bool else self.kind(text)
        except (ValueError, KeyError):
            self._refuse(f"must be a {_NAMED[self.kind]}", text)

    def _refuse(self, rule: str, value: Any) -> Any:
        remedy = self.about["remedy"] or ("Leave it out." if self.default is None else f"Use {self.default}.")
        received = value if isinstance(value, int | float) else repr(value)
        raise ArgumentError(self.option, rule, received, remedy)


@cache
def settings_of(kind: Any) -> dict[str, Setting]:
    """Every setting of a dataclass by name, in the order of its fields."""
    hints = get_type_hints(kind)
    found = {}
    for one in fields(kind):
        if "help" not in one.metadata:
            continue
        options = [hint for hint in get_args(hints[one.name]) if hint is not NoneType]
        literal = get_origin(hints[one.name]) is Literal
        plain = str if literal else options[0] if options else hints[one.name]
        choices = tuple(options) if literal else ()
        optional = NoneType in get_args(hints[one.name])
        found[one.name] = Setting(one.name, plain, optional, choices, one.default, one.metadata)
    return found


def check_settings(value: Any) -> None:
    """Refuse a dataclass one of whose settings does not fit."""
    for name, one in settings_of(value.__class__).items():
        one.check(getattr(value, name))


def plain_settings(value: Any) -> dict[str, Any]:
    """The settings of a dataclass by name."""
    return {name: getattr(value, name) for name in settings_of(value.__class__)}
