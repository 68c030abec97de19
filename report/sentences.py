"""Answers as sentences, the same in the terminal and on the page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from report.colours import WORDS
from report.units import finite

if TYPE_CHECKING:
    from collections.abc import Sequence

    Row = dict[str, Any]


def dominant(answer: Row, parts: Sequence[Row]) -> str | None:
    """Where most of a pair's overhead is paid; None where no part stands out."""
    share = answer["dominant_fraction"]
    delta = next((row["overhead_ns"] for row in parts if row["part"] == answer["dominant_part"]), None)
    if delta is None or not finite(share):
        return None
    total = sum(row["overhead_ns"] or 0 for row in parts)
    where = WORDS[answer["dominant_part"]]
    if share > 1:
        return f"{where}: {ms(delta)} ms a step; other parts shrink beside it, so that {ms(total)} ms remain"
    most = "most" if share > 0.5 else "the largest part"
    return f"{most} of it is paid for {where}: {ms(delta)} of {ms(total)} ms a step ({share:.0%})"


def ms(overhead_ns: int) -> str:
    """A change in milliseconds, with its sign."""
    return f"{overhead_ns / 1e6:+.1f}"
