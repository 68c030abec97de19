"""Numbers and texts as a person reads them: three digits with a unit, and nothing in a name that is not to be seen."""

from __future__ import annotations

import math
import re
import unicodedata
from typing import TypeGuard

from lake.sealing import TOKEN

NOTHING = "–"  # noqa: RUF001  what stands where there is no value
_TIMES = (("ns", 1), ("µs", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000))
_SIZES = (("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30))
_TOKEN_LETTERS = 8
_THOUSAND = 999.5  # rounds up to four digits
_MANY, _IN_FULL = 1e15, 1e19  # beyond these, a power of ten is easier to read; whole numbers of 64 bits are in full
# Widths of letters in ems, on the wide side of what system fonts have: rather cut early than overlap.
_NARROW, _WIDE = frozenset(" .,:;'|!ijlftrI()[]/-"), frozenset("mwMW@%")


def format_duration(time_ns: float | None) -> str:
    """Nanoseconds in the unit that leaves at most three digits before the point."""
    return _scale(time_ns, _TIMES)


def format_size(bytes_count: float | None) -> str:
    """Bytes in powers of 1024."""
    return _scale(bytes_count, _SIZES)


def format_change(time_ns: float | None) -> str:
    """A difference of times, with its sign."""
    return f"+{format_duration(time_ns)}" if finite(time_ns) and time_ns > 0 else format_duration(time_ns)


def format_percent(fraction: float | None) -> str:
    """A fraction in percent; what is too small for two decimals says so and is not 0."""
    if not finite(fraction):
        return NOTHING
    if 0 < abs(fraction) < 0.0001:
        return "<0.01 %"
    return f"{_digits(fraction * 100)} %"


def format_ratio(times: float | None) -> str:
    """How many times as long."""
    return f"{_digits(times)}×" if finite(times) else NOTHING  # noqa: RUF001


def format_number(value: float | None) -> str:
    """A whole number in full, with thousands set apart; one with a fraction to three digits."""
    if not finite(value):
        return NOTHING
    is_whole = abs(value) < _IN_FULL and value == int(value)
    return f"{int(value):,}".replace("-", "−") if is_whole else _digits(value)  # noqa: RUF001


def format_count(count: int, noun: str) -> str:
    """A count with its noun, in the plural where it must be."""
    return f"{format_number(count)} {noun}{'' if count == 1 else 's'}"


def finite(value: float | None) -> TypeGuard[float]:
    """Whether there is a number at all."""
    return value is not None and math.isfinite(value)


def legible(text: str) -> str:
    """A text in one line, without what steers a terminal, a parser or the direction of letters; tokens are cut."""
    sealed = re.fullmatch(TOKEN, text)
    if sealed:
        return f"sealed:{sealed[1]}:{sealed[2][:_TOKEN_LETTERS]}…"
    return "".join(char if char.isprintable() else " " for char in text)


def width(text: str, px: float) -> float:
    """How wide a text will be, about, in a sans serif of that size."""
    return px * sum(map(_ems, text))


def clip_text(text: str, most_px: float, px: float) -> str:
    """A text that fits the room there is."""
    if width(text, px) <= most_px:
        return text
    room, kept = most_px - px, []
    for char in text:
        room -= width(char, px)
        if room < 0:
            break
        kept.append(char)
    return "".join(kept).rstrip() + "…"


def _ems(char: str) -> float:
    if char in _NARROW:
        return 0.36
    if char in _WIDE or unicodedata.east_asian_width(char) in {"W", "F"}:
        return 1.0
    return 0.68 if char.isupper() else 0.61


def _scale(value: float | None, units: tuple[tuple[str, int], ...]) -> str:
    if not finite(value):
        return NOTHING
    if value == 0:
        return "0"
    step = units[1][1] / units[0][1] - 0.5
    unit, one = next(((unit, one) for unit, one in units if abs(value) / one < step), units[-1])
    whole = one == 1 and float(value).is_integer()
    return f"{format_number(int(value)) if whole else _digits(value / one)} {unit}"


def _digits(value: float) -> str:
    """Three significant digits, and all of those before the point up to very large numbers."""
    if value == 0:
        return "0"
    if abs(value) >= _MANY:
        text = f"{value:.2e}"
    else:
        text = f"{value:,.0f}" if abs(value) >= _THOUSAND else f"{value:#.3g}".rstrip(".")
    return text.replace("-", "−")  # noqa: RUF001
