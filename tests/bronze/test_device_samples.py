from __future__ import annotations

import json

import pytest

from tests.support.bronze_sources import read_source

_SMI = b"timestamp, index, uuid, name, utilization.gpu [%], power.draw [W], ecc.mode.current\n"


def readings(data: bytes) -> list[tuple[object, ...]]:
    names = ("metric", "unit", "value", "value_number")
    return [tuple(row.get(name) for name in names) for row in read_source(data).table("device_samples")]


# -- nvidia-smi -----------------------------------------------------------------------------------------------------


def test_every_counter_of_a_line_is_a_reading() -> None:
    found = read_source(_SMI + b"2024/02/29 23:59:59.125, 1, GPU-12, ACME X1, 37 %, 71.25 W, Enabled\n")
    assert found.format == "nvidia_smi"
    first, second, third = found.table("device_samples")
    assert first == {
        "ordinal": 0,
        "offset_bytes": len(_SMI),
        "tool": "nvidia_smi",
        "wall_ns": 1709251199125000000,
        "device_id": 1,
        "device_uuid": "GPU-12",
        "device_name": "ACME X1",
        "metric": "utilization.gpu",
        "unit": "%",
        "value": "37",
        "value_number": 37.0,
    }
    assert (second["metric"], second["unit"], second["value_number"], second["ordinal"]) == (
        "power.draw",
        "W",
        71.25,
        1,
    )
    assert (third["metric"], third["value"], "value_number" in third) == ("ecc.mode.current", "Enabled", False)


def test_a_clock_without_a_zone_gives_no_utc() -> None:
    assert all(
        "ts_ns" not in row
        for row in read_source(_SMI + b"2024/01/01 00:00:00.000, 1, G, X, 1 %, 2 W, On\n").table("device_samples")
    )


# -- nvidia-smi dmon ------------------------------------------------------------------------------------------------

_DMON = b"#Date        Time         gpu    pwr  mtemp     sm \n#YYYYMMDD    HH:MM:SS     Idx      W      C      % \n"


def test_a_column_of_dmon_is_a_reading_in_the_unit_of_its_second_line() -> None:
    found = read_source(b"\n" + _DMON + b" 20240229    23:59:59       1    525      -     99 \n")
    assert found.format == "nvidia_smi_dmon"
    known = {"offset_bytes": 1 + len(_DMON), "tool": "nvidia_smi", "wall_ns": 1709251199 * 10**9, "device_id": 1}
    assert found.table("device_samples") == [
        {"ordinal": 0, **known, "metric": "pwr", "unit": "W", "value": "525", "value_number": 525.0},
        {"ordinal": 1, **known, "metric": "mtemp", "unit": "C", "value": "-", "missing_reason": "nvidia-smi prints -"},
        {"ordinal": 2, **known, "metric": "sm", "unit": "%", "value": "99", "value_number": 99.0},
    ]


def test_names_that_come_again_may_be_others_and_a_row_of_another_width_is_reported() -> None:
    other = b"# gpu     fb\n# Idx     MB\n    0    909\n    0    909     1\n"
    found = read_source(_DMON + b" 20240229    23:59:59       0      1      2      3 \n" + _DMON + other)
    assert [(row["metric"], row["unit"], row.get("wall_ns")) for row in found.table("device_samples")] == [
        *((metric, unit, 1709251199 * 10**9) for metric, unit in (("pwr", "W"), ("mtemp", "C"), ("sm", "%"))),
        ("fb", "MB", None),
    ]
    assert found.reasons == ["it has 3 columns, and the line of names before it has 2"]


def test_a_time_without_a_date_is_no_time() -> None:
    assert "wall_ns" not in read_source(b"# Time gpu sm\n# HH:MM:SS Idx %\n12:00:00 0 7\n").table("device_samples")[0]


# -- nvidia-smi --query-gpu, in its cells ---------------------------------------------------------------------------


@pytest.mark.parametrize("cell", ["[N/A]", "[Not Supported]", "N/A", "[Unknown Error]"])
def test_what_is_not_there_has_no_number_and_a_reason(cell: str) -> None:
    (row,) = read_source(f"power.draw [W]\n{cell}\n".encode()).table("device_samples")
    assert (row["value"], row["missing_reason"], "value_number" in row) == (cell, f"nvidia-smi prints {cell}", False)


def test_the_unit_may_stand_in_the_header_alone_in_the_cell_alone_or_in_both() -> None:
    assert readings(b"power.draw [W], memory.used\n71.5, 80 MiB\n") == [
        ("power.draw", "W", "71.5", 71.5),
        ("memory.used", "MiB", "80", 80.0),
    ]


def test_a_unit_that_contradicts_its_header_gives_no_number() -> None:
    assert readings(b"power.draw [W], memory.used [MiB]\n71.5 mW, 3\n")[0] == ("power.draw", "W", "71.5 mW", None)


def test_what_should_tell_the_device_and_does_not_is_a_reading() -> None:
    assert readings(b"index, timestamp, power.draw [W]\n[N/A], noon, 3 W\n") == [
        ("index", None, "[N/A]", None),
        ("timestamp", None, "noon", None),
        ("power.draw", "W", "3", 3.0),
    ]


def test_a_query_started_again_and_a_line_cut_short() -> None:
    found = read_source(b"index, power.draw [W]\n0, 1 W\nindex, power.draw [W], memory.used [MiB]\n0, 2 W, 3 MiB\n0, 2")
    assert [row["value"] for row in found.table("device_samples")] == ["1", "2", "3"]
    assert found.reasons == ["it has 2 cells where the header names 3"]


# -- DCGM -----------------------------------------------------------------------------------------------------------


def test_a_line_of_the_exporter_is_a_reading() -> None:
    labels = b'{gpu="1",UUID="GPU-9",modelName="ACME \\"X1\\"",Hostname="node-7"}'
    line = b"DCGM_FI_DEV_POWER_USAGE" + labels + b" 71.329 1700000000123\n"
    found = read_source(
        b"# HELP DCGM_FI_DEV_POWER_USAGE Power draw (in W).\n# TYPE DCGM_FI_DEV_POWER_USAGE gauge\n" + line
    )
    assert found.format == "dcgm"
    (row,) = found.table("device_samples")
    assert json.loads(row.pop("labels"))["Hostname"] == "node-7"
    assert row == {
        "ordinal": 0,
        "offset_bytes": 87,
        "tool": "dcgm",
        "ts_ns": 1700000000123000000,
        "device_id": 1,
        "device_uuid": "GPU-9",
        "device_name": 'ACME "X1"',
        "metric": "DCGM_FI_DEV_POWER_USAGE",
        "value": "71.329",
        "value_number": 71.329,
    }
    assert found.reader.passed_count == 2


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("9223372036854775792", "it is blank"),
        ("9223372036854775794", "it is not supported"),
        ("2147483635", "it is not permitted"),
        ("140737488355329", "it was not found"),
        ("1.40737488355328e+14", "it is blank"),
    ],
)
def test_a_sentinel_is_no_number_and_says_so(value: str, why: str) -> None:
    (row,) = read_source(f'DCGM_FI_DEV_MEMORY_TEMP{{gpu="0"}} {value}\n'.encode()).table("device_samples")
    assert row["value"] == value
    assert row["missing_reason"] == f"DCGM prints {value}, which stands for: {why}"
    assert "value_number" not in row


@pytest.mark.parametrize("value", ["9223372036854775791", "2147483636", "0", "-1", "1e3"])
def test_a_value_beside_a_sentinel_is_a_number(value: str) -> None:
    (row,) = read_source(f"DCGM_FI_DEV_X {value}\n".encode()).table("device_samples")
    assert row["value_number"] == float(value)
    assert "missing_reason" not in row


def test_a_line_that_is_no_reading_is_reported() -> None:
    found = read_source(b'DCGM_FI_DEV_X 1\nDCGM_FI_DEV_X{gpu="0" 1\nnode_cpu 5\nDCGM_FI_DEV_X{gpu=0} 1\n')
    assert len(found.table("device_samples")) == 1
    assert found.reasons == ["it is no reading of the DCGM exporter"] * 3


# -- conf-compute ---------------------------------------------------------------------------------------------------


def test_the_query_tells_facts() -> None:
    found = read_source(
        b"\n==NVSMI CONF-COMPUTE LOG==\n\n  CC State       : ON\n  Multi-GPU Mode : None\n  Something New : a : b\n"
    )
    assert found.format == "conf_compute"
    assert [(row["metric"], row["value"]) for row in found.table("device_samples")] == [
        ("CC State", "ON"),
        ("Multi-GPU Mode", "None"),
        ("Something New", "a : b"),
    ]
    assert found.lines_count == 6


@pytest.mark.parametrize("said", [b"CC status: ON\n", b"Confidential Compute GPUs Ready state: ready\n"])
def test_short_answers_are_taken_too(said: bytes) -> None:
    (row,) = read_source(said).table("device_samples")
    assert (row["tool"], row["metric"]) == ("conf_compute", said.decode().partition(":")[0])
