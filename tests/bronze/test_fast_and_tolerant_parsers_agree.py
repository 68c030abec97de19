"""Laws of the Kineto reader over generated traces: whatever way they are cut, the rows are those that JSON says."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from functools import cache, partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from hypothesis import example, given, settings
from hypothesis import strategies as st

from bronze.kineto import NotATrace
from bronze.kineto_arguments import ARGUMENTS
from bronze.limits import Limits
from lake.tables import Kind
from tests.support.campaigns import pick_size
from tests.support.traces import CarefulReader, Reading, native, read

if TYPE_CHECKING:
    from collections.abc import Callable

    from bronze.kineto_arguments import Argument

# -- traces to be read -----------------------------------------------------------------------------------------

_TRICKY = [
    "},{",
    "}, {",
    "},\n  {",
    '":',
    " :",
    '"',
    "\\",
    "]",
    "[{",
    "\u2028",
    "\x00",
    "\x7f",
    "é",
    "🙂",
    "inf",
    "null",
]
_TEXTS = st.one_of(st.text(max_size=6), st.sampled_from(_TRICKY), st.lists(st.sampled_from(_TRICKY)).map("".join))
_NUMBERS = st.one_of(
    st.integers(-(10**6), 10**6),
    st.sampled_from([0, -1, 2**63 - 1, -(2**63), 2**63, 2**64, 10**30]),
    st.decimals(-1000, 1000, places=3),
)
_SCALARS = st.one_of(st.none(), st.booleans(), _NUMBERS, _TEXTS)
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(_TEXTS, inner, max_size=3)),
    max_leaves=6,
)
# Nanoseconds, written as microseconds: near the base, near 2**43 us where doubles grow coarse, since 1970, at the edge.
_NANOSECONDS = st.one_of(
    st.integers(-(10**6), 10**9),
    st.integers(2**43 * 1000 - 5000, 2**43 * 1000 + 5000),
    st.integers(1_790_857_026_000_000_000, 1_790_857_027_000_000_000),
    st.integers(2**63 - 3000, 2**63 + 3000),
)
_TIMES = _NANOSECONDS.map(lambda ns: Decimal(ns).scaleb(-3))
_ARGUMENT_NAMES = st.sampled_from([source for argument in ARGUMENTS for source in argument.sources])
_LABELS = st.one_of(_TEXTS, _NUMBERS)
_EVENTS = st.fixed_dictionaries(
    {},
    optional={
        "ph": st.sampled_from(["X", "M", "s", "f", "i", "C"]),
        "cat": _TEXTS,
        "name": _TEXTS,
        "pid": _LABELS,
        "tid": _LABELS,
        "ts": _TIMES,
        "dur": _TIMES,
        "args": st.dictionaries(st.one_of(_ARGUMENT_NAMES, _TEXTS), _VALUES, max_size=4),
        "id": st.integers(),
        "bp": _TEXTS,
        "s": st.just("g"),
    },
)
_ANYTHING = st.one_of(st.none(), st.booleans(), _NUMBERS, _TEXTS, _VALUES)
_KEYS = ("ph", "cat", "name", "pid", "tid", "ts", "dur", "args", "id", "bp", "s")
_ODD_EVENTS = st.fixed_dictionaries({}, optional=dict.fromkeys((*_KEYS, "tts", "Name", *_TRICKY[:4]), _ANYTHING))
_TRACES = st.one_of(st.lists(_EVENTS, max_size=12), st.lists(st.one_of(_EVENTS, _ODD_EVENTS), max_size=6))


def _write_trace(events: list[dict[str, Any]], dumps: Callable[..., str]) -> bytes:
    """Write with every digit: a decimal goes out as its own text."""
    marks: dict[str, str] = {}

    def mark_decimals(value: object) -> object:
        if isinstance(value, Decimal):
            mark = f"\x01{len(marks)}\x02"
            marks[json.dumps(mark)] = f"{value:f}"
            return mark
        if isinstance(value, dict):
            return {key: mark_decimals(item) for key, item in value.items()}
        return [mark_decimals(item) for item in value] if isinstance(value, list) else value

    text = dumps(mark_decimals(events))
    for mark, digits in marks.items():
        text = text.replace(mark, digits)
    return text.encode()


def _document(**style: Any) -> Callable[[Any], str]:
    return lambda events: json.dumps({"schemaVersion": 1, "traceEvents": events, "traceName": "x"}, **style)


_LAYOUTS: dict[str, Callable[[Any], str]] = {
    "native": lambda events: native(events, schemaVersion=1).decode(),
    "compact": _document(separators=(",", ":")),
    "default": _document(),
    "unicode": _document(ensure_ascii=False),
    "indented": _document(indent=2),
    "sorted": _document(sort_keys=True, indent=1),
    "ending": lambda events: json.dumps({"schemaVersion": 1, "traceEvents": events}, separators=(",", ":")),
    "bare": lambda events: json.dumps([{"ph": "M"}, *events]),
}

# -- what JSON says ---------------------------------------------------------------------------------------------

_LABEL_COLUMNS = {
    "ph": "phase",
    "cat": "category",
    "name": "name",
    "pid": "process_id",
    "tid": "thread_id",
    "bp": "binding_point",
}
_decimal = partial(json.loads, parse_float=Decimal)


def _nanoseconds(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        return None
    exact = int(Decimal(value).scaleb(3))
    return exact if -(2**63) <= exact < 2**63 else None


def _agrees(row: dict[str, Any], event: dict[str, Any]) -> None:
    """Hold one row against its event, as the standard library reads it."""
    for key, column in _LABEL_COLUMNS.items():
        value = event.get(key)
        if value is None or isinstance(value, str):
            assert row[column] == value, column
        elif isinstance(value, int) and not isinstance(value, bool):
            assert row[column] == str(value), column
    for key, column in {"ts": "ts_ns", "dur": "duration_ns"}.items():
        # A text or a truth is taken for the number that it can be read as: nobody's promise, so nobody's law.
        if not isinstance(event.get(key), str | bool):
            assert row[column] == _nanoseconds(event.get(key)), column
    arguments = event.get("args")
    assert (None if row["args"] is None else _decimal(row["args"])) == arguments
    for argument in ARGUMENTS:
        _argument_agrees(argument, row, arguments if isinstance(arguments, dict) else {})
    if row["residue"] is not None:
        assert _decimal(row["residue"]) == event
    else:
        assert {key for key, value in event.items() if value is not None} == set(event)
        assert set(event) <= set(_KEYS)


def _argument_agrees(argument: Argument, row: dict[str, Any], arguments: dict[str, Any]) -> None:
    given = [arguments[name] for name in argument.sources if arguments.get(name) is not None]
    if not given:
        assert row[argument.column.name] is None
    elif len(given) == 1 and argument.column.kind is Kind.TEXT and isinstance(given[0], str):
        assert row[argument.column.name] == given[0]
    elif len(given) == 1 and argument.column.kind is Kind.INT64 and type(given[0]) is int:
        assert row[argument.column.name] == (given[0] if -(2**63) <= given[0] < 2**63 else None)


# -- laws ------------------------------------------------------------------------------------------------------


@settings(max_examples=pick_size(12, 400))
@given(
    events=_TRACES,
    layout=st.sampled_from(sorted(_LAYOUTS)),
    shard_bytes=st.integers(32, 900),
    block_bytes=st.integers(1, 300),
)
@example(events=[{"name": "a"}, {"name": "},{"}, {"name": "b"}], layout="compact", shard_bytes=20, block_bytes=9)
@example(
    events=[{"args": {"a": [{"name": 1}, {"name": 2}]}, "ts": Decimal("1.5")}] * 3,
    layout="native",
    shard_bytes=150,
    block_bytes=9,
)
def test_rows_are_those_that_json_says_whatever_way_they_are_cut(
    events: list[dict[str, Any]], layout: str, shard_bytes: int, block_bytes: int
) -> None:
    data = _write_trace(events, _LAYOUTS[layout])
    found = read(data)
    assert (found.unreadable, found.is_complete) == ([], True)
    expected = _places(data)
    assert [place.event for place in expected] == (
        _decimal(data) if layout == "bare" else _decimal(data)["traceEvents"]
    )
    for ordinal, (row, place) in enumerate(zip(found.rows, expected, strict=True)):
        assert (row["ordinal"], row["offset_bytes"]) == (ordinal, place.start)
        _agrees(row, place.event)
    assert read(data, Limits(shard_bytes=shard_bytes), block_bytes=block_bytes) == found
    assert read(data, reader=CarefulReader) == found


_REGULAR: list[dict[str, Any]] = [
    {"ph": "X", "name": f"aten::op {index}", "ts": Decimal(index).scaleb(-3), "args": {"External id": index}}
    for index in range(60)
]


@cache
def _whole(layout: str) -> Reading:
    return read(_write_trace(_REGULAR, _LAYOUTS[layout]), reader=CarefulReader)


@settings(max_examples=pick_size(6, 100))
@given(
    shard_bytes=st.integers(1, 9000), block_bytes=st.integers(1, 9000), layout=st.sampled_from(["native", "compact"])
)
def test_digest_does_not_depend_on_shards_and_blocks(shard_bytes: int, block_bytes: int, layout: str) -> None:
    data = _write_trace(_REGULAR, _LAYOUTS[layout])
    found = read(data, Limits(shard_bytes=shard_bytes), block_bytes=block_bytes)
    assert found.digest == _whole(layout).digest
    assert found == _whole(layout)
    assert found.column("external_id") == list(range(60))


_JUNK = st.sampled_from(
    [b"", b'"', b"{", b"}", b"[", b"]", b",", b":", b"\\", b"\x00", b"},{", b"], ", b"inf", b"\xff"]
)


@settings(max_examples=pick_size(15, 600))
@given(
    events=st.lists(_EVENTS, min_size=1, max_size=8),
    layout=st.sampled_from(["native", "ending", "bare"]),
    where=st.floats(0, 1),
    removed=st.integers(0, 30),
    added=st.one_of(_JUNK, st.binary(max_size=4)),
    shard_bytes=st.sampled_from([100, 8 << 20]),
)
def test_damage_costs_nothing_that_lies_before_it_and_every_byte_is_accounted_for(
    events: list[dict[str, Any]], layout: str, where: float, removed: int, added: bytes, shard_bytes: int
) -> None:
    whole = _write_trace(events, _LAYOUTS[layout])
    first = _array(whole)
    damage = first + int(where * (len(whole) - first))
    data = whole[:damage] + added + whole[damage + removed :]
    try:
        found = read(data, Limits(shard_bytes=shard_bytes))
    except NotATrace:  # a bare array is known for a trace by its first event alone
        assert layout == "bare"
        assert damage < _places(whole)[0].end
        return
    for place, row in zip((place for place in _places(whole) if place.end <= damage), found.rows, strict=False):
        assert row["offset_bytes"] == place.start
        _agrees(row, place.event)
    assert len(found.rows) >= sum(place.end <= damage for place in _places(whole))
    assert _list_unaccounted(data, first, found) == []
    assert read(data, reader=CarefulReader) == found


# -- where things lie ------------------------------------------------------------------------------------------


class _Place(NamedTuple):
    event: Any
    start: int
    end: int


def _array(data: bytes) -> int:
    """Where the events begin."""
    return data.index(b"[") + 1


def _event_at(data: bytes, start: int) -> _Place:
    text = data[start:].decode("utf-8", "surrogateescape")
    value, length = json.JSONDecoder(parse_float=Decimal).raw_decode(text)
    return _Place(value, start, start + len(text[:length].encode("utf-8", "surrogateescape")))


def _places(data: bytes) -> list[_Place]:
    """All events of a whole trace and where they lie, by the standard library's account."""
    places: list[_Place] = []
    start = _array(data)
    while (start := len(data) - len(data[start:].lstrip(b" \n,"))) and data[start : start + 1] == b"{":
        places.append(_event_at(data, start))
        start = places[-1].end
    return places


def _is_all_of(row: dict[str, Any], data: bytes) -> bool:
    """Whether a row that the standard library would not read is made from exactly these bytes."""
    if row["residue"] is not None:
        return bool(data.decode("utf-8", "backslashreplace") == row["residue"])
    try:
        return isinstance(json.loads(re.sub(rb",\s*(?=[}\]])", b"", data)), dict)
    except ValueError:
        return False


def _list_unaccounted(data: bytes, first: int, found: Reading) -> list[bytes]:
    """What lies between events and unreadable byte ranges and is neither blank nor punctuation nor in the envelope."""
    ends = {
        byte_range.offset: byte_range.offset + byte_range.length for byte_range in found.unreadable if byte_range.length
    }
    for row in found.rows:
        start = row["offset_bytes"]
        assert data[start : start + 1] == b"{"
        assert start not in ends
        try:
            ends[start] = _event_at(data, start).end
        except ValueError:  # no JSON of the standard library's: it ends where its own text does
            ends[start] = next(end for end in range(start + 2, len(data) + 1) if _is_all_of(row, data[start:end]))
    starts = sorted(ends)
    assert all(ends[start] <= following for start, following in pairwise(starts)), "two of them overlap"
    edges = [first, *(ends[start] for start in starts)]
    gaps = [data[start:end].strip(b" \t\r\n,]}\x00") for start, end in zip(edges, [*starts, len(data)], strict=True)]
    has_taken_them_for_members = set(found.envelope) - {"schemaVersion", "traceName"}
    return [] if has_taken_them_for_members else [gap for gap in gaps if gap]
