"""Traces that mean harm: each leaves a sentence, and the good trace beside it keeps all its rows."""

from __future__ import annotations

import gzip
import json
import random
from typing import TYPE_CHECKING, Any

import pytest
from backports import zstd

from bronze.limits import Limits
from tests.support.traces import GOOD, trace

if TYPE_CHECKING:
    from tests.bronze.conftest import Beside

_SMALL = Limits(max_inflated_bytes=1_000_000)
_SHORT = Limits(max_event_bytes=1 << 20, shard_bytes=1 << 18)

# -- packing ---------------------------------------------------------------------------------------------------


def test_truncated_gzip_is_reported(beside: Beside) -> None:
    data = gzip.compress(trace(*['{"ph": "X"}'] * 500))[:-12]
    assert "the gzip stream is cut short" in beside(data).reported()


def test_gzip_that_inflates_to_nothing_is_rejected_as_such(beside: Beside) -> None:
    files = {
        "magic.gz": b"\x1f\x8b",
        "head.gz": gzip.compress(GOOD)[:11],
        "garbage.gz": b"\x1f\x8b\x08\x00hello",
        "zeros.gz": b"\x1f\x8b" + bytes(40),
    }
    company = beside(files)
    assert all("gzip" in company.rejected(name) for name in files)


@pytest.mark.parametrize("pack", [gzip.compress, zstd.compress])
def test_bomb_is_rejected_and_the_setting_is_named(beside: Beside, pack: Any) -> None:
    reason = beside(pack(b'{"traceEvents": [' + b'{"ph": "X"},' * 400_000 + b"{}]}"), _SMALL).rejected()
    assert "1,000,000 bytes" in reason
    assert "TEETOTAL_MAX_INFLATED_BYTES" in reason


def test_bomb_of_blanks_is_rejected_and_the_setting_is_named(beside: Beside) -> None:
    assert "TEETOTAL_MAX_INFLATED_BYTES" in beside(gzip.compress(b" " * 20_000_000), _SMALL).rejected()


def test_zstd_is_read_in_one_frame_or_more(beside: Beside) -> None:
    data = trace('{"name": "x"}', '{"name": "y"}')
    company = beside({"one.zst": zstd.compress(data), "two.zst": zstd.compress(data[:30]) + zstd.compress(data[30:])})
    assert company.names("one.zst") == company.names("two.zst") == ["x", "y"]
    assert company.landed.files["is_complete"].to_list() == [True, True, True]


def test_truncated_zstd_is_reported(beside: Beside) -> None:
    noise = random.Random(1).randbytes(300_000).hex()
    events = [json.dumps({"name": "x", "args": {"noise": noise[i : i + 200]}}) for i in range(0, 600_000, 200)]
    company = beside(zstd.compress(trace(*events))[:-100_000])
    assert "the zstd stream is cut short" in company.reported()
    assert len(company.names()) > 1000


# -- shapes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_closed", [True, False])
@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")], ids=["lists", "objects"])
def test_deep_nesting_costs_no_other_event(beside: Beside, opening: str, closing: str, is_closed: bool) -> None:
    deep = opening * 100_000 + "1" + (closing * 100_000 if is_closed else "")
    company = beside(trace('{"name": "x"}', f'{{"name": "deep", "args": {{"a": {deep}}}}}', '{"name": "y"}'))
    assert [name for name in company.names() if name != "deep"] == ["x", "y"]
    assert "deep" in company.names() or company.reported()


@pytest.mark.parametrize("place", ["before", "after"])
def test_deep_nesting_in_the_envelope_costs_no_event(beside: Beside, place: str) -> None:
    depths = [500, *range(900, 1010, 10), 100_000]
    company = beside(
        {
            f"{depth}": trace(f'{{"name": "{depth}"}}', **{place: f'"deep": {"[" * depth}{"]" * depth}'})
            for depth in depths
        }
    )
    assert [company.names(f"{depth}") for depth in depths] == [[f"{depth}"] for depth in depths]


def test_huge_names_are_landed(beside: Beside) -> None:
    name = "n" * 5_000_000
    company = beside(trace('{"name": "x"}', f'{{"name": "{name}", "ts": 1}}', '{"name": "y"}'))
    assert company.names() == ["x", name, "y"]


def test_event_larger_than_the_limit_is_reported_and_the_setting_is_named(beside: Beside) -> None:
    company = beside(trace('{"name": "x"}', f'{{"name": "{"n" * 5_000_000}", "ts": 1}}', '{"name": "y"}'), _SHORT)
    assert company.names() == ["x", "y"]
    assert "TEETOTAL_MAX_EVENT_BYTES" in company.reported()


@pytest.mark.parametrize("place", ["before", "after"])
def test_member_larger_than_the_limit_is_reported_and_costs_no_event(beside: Beside, place: str) -> None:
    company = beside(trace('{"name": "x"}', **{place: f'"stackFrames": "{"s" * 6_000_000}"'}), _SHORT)
    assert company.names() == ["x"]
    assert company.reported()


def test_member_too_large_to_be_kept_is_reported(beside: Beside) -> None:
    company = beside(trace('{"name": "x"}', after=f'"stackFrames": "{"s" * 5_000_000}"'))
    assert "stackFrames" in str(company.landed.file("bad.json")["envelope"]) or company.reported()


def test_many_members_are_bounded_and_what_is_left_out_is_reported(beside: Beside) -> None:
    company = beside(trace('{"name": "x"}', after=",".join(f'"m{i}": "{"s" * 1_000_000}"' for i in range(12))))
    assert company.names() == ["x"]
    assert len(str(company.landed.file("bad.json")["envelope"])) < 8_000_000
    assert company.reported()


# -- values ----------------------------------------------------------------------------------------------------


def test_values_that_are_no_numbers_cost_no_event(beside: Beside) -> None:
    values = ["NaN", "Infinity", "-Infinity", "inf", "-inf", "nan"]
    events = [f'{{"name": "{value}", "ts": {value}, "dur": {value}, "args": {{"a": {value}}}}}' for value in values]
    company = beside(trace(*events))
    assert company.names() == values
    assert company.residues() == events
    assert company.landed.events_of("bad.json")["ts_ns"].to_list() == [None] * 6


def test_wrong_types_for_every_known_key_cost_no_event(beside: Beside) -> None:
    keys = ["ph", "cat", "name", "pid", "tid", "ts", "dur", "id", "bp", "s", "args"]
    values = ["null", "true", "17", "-1.5", '"text"', "[]", '[{"a": 1}]', "{}", '{"ph": "X"}', "1e400", "9" * 40]
    events = [f'{{"{key}": {value}, "x": "{key} {place}"}}' for key in keys for place, value in enumerate(values)]
    assert beside(trace(*events)).residues() == events


def test_wrong_types_for_every_known_argument_cost_no_event(beside: Beside) -> None:
    keys = ["External id", "stream", "Collective name", "dtype", "In msg nelems", "Process Group Ranks", "bytes"]
    values: list[Any] = [None, True, 17, -1.5, "text", [], [{"a": 1}], {}, 10**40]
    events = [{"name": "x", "args": {key: value}} for key in keys for value in values]
    landed = beside(trace(*map(json.dumps, events))).landed
    assert [json.loads(text) for text in landed.events_of("bad.json")["args"]] == [event["args"] for event in events]


def test_wrong_types_in_the_envelope_cost_no_event(beside: Beside) -> None:
    keys = ["distributedInfo", "deviceProperties", "baseTimeNanoseconds", "schemaVersion", "displayTimeUnit"]
    values = ["null", "true", "-17", "1.5", '"text"', "[]", "[[]]", "[{}]", "{}", '{"rank": {}, "name": []}', "1e400"]
    files = {
        f"{place}": trace(f'{{"name": "{place}"}}', before=", ".join(f'"{key}": {value}' for key in keys))
        for place, value in enumerate(values)
    }
    company = beside(files)
    assert [company.names(file) for file in files] == [[file] for file in files]


@pytest.mark.parametrize("place", ["before", "after"])
def test_strange_members_cost_no_event(beside: Beside, place: str) -> None:
    members = {
        "digits": '"a": ' + "1" * 5000,
        "surrogate": '"a": "\\ud800"',
        "surrogate key": '"\\udfff": 1',
        "zero": '"a": "\\u0000"',
        "tab": '"a": "b\tc"',
        "tab key": '"a\tb": 1',
        "no escape": '"a": "\\x"',
        "no escape key": '"\\uzz": 1',
    }
    company = beside({name: trace(f'{{"name": "{name}"}}', **{place: member}) for name, member in members.items()})
    assert [company.names(name) for name in members] == [[name] for name in members]
    for name in members:
        envelope = company.landed.file(name)["envelope"]
        assert envelope or company.reported(name)
        assert isinstance(json.loads(str(envelope or "{}"), parse_int=str), dict), envelope


def test_surrogate_in_the_name_of_a_device_costs_no_event(beside: Beside) -> None:
    members = '"deviceProperties": [{"name": "\\ud800"}], "distributedInfo": {"backend": "\\ud800"}'
    assert beside(trace('{"name": "x"}', before=members)).names() == ["x"]


def test_doubled_keys_keep_the_text_of_the_event(beside: Beside) -> None:
    event = '{"name": "x", "name": "y", "args": {"a": 1, "a": 2}}'
    assert beside(trace(event)).residues() == [event]


def test_bytes_that_are_not_utf8_cost_no_event(beside: Beside) -> None:
    data = trace('{"name": "x"}', '{"name": "CAFE", "args": {"CAFE": 1}}', '{"name": "y"}', after='"CAFE": "CAFE"')
    company = beside(data.replace(b"CAFE", b"caf\xe9"))
    assert company.names() == ["x", "caf\ufffd", "y"]
    assert company.residues() == [None, '{"name": "caf\\xe9", "args": {"caf\\xe9": 1}}', None]
    assert isinstance(json.loads(str(company.landed.file("bad.json")["envelope"])), dict)
