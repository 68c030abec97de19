"""Which lines of a job's output speak of one step of training, by declared patterns of what trainers print."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from bronze import csv_columns, json_text
from bronze.lines import as_plain_text
from bronze.training_csv import MAP

if TYPE_CHECKING:
    from collections.abc import Iterable

_MOST_LINE = 1 << 12


@dataclass(frozen=True)
class LinePattern:
    """What one trainer prints of a step: where each value stands, and which column it fills."""

    name: str
    mark: bytes
    unless: re.Pattern[str] | None
    values: tuple[re.Pattern[str], ...]
    places: list[csv_columns.ColumnSource]

    def read(self, text: str) -> dict[str, Any] | None:
        """The row of a line; none where it names no step."""
        if self.unless is not None and self.unless.search(text):
            return None
        cells = [_find_value(value, text) for value in self.values]
        if not cells[0]:
            return None
        columns = csv_columns.columns(self.places, [cells])
        row = {name: values[0] for name, values in columns.items() if name != "args"}
        return {**row, "record": "line", "record_key": self.name, "args": json_text.compact_json({"line": text})}


def _load() -> tuple[int, tuple[LinePattern, ...]]:
    document = tomllib.loads(files(__package__).joinpath("step_lines.toml").read_text("utf-8"))
    return document["version"], tuple(
        LinePattern(
            entry["name"],
            entry["mark"].encode(),
            re.compile(entry["unless"]) if "unless" in entry else None,
            tuple(re.compile(value) for value in entry["values"].values()),
            MAP.places(entry["values"]),
        )
        for entry in document["pattern"]
    )


VERSION, PATTERNS = _load()
_MARKS = re.compile(b"|".join(re.escape(pattern.mark) for pattern in PATTERNS))


def may_be_step(data: bytes) -> bool:
    """Whether bytes hold the mark of a pattern."""
    return _MARKS.search(data) is not None


def read_step_line(data: bytes) -> dict[str, Any] | None:
    """What a line says of a step; none where it says nothing of one."""
    if len(data) > _MOST_LINE:
        return None
    text = as_plain_text(data)
    found = (pattern.read(text) for pattern in PATTERNS if pattern.mark in data)
    return next((row for row in found if row is not None), None)


def is_left_out(data: bytes) -> bool:
    """Whether a pattern says that such a line is of something else."""
    marked = [pattern.unless for pattern in PATTERNS if pattern.unless is not None and pattern.mark in data]
    return bool(marked) and any(unless.search(as_plain_text(data)) for unless in marked)


def has_step_line(lines: Iterable[bytes]) -> bool:
    """Whether one of the lines speaks of a step."""
    return any(may_be_step(line) and read_step_line(line) is not None for line in lines)


def _find_value(value: re.Pattern[str], text: str) -> str:
    found = value.search(text)
    # Commas part thousands.
    return "" if found is None else next(filter(None, found.groups()), "").replace(",", "")
