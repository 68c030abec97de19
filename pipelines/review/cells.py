"""Cells of a review: a value in its unit, a change with its sign, a name that is shown and never obeyed."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

from pipelines.review.text_tables import as_number
from report.markdown import escape_markdown
from report.units import NOTHING, format_duration, format_number, format_percent, format_ratio, format_size, legible

if TYPE_CHECKING:
    from collections.abc import Callable

    from pipelines.review.text_tables import Key, Move

_LONGEST_TEXT = 120
MINUS = "\N{MINUS SIGN}"
_LONGEST_NAME = 90
_TINY = 0.0001
_UNITS: dict[str, Callable[[Any], str]] = {"ns": format_duration, "bytes": format_size, "ratio": format_ratio}
_DIGEST = re.compile(r"[0-9a-f]{64}")
# Numbers that stand for a place or a moment: their mean says nothing, and in a unit they cannot be told apart.
_PLACES = re.compile(r"(.*_)?(ts_ns|ordinal|rank|number|id)")


def code(text: str) -> str:
    """A name as code: nothing in it is obeyed, and it stays within a cell."""
    return f"`{legible(text).replace('`', chr(39)).replace('|', '¦')}`"


def format_value(column: str, kind: str, value: str | None) -> str:
    """A value in the unit that its column's name says; a place or a moment exactly."""
    if value is None:
        return "null"
    if kind == "text":
        text = _short(value)
        return escape_markdown(text if len(text) <= _LONGEST_TEXT else text[: _LONGEST_TEXT - 1] + "…") or '""'
    exact = as_number(kind, value)
    return escape_markdown(value) if exact is None or is_place(column) else unit(column)(exact)


def format_change(fraction: float | None) -> str:
    """A relative change in percent, with its sign."""
    if fraction is None:
        return NOTHING
    if math.isinf(fraction):
        return "from 0"
    return f"+{_percent(fraction)}" if fraction > 0 else _percent(fraction)


def label(key: Key) -> str:
    """A row by the values of its key; digests and long names are cut."""
    return escape_markdown(
        ", ".join("null" if value is None else _middle(_short(value)) for value in key if value != "")
    )


def format_both(move: Move) -> tuple[str, str]:
    """Old and new; exactly where their short forms would not tell them apart."""
    old, new = (format_value(move.column, move.kind, value) for value in (move.before, move.after))
    return (escape_markdown(move.before or "null"), escape_markdown(move.after or "null")) if old == new else (old, new)


def format_added(move: Move) -> str:
    """What was added, in its unit and with its sign."""
    if move.absolute is None:
        return NOTHING
    return (
        f"{move.absolute:+,}".replace("-", MINUS) if is_place(move.column) else format_plus(move.absolute, move.column)
    )


def format_plus(value: float, column: str) -> str:
    """A difference in the unit of its column, with its sign; of fractions in points, since percent is the relative."""
    shown = unit(column)(value)
    if column.endswith("_fraction"):
        shown = f"{shown.removesuffix(' %')} points"
    return f"+{shown}" if value > 0 else shown


def unit(column: str) -> Callable[[Any], str]:
    """How numbers of a column are told: by the unit at the end of its name."""
    last = column.rpartition("_")[2]
    return _percent if last == "fraction" else _UNITS.get(last, format_number)


def _percent(fraction: float) -> str:
    """A fraction in percent, however small: a review is of small moves too."""
    return f"{fraction * 100:.2g} %".replace("-", MINUS) if 0 < abs(fraction) < _TINY else format_percent(fraction)


def _middle(text: str) -> str:
    """A name without its middle: kernels differ at both ends."""
    half = _LONGEST_NAME // 2
    return text if len(text) <= _LONGEST_NAME else f"{text[:half]}…{text[-half:]}"


def _short(text: str) -> str:
    return _DIGEST.sub(lambda found: found[0][:8] + "…", legible(text))


def line(*cells: str) -> str:
    """A line of a table."""
    return f"| {' | '.join(cells)} |"


def is_place(column: str) -> bool:
    """Whether numbers of this column stand for a place or a moment."""
    return _PLACES.fullmatch(column) is not None
