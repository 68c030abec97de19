"""Cells of a CSV into typed columns by a declared map of header names: what a column cannot carry stays as text."""

from __future__ import annotations

import json
import re
import tomllib
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from bronze.dates import parse_date, parse_length
from bronze.decimals import MOST_NS, fit_nanoseconds, parse_integer, parse_nanoseconds, parse_number, scale_decimal

if TYPE_CHECKING:
    from collections.abc import Iterable

# Header names as tools write them: a name, and a unit in round or square brackets; or, as people do, behind it.
_HEADER = re.compile(r"(.*?)\s*[(\[]([^()\[\]]{1,24})[)\]]\s*")
_MOST_HEADER = 256
# Metrics of training are often put into groups; those of an evaluation are no metrics of training.
_GROUPS = re.compile(r"(?:train|training|trainer|perf|throughput|time|timing)/")
_SPACES = re.compile(r"[\s_]+")
_SECOND_NS = 1_000_000_000
# A time before March 1973 was counted from elsewhere than 1970: from a start, or it says how long something took.
_EARLIEST_NS = 10**17
_MOMENT, _CLOCK = "ts_ns", "clock_ns"
_FEW_DIGITS = 18
# Cells that say more than a number, or say it otherwise: 250ms, 5,432.5 and, of a count, 7.0.
_WITH_UNIT = re.compile(r"([+-]?[0-9][0-9.eE+-]*)\s*([a-zµμ]{1,12})")
_GROUPED = re.compile(r"[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]*)?")
_WHOLE_FLOAT = re.compile(r"(-?[0-9]+)\.0+")
_PLAIN_DECIMALS = re.compile(r"(?:[0-9]{1,10}\.[0-9]{1,9}\n)*[0-9]{1,10}\.[0-9]{1,9}")
_UNITS = {
    "time": {
        "ns": 1,
        "us": 1_000,
        "μs": 1_000,
        "µs": 1_000,  # the micro sign and the Greek letter look alike, and both occur
        "ms": 1_000_000,
        "milliseconds": 1_000_000,
        "msec": 1_000_000,
        "s": _SECOND_NS,
        "sec": _SECOND_NS,
        "secs": _SECOND_NS,
        "second": _SECOND_NS,
        "seconds": _SECOND_NS,
        "min": 60 * _SECOND_NS,
        "minutes": 60 * _SECOND_NS,
        "h": 3600 * _SECOND_NS,
        "hours": 3600 * _SECOND_NS,
    },
    "bytes": {
        "b": 1,
        "bytes": 1,
        "kb": 10**3,
        "mb": 10**6,
        "gb": 10**9,
        "kib": 1 << 10,
        "mib": 1 << 20,
        "gib": 1 << 30,
    },
    "rate": {
        "b/s": 1,
        "kb/s": 10**3,
        "mb/s": 10**6,
        "gb/s": 10**9,
        "kib/s": 1 << 10,
        "mib/s": 1 << 20,
        "gib/s": 1 << 30,
    },
}
_UNITS["moment"] = _UNITS["time"]


@dataclass(frozen=True)
class Field:
    """One typed column, what its cells are, and the header names that it is read from."""

    column: str
    kind: str
    sources: tuple[str, ...]
    unit: str = ""


@dataclass(frozen=True)
class ColumnSource:
    """What becomes of the cells under one header: the column they fill, and the factor of their unit."""

    header: str
    field: Field | None
    factor: int = 1


class ColumnMap:
    """A versioned map from header names to columns, read from a data file."""

    def __init__(self, name: str) -> None:
        document = tomllib.loads(files(__package__).joinpath(name).read_text("utf-8"))
        self.version: int = document["version"]
        self.fields = tuple(
            Field(entry["column"], entry["kind"], tuple(entry["sources"]), entry.get("unit", ""))
            for entry in document["field"]
        )
        self._by_source = {source: field for field in self.fields for source in field.sources}

    def places(self, header: Iterable[str]) -> list[ColumnSource]:
        """Where each cell goes; of two headers for one column the first has it, an unknown unit has none."""
        found: list[ColumnSource] = []
        taken: set[str] = set()
        for cell in header:
            field, unit = self._field(cell)
            factor = 1
            if field is not None:
                units = _UNITS.get(field.kind)
                if units is not None:
                    factor = units.get((unit or field.unit).casefold(), 0)
                if not factor or field.column in taken:
                    field = None
                else:
                    taken.add(field.column)
            found.append(ColumnSource(cell, field, factor))
        return found

    def _field(self, cell: str) -> tuple[Field | None, str]:
        """The field of a header cell, by the whole cell first: `Thput (img/s)` has its unit in its name."""
        if len(cell) > _MOST_HEADER:
            return None, ""
        known = self._find(cell)
        parted = _HEADER.fullmatch(cell)
        if known is not None:
            return known, ""
        if parted is not None:
            return self._find(parted[1]), parted[2].strip()
        stem, _, unit = normalise_header(cell).rpartition(" ")
        field = self._find(stem)
        return (field, unit) if field is not None and unit in _UNITS.get(field.kind, {}) else (None, "")

    def _find(self, name: str) -> Field | None:
        name = normalise_header(name)
        return self._by_source.get(name) or self._by_source.get(_GROUPS.sub("", name, count=1))

    def columns(self, header: Iterable[str]) -> set[str]:
        """The columns that a header fills."""
        return {place.field.column for place in self.places(header) if place.field is not None}


def normalise_header(cell: str) -> str:
    """A header as the map spells it: lower case, one space for any number of spaces and underscores."""
    return _SPACES.sub(" ", cell).strip().casefold()


def columns(places: list[ColumnSource], rows: list[list[str]]) -> dict[str, list[Any]]:
    """The typed columns of many records, and as `args` the cells that no column carries, by their headers."""
    filled: dict[str, list[Any]] = {}
    left: list[list[str]] = []
    headers: set[str] = set()
    for place, cells in enumerate(zip(*rows, strict=True)):
        if not any(cells):
            continue
        field = places[place].field
        is_left: list[bool] | None = None
        if field is not None and field.kind == "moment":
            is_left = _add_moments(filled, places[place].factor, cells)
        elif field is not None:
            filled[field.column], is_left = _convert_cells(field.kind, places[place].factor, cells)
        if field is None or is_left is not None:
            header = places[place].header
            header = header if header not in headers else f"{header}#{place}"
            headers.add(header)
            left.append(_list_members(header, cells, is_left))
    if left:
        members = [[text for text in texts if text] for texts in zip(*left, strict=True)]
        filled["args"] = ["{" + ",".join(texts) + "}" if texts else None for texts in members]
    return filled


def _convert_cells(kind: str, factor: int, cells: tuple[str, ...]) -> tuple[list[Any], list[bool] | None]:
    """The values of one column's cells, and which of them it does not carry; none where it carries all."""
    if kind == "text" and not any(cell != cell.strip() for cell in cells):
        return [cell or None for cell in cells], None
    if kind in {"time", "bytes", "whole"} and _are_counts(cells, _FEW_DIGITS - len(str(factor)) + 1):
        return [int(cell) * factor if cell else None for cell in cells], None
    scaled = _scale_plain_decimals(cells, factor) if kind in {"time", "bytes"} else None
    if scaled is not None:
        return scaled, None
    pairs = [_value(kind, factor, cell) for cell in cells]
    is_left = [not is_carried for _, is_carried in pairs]
    return [value for value, _ in pairs], is_left if any(is_left) else None


def _add_moments(filled: dict[str, list[Any]], factor: int, cells: tuple[str, ...]) -> list[bool] | None:
    """Fill times since 1970, and readings of any other clock; a cell whose column has a value already is left."""
    values, is_left = _convert_cells("time", factor, cells)
    is_moment = [value is not None and abs(value) >= _EARLIEST_NS for value in values]
    left = is_left or [False] * len(cells)
    for place, cell in enumerate(cells):
        if cell and values[place] is None:
            dated = parse_date(cell.strip())
            value, is_moment[place] = dated if dated is not None else (parse_length(cell.strip()), False)
            values[place] = fit_nanoseconds(value)
            left[place] = values[place] is None
    for name, is_of_moments in ((_MOMENT, True), (_CLOCK, False)):
        found = [value if one == is_of_moments else None for value, one in zip(values, is_moment, strict=True)]
        column = filled.setdefault(name, found)
        if column is not found:
            both = list(zip(column, found, strict=True))
            filled[name] = [new if old is None else old for old, new in both]
            left = [is_out or None not in pair for is_out, pair in zip(left, both, strict=True)]
    return left if any(left) else None


def _are_counts(cells: tuple[str, ...], most_digits: int) -> bool:
    """Whether all cells are plain whole numbers of few digits, as nearly all are."""
    together = "".join(cells)
    return (
        together.isascii()
        and together.isdigit()
        and max(map(len, cells)) <= most_digits
        and not any(len(cell) > 1 and cell[0] == "0" for cell in cells)
    )


def _scale_plain_decimals(cells: tuple[str, ...], factor: int) -> list[Any] | None:
    """All cells times a power of ten; none unless each is a plain decimal of few digits of which none is rounded."""
    places = len(str(factor)) - 1
    if factor != 10**places or not _PLAIN_DECIMALS.fullmatch("\n".join(cells)):
        return None
    parted = [cell.partition(".") for cell in cells]
    if max(len(after) for _, _, after in parted) > places:
        return None
    scaled = [int(before + after.ljust(places, "0")) for before, _, after in parted]
    return scaled if max(scaled) < MOST_NS else None


def _value(kind: str, factor: int, cell: str) -> tuple[Any, bool]:
    stripped = cell.strip()
    if not cell:
        return None, True
    if kind == "time":
        said = _WITH_UNIT.fullmatch(stripped)
        if said is not None and (unit := _UNITS["time"].get(said[2])) is not None:
            return parse_nanoseconds(said[1], unit)
        return parse_nanoseconds(stripped, factor)
    if kind == "rate":
        found, is_exact = scale_decimal(stripped, factor)
        # The column holds doubles: a rate that none is equal to stays as text beside the nearest.
        return (None, False) if found is None else (float(found), is_exact and int(float(found)) == found)
    if kind in _UNITS:
        return scale_decimal(stripped, factor)
    if kind == "whole":
        found, as_float = parse_integer(stripped), _WHOLE_FLOAT.fullmatch(stripped)
        return (parse_integer(as_float[1]), False) if as_float is not None else (found, found is not None)
    if kind == "number":
        if _GROUPED.fullmatch(stripped):
            return parse_number(stripped.replace(",", ""))[0], False
        return parse_number(stripped)
    return stripped, stripped == cell


def _list_members(header: str, cells: tuple[str, ...], is_left: list[bool] | None) -> list[str]:
    """Cells as members of a JSON object, empty where a cell is empty or carried elsewhere; few texts recur often."""
    before = f"{json.dumps(header, ensure_ascii=False)}:"
    known = {cell: before + json.dumps(cell, ensure_ascii=False) for cell in set(cells)}
    known[""] = ""
    if is_left is None:
        return [known[cell] for cell in cells]
    return [known[cell] if is_out else "" for cell, is_out in zip(cells, is_left, strict=True)]
