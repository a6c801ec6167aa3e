"""Numbers as they are shown: what was proved is never rounded up.

From repr, not from the exact binary value: 0.378 must stay 0.378, and repr reads back as the very same float.
"""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal

_ANY = Context(prec=400)
"""Room for all digits of any float."""


def rounded_down(value: float, digits: int, up: bool = False) -> float:
    """The largest number of so many significant digits that is not above value; up: the smallest not below."""
    rounding = ROUND_CEILING if up else ROUND_FLOOR
    return float(Context(prec=digits, rounding=rounding).create_decimal(_exactly(value)))


def written_down(value: float, places: int, up: bool = False) -> str:
    """The largest number of so many decimals that is not above value; up: the smallest not below. What is not finite
    as it is."""
    if not math.isfinite(value):
        return f"{value}"
    rounded = _exactly(value).quantize(Decimal(1).scaleb(-places), ROUND_CEILING if up else ROUND_FLOOR, _ANY)
    return f"{rounded:f}"


def written(value: float) -> str:
    """In six significant digits at most, not above value; in full where that would only be a float that just misses a
    short number: 0.7 + 0.1 is 0.7999999999999999, not 0.799999."""
    short = rounded_down(value, 6)
    missed = value != short and math.isclose(value, rounded_down(value, 6, up=True), rel_tol=1e-12)
    return repr(float(value)) if missed else f"{short:g}"


def confidence(alpha: float) -> str:
    """1 - alpha in ten significant digits at most, not above it."""
    return f"{Context(prec=10, rounding=ROUND_FLOOR).subtract(Decimal(1), _exactly(alpha)).normalize():f}"


def _exactly(value: float) -> Decimal:
    return Decimal(repr(float(value)))
