"""Lines of a loop's own that name their values: `step 10 | loss 2.5 | time 0.25s`; the names are those of tables."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

from bronze import csv_columns, json_text
from bronze.lines import as_plain_text
from bronze.training_csv import MAP, is_header

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

VERSION = 1
# What the kind of such a line begins with; the columns that it fills follow.
KIND = "values:"
# How many lines of one kind tell a job's output by these alone: one may be prose.
ENOUGH_LINES = 2
# What one line of a kind may say and another leave out.
_OPTIONAL = {"loss_number", "batch_size", "phase"}
_MOST_LINE = 1 << 10
_MARKS = re.compile(rb"(?i)\b(?:step|iter|epoch|batch)[a-z]*\b.*\d|\b(?:step|iter|epoch)s?\d")
_OTHER = re.compile(
    r"(?i)(?:^|[^a-z])(?:val|valid|validation|validate|eval|evaluation|evaluate|test|testing)(?:[^a-z]|$)"
)
_NUMBER = re.compile(
    r"\d{1,6}(?::\d{2}){1,2}(?:\.\d{1,9})?|[-+]?\d[\d,]{0,24}(?:\.\d{0,24})?(?:[eE][-+]?\d{1,3})?|\b(?:nan|inf)\b",
    re.IGNORECASE,
)
# What stands before a number: words, perhaps a unit in brackets, and what parts them from the number.
_LABEL = re.compile(
    r"([A-Za-z][A-Za-z_/ ]{0,40}?)[\"']?\s{0,4}(?:[(\[]([A-Za-zµμ/]{1,8})[)\]])?\s{0,4}[:=#]?\s{0,4}[(\[]?\s{0,4}$"
)
# Words before a name that do not change it, as the level of a log does; remaining time is another time.
_BEFORE = re.compile(r"(?:[A-Z]{2,}|at|in|training|train|current)(?= )")
# What people say in a line and do not write over a column.
_SAID = {"batch": "batch index", **dict.fromkeys(("took", "done in", "completed in", "finished in"), "duration")}
_OF = re.compile(r"\s?/\s?\d+")
_TIME_UNIT = re.compile(r"\s?(ns|us|µs|μs|ms|msec|milliseconds|s|sec|secs|second|seconds|min|minutes)\b(?!/)")
_RATE = re.compile(
    r"\s?([A-Za-z]{2,12}/(?:s|sec|second)|ms/(?:step|iter)|samples per second|tokens per second)\b(?!\s{0,4}[:=])"
)


def may_name_values(data: bytes) -> bool:
    """Whether a line may count a step or an epoch."""
    return len(data) <= _MOST_LINE and _MARKS.search(data) is not None


def read_named_values(data: bytes) -> dict[str, Any] | None:
    """The row of a line that counts a step or an epoch and says its time or rate; none of any other."""
    text = as_plain_text(data)
    if _OTHER.search(text):
        return None
    pairs = [(name, value) for name, value in _split(text) if MAP.columns([name])]
    names = [name for name, _ in pairs]
    if not is_header(names):
        return None
    columns = csv_columns.columns(MAP.places(names), [[value for _, value in pairs]])
    row = {name: values[0] for name, values in columns.items() if name != "args" and values[0] is not None}
    kind = KIND + ",".join(sorted(row.keys() - _OPTIONAL))
    return {**row, "record": "line", "record_key": kind, "args": json_text.compact_json({"line": text})}


def has_named_values(lines: Iterable[bytes]) -> bool:
    """Whether enough lines of one kind name their values."""
    kinds: Counter[str] = Counter()
    for line in lines:
        row = read_named_values(line) if may_name_values(line) else None
        if row is not None:
            kinds[row["record_key"]] += 1
            if kinds[row["record_key"]] >= ENOUGH_LINES:
                return True
    return False


def _split(text: str) -> Iterator[tuple[str, str]]:
    """Each number with the name that stands before it, or the rate that follows it."""
    begin = 0
    while (found := _NUMBER.search(text, begin)) is not None:
        before = _LABEL.search(text[max(begin, found.start() - 64) : found.start()])
        value, end = found[0].replace(",", ""), found.end()
        rate, unit, of = (pattern.match(text, end) for pattern in (_RATE, _TIME_UNIT, _OF))
        if rate is not None:
            yield rate[1], value
            begin = rate.end()
            continue
        if before is not None:
            yield _find_name(before[1].strip(), before[2]), value if unit is None else f"{value}{unit[1]}"
        begin = (unit or of or found).end()


def _find_name(said: str, unit: str | None) -> str:
    """The name as a table would have it over its column."""
    while not MAP.columns([said]) and said.casefold() not in _SAID and (more := _BEFORE.match(said)) is not None:
        said = said[more.end() :].lstrip()
    name = _SAID.get(said.casefold(), said)
    return name if unit is None else f"{name} ({unit})"
