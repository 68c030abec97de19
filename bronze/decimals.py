"""Numbers from their own decimal text: exact, or not taken at all."""

from __future__ import annotations

import math
import re
from decimal import ROUND_HALF_UP, Context, Decimal

_NUMBER = re.compile(r"[+-]?(?:[0-9]{1,40}(?:\.[0-9]{0,40})?|\.[0-9]{1,40})(?:[eE][+-]?[0-9]{1,3})?")
_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,18}")
_CONTEXT = Context(prec=120)
_LIMIT = 1 << 63
_FEW_DIGITS = 18
# Times lie within 146 years of 1970 (1823 to 2116), so that the sum or difference of any two of them fits 64 bits.
MOST_NS = 1 << 62


def parse_integer(text: str) -> int | None:
    """A whole number of 64 bits that would be written just so again; none for anything else."""
    if _WHOLE.fullmatch(text) is None:
        return None
    return fit_int64(int(text))


def fit_int64(value: object) -> int | None:
    """A whole number that 64 bits hold; none for anything else, a yes or no among it."""
    return value if isinstance(value, int) and not isinstance(value, bool) and -_LIMIT <= value < _LIMIT else None


def scale_decimal(text: str, factor: int) -> tuple[int | None, bool]:
    """A decimal text times a factor as a whole number (halves away from zero), and whether nothing was rounded."""
    if len(text) <= _FEW_DIGITS and text.isascii() and text.isdigit():
        value = int(text) * factor
        return (value, True) if value < _LIMIT else (None, False)
    if _NUMBER.fullmatch(text) is None:
        return None, False
    exact = _CONTEXT.multiply(Decimal(text), Decimal(factor))
    if not -_LIMIT <= exact < _LIMIT:
        return None, False
    rounded = exact.to_integral_value(ROUND_HALF_UP, _CONTEXT)
    found = fit_int64(int(rounded))
    return found, found is not None and rounded == exact


def fit_nanoseconds(value: object) -> int | None:
    """A whole number of nanoseconds that is a time or a duration within those years; none for anything else."""
    found = fit_int64(value)
    return found if found is not None and -MOST_NS < found < MOST_NS else None


def parse_nanoseconds(text: str, factor: int) -> tuple[int | None, bool]:
    """A decimal text times a factor as such a time or duration, and whether nothing was rounded."""
    value, is_exact = scale_decimal(text, factor)
    found = fit_nanoseconds(value)
    return found, is_exact and found is not None


def parse_number(text: str) -> tuple[float | None, bool]:
    """The nearest double of a decimal text, and whether the double's own shortest text is that number."""
    if _NUMBER.fullmatch(text) is None:
        return None, False
    nearest = float(text)
    if not math.isfinite(nearest):
        return None, False
    return nearest, Decimal(repr(nearest)) == Decimal(text)
