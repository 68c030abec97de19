"""Cells of a CSV into typed columns by a declared map of header names: what a column cannot carry stays as text."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from bronze.decimals import number, scaled, whole

if TYPE_CHECKING:
    from collections.abc import Iterable

# Header names as tools write them: a name, and a unit in round or square brackets.
_HEADER = re.compile(r"(.*?)\s*[(\[]([^()\[\]]{1,24})[)\]]\s*")
_MOST_HEADER = 256
_SPACES = re.compile(r"[\s_]+")
_SECOND_NS = 1_000_000_000
_UNITS = {
    "time": {
        "ns": 1,
        "us": 1_000,
        "μs": 1_000,
        "µs": 1_000,  # the micro sign and the Greek letter look alike, and both occur
        "ms": 1_000_000,
        "s": _SECOND_NS,
        "sec": _SECOND_NS,
        "seconds": _SECOND_NS,
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
}


@dataclass(frozen=True)
class Field:
    """One typed column, what its cells are, and the header names that it is read from."""

    column: str
    kind: str
    sources: tuple[str, ...]
    unit: str = ""


@dataclass(frozen=True)
class Place:
    """What becomes of the cells under one header: the column they fill, and the factor of their unit."""

    header: str
    field: Field | None
    factor: int = 1


class Map:
    """A versioned map from header names to columns, read from a data file."""

    def __init__(self, name: str) -> None:
        document = tomllib.loads(files("bronze").joinpath(name).read_text("utf-8"))
        self.version: int = document["version"]
        self.fields = tuple(
            Field(entry["column"], entry["kind"], tuple(entry["sources"]), entry.get("unit", ""))
            for entry in document["field"]
        )
        self._by_source = {source: field for field in self.fields for source in field.sources}

    def places(self, header: Iterable[str]) -> list[Place]:
        """Where each cell goes; of two headers for one column the first has it, an unknown unit has none."""
        found: list[Place] = []
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
            found.append(Place(cell, field, factor))
        return found

    def _field(self, cell: str) -> tuple[Field | None, str]:
        """The field of a header cell, by the whole cell first: `Thput (img/s)` has its unit in its name."""
        if len(cell) > _MOST_HEADER:
            return None, ""
        known = self._by_source.get(spelled(cell))
        parted = _HEADER.fullmatch(cell)
        if known is not None or parted is None:
            return known, ""
        return self._by_source.get(spelled(parted[1])), parted[2].strip()

    def columns(self, header: Iterable[str]) -> set[str]:
        """The columns that a header fills."""
        return {place.field.column for place in self.places(header) if place.field is not None}


def spelled(cell: str) -> str:
    """A header as the map spells it: lower case, one space for any number of spaces and underscores."""
    return _SPACES.sub(" ", cell.strip()).casefold()


def row(places: list[Place], cells: list[str]) -> tuple[dict[str, Any], dict[str, str]]:
    """The typed columns of one record, and the cells that no column carries, by their headers."""
    columns: dict[str, Any] = {}
    left: dict[str, str] = {}
    for index, (place, cell) in enumerate(zip(places, cells, strict=True)):
        if not cell:
            continue
        if place.field is None:
            is_carried = False
        else:
            value, is_carried = _value(place, cell.strip())
            columns[place.field.column] = value
            is_carried = is_carried and (place.field.kind != "text" or value == cell)
        if not is_carried:
            header = place.header if place.header not in left else f"{place.header}#{index}"
            left[header] = cell
    return columns, left


def _value(place: Place, cell: str) -> tuple[Any, bool]:
    kind = place.field.kind if place.field is not None else "text"
    if kind in _UNITS:
        return scaled(cell, place.factor)
    if kind == "whole":
        found = whole(cell)
        return found, found is not None
    if kind == "number":
        return number(cell)
    return cell, True
