"""Traces that are no JSON: what can be read is read, exactly, and the rest is reported where it lies."""

from __future__ import annotations

import gzip
import json
import re
import time
import zlib
from typing import TYPE_CHECKING

import pytest

from bronze.limits import Limits
from tests.support.campaigns import pick_size
from tests.support.traces import native, read, trace

if TYPE_CHECKING:
    from tests.conftest import LandFiles

_PLAIN = '{"ph": "X", "name": "plain", "ts": 5}'
_MANY = native([{"ph": "X", "name": f"event {index}", "ts": index, "args": {"a": index}} for index in range(20_000)])


# -- strings that are none ---------------------------------------------------------------------------------


@pytest.mark.parametrize("place", [0, 1, 3], ids=["first", "second", "last"])
@pytest.mark.parametrize(
    ("text", "name"),
    [
        ('operator "add"', 'operator "add"'),
        ('std::map<"a", b>', 'std::map<"a", b>'),
        ("a\tb", "a\tb"),
        ("a\nb", "a\nb"),
        ("},\n  {", "},\n  {"),
        ("a\x00b\x1f", "a\x00b\x1f"),
        ("a\\ud800b", "a?b"),
    ],
    ids=["bare quotes", "bare quotes and a comma", "tab", "newline", "newline between braces", "controls", "surrogate"],
)
def test_event_with_a_string_that_is_none_is_mended_and_keeps_its_text(place: int, text: str, name: str) -> None:
    event = f'{{"ph": "X", "name": "{text}", "ts": 3843639159951.688, "args": {{"stream": 7}}}}'
    found = read(trace(*(event if index == place else _PLAIN for index in range(4))))
    assert found.column("name") == [name if index == place else "plain" for index in range(4)]
    assert found.column("residue") == [event if index == place else None for index in range(4)]
    row = found.rows[place]
    assert (row["ts_ns"], row["stream_id"]) == (3843639159951688, 7)
    assert found.unreadable == []


@pytest.mark.parametrize("name", ["a\tb", 'a "b" c', "a\\ud800b"])
def test_mending_does_not_change_a_nanosecond(name: str) -> None:
    event = f'{{"ph": "X", "name": "{name}", "ts": 1790857026123456.789, "dur": 1790857026123456.001}}'
    row = read(trace(event, _PLAIN)).rows[0]
    assert (row["ts_ns"], row["duration_ns"]) == (1790857026123456789, 1790857026123456001)


def test_mending_does_not_change_an_argument() -> None:
    event = '{"name": "a\tb", "args": {"a": 0.12345678901234567890, "b": 12345678901234567890123, "c": "\\u00e9"}}'
    row = read(trace(event, _PLAIN)).rows[0]
    assert (row["name"], row["residue"]) == ("a\tb", event)
    assert json.loads(row["args"]) == {"a": 0.12345678901234567890, "b": 12345678901234567890123, "c": "é"}


def test_bytes_that_are_not_utf8_are_replaced_and_kept_in_the_text() -> None:
    event = b'{"ph": "X", "name": "caf\xe9", "ts": 1790857026123456.789}'
    found = read(trace("EVENT", _PLAIN).replace(b"EVENT", event))
    assert found.column("name") == ["caf\ufffd", "plain"]
    assert found.column("residue") == [event.decode("utf-8", "backslashreplace"), None]
    assert found.rows[0]["ts_ns"] == 1790857026123456789


# -- one event is broken, the others go on -----------------------------------------------------------------

_BROKEN = {
    "no value": '{"ph": "X", "name": }',
    "no quotes": '{"ph": X, "name": "a"}',
    "hexadecimal": '{"ph": "X", "ts": 0x10}',
    "plus": '{"ph": "X", "ts": +5}',
    "missing brace": '{"ph": "X", "args": {"a": 1}',
    "missing bracket": '{"ph": "X", "args": {"a": [1, 2}}',
    "brace too many": '{"ph": "X", "args": {"a": 1}}}',
    "open string": '{"ph": "X", "name": "a, "ts": 1}',
    "text": "hello",
    "null": "null",
    "number": "17",
    "list": '[{"ph": "X"}, {"ph": "X"}]',
    "string": '"},\\n  {"',
}


@pytest.mark.parametrize("what", _BROKEN)
@pytest.mark.parametrize("place", [0, 2, 5], ids=["first", "middle", "last"])
def test_broken_event_is_reported_and_the_others_are_landed(what: str, place: int) -> None:
    texts = [f'{{"ph": "X", "name": "e{index}", "ts": {index}}}' for index in range(6)]
    texts[place] = _BROKEN[what]
    data = trace(*texts, after='"traceName": "x"')
    found = read(data)
    assert [name for name in found.column("name") if name] == [f"e{index}" for index in range(6) if index != place]
    assert found.envelope == {"traceName": "x"}
    where = data.index(_BROKEN[what].encode())
    assert [where <= byte_range.offset <= where + len(_BROKEN[what]) for byte_range in found.unreadable] == [True]


@pytest.mark.parametrize("shift", [0, 1, 2, 3])
def test_broken_event_may_be_in_any_script(shift: int) -> None:
    event = '{"ph": , "name": "' + "x" * shift + "é🙂" * 20 + '"}'
    found = read(trace(event, _PLAIN))
    assert found.column("name") == ["plain"]
    assert [byte_range.length for byte_range in found.unreadable] == [len(event.encode())]


@pytest.mark.parametrize("place", [0, 2, 5], ids=["first", "middle", "last"])
def test_infinity_beside_a_list_of_objects_costs_no_event(place: int) -> None:
    texts = [f'{{"ph": "X", "name": "e{index}", "ts": {index}}}' for index in range(6)]
    texts[place] = (
        f'{{"ph": "X", "name": "e{place}", "args": {{"l": [{{"name": 1}}, {{"name": 2}}], "x": inf}}, "ts": 1}}'
    )
    found = read(trace(*texts, after='"traceName": "x"'))
    assert found.column("name") == [f"e{index}" for index in range(6)]
    assert found.envelope == {"traceName": "x"}


def test_bracket_between_two_events_costs_no_event() -> None:
    events = [f'{{"ph": "X", "name": "e{index}"}}' for index in range(4)]
    found = read(trace(*events[:2], "]", *events[2:]))
    assert found.column("name") == ["e0", "e1", "e2", "e3"]


def test_broken_member_before_the_events_costs_no_event() -> None:
    found = read(trace('{"ts": 1}', '{"ts": 2}', before='"a": {"b": }, "c": 1'))
    assert found.column("ts_ns") == [1000, 2000]
    assert [byte_range.reason for byte_range in found.unreadable] == [
        "what stands before the traceEvents array is not JSON"
    ]


def test_broken_member_behind_the_events_is_reported() -> None:
    found = read(trace('{"ts": 1}', after='"a": {"b": }, "c": 1'))
    assert (found.column("ts_ns"), found.is_complete) == ([1000], False)
    assert found.unreadable[0].beginning.startswith('"a": {"b": }')


@pytest.mark.parametrize(
    ("event", "is_mended"),
    [
        ('{"ph": "X", "name": "a\tb", "args": {"filler": "' + "x" * 900 + '"}}', True),
        ('{"ph": "X", "name": }', False),
        ('{"ph": "X", "args": {"l": [1, 2', False),
        ('{"ph": "X", "name": "a\\"}', False),
    ],
    ids=["control character", "no value", "never closed", "quote escaped"],
)
def test_many_broken_events_take_time_in_proportion(event: str, is_mended: bool) -> None:
    def measure_reading(count: int) -> float:
        start = time.process_time()
        found = read(trace(*[event] * count, _PLAIN))
        assert (len(found.rows), found.rows[-1]["name"]) == (count * is_mended + 1, "plain")
        return time.process_time() - start

    # Four times the events: 4 times the work, where reading on to the end after each would be 16.
    many, few = pick_size(600, 1200), pick_size(150, 300)
    assert measure_reading(many) < 9 * max(measure_reading(few) for _ in range(2))


def test_hostile_quotes_take_time_in_proportion() -> None:
    def measure_reading(count: int) -> float:
        start = time.process_time()
        assert read(trace('{"name": "' + '"a":"' * count + " 5}", _PLAIN)).column("name")[-1] == "plain"
        return time.process_time() - start

    assert measure_reading(40_000) < 9 * max(measure_reading(10_000) for _ in range(2))


# -- the file ends too early -------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["object", "array"])
@pytest.mark.parametrize("cut", [1, 2, 8, 17, 23, 25, 40, 60])
def test_truncated_trace_keeps_the_events_that_are_whole(form: str, cut: int) -> None:
    events = [f'{{"ph": "X", "name": "e{index}"}}' for index in range(4)]
    whole = trace(*events) if form == "object" else ("[" + ",\n".join(events) + "]").encode()
    data = whole[:-cut]
    found = read(data)
    ends = [whole.index(event.encode()) + len(event) for event in events]
    assert found.column("name") == [f"e{index}" for index in range(4) if ends[index] <= len(data)]
    assert not found.is_complete
    assert any("the file ends" in byte_range.reason for byte_range in found.unreadable)


def test_mended_event_is_kept_even_where_the_trace_ends_behind_it() -> None:
    found = read(b'{"traceEvents": [{"name": "a"},\n {"name": "b\tc"},\n')
    assert found.column("name") == ["a", "b\tc"]


def test_trace_cut_inside_its_envelope_is_rejected_with_a_reason(land_files: LandFiles) -> None:
    row = land_files({"a.json": b'{"schemaVersion": 1, "deviceProperties": [{"id": 0, "na'}).file("a.json")
    assert (row["outcome"], row["events_count"]) == ("rejected", 0)
    assert re.search(r"without (trace events|a traceEvents array)", str(row["reason"]))


@pytest.mark.parametrize("part", [0.2, 0.5, 0.9, 1.0])
def test_trace_cut_inside_its_gzip_keeps_what_can_be_inflated(land_files: LandFiles, part: float) -> None:
    packed = gzip.compress(_MANY)
    packed = packed[: int(len(packed) * part) - 4]
    plain = zlib.decompressobj(31).decompress(packed)
    landed = land_files({"a.json.gz": packed})
    assert len(landed.events) == plain.count(b"\n  }")
    assert landed.file("a.json.gz")["is_complete"] is False
    assert "the gzip stream is cut short" in landed.reasons_of("a.json.gz")


def test_damage_inside_the_gzip_costs_nothing_that_lies_before_it(land_files: LandFiles) -> None:
    packed = bytearray(gzip.compress(_MANY))
    place = int(len(packed) * 0.8)
    before = zlib.decompressobj(31).decompress(bytes(packed[:place]))
    packed[place : place + 64] = b"\xff" * 64
    landed = land_files({"a.json.gz": bytes(packed)})
    assert len(landed.events) >= before.count(b"\n  }") - 1
    assert landed.file("a.json.gz")["is_complete"] is False
    assert any("gzip" in reason for reason in landed.reasons_of("a.json.gz"))


@pytest.mark.parametrize("tail", [slice(-8, -4), slice(-4, None)], ids=["checksum", "length"])
def test_gzip_with_a_wrong_end_keeps_all_its_events(land_files: LandFiles, tail: slice) -> None:
    packed = bytearray(gzip.compress(_MANY))
    packed[tail] = b"\x00\x01\x02\x03"
    landed = land_files({"a.json.gz": bytes(packed)})
    assert len(landed.events) == 20_000
    assert landed.file("a.json.gz")["is_complete"] is False
    assert any("gzip" in reason for reason in landed.reasons_of("a.json.gz"))


@pytest.mark.parametrize("members", [1, 2, 7])
def test_gzip_in_several_members_is_one_trace(land_files: LandFiles, members: int) -> None:
    size = len(_MANY) // members + 1
    packed = b"".join(gzip.compress(_MANY[start : start + size]) for start in range(0, len(_MANY), size))
    landed = land_files({"a.json.gz": packed})
    assert (len(landed.events), landed.file("a.json.gz")["is_complete"]) == (20_000, True)


def test_gzip_padded_with_zeros_is_complete(land_files: LandFiles) -> None:
    landed = land_files({"a.json.gz": gzip.compress(trace('{"ts": 1}')) + bytes(512)})
    assert (len(landed.events), landed.file("a.json.gz")["is_complete"]) == (1, True)


def test_bytes_after_the_gzip_are_reported(land_files: LandFiles) -> None:
    landed = land_files({"a.json.gz": gzip.compress(trace('{"ts": 1}')) + b"hello"})
    assert (len(landed.events), landed.file("a.json.gz")["is_complete"]) == (1, False)
    assert landed.reasons_of("a.json.gz") == ["there are bytes after the end of the gzip stream"]


# -- events that never end ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "inside", ['"name": "' + "x" * (5 << 20) + '"', '"args": {"l": [' + "1, " * (1 << 20) + "1]}"], ids=["name", "list"]
)
def test_event_that_never_seems_to_end_is_given_up_and_the_next_are_landed(inside: str) -> None:
    limits = Limits(max_event_bytes=2 << 20, shard_bytes=1 << 20)
    found = read(trace(_PLAIN, f'{{"ph": "X", {inside}}}', *[_PLAIN] * 3, after='"traceName": "x"'), limits)
    assert found.column("name") == ["plain"] * 4
    assert found.envelope == {"traceName": "x"}
    assert len(found.unreadable) <= 8
    assert any("2,097,152" in byte_range.reason for byte_range in found.unreadable)
