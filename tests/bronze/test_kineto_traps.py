"""What real Kineto traces do to a reader that believes too much: one small literal trace a trap."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.traces import read, trace

if TYPE_CHECKING:
    from tests.conftest import LandFiles

# -- time --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("unit", ["ms", "ns", "us", "fortnight"])
def test_times_are_microseconds_whatever_the_display_unit_says(unit: str) -> None:
    found = read(
        trace('{"ph": "X", "ts": 3843639159951.688, "dur": 181375.162}', before=f'"displayTimeUnit": "{unit}"')
    )
    assert (found.row["ts_ns"], found.row["duration_ns"]) == (3843639159951688, 181375162)


def test_base_time_before_the_events_is_added() -> None:
    found = read(trace('{"ts": 3843639159951.688, "dur": 5}', before='"baseTimeNanoseconds": 1790857026000000000'))
    assert (found.row["ts_ns"], found.row["duration_ns"]) == (1790857026000000000 + 3843639159951688, 5000)


@pytest.mark.parametrize("padding", [0, 100, 3 << 20], ids=["at the end", "near the end", "far from the end"])
def test_base_time_behind_the_events_is_added(land_files: LandFiles, padding: int) -> None:
    after = '"baseTimeNanoseconds": 1790857026000000000, "other": "' + "x" * padding + '"'
    landed = land_files({"a.json": trace('{"ts": 0.001}', '{"ts": 12.5}', after=after)})
    assert landed.events["ts_ns"].to_list() == [1790857026000000001, 1790857026000012500]
    assert landed.file("a.json")["base_ns"] == 1790857026000000000


def test_base_time_behind_times_that_count_from_1970_is_added(land_files: LandFiles) -> None:
    landed = land_files({"a.json": trace('{"ts": 1790857026123456.789}', after='"baseTimeNanoseconds": 1000')})
    assert landed.events["ts_ns"].to_list() == [1790857026123456789 + 1000]


def test_base_time_in_an_event_is_not_that_of_the_trace(land_files: LandFiles) -> None:
    landed = land_files({"a.json": trace('{"ts": 1.5, "args": {"baseTimeNanoseconds": 1000}}')})
    assert landed.events["ts_ns"].to_list() == [1500]


@pytest.mark.parametrize("place", ["before", "after"])
def test_base_time_that_no_time_can_hold_is_kept_beside_the_events_and_not_added(
    land_files: LandFiles, place: str
) -> None:
    bases = ["-5", "1.5", "1e18", '"12"', "null", "9999999999999999999", "17908570260000000000000"]
    landed = land_files({base: trace('{"ts": 1.5}', **{place: f'"baseTimeNanoseconds": {base}'}) for base in bases})
    assert [landed.events_of(base)["ts_ns"].to_list() for base in bases] == [[1500]] * len(bases)
    assert landed.files["base_ns"].to_list() == [None] * len(bases)
    for base in bases:
        assert json.loads(str(landed.file(base)["envelope"])) == {"baseTimeNanoseconds": json.loads(base)}


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("1790857026123456.789", 1790857026123456789),
        ("1790857026123456.001", 1790857026123456001),
        ("1790857026123456.999", 1790857026123456999),
        ("1790857026123456.5", 1790857026123456500),
        ("1790857026123456", 1790857026123456000),
        ("-1790857026123456.789", -1790857026123456789),
        ("1.790857026123456789e15", 1790857026123456789),
        ("8796093022207.999", 8796093022207999),
        ("8796093022208.001", 8796093022208001),
        ("9223372036854775.807", 9223372036854775807),
    ],
)
def test_times_too_fine_for_a_double_are_exact(text: str, nanoseconds: int) -> None:
    row = read(trace(f'{{"ts": {text}, "dur": {text}}}')).row
    assert (row["ts_ns"], row["duration_ns"]) == (nanoseconds, nanoseconds)


@pytest.mark.parametrize("inner", ['{"ts": 5, "dur": 5}', '{"ts": 1790857026123456.7, "dur": 1790857026123456.7}'])
def test_time_among_the_arguments_is_not_the_time_of_the_event(inner: str) -> None:
    row = read(trace(f'{{"args": {inner}, "dur": 1790857026123456.8, "ts": 1790857026123456.8}}')).row
    assert (row["ts_ns"], row["duration_ns"]) == (1790857026123456800, 1790857026123456800)


def test_event_at_time_zero_keeps_its_time() -> None:
    assert read(trace('{"ph": "M", "name": "process_name", "ts": 0}')).row["ts_ns"] == 0


def test_kernel_that_starts_before_its_launch_keeps_its_time() -> None:
    found = read(
        trace(
            '{"ph": "X", "cat": "cuda_runtime", "ts": 10.000, "dur": 5.000, "args": {"correlation": 7}}',
            '{"ph": "X", "cat": "kernel", "ts": 9.999, "dur": 1.000, "args": {"correlation": 7}}',
        )
    )
    assert found.column("ts_ns") == [10000, 9999]
    assert found.column("correlation_id") == [7, 7]


def test_negative_duration_is_kept() -> None:
    assert read(trace('{"ts": 1, "dur": -18.001}')).row["duration_ns"] == -18001


@pytest.mark.parametrize("key", ["ts", "dur"])
@pytest.mark.parametrize("value", ["9223372036854775.808", "18446744073709551615", "1e300", "-9e40", "1e999"])
def test_time_that_overflows_is_null_and_the_event_keeps_its_text(key: str, value: str) -> None:
    event = f'{{"ph": "X", "name": "a", "{key}": {value}}}'
    row = read(trace(event)).row
    assert (row["ts_ns"], row["duration_ns"], row["name"]) == (None, None, "a")
    assert row["residue"] == event


@pytest.mark.parametrize("value", ["inf", "-inf", "Infinity", "-Infinity", "NaN", "nan"])
@pytest.mark.parametrize("key", ["ts", "dur"])
def test_time_that_is_no_number_is_null_and_the_event_keeps_its_text(key: str, value: str) -> None:
    event = f'{{"ph": "X", "name": "a", "{key}": {value}, "args": {{"stream": 7}}}}'
    row = read(trace(event, after='"traceName": "x"')).row
    assert (row["ts_ns"], row["duration_ns"], row["name"], row["stream_id"]) == (None, None, "a", 7)
    assert row["residue"] == event


@pytest.mark.parametrize("value", ["[1]", '{"a": 1}', '"soon"', '""', '"inf"', '"nan"'])
@pytest.mark.parametrize("key", ["ts", "dur"])
def test_time_of_another_type_is_null_and_the_event_keeps_its_text(key: str, value: str) -> None:
    event = f'{{"name": "a", "{key}": {value}}}'
    row = read(trace(event)).row
    assert (row["ts_ns"], row["duration_ns"], row["residue"]) == (None, None, event)


# -- labels and arguments ----------------------------------------------------------------------------------


@pytest.mark.parametrize("phase", ["X", "M", "s", "f", "i", "C", "B", "E", "unheard of"])
def test_every_phase_is_landed(phase: str) -> None:
    row = read(trace(f'{{"ph": "{phase}", "ts": 1, "id": 9, "bp": "e", "s": "g"}}')).row
    assert (row["phase"], row["flow_id"], row["binding_point"], row["scope"]) == (phase, "9", "e", "g")


def test_processes_and_threads_may_be_numbers_or_texts() -> None:
    found = read(trace('{"pid": 674, "tid": 0}', '{"pid": "Spans", "tid": "stream 7"}', '{"pid": "", "tid": -1}'))
    assert found.column("process_id") == ["674", "Spans", ""]
    assert found.column("thread_id") == ["0", "stream 7", "-1"]
    assert found.column("residue") == [None, None, None]


@pytest.mark.parametrize("category", ["Kernel", "Memcpy", "kernel", "gpu_memcpy", "cuda_sync", "Trace"])
def test_categories_are_kept_as_the_source_spells_them(category: str) -> None:
    assert read(trace(f'{{"cat": "{category}"}}')).row["category"] == category


_COLLECTIVE = {
    "Collective name": "allreduce",
    "In msg nelems": 25557032,
    "Out msg nelems": 25557033,
    "In split size": "[1, 2]",
    "Out split size": "[]",
    "Group size": 8,
    "dtype": "Float",
    "Process Group Name": "0",
    "Process Group Description": "default_pg",
    "Process Group Ranks": "[0, 1, 2, 3, 4, 5, 6, 7]",
    "Seq": 12,
    "Comms Id": "17695873455",
    "Src Rank": 3,
    "Dst Rank": 4,
    "External id": 1,
    "correlation": 2,
    "device": 0,
    "context": 1,
    "stream": 20,
    "bytes": 4096,
}
_TYPED: dict[str, Any] = {
    "collective_name": "allreduce",
    "in_elements_count": 25557032,
    "out_elements_count": 25557033,
    "in_split_sizes": "[1, 2]",
    "out_split_sizes": "[]",
    "group_size": 8,
    "dtype": "Float",
    "process_group_name": "0",
    "process_group_description": "default_pg",
    "process_group_ranks": "[0, 1, 2, 3, 4, 5, 6, 7]",
    "collective_sequence": 12,
    "communicator_id": "17695873455",
    "source_rank": 3,
    "destination_rank": 4,
    "external_id": 1,
    "correlation_id": 2,
    "device_id": 0,
    "context_id": 1,
    "stream_id": 20,
    "payload_bytes": 4096,
}


def test_arguments_of_a_collective_are_typed_beside_their_text() -> None:
    row = read(trace(json.dumps({"name": "record_param_comms", "args": _COLLECTIVE}))).row
    assert {name: row[name] for name in _TYPED} == _TYPED
    assert json.loads(row["args"]) == _COLLECTIVE


def test_older_names_of_message_sizes_are_known() -> None:
    row = read(trace('{"args": {"In msg size": 5, "Out msg size": 6}}')).row
    assert (row["in_elements_count"], row["out_elements_count"]) == (5, 6)


def test_wait_is_landed_like_any_collective() -> None:
    row = read(trace('{"name": "record_param_comms", "args": {"Collective name": "wait", "In msg nelems": 0}}')).row
    assert (row["collective_name"], row["in_elements_count"]) == ("wait", 0)


def test_arguments_keep_long_whole_numbers_and_what_a_double_holds_of_the_others() -> None:
    row = read(trace('{"args": {"a": 0.1234567890123456789, "c": 18446744073709551616}}')).row
    assert row["args"] == '{"a":0.12345678901234568,"c":18446744073709551616}'


@pytest.mark.parametrize("value", ["1e30", "null", '"x"', "[7]"])
def test_argument_of_another_type_is_null_beside_its_text(value: str) -> None:
    row = read(trace(f'{{"args": {{"stream": {value}}}}}')).row
    assert row["stream_id"] is None
    assert json.loads(row["args"]) == {"stream": json.loads(value)}


# -- what is said around the events ------------------------------------------------------------------------


def _make_trace(info: str, place: str = "before") -> bytes:
    return trace('{"ts": 1}', **{place: f'"distributedInfo": {info}'})


@pytest.mark.parametrize("place", ["before", "after"])
def test_rank_is_what_the_trace_says_and_not_its_name(land_files: LandFiles, place: str) -> None:
    landed = land_files({"rank7.json": _make_trace('{"rank": 3, "world_size": 8, "backend": "nccl"}', place)})
    row = landed.file("rank7.json")
    assert (row["rank"], row["rank_source"], row["world_size"], row["backend"]) == (3, "trace", 8, "nccl")
    assert landed.events["rank"].to_list() == [3]


def test_rank_and_ranks_may_be_texts(land_files: LandFiles) -> None:
    info = '{"rank": "2", "world_size": "4", "pg_config": [{"ranks": "[0, 1, 2, 3]"}]}'
    landed = land_files({"a.json": _make_trace(info)})
    assert (landed.file("a.json")["rank"], landed.file("a.json")["world_size"]) == (2, 4)
    assert json.loads(str(landed.file("a.json")["envelope"])) == {"distributedInfo": json.loads(info)}


def test_rank_that_is_none_is_not_believed(land_files: LandFiles) -> None:
    ranks = ["-1", "1.5", "null", "true", '"12345678901"', "12345678901", '"two"', "[0]"]
    landed = land_files({f"r{place}": _make_trace(f'{{"rank": {rank}}}') for place, rank in enumerate(ranks)})
    found = {rank: landed.file(f"r{place}")["rank"] for place, rank in enumerate(ranks)}
    assert found == {rank: place for place, rank in enumerate(ranks)}
    assert set(landed.files["rank_source"]) == {"file_name"}


def test_rank_comes_from_the_file_name_where_the_trace_has_none(land_files: LandFiles) -> None:
    names = {
        "gpt2-plain-w4-r3.json.gz": 3,
        "sampled_rank-1.json.gz": 1,
        "worker7_step_12.1694128201553.pt.trace.json.gz": 7,
        "Rank_0012.json": 12,
    }
    landed = land_files({name: gzip.compress(trace(f'{{"ts": {rank}}}')) for name, rank in names.items()})
    assert {name: landed.file(name)["rank"] for name in names} == names
    assert landed.events["ts_ns"].to_list() == [rank * 1000 for rank in landed.events["rank"]]
    assert set(landed.files["rank_source"]) == {"file_name"}


def test_traces_without_any_rank_get_the_free_ones(land_files: LandFiles) -> None:
    files = {"a.json": trace('{"ts": 1}'), "b.json": trace('{"ts": 2}'), "c.json": _make_trace('{"rank": 1}')}
    landed = land_files(files)
    assert sorted(landed.files["rank"].to_list()) == [0, 1, 2]
    assert landed.file("c.json")["rank"] == 1
    assert landed.file("a.json")["rank_source"] == "assumed"


def _record(process: object, *starts: int) -> bytes:
    """A trace without a rank: operators of a process, and what it has on a device."""
    events = [f'{{"ph": "X", "cat": "cpu_op", "pid": {json.dumps(process)}, "ts": {at}, "dur": 5}}' for at in starts]
    return trace(f'{{"ph": "X", "cat": "kernel", "pid": 0, "ts": {starts[0]}, "dur": 2}}', *events)


def test_traces_of_one_process_that_follow_each_other_are_cycles_of_one_rank(land_files: LandFiles) -> None:
    files = {
        "host_480.1795087043992504055.pt.trace.json": _record(480, 40, 50),
        "host_480.1795087044642824945.pt.trace.json": _record(480, 10, 20),
        "host_481.1795087043992504056.pt.trace.json": _record(481, 10, 20),
    }
    landed = land_files(files)
    first, second, other = (landed.file(name)["rank"] for name in files)
    assert first == second
    assert {first, other} == {0, 1}
    assert set(landed.files["rank_source"]) == {"assumed"}
    assert landed.runs["conflicts"].to_list() == [None]


@pytest.mark.parametrize(
    "files",
    [
        {"a.json": _record(1, 10, 20), "b.json": _record(1, 15, 25)},
        {"a.json": _record(1, 10, 20), "b.json": _record(1, 18), "c.json": _record(1, 40)},
        {"a.json": _record("python", 10), "b.json": _record("python", 20)},
        {"a.json": _record(None, 10), "b.json": _record(None, 20)},
    ],
    ids=["at one time", "two of three at one time", "no number", "no process"],
)
def test_traces_that_may_be_of_several_processes_are_ranks_of_their_own(
    land_files: LandFiles, files: dict[str, bytes]
) -> None:
    assert sorted(land_files(files).files["rank"].to_list()) == list(range(len(files)))
