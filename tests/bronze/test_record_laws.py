"""Laws of all readers of records: every line is a row, passed by or reported; nothing is lost, nothing is invented."""

from __future__ import annotations

import csv
import io
import json
import sqlite3
from contextlib import closing
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st

from bronze.decimals import parse_integer, parse_number, scale_decimal
from bronze.nsys_sqlite import NsysSqliteReader
from tests.support.bronze_sources import read_source

if TYPE_CHECKING:
    from pathlib import Path

# Line ends of other systems, quotes and commas are what a CSV stumbles over.
_TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\r\x00"), max_size=12)
_CELLS = st.one_of(_TEXTS, st.integers(-(2**70), 2**70).map(str), st.decimals(allow_nan=False).map(str), st.just(""))
_JUNK = st.binary(max_size=40).map(lambda data: data.replace(b"\n", b" "))
_BLOCKS = st.sampled_from([1, 3, 64, 1 << 20])


def table(header: list[str], records: list[list[str]]) -> bytes:
    written = io.StringIO()
    csv.writer(written, lineterminator="\n").writerows([header, *records])
    return written.getvalue().encode()


def read_cells(header: list[str], row: dict[str, Any]) -> dict[str, str]:
    """The cells of a record as far as its row tells them."""
    return {**{name: value for name, value in json.loads(row.get("args", "{}")).items() if name in header}}


_NSYS = ["Start (ns)", "Duration (us)", "Name", "Tid", "Extra"]


@given(st.lists(st.lists(_CELLS, min_size=5, max_size=5), max_size=12), _BLOCKS)
def test_every_record_of_a_report_is_a_row_with_all_its_cells(records: list[list[str]], block_bytes: int) -> None:
    found = read_source(table(_NSYS, records), block_bytes)
    rows = found.table("nsys_events")
    held = [record for record in records if any(record)]
    assert found.reasons == []
    assert len(rows) == len(records)
    assert found.reader.passed_count == 1
    assert len(held) <= len(rows)
    for record, row in zip(records, rows, strict=True):
        left = read_cells(_NSYS, row)
        start, duration, name, thread, extra = record
        assert left.get("Extra", "") == extra
        for cell, header, column in ((name, "Name", "name"), (thread, "Tid", "thread_id")):
            assert cell in {left.get(header, ""), row.get(column, "")}
        for cell, header, column, factor in (
            (start, "Start (ns)", "start_ns", 1),
            (duration, "Duration (us)", "duration_ns", 1000),
        ):
            if header in left:
                assert left[header] == cell
            elif cell and not cell.strip()[-1:].isalpha():  # 5ms is 5 ms under any header
                assert Decimal(row[column]) == Decimal(cell.strip()) * factor


@given(st.lists(_JUNK, max_size=12), _BLOCKS)
def test_whatever_follows_a_header_every_line_is_accounted_for(lines: list[bytes], block_bytes: int) -> None:
    plain = [line.replace(b'"', b"'").replace(b"\r", b" ") for line in lines]
    headers = (b"Start (ns),Duration (ns),Name,Tid\n", b"epoch,img/s\n", b"index, power.draw [W], memory.used\n")
    others = (
        b"size,bw\n",
        b"step\ttime\n",
        b"#step;time\n",
        b'{"step": 1, "time": 1}\n',
        b"iter 1: loss 2, time 3ms\n",
    )
    for header in (*headers, *others, b"# gpu  pwr\n"):
        found = read_source(header + b"".join(line + b"\n" for line in plain), block_bytes)
        (rows,) = [*found.rows.values()] or [[]]
        lines_of_rows = len({row["offset_bytes"] for row in rows})
        assert lines_of_rows + found.reader.passed_count + found.reader.unreadable_count == len(plain) + 1


_OBJECTS = st.sampled_from(
    [b'{"step": 1, "time": 2}', b'{"step": 1}', b'{"a": [{"step": 1}]}', b"7", b"{", b"]", b"\xff"]
)


@given(st.lists(_OBJECTS, max_size=8), _BLOCKS)
def test_every_object_of_a_document_is_accounted_for_up_to_the_first_fault(parts: list[bytes], size: int) -> None:
    found = read_source(b",\n".join([b'[{"step": 0, "time": 1}', *parts]), size)
    objects = next((place for place, part in enumerate(parts) if len(part) < 3), len(parts))
    counted = [part for part in parts[:objects] if b"time" in part]
    assert [row["step_number"] for row in found.table("training_log")] == [0, *(1 for _ in counted)]
    assert found.reader.passed_count == objects - len(counted)
    is_faulty = objects < len(parts) and parts[objects] != b"]"
    assert found.reasons == (["from here on it is no JSON"] if is_faulty else [])


_LOG_LINES = st.one_of(
    _JUNK,
    st.sampled_from(
        [
            b':::MLLOG {"key": "a", "time_ms": 1}',
            b":::MLLOG {broken",
            b"h:1:2 [0] NCCL INFO AllReduce: opCount ff count 3 [nranks=2]",
            b"h:1:2 [0] NCCL INFO AllReduce: opCount",
            b"h:1:2 [0] NCCL INFO CC On, workFifoBytes 0",
            b"#  (B)  (elements)",
            b" 8 2 float sum -1 1.5 0 0 0 1.5 0 0 0",
            b" 8 2 float sum -1 1.5 0",
            b"Epoch 1: 100%|#| 5/5 [00:01<00:00, 4.00it/s]",
            b"Epoch 1: 80%|#| 4/5 [00:01<00:00, 4.00it/s]\rEpoch 1: 100%|#| 5/5 [00:01<00:00, 4.00it/s]",
            b"",
        ]
    ),
)


@given(st.lists(_LOG_LINES, max_size=20), _BLOCKS)
def test_every_line_of_a_log_is_a_row_passed_by_or_reported(lines: list[bytes], block_bytes: int) -> None:
    data = b"".join(line + b"\n" for line in [b":::MLLOG {}", *lines])
    found = read_source(data, block_bytes)
    # A carriage return ends a line as well, as progress bars have it.
    assert found.lines_count == len(data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").splitlines())
    assert len(found.table("training_log")) >= 1 + lines.count(b':::MLLOG {"key": "a", "time_ms": 1}')


@given(st.lists(st.one_of(_JUNK, st.just(b'DCGM_X{gpu="0"} 5'), st.just(b"# HELP x")), max_size=20), _BLOCKS)
def test_every_line_of_an_exporter_is_a_reading_passed_by_or_reported(lines: list[bytes], block_bytes: int) -> None:
    found = read_source(b"".join(line + b"\n" for line in [b"DCGM_FI_X 1", *lines]), block_bytes)
    assert found.format == "dcgm"
    assert found.lines_count == len(lines) + 1


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.lists(st.dictionaries(st.sampled_from(["header", "metadata", "coll_perf", "more"]), _JSON), max_size=8))
def test_every_object_of_the_inspector_is_a_row_or_reported(objects: list[dict[str, Any]]) -> None:
    lines = [json.dumps({"header": {}, "coll_perf": {}}), *map(json.dumps, objects)]
    found = read_source("\n".join(lines).encode())
    assert found.reader.rows_count + found.reader.unreadable_count == len(lines)
    assert found.reader.rows_count == 1 + sum(isinstance(one.get("coll_perf"), dict) for one in objects)


_VALUES = st.one_of(
    st.none(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),  # SQLite stores NULL for NaN
    st.binary(max_size=4),
    st.text(st.characters(codec="utf-8"), max_size=4),
)


@settings(max_examples=60)
@given(st.lists(st.tuples(_VALUES, _VALUES, _VALUES, _VALUES), max_size=6))
def test_every_row_of_a_database_is_a_row_whatever_its_types(tmp_path: Path, values: list[tuple[Any, ...]]) -> None:
    path = tmp_path / "made.sqlite"
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE NVTX_EVENTS (start, end, text, globalTid)")
        connection.executemany("INSERT INTO NVTX_EVENTS VALUES (?, ?, ?, ?)", values)
        connection.commit()
    reader = NsysSqliteReader(path)
    rows = [row for _, batch in reader for row in batch.to_pylist()]
    assert len(rows) == len(values)
    assert reader.unreadable_count == 0
    for (start, end, text, _), row in zip(values, rows, strict=True):
        left = json.loads(row["args"] or "{}")
        is_time = isinstance(start, int) and abs(start) < 2**62
        assert row["start_ns"] == (start if is_time else None)
        assert ("start" in left) == (start is not None and not is_time)
        assert isinstance(end, int) or row["duration_ns"] is None
        assert (row["name"] == text) == isinstance(text, str | None)


# -- numbers --------------------------------------------------------------------------------------------------------


@given(st.one_of(_TEXTS, st.decimals(allow_nan=False, allow_infinity=False).map(str), st.integers().map(str)))
def test_a_number_is_exact_or_says_that_it_is_not(text: str) -> None:
    for factor in (1, 1000, 10**9):
        value, is_exact = scale_decimal(text, factor)
        if value is not None:
            assert -(2**63) <= value < 2**63
            assert abs(Decimal(text) * factor - value) <= Decimal("0.5")
        if is_exact:
            assert Decimal(text) * factor == value
    nearest, is_exact = parse_number(text)
    if is_exact:
        assert Decimal(repr(nearest)) == Decimal(text)
    assert parse_integer(text) is None or str(parse_integer(text)) == text
