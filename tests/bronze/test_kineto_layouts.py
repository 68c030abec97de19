"""The same events in whatever bytes a writer chose, and what no column carries: equal rows, nothing lost."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from bronze.kineto import KinetoReader, NotATrace
from bronze.limits import Limits
from tests.support.traces import native, read, trace

if TYPE_CHECKING:
    import pyarrow as pa

EVENTS: list[dict[str, Any]] = [
    {"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 1, "tid": 2, "ts": 1.5, "dur": 0.25, "args": {"a": 1}},
    {"ph": "M", "name": "process_name", "pid": "Spans", "tid": 0, "ts": 0, "args": {"name": "python"}},
    {"ph": "X", "cat": "kernel", "name": "gemm", "ts": 2.001, "dur": 3, "args": {"grid": [1, 2, 3], "stream": 7}},
    {"ph": "f", "id": 5, "bp": "e", "cat": "ac2g", "name": "ac2g", "ts": 4.5},
]
_DOCUMENT = {"baseTimeNanoseconds": 1000, "traceEvents": EVENTS, "traceName": "x"}
_COMPACT = json.dumps(_DOCUMENT, separators=(",", ":")).encode()
_INDENTED = json.dumps(_DOCUMENT, indent=2).encode()
LAYOUTS = {
    "native": native(EVENTS, baseTimeNanoseconds=1000, traceName="x"),
    "default": json.dumps(_DOCUMENT).encode(),
    "compact": _COMPACT,
    "indented": _INDENTED,
    "tabs": json.dumps(_DOCUMENT, indent="\t").encode(),
    "sorted": json.dumps(_DOCUMENT, sort_keys=True).encode(),
    "roomy": json.dumps(_DOCUMENT, separators=(" ,\n", " :\n ")).encode(),
    "carriage returns": _INDENTED.replace(b"\n", b"\r\n"),
    "byte order mark": b"\xef\xbb\xbf" + _INDENTED,
    "blanks around": b" \r\n\t" + _COMPACT + b"\n\n \x00\x00",
    "mixed": _COMPACT.replace(b"},{", b"} , {", 1),
    "no commas": _COMPACT.replace(b"},{", b"}{"),
    "commas left over": _COMPACT.replace(b"},{", b"},,{").replace(b"}]", b"},]"),
}


def _facts(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """All that does not depend on where the event lies."""
    return [{name: value for name, value in row.items() if name != "offset_bytes"} for row in rows]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layout_does_not_change_a_row(layout: str) -> None:
    found = read(LAYOUTS[layout])
    assert _facts(found.rows) == _facts(read(LAYOUTS["default"]).rows)
    assert (found.unreadable, found.is_complete) == ([], True)
    assert found.envelope == {"baseTimeNanoseconds": 1000, "traceName": "x"}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_offset_leads_to_the_event_in_the_source(layout: str) -> None:
    data = LAYOUTS[layout]
    events = [json.JSONDecoder().raw_decode(data[row["offset_bytes"] :].decode())[0] for row in read(data).rows]
    assert events == EVENTS


def test_times_and_labels_of_a_layout_are_those_of_the_events() -> None:
    found = read(LAYOUTS["native"])
    assert found.column("ordinal") == [0, 1, 2, 3]
    assert found.column("ts_ns") == [2500, 1000, 3001, 5500]
    assert found.column("duration_ns") == [250, None, 3000, None]
    assert found.column("name") == ["aten::add", "process_name", "gemm", "ac2g"]
    assert found.column("residue") == [None] * 4


@pytest.mark.parametrize("layout", ["native", "default", "compact", "indented", "tabs", "carriage returns", "sorted"])
def test_usual_layouts_take_the_fast_cut(layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []
    fast = KinetoReader._fast

    def record_batch(self: KinetoReader, *args: Any) -> pa.RecordBatch | None:
        batch = fast(self, *args)
        taken.append(0 if batch is None else batch.num_rows)
        return batch

    monkeypatch.setattr(KinetoReader, "_fast", record_batch)
    read(LAYOUTS[layout])
    assert sum(taken) == len(EVENTS) - 1  # how the last event ends is for the careful cut to see


# -- few events, and documents that are only an array ---------------------------------------------------------


@pytest.mark.parametrize(
    "data", [b'{"traceEvents":[]}', b'{"traceEvents": [\n  ],\n  "traceName": "x"}', b"[]", b"[ ]"]
)
def test_trace_without_events_is_a_trace(data: bytes) -> None:
    found = read(data)
    assert (found.rows, found.unreadable, found.is_complete) == ([], [], True)


@pytest.mark.parametrize(
    "data", [b'{"traceEvents":[{"ts":1}]}', b'[{"ph":"X","ts":1}]', b'{"traceEvents":[{"ts":1}],"a":2}']
)
def test_trace_of_one_event_has_one_row(data: bytes) -> None:
    found = read(data)
    assert (found.row["ts_ns"], found.unreadable, found.is_complete) == (1000, [], True)


@pytest.mark.parametrize("indent", [None, 2])
def test_bare_array_is_a_trace(indent: int | None) -> None:
    found = read(json.dumps(EVENTS, indent=indent).encode())
    assert found.column("name") == [event["name"] for event in EVENTS]
    assert (found.unreadable, found.is_complete) == ([], True)


@pytest.mark.parametrize("end", [b"", b",", b",\n"])
def test_bare_array_that_is_not_closed_keeps_its_events_and_is_not_complete(end: bytes) -> None:
    found = read(json.dumps(EVENTS).encode().removesuffix(b"]") + end)
    assert found.column("name") == [event["name"] for event in EVENTS]
    assert not found.is_complete
    assert [byte_range.reason for byte_range in found.unreadable] == ["the file ends before its traceEvents array does"]


def test_events_in_two_arrays_are_numbered_on() -> None:
    found = read(b'{"traceEvents": [{"ts": 1}, {"ts": 2}], "a": 1, "traceEvents": [{"ts": 3}]}')
    assert (found.column("ordinal"), found.column("ts_ns")) == ([0, 1, 2], [1000, 2000, 3000])


@pytest.mark.parametrize("data", [b'{"a": 1}', b'{"traceEvents": null}', b'{"traceEvents": {"a": 1}}', b"{}", b"{"])
def test_document_without_event_array_is_no_trace(data: bytes) -> None:
    with pytest.raises(NotATrace, match=r"without (trace events|a traceEvents array)"):
        read(data)


@pytest.mark.parametrize(
    "first", ['{"ph": "X", "name": "a\tb"}', '{"ph": "X", "name": "a "b" c"}', '{"ph": "X", "ts": inf}']
)
def test_bare_array_is_a_trace_even_where_its_first_event_is_no_json(first: str) -> None:
    found = read(f'[{first},\n{{"ph": "X", "name": "c"}}]'.encode())
    assert (len(found.rows), found.rows[-1]["name"]) == (2, "c")


# -- what looks like the end of an event and is none ----------------------------------------------------------


@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": "), (",\n  ", ": ")])
def test_objects_among_the_arguments_are_not_events(separators: tuple[str, str]) -> None:
    inner = [{"name": "a", "ts": 1}, {"name": "b", "ph": "X"}, {"ph": "X"}]
    events = [{"name": f"e{index}", "ts": index, "args": {"list": inner}} for index in range(5)]
    found = read(json.dumps({"traceEvents": events}, separators=separators).encode(), Limits(shard_bytes=300))
    assert found.column("name") == ["e0", "e1", "e2", "e3", "e4"]
    assert [json.loads(text) for text in found.column("args")] == [{"list": inner}] * 5


@pytest.mark.parametrize(
    "name",
    ["},\n  {", "},{", "}, {", '{"ph": "X"}', "]", '"]}', "\\", '\\"', '":', " :", '": "', "a\\", "🙂", "\U0010ffff"],
)
@pytest.mark.parametrize("separators", [(",", ":"), (",\n  ", ": ")])
def test_names_that_look_like_structure_are_names(name: str, separators: tuple[str, str]) -> None:
    events = [{"ph": "X", "name": name, "args": {name: name}, "ts": index} for index in range(4)]
    found = read(json.dumps({"traceEvents": events}, separators=separators).encode())
    assert found.column("name") == [name] * 4
    assert [json.loads(text) for text in found.column("args")] == [{name: name}] * 4
    assert found.column("residue") == [None] * 4


def test_list_of_objects_behind_the_events_belongs_to_the_document() -> None:
    found = read(b'{"traceEvents":[{"ts":1},{"ts":2}],"deviceProperties":[{"id":0},{"id":1}],"traceName":"x"}')
    assert found.column("ts_ns") == [1000, 2000]
    assert found.envelope == {"deviceProperties": [{"id": 0}, {"id": 1}], "traceName": "x"}


# -- what no column carries ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "event",
    [
        '{"ph": "X", "name": "a", "tts": 5}',
        '{"ph": "X", "name": "a", "cname": "good", "sf": 1}',
        '{"ph": "X", "name": "a", "name": "b"}',
        '{"ph": "X", "args": {"a": 1}, "args": {"b": 2}}',
        '{"ph": "X", "name": null}',
        '{"ph": "X", "args": null}',
        '{"ph": "X", "ts": null, "dur": null}',
        '{"ph": "X", "Name": "a"}',
        '{"ph": "X", "": 1}',
        '{"ph": "X", "größe": "ü"}',
    ],
)
@pytest.mark.parametrize("place", [1, 3])
def test_event_with_more_than_its_columns_carry_keeps_its_text(event: str, place: int) -> None:
    plain = '{"ph": "X", "name": "plain"}'
    events = [event if index == place else plain for index in range(4)]
    found = read(trace(*events))
    assert found.column("residue") == [event if index == place else None for index in range(4)]
    assert found.column("phase") == ["X"] * 4


@pytest.mark.parametrize(
    ("label", "column", "text"),
    [
        ('"name": 5', "name", "5"),
        ('"name": true', "name", "true"),
        ('"name": [1]', "name", "[1]"),
        ('"name": {"a": 1}', "name", '{"a":1}'),
        ('"ph": 5', "phase", "5"),
        ('"s": false', "scope", "false"),
    ],
)
def test_label_that_is_no_text_is_landed_as_the_text_of_its_value(label: str, column: str, text: str) -> None:
    found = read(trace(f'{{{label}, "ts": 1}}', '{"ts": 2}', '{"ts": 3}'))
    assert found.column(column) == [text, None, None]


def test_null_among_the_arguments_stays_there() -> None:
    row = read(trace('{"args": {"a": null, "stream": null}}')).row
    assert (row["args"], row["residue"]) == ('{"a":null,"stream":null}', None)


def test_colon_in_disguise_does_not_hide_a_null() -> None:
    event = '{"name": null, "args": {"a": "x\\"\\u003a"}}'
    found = read(trace(event, '{"ts": 1}', '{"ts": 2}'))
    assert found.column("residue") == [event, None, None]


# -- what is said around the events ----------------------------------------------------------------------------


def test_members_of_the_document_are_kept_as_they_are() -> None:
    members = {"größe": "ü", "a": {"b": [1, 2.5, None]}, "c": True, "traceName": "\u20ac\n"}
    before, after = json.dumps(members, ensure_ascii=False)[1:-1], '"z": [{}]'
    assert read(trace('{"ts": 1}', before=before, after=after)).envelope == {**members, "z": [{}]}
    assert read(trace('{"ts": 1}', before=json.dumps(members)[1:-1])).envelope == members


def test_doubled_member_of_the_document_is_not_lost() -> None:
    found = read(trace('{"ts": 1}', before='"traceName": "first"', after='"traceName": "second"'))
    assert "first" in found.envelope_text
    assert "second" in found.envelope_text
