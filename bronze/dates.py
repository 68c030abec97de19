"""Dates and lengths of time that are written out, to the nanosecond; anything else is none."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

_DATE = re.compile(
    r"(\d{4})([-/])(\d{2})\2(\d{2})[T ](\d{2}):(\d{2}):(\d{2})(?:[.,](\d{1,9}))?(?: ?(Z|UTC|([+-])(\d{2}):?(\d{2})))?",
    re.ASCII,
)
_LENGTH = re.compile(r"(?:(\d{1,4}) days?, )?(\d{1,4}):(\d{2}):(\d{2})(?:\.(\d{1,9}))?", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND_NS = 1_000_000_000


def parse_date(text: str) -> tuple[int, bool] | None:
    """Nanoseconds from 1970 to a date, and whether it says its zone: without one they count in that zone's time."""
    found = _DATE.fullmatch(text)
    if found is None:
        return None
    try:
        year, month, day, hour, minute, second = (int(part) for part in found.group(1, 3, 4, 5, 6, 7))
        moment = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError:
        return None
    seconds = (moment - _EPOCH) // timedelta(seconds=1)
    if found[10]:
        ahead = int(found[11]) * 3600 + int(found[12]) * 60
        seconds += ahead if found[10] == "-" else -ahead
    return seconds * _SECOND_NS + _parse_fraction(found[8]), found[9] is not None


def parse_length(text: str) -> int | None:
    """Nanoseconds of a length as `1 day, 2:03:04.5`."""
    found = _LENGTH.fullmatch(text)
    if found is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in found.group(1, 2, 3, 4))
    return (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * _SECOND_NS + _parse_fraction(found[5])


def _parse_fraction(digits: str | None) -> int:
    return int((digits or "").ljust(9, "0"))
