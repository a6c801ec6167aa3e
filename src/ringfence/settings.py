"""Settings: fields of a dataclass that say what they mean and which values they take.

    sigma: float = setting(0.5, "Noise level.", above=0)

Checks, configs, the options of the command line, their help and completion all come from them: ``check_settings`` in
``__post_init__`` refuses what does not fit, ``settings_of`` lists them. A field without a help is no setting.
"""

from __future__ import annotations

import dataclasses
import math
import re
from dataclasses import MISSING, dataclass
from functools import cache
from numbers import Integral, Real
from types import NoneType
from typing import Any, Final, Literal, NamedTuple, final, get_args, get_origin, get_type_hints

from ringfence.errors import ArgumentError, Collected, did_you_mean

MOST_DRAWS: Final = 10**12
"""More draws than this no machine makes, and counts of more would not be exact."""

SMALLEST_SHARE: Final = 1e-200
"""Of a probability that tests spend, and drop, small parts of: floating point ends at 1e-308."""

LARGEST: Final = 2**63
"""Whole numbers lie below: beyond it no array and no table holds them."""

_PIXELS: Final = (0.25, 1.0)
"""Sigmas of the papers on pictures: their tables have radii in steps of the smaller."""

_BOUNDS = ("low", "high", "above", "below")
_WORDS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
_NAMED = {int: "whole number", float: "number", bool: "truth value", str: "text"}


def radius_step(sigma: float) -> float:
    """The distance of radii in tables: 0.25, as papers have it, where sigma is from 0.25 to 1.

    For other sigmas a short number (1, 2.5 or 5 times a power of ten): about sigma below, about a quarter of it above.
    """
    small, large = _PIXELS
    if not 0 < sigma < math.inf or small <= sigma <= large:
        return small
    wanted = sigma if sigma < small else small * sigma
    ten = 10.0 ** math.floor(math.log10(wanted))
    return next(float(f"{part * ten:.12g}") for part in (5.0, 2.5, 1.0, 0.5) if part * ten <= wanted * (1 + 1e-9))


def radii_by(step: float, count: int) -> tuple[float, ...]:
    """So many radii from 0 on."""
    return tuple(float(f"{step * place:.12g}") for place in range(count))  # 0.3, where 3 * 0.1 is 0.30000000000000004


def usual_radii(sigma: float) -> tuple[float, ...]:
    """The radii that tables show where nobody asks for others: 0, 0.25, 0.5, 0.75 and 1 at the sigmas of papers."""
    return radii_by(radius_step(sigma), 5)


def setting(
    default: Any = MISSING,
    help: str = "",
    *,
    low: float | None = None,
    high: float | None = None,
    above: float | None = None,
    below: float | None = None,
    option: str | None = None,
    remedy: str | None = None,
) -> Any:
    """A field with what it means: low and high belong to the allowed values, above and below do not.

    option: its name among options, where it is not the field's. remedy: what the sources use, told with an error.
    """
    bounds = {"low": low, "high": high, "above": above, "below": below}
    return dataclasses.field(default=default, metadata={"help": help, "option": option, "remedy": remedy, **bounds})


def share(default: float, *, help: str) -> Any:
    """A probability strictly between 0 and 1, of which floating point can tell a part from nothing."""
    return setting(default, help=help, low=SMALLEST_SHARE, above=0, below=1)


def count(default: int, *, help: str) -> Any:
    """A number of draws."""
    return setting(default, help=help, low=1, high=MOST_DRAWS)


def distance(default: Any = MISSING, *, help: str) -> Any:
    """A radius, or several."""
    return setting(default, help=help, low=0)


@final
@dataclass(frozen=True)
class Setting:
    """One setting: kind is int, float, bool or str; many: several of them; choices: the words it may be.

    option: its name among options and in errors.
    """

    name: str
    option: str
    kind: type
    default: Any
    help: str
    remedy: str | None = None
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

    @property
    def flag(self) -> str:
        """How the command line writes it."""
        return f"--{self.option.replace('_', '-')}"

    @property
    def metavar(self) -> str:
        """How a command line writes what is wanted."""
        kind = {int: "WHOLE NUMBER", float: "NUMBER", str: "WORD"}.get(self.kind, "VALUE")
        return f"{kind},..." if self.many else kind

    @property
    def usual(self) -> str:
        """The default as a command line would write it; empty where there is none."""
        if self.required or self.default in (None, ()):
            return ""
        return ",".join(map(str, self.default)) if isinstance(self.default, tuple) else str(self.default)

    def check(self, value: Any) -> Any:
        """The value as it is kept (lists become tuples, whole numbers floats where those are meant), or an error."""
        if (value is None and self.optional) or self.kind not in _NAMED:
            return value  # a class of one's own may have fields of other kinds, which it checks itself
        if not self.many:
            return self._one(value)
        if isinstance(value, str) or not hasattr(value, "__iter__"):
            self._refuse("must be a list of numbers", value)
        return tuple(self._one(one) for one in value)

    def parse(self, text: str) -> Any:
        """What a command line gives as text, several separated by commas; what is none is left to the check."""
        if self.many:
            return tuple(self._read(part) for part in text.split(",") if part.strip())
        return self._read(text)

    def _read(self, text: str) -> Any:
        if self.kind is bool:
            return _WORDS.get(text.lower(), text)
        if self.kind not in (int, float):
            return text
        try:
            value = float(text)
        except ValueError:
            return text
        whole = self.kind is int and value.is_integer()  # 1e4 is one
        return (int(text) if text.strip().lstrip("+-").isdecimal() else int(value)) if whole else value

    def _one(self, value: Any) -> Any:
        alike = [one for one in self.choices if one.replace("_", "-") == str(value).replace("_", "-")]
        value = alike[0] if alike else value
        if self.choices and not alike:
            self._refuse(self.rule, value, did_you_mean(str(value), self.choices, ""))
        wanted: tuple[type, ...] = {int: (Integral,), float: (Real,)}.get(self.kind, (self.kind,))
        if not isinstance(value, wanted) or (isinstance(value, bool) and self.kind is not bool):
            kind, meant = _NAMED[self.kind], without_comma(value, self.kind)
            rule = f"must be {kind}s separated by commas" if self.many else f"must be a {kind}"
            self._refuse(rule, value, f"Write {meant}." if meant else None)
        if self.kind in (int, float) and not self._inside(as_float(value)):
            self._refuse(self.rule, value)
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
    def rule(self) -> str:
        """What its values must be."""
        if self.choices:
            return f"must be one of {', '.join(self.choices)}"
        if self.above is not None and self.below is not None:
            least = "" if self.low is None else f", and be at least {self.low:g}"
            return f"must lie strictly between {self.above:g} and {self.below:g}{least}"
        if all(getattr(self, bound) is None for bound in _BOUNDS):
            return f"must be a finite {_NAMED[self.kind]}"
        least = f"[{self.low:g}" if self.low is not None else f"({self.above or 0:g}"
        if self.below is not None or self.high not in (None, MOST_DRAWS):
            return f"must lie in {least}, " + (f"{self.high:g}]" if self.high is not None else f"{self.below:g})")
        if self.low is None:
            return "must be positive and finite" if self.above == 0 else f"must be above {self.above:g}, and finite"
        return f"must be at least {self.low:g}" + (f" and at most {self.high:g}" if self.high else ", and finite")

    def _refuse(self, rule: str, value: Any, remedy: str | None = None) -> Any:
        if self.default is None:
            usual = f"Leave it out, or give what it is: {self.help}"
        else:
            usual = f"The usual value is {self.usual}." if self.default and self.usual else f"It is: {self.help}"
        received = value if isinstance(value, int | float) else repr(value)
        raise ArgumentError(self.option, rule, received, remedy or self.remedy or usual)


def as_float(value: Any) -> float:
    """A number in double precision, infinite beyond it; not-a-number of what is none, as a truth value is."""
    try:
        return math.nan if isinstance(value, bool) or not isinstance(value, Real) else float(value)
    except OverflowError:
        return math.inf


def without_comma(text: Any, kind: type) -> str | None:
    """The number that was probably meant: 0.25 by 0,25, and 1000 by 1,000 or 1e3 where numbers are whole; else None."""
    written = str(text).strip()
    if kind is int and re.fullmatch(r"\d+(\.\d+)?[eE]\+?\d{1,2}", written) and float(written).is_integer():
        return str(int(float(written)))
    if kind is int and re.fullmatch(r"\d{1,3}(,\d{3})+", written):
        return written.replace(",", "")
    return written.replace(",", ".") if kind is float and re.fullmatch(r"\d*,\d+", written) else None


@cache
def settings_of(kind: Any) -> dict[str, Setting]:
    """Every setting of a dataclass by name, in the order of its fields."""
    hints = get_type_hints(kind)
    return {one.name: _declared(one, hints[one.name]) for one in dataclasses.fields(kind) if "help" in one.metadata}


class Kind(NamedTuple):
    """What a field holds: values of type ``kind``; many: several of them; optional: or None; words: one of these."""

    kind: Any
    many: bool
    optional: bool
    words: tuple[str, ...]


def kind_of(hint: Any) -> Kind:
    """What an annotation says: int, float, bool, str, a Literal of words or a tuple of numbers; one of them or None."""
    optional = NoneType in get_args(hint)
    inner = next(part for part in get_args(hint) if part is not NoneType) if optional else hint
    many = get_origin(inner) is tuple
    words = get_args(inner) if get_origin(inner) is Literal else ()
    return Kind(str if words else get_args(inner)[0] if many else inner, many, optional, words)


def _declared(field: dataclasses.Field[Any], hint: Any) -> Setting:
    """What a field and its annotation say."""
    about, held = field.metadata, kind_of(hint)
    rules = {key: about[key] for key in _BOUNDS}
    named = (field.name, about["option"] or field.name, held.kind, field.default, about["help"], about["remedy"])
    return Setting(*named, held.many, held.optional, held.words, **rules)


@cache
def _plain_whole_numbers(kind: Any) -> dict[str, Setting]:
    """Fields without a help that are annotated as whole numbers: a class of one's own may have such."""
    hints = get_type_hints(kind)
    kinds = {int: False, int | None: True}  # whether it may be none
    return {
        one.name: Setting(
            one.name,
            one.name,
            int,
            one.default,
            "a whole number",
            optional=kinds[hints[one.name]],
            low=-LARGEST,
            high=LARGEST - 1,
        )
        for one in dataclasses.fields(kind)
        if "help" not in one.metadata and hints[one.name] in kinds
    }


def check_settings(value: Any) -> None:
    """Refuse a dataclass whose settings break their rules, or whose plain whole numbers are none, all of them together;
    keep them as declared."""
    wrong = Collected()
    for name, one in {**settings_of(value.__class__), **_plain_whole_numbers(value.__class__)}.items():
        with wrong:
            object.__setattr__(value, name, one.check(getattr(value, name)))
    wrong.tell()


def plain_settings(value: Any) -> dict[str, Any]:
    """The settings of a dataclass by name."""
    return {name: getattr(value, name) for name in settings_of(value.__class__)}
