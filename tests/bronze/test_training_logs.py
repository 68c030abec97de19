from __future__ import annotations

import json
from decimal import ROUND_HALF_UP, Decimal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bronze.training_csv import MAP
from tests.support.bronze_sources import read_source

_CSV = b"Timestamps,Epoch,Thput (img/s),Epoch Loss,Bsize\n"


def mllog(**members: object) -> bytes:
    return b":::MLLOG " + json.dumps(members).encode()


# -- CSV ------------------------------------------------------------------------------------------------------------


def test_an_epoch_is_a_row_with_its_time_exact() -> None:
    found = read_source(_CSV + b"1700000000.1234567,3,2500.5,4.25,64\n")
    assert found.format == "training_csv"
    assert found.table("training_log") == [
        {
            "ordinal": 0,
            "offset_bytes": len(_CSV),
            "record": "csv",
            "ts_ns": 1700000000123456700,
            "epoch_number": 3,
            "samples_per_second": 2500.5,
            "loss_number": 4.25,
            "batch_size": 64,
        }
    ]


@pytest.mark.parametrize(
    ("header", "cells", "expected"),
    [
        (
            b"step,time (ms),tokens/s",
            b"7,1700000000123,10",
            {"step_number": 7, "ts_ns": 1700000000123000000, "tokens_per_second": 10.0},
        ),
        (b"Iteration,Step Time (us),loss", b"7,1.5,2", {"step_number": 7, "duration_ns": 1500, "loss_number": 2.0}),
        (b"global_step,samples_per_second", b"7,3", {"step_number": 7, "samples_per_second": 3.0}),
        (b"Wall time,Step,Value", b"1.5,7,9", {"step_number": 7, "clock_ns": 1_500_000_000, "args": '{"Value":"9"}'}),
        (
            b"rank,step,phase,began_epoch_s,duration_s",
            b"1,7,bare,1700000000.000000001,0.25",
            {
                "step_number": 7,
                "phase": "bare",
                "began_ns": 1_700_000_000_000_000_001,
                "duration_ns": 250_000_000,
                "args": '{"rank":"1"}',
            },
        ),
        (b"step,step_time_ms", b"7,1.5", {"step_number": 7, "duration_ns": 1_500_000}),
        (b"epoch,Epoch Duration Sec", b"7,90", {"epoch_number": 7, "duration_ns": 90_000_000_000}),
        (b"step,timestamp_ms", b"7,1700000000123", {"step_number": 7, "ts_ns": 1_700_000_000_123_000_000}),
        (b"step,loss_s,duration", b"7,2,1", {"step_number": 7, "duration_ns": 10**9, "args": '{"loss_s":"2"}'}),
        (b"step,time_ms", b"7,1.5", {"step_number": 7, "clock_ns": 1_500_000}),
        (b"step,time_ms", b"7,1700000000123", {"step_number": 7, "ts_ns": 1_700_000_000_123_000_000}),
        (
            b"step,ms/step,tok_per_sec",
            b"7,1.5,3",
            {"step_number": 7, "duration_ns": 1_500_000, "tokens_per_second": 3.0},
        ),
        (b"trainer/global_step,train/loss,dt", b"7,2,1", {"step_number": 7, "loss_number": 2.0, "duration_ns": 10**9}),
        (
            b"step,val/loss,dt",
            b"7,2,1",
            {"step_number": 7, "duration_ns": 10**9, "args": '{"val/loss":"2"}'},
        ),
        (
            b"step,time,timestamp",
            b"7,0.5,1700000000",
            {"step_number": 7, "clock_ns": 500_000_000, "ts_ns": 1_700_000_000 * 10**9},
        ),
        (
            b"step,timestamp,time",
            b"7,1700000000,1700000001",
            {"step_number": 7, "ts_ns": 1_700_000_000 * 10**9, "args": '{"time":"1700000001"}'},
        ),
        (b"step\tstep_time", b"7\t0.5", {"step_number": 7, "duration_ns": 500_000_000}),
        (b"step;loss;step_time", b"7;2,5;0,25", {"step_number": 7, "loss_number": 2.5, "duration_ns": 250_000_000}),
        (b"epoch,duration (min)", b"7,1.5", {"epoch_number": 7, "duration_ns": 90 * 10**9}),
        (b"step,step_time", b"7.0,250ms", {"step_number": 7, "duration_ns": 250_000_000, "args": '{"step":"7.0"}'}),
        (b"step,tps", b'7,"5,432.5"', {"step_number": 7, "tokens_per_second": 5432.5, "args": '{"tps":"5,432.5"}'}),
        (b"step,tps", b'7,"5,43"', {"step_number": 7, "args": '{"tps":"5,43"}'}),
        (b"# made by us\n\n# step,dt", b"7,1", {"step_number": 7, "duration_ns": 10**9}),
        (b"\xef\xbb\xbfEpoch,images/sec", b"7,3", {"epoch_number": 7, "samples_per_second": 3.0}),
    ],
)
def test_columns_are_known_by_declared_names(header: bytes, cells: bytes, expected: dict[str, object]) -> None:
    (row,) = read_source(header + b"\n" + cells + b"\n").table("training_log")
    assert {name: value for name, value in row.items() if name not in {"ordinal", "offset_bytes", "record"}} == expected


@pytest.mark.parametrize(
    ("text", "column", "value"),
    [
        ("2023-11-14T22:13:20Z", "ts_ns", 1_700_000_000 * 10**9),
        ("2023-11-14 22:13:20.5 UTC", "ts_ns", 1_700_000_000_500_000_000),
        ("2023-11-14T23:43:20.000000001+01:30", "ts_ns", 1_700_000_000_000_000_001),
        ("2023-11-14T21:13:20,25-0100", "ts_ns", 1_700_000_000_250_000_000),
        ("2023-11-14 22:13:20", "clock_ns", 1_700_000_000 * 10**9),
        ("2023/11/14 22:13:20.25", "clock_ns", 1_700_000_000_250_000_000),
        ("0:00:05", "clock_ns", 5 * 10**9),
        ("1 day, 2:03:04.5", "clock_ns", 93_784_500_000_000),
        ("2023-02-30T22:13:20Z", "args", '{"timestamp":"2023-02-30T22:13:20Z"}'),
        ("2023-11/14 22:13:20", "args", '{"timestamp":"2023-11/14 22:13:20"}'),
        ("9999-12-31T00:00:00Z", "args", '{"timestamp":"9999-12-31T00:00:00Z"}'),
        ("yesterday", "args", '{"timestamp":"yesterday"}'),
    ],
)
def test_a_date_with_its_zone_is_a_time_and_without_one_a_reading_of_some_clock(
    text: str, column: str, value: object
) -> None:
    cell = f'"{text}"' if "," in text else text
    (row,) = read_source(f"step,timestamp\n7,{cell}\n".encode()).table("training_log")
    assert {name: row.get(name) for name in ("ts_ns", "clock_ns", "args")} == {
        **dict.fromkeys(("ts_ns", "clock_ns", "args")),
        column: value,
    }


def test_digits_that_a_double_does_not_give_back_are_kept() -> None:
    (row,) = read_source(_CSV + b"1,1,0.1000000000000000055511151231257827,nan,64\n").table("training_log")
    assert row["samples_per_second"] == 0.1
    assert json.loads(row["args"]) == {"Thput (img/s)": "0.1000000000000000055511151231257827", "Epoch Loss": "nan"}


@example(["4611686018.427387904", "0.5"], "s")
@given(
    st.lists(
        st.from_regex(r"[0-9]{1,11}\.[0-9]{1,10}", fullmatch=True)
        | st.sampled_from(["4611686018.427387903", "4611686018.427387904", "007.50", "1.", ".5", "-1.5", "1e3", "2 "]),
        min_size=1,
        max_size=4,
    ),
    st.sampled_from(["s", "ms", "us", "ns"]),
)
def test_times_are_exact_or_kept_as_they_are_written(times: list[str], unit: str) -> None:
    lines = "".join(f"{place},{one}\n" for place, one in enumerate(times))
    rows = read_source(f"step,step time ({unit})\n{lines}".encode()).table("training_log")
    for text, row in zip(times, rows, strict=True):
        exact = Decimal(text) * {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}[unit]
        nearest = int(exact.to_integral_value(ROUND_HALF_UP))
        fits = abs(nearest) < 1 << 62
        assert row.get("duration_ns") == (nearest if fits else None)
        kept = None if fits and nearest == exact else f'{{"step time ({unit})":"{text}"}}'
        assert row.get("args") == kept


def test_a_header_written_again_is_no_record() -> None:
    found = read_source(_CSV + b"1,1,2,3,64\n" + _CSV + b"\n2,2,2,3,64\n")
    assert [row["epoch_number"] for row in found.table("training_log")] == [1, 2]
    assert found.reader.passed_count == 3


def test_the_map_names_every_column_once_and_every_source_in_its_own_spelling() -> None:
    sources = [source for field in MAP.fields for source in field.sources]
    assert len(sources) == len(set(sources))
    assert sources == [source.casefold() for source in sources]


# -- MLLOG ----------------------------------------------------------------------------------------------------------


def test_marked_lines_of_a_log_are_rows_and_the_others_are_passed_by() -> None:
    line = mllog(
        namespace="worker",
        time_ms=1700000000123,
        event_type="INTERVAL_END",
        key="epoch_stop",
        value=None,
        metadata={"file": "train.py", "lineno": 7, "epoch_num": 3, "step_num": 90},
    )
    found = read_source(
        b"loading data\n" + line + b"\nloss 2.5\n0: " + mllog(time_ms=1.5, key="acc", value={"a": 0.25}) + b"\n"
    )
    assert found.format == "job_log"
    assert found.table("training_log") == [
        {
            "ordinal": 0,
            "offset_bytes": 13,
            "record": "mllog",
            "ts_ns": 1700000000123000000,
            "namespace": "worker",
            "event_type": "INTERVAL_END",
            "record_key": "epoch_stop",
            "epoch_number": 3,
            "step_number": 90,
            "args": '{"metadata":{"file":"train.py","lineno":7,"epoch_num":3,"step_num":90}}',
        },
        {
            "ordinal": 1,
            "offset_bytes": 13 + len(line) + 10,
            "record": "mllog",
            "ts_ns": 1_500_000,
            "record_key": "acc",
            "record_value": '{"a":0.25}',
            "args": '{"prefix":"0: "}',
        },
    ]
    assert found.reader.passed_count == 2


@pytest.mark.parametrize(
    "broken",
    [b":::MLLOG", b":::MLLOG {", b":::MLLOG [1]", b':::MLLOG {"key": 1} {}', b":::MLLOG " + b'{"a":' * 50_000],
)
def test_a_marked_line_that_cannot_be_read_is_reported(broken: bytes) -> None:
    found = read_source(broken + b"\n" + mllog(key="run_start") + b"\n")
    assert [row["record_key"] for row in found.table("training_log")] == ["run_start"]
    assert found.reasons == ["what follows :::MLLOG is no JSON object"]
    assert (found.unreadable[0].offset, found.unreadable[0].length) == (0, len(broken))


def test_values_of_other_kinds_are_kept_and_not_believed() -> None:
    (row,) = read_source(b':::MLLOG {"time_ms": "noon", "key": 5, "key": 6, "value": "x", "event_type": null}').table(
        "training_log"
    )
    assert "ts_ns" not in row
    assert row["record_value"] == "x"
    assert json.loads(row["args"]) == {"time_ms": "noon", "key": 5, "key#2": 6, "event_type": None}


def test_the_first_mark_may_come_late() -> None:
    found = read_source(b"warming up ...\n" * 40_000 + mllog(key="run_start") + b"\n")
    assert found.format == "job_log"
    assert found.reader.passed_count == 40_000
    assert len(found.table("training_log")) == 1


@pytest.mark.parametrize(
    ("said", "rate"),
    [
        (mllog(key="throughput", value=1234.5, metadata={"epoch_num": 3}), 1234.5),
        (mllog(key="tracked_stats", value={"throughput": 12, "loss": 1}, metadata={"step": 3}), 12.0),
        (mllog(key="throughput", value="fast"), None),
        (mllog(key="throughput", value=True), None),
        (mllog(key="tracked_stats", value=[1]), None),
        (mllog(key="loss", value=5.5), None),
    ],
)
def test_a_rate_is_read_where_a_line_gives_one(said: bytes, rate: float | None) -> None:
    (row,) = read_source(said + b"\n").table("training_log")
    assert row.get("samples_per_second") == rate
    assert row["record_value"]


def test_a_block_is_numbered_by_its_first_epoch() -> None:
    block = mllog(key="block_start", value=None, time_ms=5, metadata={"first_epoch_num": 4, "epoch_count": 2})
    (row,) = read_source(block + b"\n").table("training_log")
    assert (row["record_key"], row["epoch_number"], row["ts_ns"]) == ("block_start", 4, 5_000_000)
