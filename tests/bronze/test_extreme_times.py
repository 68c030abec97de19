"""Times, counts and sizes that no clock gives: each reader keeps or reports them, and none fails over them."""

from __future__ import annotations

import base64
import json
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assets.build import silver
from bronze.manifest import Manifest, parse
from bronze.nsys_sqlite import NsysSqliteReader
from lake import engines
from lake.errors import EvidenceRejected
from silver import device_samples, throughput
from tests.support.bronze_sources import read_source
from tests.support.campaigns import pick_size
from tests.support.traces import trace

if TYPE_CHECKING:
    from pathlib import Path

    from tests.bronze.conftest import Beside
    from tests.conftest import LandFiles

_LARGEST, _SMALLEST = (1 << 63) - 1, -(1 << 63)
_MOST_NS = 1 << 62
_EDGES = (
    0,
    -1,
    _LARGEST,
    _LARGEST + 1,
    _SMALLEST,
    _SMALLEST - 1,
    _MOST_NS,
    _MOST_NS - 1,
    -_MOST_NS,
    10**400,
    -(10**400),
)
_NUMBERS = st.one_of(
    st.sampled_from(_EDGES).flatmap(lambda edge: st.sampled_from([edge, edge // 10**3, edge // 10**6, edge // 10**9])),
    st.integers(-(2**70), 2**70),
).map(str)
_TEXTS = st.one_of(
    _NUMBERS,
    st.sampled_from(["NaN", "Infinity", "-Infinity", "nan", "inf", "1e308", "1e999", "-1e999", "1e-999", "-0", "0x10"]),
    st.floats().map(str),
)
_EXAMPLES = settings(max_examples=pick_size(60, 5_000))


def times(rows: list[dict[str, Any]]) -> list[int]:
    """All times and durations in rows."""
    return [value for row in rows for name, value in row.items() if name.endswith("_ns") and value is not None]


def hold(data: bytes, lines: int) -> list[dict[str, Any]]:
    """Read a source: every line is accounted for, and no time is one that cannot be computed with."""
    found = read_source(data)
    rows = [row for name in found.rows for row in found.table(name)]
    assert found.lines_count == lines
    assert all(-_MOST_NS < value < _MOST_NS for value in times(rows))
    assert all(reason.count(" ") > 2 for reason in found.reasons)
    return rows


@pytest.mark.parametrize("year", ["0001", "1677", "1678", "1822", "2116", "2261", "2262", "9999"])
def test_a_reading_of_a_year_beyond_all_clocks_is_reported_and_the_others_are_read(year: str) -> None:
    head = b"timestamp, index, power.draw [W]\n"
    bad, good = f"{year}/12/31 23:59:59.999999999, 0, 70 W\n".encode(), b"2024/05/06 07:08:09.5, 0, 71 W\n"
    found = read_source(head + bad + good)
    assert [row["value"] for row in found.table("device_samples")] == ["71"]
    assert found.reasons == ["its time lies outside the years 1823 to 2116, beyond which times are not computed with"]
    assert (found.unreadable[0].offset, found.unreadable[0].length) == (len(head), len(bad) - 1)


def test_one_file_of_the_year_9999_costs_no_other_file(beside: Beside) -> None:
    smi = b"timestamp, index, power.draw [W]\n9999/12/31 23:59:59.999, 0, 1 W\n"
    assert "outside the years" in beside({"bad.json": smi}).reported()


@_EXAMPLES
@given(st.integers(0, 9999), st.integers(0, 99), st.integers(0, 99), _TEXTS, _TEXTS)
def test_every_record_of_nvidia_smi_is_accounted_for(year: int, month: int, hour: int, index: str, watts: str) -> None:
    record = f"{year:04}/{month:02}/31 {hour:02}:59:59.999999999, {index}, {watts} W, {watts}\n"
    head = "timestamp, index, power.draw [W], memory.used [MiB]\n"
    found = read_source((head + record).encode())
    assert bool(found.rows) != bool(found.reasons)
    assert all(-_MOST_NS < value < _MOST_NS for value in times(found.table("device_samples")))


@_EXAMPLES
@given(_TEXTS, _TEXTS, _TEXTS)
def test_every_line_of_dcgm_is_accounted_for(gpu: str, value: str, at_ms: str) -> None:
    line = f'DCGM_FI_DEV_POWER_USAGE{{gpu="{gpu}"}} {value} {at_ms}'
    rows = hold(f"DCGM_FI_X 1\n{line}\n".encode(), 2)
    assert all(row.get("value") in {"1", value} for row in rows)


def test_a_scrape_beyond_all_clocks_is_reported_rather_than_left_without_a_time() -> None:
    found = read_source(b'DCGM_FI_X{gpu="0"} 1 1700000000000\nDCGM_FI_X{gpu="0"} 2 9223372036854775807\n')
    assert [row["value"] for row in found.table("device_samples")] == ["1"]
    assert found.reasons == ["its time lies outside the years 1823 to 2116, beyond which times are not computed with"]


@_EXAMPLES
@given(_TEXTS)
def test_every_line_of_conf_compute_is_accounted_for(value: str) -> None:
    hold(f"CC State : {value}\n".encode(), 1)


@_EXAMPLES
@given(st.lists(_TEXTS, min_size=6, max_size=6))
def test_every_record_of_a_training_log_is_a_row_with_all_its_cells(cells: list[str]) -> None:
    header = ["epoch", "step", "time", "began", "duration", "img/s"]
    (row,) = hold(f"{','.join(header)}\n{','.join(cells)}\n".encode(), 2)
    left = json.loads(row.get("args", "{}"))
    columns = {"time": {"ts_ns", "clock_ns"}, "began": {"began_ns"}, "duration": {"duration_ns"}}
    assert all(
        left.get(name) == cell or columns[name] & row.keys()
        for name, cell in zip(header, cells, strict=True)
        if name in columns
    )


@_EXAMPLES
@given(_NUMBERS, _TEXTS, _NUMBERS)
def test_every_line_of_mlperf_is_accounted_for(at_ms: str, value: str, number: str) -> None:
    line = (
        f':::MLLOG {{"time_ms": {at_ms}, "key": "throughput", "value": {value}, "metadata": {{"epoch_num": {number}}}}}'
    )
    for row in hold(f"{line}\n".encode(), 1):
        assert "ts_ns" in row or json.loads(row["args"], parse_int=str)["time_ms"] == at_ms


@_EXAMPLES
@given(_TEXTS, _TEXTS)
def test_every_line_of_nccl_is_accounted_for(count: str, time_us: str) -> None:
    log = (
        f"h:1:2 [0] NCCL INFO AllReduce: opCount {count} sendbuff 0x1 recvbuff 0x2 count {count} datatype 7 op 0\n"
        f"h:1:2 [0] NCCL INFO AllReduce: {count} Bytes -> Algo 1 proto 2 time {time_us}\n"
        f"#  (B)  (elements)\n 8 2 float sum -1 {time_us} 0 0 0 {time_us} 0 0 0\n"
    )
    hold(log.encode(), 4)


@_EXAMPLES
@given(_NUMBERS, _NUMBERS, _NUMBERS)
def test_every_object_of_the_inspector_is_accounted_for(rank: str, at_us: str, lasted_us: str) -> None:
    line = (
        f'{{"header": {{"rank": {rank}, "n_ranks": {rank}}}, "metadata": {{"dump_timestamp_us": {at_us}}}, '
        f'"coll_perf": {{"coll_sn": {rank}, "coll_msg_size_bytes": {rank}, "coll_exec_time_us": {lasted_us}}}}}'
    )
    hold(f"{line}\n".encode(), 1)


@_EXAMPLES
@given(_NUMBERS, _NUMBERS)
def test_every_result_of_nccl_tests_is_accounted_for(size: str, time_us: str) -> None:
    part = f'{{"time": {time_us}}}'
    document = f'{{"results": [{{"size": {size}, "count": {size}, "out_of_place": {part}, "in_place": {part}}}]}}'
    hold(document.encode(), 1)


@_EXAMPLES
@given(_TEXTS, _TEXTS)
def test_every_record_of_a_sweep_is_accounted_for(size: str, rate: str) -> None:
    hold(f"size,bw\n{size},{rate}\n".encode(), 2)


@_EXAMPLES
@given(st.lists(_TEXTS, min_size=4, max_size=4))
def test_every_record_of_an_nsight_csv_is_accounted_for(cells: list[str]) -> None:
    start, duration, correlation, size = cells
    header = "Start (ns),Duration (ns),CorrId,Bytes (MB),Device,Strm,Name"
    hold(f"{header}\n{start},{duration},{correlation},{size},G (0),7,f\n".encode(), 2)


@settings(max_examples=pick_size(30, 2_000))
@given(st.lists(st.sampled_from([edge for edge in _EDGES if _SMALLEST <= edge <= _LARGEST]), min_size=3, max_size=3))
def test_every_row_of_an_nsight_database_is_accounted_for(tmp_path: Path, values: list[int]) -> None:
    path = tmp_path / "made.sqlite"
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs)")
        connection.execute("INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (?)", values[:1])
        connection.execute("CREATE TABLE NVTX_EVENTS (start, end)")
        connection.execute("INSERT INTO NVTX_EVENTS VALUES (?, ?)", values[1:])
        connection.commit()
    (row,) = (row for _, batch in NsysSqliteReader(path) for row in batch.to_pylist())
    assert all(-_MOST_NS < value < _MOST_NS for value in times([row]))
    left = json.loads(row["args"] or "{}")
    assert (row["start_ns"] is None) == (left.get("start") == values[1])


@_EXAMPLES
@given(_NUMBERS, _NUMBERS)
def test_every_token_is_accounted_for(issued: str, expires: str) -> None:
    parts = ('{"alg": "ES384"}', f'{{"iat": {issued}, "exp": {expires}, "nbf": {issued}}}')
    token = b".".join(base64.urlsafe_b64encode(part.encode()).rstrip(b"=") for part in parts) + b".AAAA"
    (row,) = hold(b'[["JWT", "' + token + b'"]]', 1)
    assert json.loads(row["claims"], parse_int=str)["iat"] == issued


def test_every_event_of_a_trace_is_accounted_for(beside: Beside) -> None:
    texts = [*map(str, _EDGES), "NaN", "Infinity", "-Infinity", "1e308", "1e999", "-1e999", '"9999-12-31"', "-0.0"]
    files = {
        f"base{place}": trace(
            *(f'{{"ph": "X", "name": "{i}", "ts": {text}, "dur": {text}}}' for i, text in enumerate(texts)),
            before=f'"baseTimeNanoseconds": {base}',
        )
        for place, base in enumerate(texts)
        if base.lstrip("-").isdigit()
    }
    company = beside(files)
    assert all(company.names(file) == [str(place) for place in range(len(texts))] for file in files)


@pytest.mark.parametrize("claim", ["batch_size = 99999999999999999999", "bucket_cap_mib = nan", "bucket_cap_mib = inf"])
def test_a_manifest_with_a_number_that_no_column_holds_is_refused(claim: str) -> None:
    with pytest.raises(EvidenceRejected, match="expected"):
        parse(claim.encode(), "run.toml")


@pytest.mark.parametrize(
    "moment", ["9999-12-31T23:59:59Z", "0001-01-01", "0001-01-01T00:00:00+14:00", "23:59:59.999999"]
)
def test_a_manifest_may_hold_any_date_and_gives_it_back(moment: str) -> None:
    read = parse(f"[extra]\nmoment = {moment}\nlarge = {10**30}\nnot_a_number = nan\n".encode(), "run.toml")
    again = parse(Manifest(read.claims, read.extra).to_toml().encode(), "run.toml")
    assert again.extra["moment"] == read.extra["moment"]
    assert again.extra["large"] == 10**30
    with pytest.raises(EvidenceRejected, match="recorded_at: expected a text"):
        parse(f"recorded_at = {moment}\n".encode(), "run.toml")


def test_silver_computes_with_every_time_that_bronze_takes(land_files: LandFiles) -> None:
    second, last = (_MOST_NS - 1) // 10**9, (_MOST_NS - 1) // 10**6
    marks = (f':::MLLOG {{"time_ms": {at}, "key": "epoch_{key}"}}\n' for at, key in ((-last, "start"), (last, "stop")))
    files = {
        "smi.csv": b"timestamp, index, power.draw [W]\n2116/02/20 23:53:38, 0, 1 W\n1823/11/12 00:06:22, 0, 2 W\n",
        "steps.csv": f"step,time,duration\n1,{second},{second}\n2,-{second},1\n3,{second},{second}\n".encode(),
        "job.log": "".join(marks).encode(),
    }
    land_files(files, manifest='regime = "cc_off"\nclock_zone = "-12:00"\n')
    tables = (throughput.TABLE, device_samples.TABLE)  # spans of such times are refused by silver's own rules
    written = [
        [one.content_sha256 for one in silver.materialise(land_files.lake, "run-1", engines.engine(name), tables)]
        for name in engines.LOCAL_ENGINES
    ]
    assert len(land_files.lake.scan(device_samples.TABLE).collect()) == 2
    assert all(one == written[0] for one in written), (
        "an engine that wraps round gives other rows than one that does not"
    )
