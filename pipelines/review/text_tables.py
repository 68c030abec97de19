"""A snapshot as data: the text of a table read back, one row a line, and two such texts compared row by row."""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass
from functools import cached_property

# A kind is written under each name; a text whose second line says anything else is no table.
_OR_NULL = " or null"
_KIND = re.compile(rf"(text|int32|int64|float64|bool)({_OR_NULL})?")
_CELL = re.compile(r'"((?:[^"]|"")*)"|([^",]*)')
_ORDINAL = "_ordinal"
_LARGEST = 1e100  # nothing that was measured
Key = tuple[str | None, ...]


@dataclass(frozen=True)
class TextTable:
    """The names, the kinds and the cells of a snapshot; a cell is None where the table has null."""

    names: tuple[str, ...]
    kinds: tuple[str, ...]
    rows: tuple[tuple[str | None, ...], ...]

    def by_key(self, key: tuple[str, ...]) -> dict[Key, dict[str, str | None]] | None:
        """The rows by their key, in the order of the text; None where the key does not tell them apart."""
        if not key or not set(key) <= set(self.names):
            return None
        found = {}
        for row in self.rows:
            cells = dict(zip(self.names, row, strict=True))
            found[tuple(cells[name] for name in key)] = cells
        return found if len(found) == len(self.rows) else None


@dataclass(frozen=True)
class Move:
    """One cell whose text is not what it was; the same number in other digits has moved by 0."""

    key: Key
    column: str
    kind: str
    before: str | None
    after: str | None

    @cached_property
    def numbers(self) -> tuple[float, float] | None:
        """Both values, where both are finite numbers; whole ones stay exact."""
        both = [as_number(self.kind, value) for value in (self.before, self.after)]
        return (both[0], both[1]) if both[0] is not None and both[1] is not None else None

    @property
    def absolute(self) -> float | None:
        """What was added."""
        return None if self.numbers is None else self.numbers[1] - self.numbers[0]

    @property
    def relative(self) -> float | None:
        """What was added, as a fraction of what was there; infinite where nothing was."""
        if self.numbers is None:
            return None
        before, after = self.numbers
        return (after - before) / abs(before) if before else math.copysign(math.inf, after)

    @property
    def size(self) -> float:
        """How large the move is among others: what is no number, or came to be one, is the largest."""
        return math.inf if self.relative is None else abs(self.relative)


@dataclass(frozen=True)
class TableChange:
    """Everything that two texts of a table differ in."""

    key: tuple[str, ...]
    moves: tuple[Move, ...]
    rows_before: int
    rows_after: int
    rows_added: tuple[Key, ...] = ()
    rows_gone: tuple[Key, ...] = ()
    columns_added: tuple[str, ...] = ()
    columns_gone: tuple[str, ...] = ()
    kinds: tuple[tuple[str, str, str], ...] = ()
    is_reordered: bool = False
    # What the rows that moved say of themselves, and how many of them.
    evidence: tuple[tuple[str, int], ...] = ()

    @property
    def vanished(self) -> bool:
        """Whether a row or a column is no longer there."""
        return bool(self.rows_gone or self.columns_gone)


def parse_table(text: str) -> TextTable | None:
    """The table that a text holds, or None where it is any other text."""
    lines = text.removesuffix("\n").split("\n")
    if len(lines) < 2:
        return None
    cells = [_cells(line) for line in lines]
    names, kinds = (tuple(cell or "" for cell in line) for line in cells[:2])
    is_table = (
        len(set(names)) == len(names)
        and all(names)
        and all(_KIND.fullmatch(kind) for kind in kinds)
        and {len(line) for line in cells} == {len(names)}
    )
    if not is_table:
        return None
    # Where no null may be, nothing is the empty text.
    empty = [None if kind.endswith(_OR_NULL) else "" for kind in kinds]
    rows = ((none if cell is None else cell for cell, none in zip(line, empty, strict=True)) for line in cells[2:])
    return TextTable(names, kinds, tuple(map(tuple, rows)))


def compare_tables(before: TextTable, after: TextTable, declared: tuple[str, ...]) -> TableChange | None:
    """What moved, by key; None where the key that is declared does not tell the rows of both texts apart."""
    for key in dict.fromkeys((_choose_columns(declared, before, after), declared)):
        old, new = before.by_key(key), after.by_key(key)
        if old is not None and new is not None:
            return _compare_rows(before, after, key, old, new)
    return None


def _compare_rows(
    before: TextTable,
    after: TextTable,
    key: tuple[str, ...],
    old: dict[Key, dict[str, str | None]],
    new: dict[Key, dict[str, str | None]],
) -> TableChange:
    shared = [name for name in after.names if name in before.names]
    old_kinds, new_kinds = (dict(zip(table.names, table.kinds, strict=True)) for table in (before, after))
    found = [
        Move(place, name, new_kinds[name].removesuffix(_OR_NULL), old[place][name], cells[name])
        for place, cells in new.items()
        if place in old
        for name in shared
        if old[place][name] != cells[name]
    ]
    moves = tuple(move for move in found if move.absolute != 0)
    evidence = Counter(new[place].get("evidence") or "not said" for place in dict.fromkeys(move.key for move in moves))
    kept_names = [name for name in before.names if name in after.names]
    kept_rows = [place for place in old if place in new]
    return TableChange(
        key=key,
        moves=moves,
        rows_before=len(old),
        rows_after=len(new),
        rows_added=tuple(place for place in new if place not in old),
        rows_gone=tuple(place for place in old if place not in new),
        columns_added=tuple(name for name in after.names if name not in before.names),
        columns_gone=tuple(name for name in before.names if name not in after.names),
        kinds=tuple((name, old_kinds[name], new_kinds[name]) for name in shared if old_kinds[name] != new_kinds[name]),
        is_reordered=kept_names != shared or kept_rows != [place for place in new if place in old],
        evidence=tuple(sorted(evidence.items())),
    )


def _choose_columns(declared: tuple[str, ...], before: TextTable, after: TextTable) -> tuple[str, ...]:
    """The key, with what stands at a place (`part`) instead of the place (`part_ordinal`), which a new order moves."""
    both = set(before.names) & set(after.names)
    named = (name.removesuffix(_ORDINAL) for name in declared)
    return tuple(name if name in both else ordinal for name, ordinal in zip(named, declared, strict=True))


def _cells(line: str) -> list[str | None]:
    """The cells of a line: a quote is doubled inside quotes, and only what is not quoted can be null."""
    cells: list[str | None] = []
    at = 0
    while True:
        found = _CELL.match(line, at)
        if found is None:  # pragma: no cover - the pattern matches the empty text
            return cells
        quoted, plain = found.groups()
        cells.append(quoted.replace('""', '"') if quoted is not None else plain or None)
        at = found.end()
        if at >= len(line):
            return cells
        if line[at] != ",":
            return []  # a quote in the wrong place: no table
        at += 1


def as_number(kind: str, value: str | None) -> float | None:
    """A finite number of a size that can be computed with, or None; whole ones stay exact."""
    if value is None or kind not in {"int32", "int64", "float64"}:
        return None
    try:
        number = int(value) if kind != "float64" else float(value)
    except ValueError:
        return None
    return number if abs(number) < _LARGEST else None
