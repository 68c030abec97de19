from __future__ import annotations

import json

import pytest

from tests.support.bronze_sources import read_source

_HOST = b"node-7:41:43 [2] NCCL INFO "
_TESTS = (
    b"# nThread 1 nGpus 2\n"
    b"#    size     count    type redop root   time  algbw  busbw #wrong   time  algbw  busbw #wrong\n"
    b"#     (B) (elements)                     (us) (GB/s) (GB/s)          (us) (GB/s) (GB/s)\n"
)


def inspector(**perf: object) -> dict[str, object]:
    return {
        "header": {"id": "0xabc", "rank": 3, "n_ranks": 8, "nnodes": 1},
        "metadata": {"dump_timestamp_us": 1700000000123456, "hostname": "node-7", "pid": 41},
        "coll_perf": {
            "coll": "AllReduce",
            "coll_sn": 9,
            "coll_msg_size_bytes": 65536,
            "coll_exec_time_us": 110,
            **perf,
        },
    }


# -- Inspector ------------------------------------------------------------------------------------------------------


def test_a_line_of_the_inspector_is_a_row() -> None:
    found = read_source(json.dumps(inspector(coll_timing_source="kernel_gpu", coll_busbw_gbs=18.469236)).encode())
    assert found.format == "nccl_inspector"
    assert found.table("collective_records") == [
        {
            "ordinal": 0,
            "offset_bytes": 0,
            "record": "inspector",
            "ts_ns": 1700000000123456000,
            "host": "node-7",
            "process_id": "41",
            "rank": 3,
            "group_size": 8,
            "communicator_id": "0xabc",
            "collective_name": "AllReduce",
            "collective_sequence": 9,
            "payload_bytes": 65536,
            "duration_ns": 110_000,
            "timing_source": "kernel_gpu",
            "args": '{"header":{"nnodes":1},"coll_perf":{"coll_busbw_gbs":18.469236}}',
        }
    ]


def test_parts_of_a_microsecond_are_exact_and_strange_members_are_kept() -> None:
    wrong = inspector(coll_exec_time_us=0.0015, coll_sn="9")
    wrong["header"] = [1]
    lines = [json.dumps(inspector(coll_exec_time_us=110.125)), json.dumps(wrong), "{", '{"header": {}}']
    found = read_source("\n".join(lines).encode())
    first, second = found.table("collective_records")
    assert first["duration_ns"] == 110_125
    assert second["duration_ns"] == 2
    assert json.loads(second["args"]) == {
        "header": [1],
        "coll_perf": {"coll_sn": "9", "coll_exec_time_us": 0.0015},
    }
    assert found.reasons == ["it is no JSON object", "it says nothing of a collective"]


# -- nccl-tests -----------------------------------------------------------------------------------------------------


def test_a_size_of_the_benchmark_is_a_row() -> None:
    found = read_source(
        _TESTS + b"  1048576   262144   float   sum   -1  62.53 16.77 16.77  0  61.2 17.1 17.1  N/A\n# Avg : 17\n"
    )
    assert found.format == "job_log"
    (row,) = found.table("collective_records")
    args = json.loads(row.pop("args"))
    assert row == {
        "ordinal": 0,
        "offset_bytes": len(_TESTS),
        "record": "nccl_tests",
        "payload_bytes": 1048576,
        "elements_count": 262144,
        "dtype": "float",
        "reduction": "sum",
        "root": "-1",
        "duration_ns": 62_530,
        "in_place_duration_ns": 61_200,
    }
    assert args["in_place"] == {"time_us": "61.2", "algbw_gbs": "17.1", "busbw_gbs": "17.1", "wrong": "N/A"}
    assert found.reader.passed_count == 4


@pytest.mark.parametrize(
    ("line", "reduction", "root"),
    [
        (b"8 2 float 123456 0.1 0.1 0 1.5 0.1 0.1 0", None, None),
        (b"8 2 float none -1 13 0.1 0.1 0 1.5 0.1 0.1 0", "none", "-1"),
        (b"8 2 float 0 13.5 0.1 0.1 0 1.5 0.1 0.1 0", None, "0"),
        (b"8 2 float sum 13.5 0.1 0.1 0", "sum", None),
    ],
)
def test_reduction_and_root_are_there_or_not(line: bytes, reduction: str | None, root: str | None) -> None:
    (row,) = read_source(_TESTS + line).table("collective_records")
    assert (row.get("reduction"), row.get("root")) == (reduction, root)
    assert row["duration_ns"] in {123_456_000, 13_000, 13_500}


def test_a_size_with_columns_that_nobody_knows_is_reported() -> None:
    found = read_source(_TESTS + b"8 2 float sum -1 13.5 0.1\n")
    assert found.reasons == ["it is a line of nccl-tests with an odd number of columns"]


def test_the_json_of_the_benchmark_gives_the_same() -> None:
    document = {
        "version": 1,
        "results": [
            {
                "size": 8,
                "count": 2,
                "type": "float",
                "redop": "sum",
                "root": "    -1",
                "out_of_place": {"time": 13.125, "alg_bw": 0.1, "bus_bw": 0.1, "nwrong": 0},
                "in_place": {"time": 12, "alg_bw": 0.1, "bus_bw": 0.1, "nwrong": 0},
            },
            {"size": 8, "out_of_place": None},
            5,
        ],
    }
    found = read_source(json.dumps(document, indent=1).encode())
    assert found.format == "nccl_tests"
    first, second = found.table("collective_records")
    assert (first["duration_ns"], first["in_place_duration_ns"], first["root"]) == (13_125, 12_000, "-1")
    assert (second["payload_bytes"], "duration_ns" in second) == (8, False)
    assert found.reasons == ["result 2 is no object"]
    assert found.reader.envelope.get("version") == 1


# -- debug log ------------------------------------------------------------------------------------------------------


def test_a_call_has_its_count_in_hexadecimal() -> None:
    call = (
        b"AllReduce: opCount 1e7 sendbuff 0x1 recvbuff 0x2 count 18816 datatype 7 op 0 root 0 comm 0x5 [nranks=16] "
        b"stream 0x9"
    )
    (row,) = read_source(_HOST + call + b"\n").table("collective_records")
    assert row == {
        "ordinal": 0,
        "offset_bytes": 0,
        "record": "nccl_log_collective",
        "host": "node-7",
        "process_id": "41",
        "thread_id": "43",
        "device_id": 2,
        "group_size": 16,
        "communicator_id": "0x5",
        "collective_name": "AllReduce",
        "collective_sequence": 0x1E7,
        "elements_count": 18816,
        "dtype": "7",
        "reduction": "0",
        "root": "0",
        "args": '{"opCount":"1e7","sendbuff":"0x1","recvbuff":"0x2","stream":"0x9"}',
    }


def test_a_choice_and_the_mode_are_rows_and_the_rest_is_passed_by() -> None:
    found = read_source(
        _HOST + b"Bootstrap: Using eth0\n"
        b"[1]: "
        + _HOST
        + b"AllGather: 4096 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..3}\n"
        + _HOST
        + b"CC On, workFifoBytes 0\n"
    )
    tuned, mode = found.table("collective_records")
    assert (tuned["payload_bytes"], tuned["algorithm"], tuned["protocol"]) == (4096, "RING", "LL")
    assert tuned["args"] == '{"text":"channel{Lo..Hi}={0..3}"}'
    assert (mode["record"], mode["cc_state"]) == ("nccl_log_cc", "On")
    assert found.reader.passed_count == 1


@pytest.mark.parametrize(
    "said",
    [
        b"AllReduce: opCount zz count 1",
        b"AllReduce: opCount 1 count 2" + _HOST + b"AllReduce: opCount 2 count 3",
        b"X: -1 Bytes -> Algo A proto B",
    ],
)
def test_a_line_on_a_collective_that_cannot_be_read_is_reported(said: bytes) -> None:
    found = read_source(_HOST + said + b"\n" + _HOST + b"CC Off, workFifoBytes 1048576\n")
    assert [row["cc_state"] for row in found.table("collective_records")] == ["Off"]
    assert found.reasons == ["it is a line of NCCL on a collective that cannot be read"]


def test_training_and_collectives_of_one_log_go_to_their_tables() -> None:
    found = read_source(b':::MLLOG {"key": "a"}\n' + _HOST + b"CC On, workFifoBytes 0\nplain\n")
    assert {name: len(rows) for name, rows in found.rows.items()} == {"training_log": 1, "collective_records": 1}
    assert found.lines_count == 3
