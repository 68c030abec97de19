from __future__ import annotations

import pytest

from tests.support.bronze_sources import read_source

_API = b"Start (ns),Duration (ns),Name,Result,CorrID,Pid,Tid,T-Pri,Thread Name\n"
_GPU = (
    b"Start (ns),Duration (ns),CorrId,GrdX,Bytes (MB),Throughput (MB/s),SrcMemKd,DstMemKd,Device,Ctx,GreenCtx,Strm,"
    b"Name\n"
)
_LAUNCH = (
    b"API Start (ns),API Dur (ns),Queue Start (ns),Queue Dur (ns),Kernel Start (ns),Kernel Dur (ns),Total Dur (ns),"
    b"PID,TID,DevId,API Function,GridXYZ,BlockXYZ,Kernel Name\n"
)


def test_an_api_call_is_a_row() -> None:
    found = read_source(_API + b"9007199254740993,17,cudaMalloc,0,118,41,42,20,trainer\n")
    assert found.format == "nsys_csv"
    assert found.table("nsys_events") == [
        {
            "ordinal": 0,
            "offset_bytes": len(_API),
            "report": "cuda_api_trace",
            "name": "cudaMalloc",
            "start_ns": 9007199254740993,
            "duration_ns": 17,
            "correlation_id": 118,
            "process_id": "41",
            "thread_id": "42",
            "thread_name": "trainer",
            "result": "0",
            "args": '{"T-Pri":"20"}',
        }
    ]


def test_a_copy_keeps_its_label_and_says_that_its_bytes_are_rounded() -> None:
    found = read_source(
        _GPU + b"100,8,124,,0.064,13.5,Managed,Device,ACME X1 (3),1,,7,[CUDA memcpy Device-to-Device]\n"
    )
    assert found.table("nsys_events") == [
        {
            "ordinal": 0,
            "offset_bytes": len(_GPU),
            "report": "cuda_gpu_trace",
            "name": "[CUDA memcpy Device-to-Device]",
            "start_ns": 100,
            "duration_ns": 8,
            "correlation_id": 124,
            "device_name": "ACME X1 (3)",
            "device_id": 3,
            "context_id": 1,
            "stream_id": 7,
            "payload_bytes": 64_000,
            "is_payload_rounded": True,
            "source_memory": "Managed",
            "target_memory": "Device",
            "args": '{"Throughput (MB/s)":"13.5"}',
        }
    ]


def test_a_launch_has_its_call_its_wait_and_its_kernel() -> None:
    found = read_source(
        _LAUNCH
        + b'10,5,15,85,100,40,130,7,8,2,cudaLaunchKernel, 32 1 1, 1 1 1,"f(int, int)"\n10,5,,,20,1,11,7,8,2,g,,,h\n'
    )
    first, second = found.table("nsys_events")
    assert first == {
        "ordinal": 0,
        "offset_bytes": len(_LAUNCH),
        "report": "cuda_kern_exec_trace",
        "name": "f(int, int)",
        "start_ns": 100,
        "duration_ns": 40,
        "process_id": "7",
        "thread_id": "8",
        "device_id": 2,
        "api_name": "cudaLaunchKernel",
        "api_start_ns": 10,
        "api_duration_ns": 5,
        "queue_start_ns": 15,
        "queue_duration_ns": 85,
        "total_duration_ns": 130,
        "args": '{"GridXYZ":" 32 1 1","BlockXYZ":" 1 1 1"}',
    }
    assert "queue_start_ns" not in second


@pytest.mark.parametrize(
    ("header", "cells", "start_ns", "duration_ns"),
    [
        (b"Start (us),Duration (us)", b"1234567890123456.789,0.001", 1234567890123456789, 1),
        (b"Start (ms),Duration (ms)", b"1.5,0.000001", 1_500_000, 1),
        (b"Start (s),Duration (sec)", b"1.000000001,2", 1_000_000_001, 2_000_000_000),
        (b"Start,Duration", b"5,-3", 5, -3),
        (b" start (NS) ,Dur (ns)", b" 5 , 6 ", 5, 6),
    ],
)
def test_the_unit_stands_in_the_header(header: bytes, cells: bytes, start_ns: int, duration_ns: int) -> None:
    (row,) = read_source(header + b",Name,Tid\n" + cells + b",f,1\n").table("nsys_events")
    assert (row["start_ns"], row["duration_ns"]) == (start_ns, duration_ns)
    assert "args" not in row


def test_columns_may_come_in_any_order_and_be_missing() -> None:
    (row,) = read_source(b"Tid,Name,Duration (ns),Colour,Start (ns)\n9,f,2,red,1\n").table("nsys_events")
    assert (row["start_ns"], row["duration_ns"], row["name"], row["thread_id"]) == (1, 2, "f", "9")
    assert row["args"] == '{"Colour":"red"}'


def test_a_cell_of_the_wrong_kind_is_kept_as_it_is_and_not_believed() -> None:
    found = read_source(_API + b"soon,1.5,f,0,12x,1,1,20,t\n99999999999999999999,007,f,0,007,1,1,20,t\n")
    first, second = found.table("nsys_events")
    assert "start_ns" not in first
    assert "correlation_id" not in first
    assert first["duration_ns"] == 2  # a nanosecond is not parted; the cell says what it was
    assert first["args"] == '{"Start (ns)":"soon","Duration (ns)":"1.5","CorrID":"12x","T-Pri":"20"}'
    assert second["args"] == '{"Start (ns)":"99999999999999999999","CorrID":"007","T-Pri":"20"}'
    assert second["duration_ns"] == 7


def test_a_unit_that_nobody_knows_leaves_the_cells_as_they_are() -> None:
    (row,) = read_source(_API.replace(b"CorrID", b"Bytes (furlongs)") + b"1,2,f,0,3,1,1,20,t\n").table("nsys_events")
    assert "payload_bytes" not in row
    assert row["args"] == '{"Bytes (furlongs)":"3","T-Pri":"20"}'


def test_the_tool_may_talk_before_the_header_and_reports_may_follow_each_other() -> None:
    talk = b"Processing [x.sqlite] with [cuda_api_trace]...\n\n ** CUDA API Trace (cuda_api_trace):\n\n"
    found = read_source(
        talk
        + _API
        + b"1,2,f,0,1,1,1,20,t\n\n"
        + _GPU
        + b"3,4,1,,,,,,X (0),1,,7,k\n"
        + _GPU
        + b"5,6,1,,,,,,X (0),1,,7,k\n"
    )
    assert [(row["report"], row["start_ns"]) for row in found.table("nsys_events")] == [
        ("cuda_api_trace", 1),
        ("cuda_gpu_trace", 3),
        ("cuda_gpu_trace", 5),
    ]
    assert found.reader.passed_count == 8
    assert found.reasons == []


def test_a_name_may_hold_commas_quotes_and_line_ends() -> None:
    name = 'void f<1, "x">(int,\nint)'
    quoted = '"' + name.replace('"', '""') + '"'
    found = read_source(_API + f"1,2,{quoted},0,1,1,1,20,t\r\n3,4,g,0,1,1,1,20,t\r\n".encode())
    assert [row["name"] for row in found.table("nsys_events")] == [name, "g"]


def test_a_record_of_another_width_is_reported_and_the_next_is_read() -> None:
    found = read_source(_API + b"1,2,f\n3,4,g,0,1,1,1,20,t\n5,6")
    assert [row["name"] for row in found.table("nsys_events")] == ["g"]
    assert found.reasons == ["it has 3 cells where the header names 9", "it has 2 cells where the header names 9"]
    assert [(byte_range.offset, byte_range.beginning) for byte_range in found.unreadable] == [
        (len(_API), "1,2,f"),
        (len(_API) + 25, "5,6"),
    ]


def test_a_quote_that_is_not_closed_costs_one_line() -> None:
    lines = b"".join(b"%d,1,f,0,1,1,1,20,t\n" % number for number in range(200))
    found = read_source(_API + b'1,2,"f,0,1,1,1,20,t\n' + lines)
    assert found.reasons == ["a quote is opened in it and not closed"]
    assert len(found.table("nsys_events")) == 200


@pytest.mark.parametrize("block_bytes", [1, 7, 100])
def test_rows_do_not_depend_on_how_the_bytes_arrive(block_bytes: int) -> None:
    data = _API + b'1,2,"a\nb",0,1,1,1,20,t\r\n' + b"3,4,g,0,1,1,1,20,t\n" * 20 + b"5,6"
    parted, whole = read_source(data, block_bytes), read_source(data)
    assert parted.rows == whole.rows
    assert parted.unreadable == whole.unreadable
