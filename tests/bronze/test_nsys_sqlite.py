"""Databases that the test writes with sqlite3, friendly and hostile: read, recorded or refused, never executed."""

from __future__ import annotations

import gzip
import json
import sqlite3
import struct
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any

import pytest

from bronze import untrusted_sqlite
from bronze.nsys_sqlite import NsysSqliteReader
from lake.errors import EvidenceRejected
from tests.support.nsys_exports import eight_processes

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import LandedRun, LandFiles

_STRINGS = """
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
INSERT INTO StringIds VALUES (1, 'saxpy(float *, int)'), (2, 'saxpy'), (3, 'cudaLaunchKernel_v7000'), (4, 'forward');
"""
_KERNELS = """
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (
    start INTEGER, end INTEGER, deviceId INTEGER, contextId INTEGER, streamId INTEGER, correlationId INTEGER,
    globalPid INTEGER, demangledName INTEGER, shortName INTEGER, gridX INTEGER);
"""
_KERNEL = "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_COPIES = """
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (
    start INTEGER, end INTEGER, streamId INTEGER, correlationId INTEGER, bytes INTEGER, copyKind INTEGER,
    srcKind INTEGER, dstKind INTEGER);
"""
_LABELS = """
CREATE TABLE ENUM_CUDA_MEMCPY_OPER (id INTEGER PRIMARY KEY, name TEXT, label TEXT);
CREATE TABLE ENUM_CUDA_MEM_KIND (id INTEGER PRIMARY KEY, name TEXT, label TEXT);
INSERT INTO ENUM_CUDA_MEMCPY_OPER VALUES (8, 'D2D', 'Device-to-Device');
INSERT INTO ENUM_CUDA_MEM_KIND VALUES (2, 'DEVICE', 'Device'), (4, 'MANAGED', 'Managed');
"""
_SESSION = """
CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER, utcTime TEXT);
INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (1700000000000000001, 'some time');
"""


@pytest.fixture
def database(tmp_path: Path) -> Any:
    """Writes a database: a script, then rows one by one."""

    def write(script: str, *rows: tuple[str, tuple[Any, ...]]) -> bytes:
        path = tmp_path / "written.sqlite"
        path.unlink(missing_ok=True)
        with closing(sqlite3.connect(path)) as connection:
            connection.executescript(script)
            for statement, values in rows:
                connection.execute(statement, values)
            connection.commit()
        return path.read_bytes()

    return write


def rows(landed: LandedRun) -> list[dict[str, Any]]:
    return [
        {key: value for key, value in row.items() if value is not None and key not in {"run_id", "source_sha256"}}
        for row in landed.nsys.to_dicts()
    ]


def test_an_export_is_landed_with_names_labels_and_utc(land_files: LandFiles, database: Any) -> None:
    pid = 77 << 24
    data = database(
        _STRINGS + _KERNELS + _COPIES + _LABELS + _SESSION + "CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME"
        " (start INTEGER, end INTEGER, globalTid INTEGER, correlationId INTEGER, nameId INTEGER, returnValue INTEGER);"
        "CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, eventType INTEGER, text TEXT, textId INTEGER);"
        "CREATE TABLE SOMETHING_NEW (a INTEGER);",
        (_KERNEL, (9007199254740993, 9007199254740998, 0, 1, 7, 5, pid, 1, 2, 64)),
        ("INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (10, 15, 7, 6, 65, 8, 4, 2)),
        ("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, ?, ?, ?, ?)", (1, 4, pid | 78, 5, 3, 0)),
        ("INSERT INTO NVTX_EVENTS VALUES (?, ?, ?, ?, ?)", (1, None, 59, None, 4)),
        ("INSERT INTO NVTX_EVENTS VALUES (?, ?, ?, ?, ?)", (2, 3, 59, "inline", None)),
    )
    landed = land_files({"whatever.bin": data})
    file = landed.file("whatever.bin")
    assert (file["format"], file["outcome"], file["rows_count"], file["unreadable_count"]) == (
        "nsys_sqlite",
        "kept",
        5,
        0,
    )
    base = 1700000000000000001
    assert rows(landed) == [
        {
            "ordinal": 0,
            "report": "CUPTI_ACTIVITY_KIND_KERNEL",
            "name": "saxpy(float *, int)",
            "start_ns": 9007199254740993,
            "duration_ns": 5,
            "ts_ns": base + 9007199254740993,
            "correlation_id": 5,
            "host_id": "host 0",
            "process_id": "77",
            "device_id": 0,
            "context_id": 1,
            "stream_id": 7,
            "args": f'{{"globalPid":{pid},"shortName":"saxpy","gridX":64}}',
        },
        {
            "ordinal": 1,
            "report": "CUPTI_ACTIVITY_KIND_MEMCPY",
            "start_ns": 10,
            "duration_ns": 5,
            "ts_ns": base + 10,
            "correlation_id": 6,
            "stream_id": 7,
            "payload_bytes": 65,
            "is_payload_rounded": False,
            "copy_kind": "Device-to-Device",
            "source_memory": "Managed",
            "target_memory": "Device",
            "args": '{"copyKind":8,"srcKind":4,"dstKind":2}',
        },
        {
            "ordinal": 2,
            "report": "CUPTI_ACTIVITY_KIND_RUNTIME",
            "name": "cudaLaunchKernel_v7000",
            "start_ns": 1,
            "duration_ns": 3,
            "ts_ns": base + 1,
            "correlation_id": 5,
            "host_id": "host 0",
            "process_id": "77",
            "thread_id": "78",
            "result": "0",
            "args": f'{{"globalTid":{pid | 78}}}',
        },
        {
            "ordinal": 3,
            "report": "NVTX_EVENTS",
            "name": "forward",
            "start_ns": 1,
            "ts_ns": base + 1,
            "args": '{"eventType":59}',
        },
        {
            "ordinal": 4,
            "report": "NVTX_EVENTS",
            "name": "inline",
            "start_ns": 2,
            "duration_ns": 1,
            "ts_ns": base + 2,
            "args": '{"eventType":59}',
        },
    ]
    envelope = json.loads(str(file["envelope"]))
    assert "SOMETHING_NEW" in envelope["tables"]
    assert envelope["TARGET_INFO_SESSION_START_TIME"] == [{"utcEpochNs": base, "utcTime": "some time"}]


def test_tables_may_be_absent_and_a_number_without_a_label_stays_a_number(land_files: LandFiles, database: Any) -> None:
    copy = ("INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (10, 15, 7, 6, 65, 1, 2, 9))
    (row,) = rows(land_files({"a.sqlite": database(_COPIES, copy)}))
    assert (row["copy_kind"], row["source_memory"], row["target_memory"]) == ("1", "2", "9")
    assert "ts_ns" not in row


def test_a_compressed_export_is_the_same_export(land_files: LandFiles, database: Any) -> None:
    data = database(_KERNELS, (_KERNEL, (1, 2, 0, 1, 7, 5, 0, 1, 2, 64)))
    landed = land_files({"a.sqlite": data, "b.sqlite.gz": gzip.compress(data)})
    assert landed.files["format"].to_list() == ["nsys_sqlite"] * 2
    assert landed.nsys["start_ns"].to_list() == [1, 1]


def test_tables_that_no_reader_takes_are_counted_by_name(land_files: LandFiles, database: Any) -> None:
    others = (
        "CREATE TABLE SCHED_EVENTS (start INTEGER); INSERT INTO SCHED_EVENTS VALUES (1), (2);"
        "CREATE TABLE GENERIC_EVENTS (start INTEGER); CREATE TABLE SOMETHING_NEW (a INTEGER);"
        "CREATE VIEW COMPOSITE_EVENTS AS SELECT 1; CREATE TABLE ENUM_WHATEVER (id INTEGER);"
    )
    file = land_files({"a.sqlite": database(_KERNELS + others)}).file("a.sqlite")
    ignored = json.loads(str(file["ignored_tables"]))
    assert ignored == {"COMPOSITE_EVENTS": None, "SCHED_EVENTS": 2, "SOMETHING_NEW": None}


def test_waits_faults_and_metrics_are_landed(land_files: LandFiles, database: Any) -> None:
    script = (
        "CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT); INSERT INTO StringIds VALUES (1, 'poll');"
        "CREATE TABLE OSRT_API (start INTEGER, end INTEGER, globalTid INTEGER, nameId INTEGER);"
        "INSERT INTO OSRT_API VALUES (1, 5, 1291845710, 1);"
        "CREATE TABLE CUDA_UM_GPU_PAGE_FAULT_EVENTS (start INTEGER, end INTEGER, globalPid INTEGER, deviceId INTEGER);"
        "INSERT INTO CUDA_UM_GPU_PAGE_FAULT_EVENTS VALUES (2, 4, 1291845632, 1);"
        "CREATE TABLE TARGET_INFO_GPU_METRICS (typeId INTEGER, metricId INTEGER, metricName TEXT);"
        "INSERT INTO TARGET_INFO_GPU_METRICS VALUES (7, 3, 'SMs Active');"
        "CREATE TABLE GPU_METRICS (timestamp INTEGER, typeId INTEGER, metricId INTEGER, value INTEGER);"
        "INSERT INTO GPU_METRICS VALUES (3, 7, 3, 88);"
    )
    found = rows(land_files({"a.sqlite": database(script)}))
    assert [(row["report"], row.get("name"), row["start_ns"], row.get("process_id")) for row in found] == [
        ("OSRT_API", "poll", 1, "77"),
        ("CUDA_UM_GPU_PAGE_FAULT_EVENTS", None, 2, "77"),
        ("GPU_METRICS", "SMs Active", 3, None),
    ]
    assert json.loads(found[2]["args"])["value"] == 88


def test_nccls_payload_gives_its_process_a_rank(land_files: LandFiles, database: Any) -> None:
    payload = struct.pack("<QQQQQiiii", 1, 16777218, 24, 32, 99, 8, 3, 3, 0)
    data = database(
        "CREATE TABLE NVTX_PAYLOAD_SCHEMA_ENTRIES (domainId INTEGER, schemaId INTEGER, name TEXT, type INTEGER,"
        " offset INTEGER); INSERT INTO NVTX_PAYLOAD_SCHEMA_ENTRIES VALUES (1, 16777218, 'No. of ranks', 5, 8),"
        " (1, 16777218, 'Rank', 5, 12), (1, 16777218, 'NCCL communicator ID', 18, NULL);"
        "CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, text TEXT, binaryData TEXT);",
        ("INSERT INTO NVTX_EVENTS VALUES (1, 2, ?, ?)", ("ncclCommInitRank", payload)),
        ("INSERT INTO NVTX_EVENTS VALUES (1, 2, ?, ?)", ("ncclCommInitRank", payload[:40])),
    )
    landed = land_files({"a.sqlite": data}).nsys
    assert landed.select("nccl_rank", "nccl_ranks_count").rows() == [(3, 8), (None, None)]


# -- hostile --------------------------------------------------------------------------------------------------------


def test_values_of_the_wrong_type_are_kept_and_not_believed(land_files: LandFiles, database: Any) -> None:
    wrong = ("soon", 2.5, b"\xff\x00", "1", None, 2**62, -1, "name", 99, float("inf"))
    (row,) = rows(land_files({"a.sqlite": database(_STRINGS + _KERNELS, (_KERNEL, wrong))}))
    assert row["correlation_id"] == 2**62
    assert not {"start_ns", "duration_ns", "device_id", "stream_id", "name"} & row.keys()
    kept = json.loads(row["args"])
    assert (kept["start"], kept["end"], kept["gridX"]) == ("soon", 2.5, "inf")
    assert kept["deviceId"] == {"blob": "ff00", "length": 2}
    assert kept["shortName"] == 99


def test_times_that_overflow_are_kept_and_not_believed(land_files: LandFiles, database: Any) -> None:
    extremes = (_KERNEL, (-(2**63), 2**63 - 1, 0, 1, 7, 5, 0, 1, 2, 64))
    (row,) = rows(land_files({"a.sqlite": database(_KERNELS + _SESSION, extremes)}))
    assert not {"start_ns", "duration_ns"} & row.keys()
    kept = json.loads(row["args"])
    assert (kept["start"], kept["end"]) == (-(2**63), 2**63 - 1)


def test_a_view_is_not_run(land_files: LandFiles, database: Any) -> None:
    bomb = (
        "CREATE VIEW CUPTI_ACTIVITY_KIND_MEMCPY AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"
        " SELECT i AS start FROM n;"
    )
    landed = land_files({"a.sqlite": database(_KERNELS + bomb, (_KERNEL, (1, 2, 0, 1, 7, 5, 0, 1, 2, 64)))})
    assert landed.nsys["report"].to_list() == ["CUPTI_ACTIVITY_KIND_KERNEL"]
    assert landed.reasons_of("a.sqlite") == ["CUPTI_ACTIVITY_KIND_MEMCPY is a view, no plain table: it is not run"]


def test_a_trigger_changes_nothing(land_files: LandFiles, database: Any, tmp_path: Path) -> None:
    trigger = (
        "CREATE TRIGGER t AFTER INSERT ON CUPTI_ACTIVITY_KIND_KERNEL BEGIN DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL; END;"
    )
    row = "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL (start, end) VALUES (1, 2);"
    data = database(f"{_KERNELS}{row}{trigger}")
    landed = land_files({"a.sqlite": data})
    assert landed.nsys["start_ns"].to_list() == [1]
    assert (land_files.zone.place.directory / "run-1" / "a.sqlite").read_bytes() == data


def test_a_computed_column_runs_no_function(land_files: LandFiles, database: Any) -> None:
    computed = (
        "CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, text TEXT GENERATED ALWAYS AS (hex(zeroblob(100000))));"
        "INSERT INTO NVTX_EVENTS (start, end) VALUES (1, 2);"
    )
    landed = land_files({"a.sqlite": database(_KERNELS + computed, (_KERNEL, (1, 2, 0, 1, 7, 5, 0, 1, 2, 64)))})
    assert landed.nsys["report"].to_list() == ["CUPTI_ACTIVITY_KIND_KERNEL"]
    assert landed.reasons_of("a.sqlite") == [
        "NVTX_EVENTS is a table with computed columns, no plain table: it is not run"
    ]


def test_a_giant_value_costs_its_own_row_and_no_other(land_files: LandFiles, database: Any) -> None:
    table = "CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, text TEXT);"
    insert = "INSERT INTO NVTX_EVENTS VALUES (?, ?, ?)"
    giant = "x" * (2 << 20)
    texts = ["a", giant, "b", "c", giant, giant, "d"]
    data = database(table, *((insert, (place, place, text)) for place, text in enumerate(texts)))
    landed = land_files({"a.sqlite": data})
    assert landed.nsys["name"].to_list() == ["a", "b", "c", "d"]
    reasons = landed.reasons_of("a.sqlite")
    assert [reason.partition(":")[0] for reason in reasons] == [
        f"row {place} of NVTX_EVENTS cannot be read" for place in (2, 5, 6)
    ]
    assert landed.file("a.sqlite")["is_complete"] is True


def test_a_table_that_hides_its_places_is_not_read(land_files: LandFiles, database: Any) -> None:
    data = database(
        "CREATE TABLE NVTX_EVENTS (start INTEGER, rowid INTEGER); INSERT INTO NVTX_EVENTS VALUES (1, 9), (2, 9)"
    )
    landed = land_files({"a.sqlite": data})
    assert landed.nsys.is_empty()
    assert landed.reasons_of("a.sqlite") == ["NVTX_EVENTS has a column that hides the places of its rows"]


def test_the_last_place_there_is_ends_the_walk(land_files: LandFiles, database: Any) -> None:
    script = "CREATE TABLE NVTX_EVENTS (start INTEGER PRIMARY KEY, end INTEGER);"
    places = [-(2**63), 0, 2**63 - 1]
    data = database(script, *(("INSERT INTO NVTX_EVENTS VALUES (?, ?)", (place, None)) for place in places))
    rows = land_files({"a.sqlite": data}).nsys
    assert rows["start_ns"].to_list() == [None, 0, None], "the first and the last are no times of a clock"
    assert [json.loads(text)["start"] for text in rows["args"].drop_nulls()] == [places[0], places[2]]


def test_a_cut_database_gives_what_is_readable_or_is_refused(land_files: LandFiles, database: Any) -> None:
    data = database(_KERNELS, *((_KERNEL, (n, n + 1, 0, 1, 7, 5, 0, 1, 2, 64)) for n in range(5000)))
    landed = land_files({"a.sqlite": data[: len(data) // 2], "b.sqlite": data[:100], "c.sqlite": data[:4096]})
    outcomes = {row["file_name"]: row["outcome"] for row in landed.files.to_dicts()}
    assert outcomes["b.sqlite"] == "rejected"
    for name in ("a.sqlite", "c.sqlite"):
        assert outcomes[name] == "rejected" or "breaks off" in "".join(landed.reasons_of(name))


def test_a_database_with_a_piece_missing_anywhere_gives_rows_and_reasons(tmp_path: Path) -> None:
    data = eight_processes(7)[0].to_bytes(tmp_path / "made")
    # Of the first, a page gave the place of a row and then no row at that place.
    for place in (29_120, *range(100, len(data), 701)):
        reader = NsysSqliteReader(data[:place] + data[place + 34 :])
        with suppress(EvidenceRejected):  # its first page is not one
            for _ in reader:
                pass
        reasons = [found.reason for found in reader.take_unreadable()]
        assert len(reasons) == reader.unreadable_count
        assert all(len(reason.split()) > 3 for reason in reasons)


def test_a_database_of_something_else_is_refused(land_files: LandFiles, database: Any) -> None:
    landed = land_files({"a.sqlite": database("CREATE TABLE bookmarks (url TEXT);")})
    file = landed.file("a.sqlite")
    assert file["outcome"] == "rejected"
    assert "without a table of an Nsight Systems export" in str(file["reason"])


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM secret",
        "SELECT hex(start) FROM NVTX_EVENTS",
        "SELECT load_extension('x')",
        "INSERT INTO NVTX_EVENTS VALUES (1)",
        "DROP TABLE NVTX_EVENTS",
        "ATTACH 'other.sqlite' AS other",
        "PRAGMA query_only = OFF",
        "PRAGMA writable_schema = ON",
        "CREATE TEMP TABLE t (a)",
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i FROM n) SELECT i FROM n",
    ],
)
def test_an_untrusted_database_does_nothing_but_give_declared_rows(tmp_path: Path, statement: str) -> None:
    path = tmp_path / "a b#?%.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(
            "CREATE TABLE NVTX_EVENTS (start INTEGER); CREATE TABLE secret (a); INSERT INTO secret VALUES (1)"
        )
    opened, listed = untrusted_sqlite.open_untrusted(path, {"NVTX_EVENTS"})
    assert listed == {"NVTX_EVENTS": "table", "secret": "table"}
    with closing(opened) as connection:
        assert connection.execute("SELECT * FROM NVTX_EVENTS").fetchall() == []
        with pytest.raises(sqlite3.Error):
            connection.execute(statement).fetchall()
