from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pipelines.cli import sandbox
from tests.support.bronze_sources import read_source

if TYPE_CHECKING:
    from lake.store import Lake
    from tests.conftest import LandFiles

PAGE = (Path(__file__).parent.parent.parent / "docs" / "landing.md").read_text("utf-8")


def test_a_size_is_a_row_and_its_rate_is_in_bytes_per_second() -> None:
    found = read_source(b"size,bw\n64,0.002\n1073741824,11.5\n")
    assert found.format == "copy_rate_csv"
    assert found.table("copy_rates") == [
        {"ordinal": 0, "offset_bytes": 8, "payload_bytes": 64, "bytes_per_second": 2e6},
        {"ordinal": 1, "offset_bytes": 17, "payload_bytes": 1 << 30, "bytes_per_second": 11.5e9},
    ]


@pytest.mark.parametrize(
    ("header", "cells", "expected"),
    [
        (b"Bandwidth (MB/s),Size (KiB)", b"5,2", {"payload_bytes": 2048, "bytes_per_second": 5e6}),
        (
            b"type,bw,lat,size,id",
            b"pinned h2d,1,7,64,3",
            {
                "payload_bytes": 64,
                "bytes_per_second": 1e9,
                "transfer": "pinned h2d",
                "args": '{"lat":"7","id":"3"}',
            },
        ),
        (
            b"size,bw",
            b"64,0.0012345678901",
            {"payload_bytes": 64, "bytes_per_second": 1234568.0, "args": '{"bw":"0.0012345678901"}'},
        ),
        (b"size,bw", b"many,-", {"args": '{"size":"many","bw":"-"}'}),
    ],
)
def test_units_and_other_columns_are_kept(header: bytes, cells: bytes, expected: dict[str, object]) -> None:
    (row,) = read_source(header + b"\n" + cells + b"\n").table("copy_rates")
    assert {name: value for name, value in row.items() if name not in {"ordinal", "offset_bytes"}} == expected


@pytest.mark.parametrize("header", [b"size,speed", b"bw,name", b"size,bw (furlongs)", b"Name,0.8GHz,1.0GHz"])
def test_what_has_no_size_or_no_rate_that_can_be_read_is_no_sweep(
    lake: Lake, land_files: LandFiles, header: bytes
) -> None:
    (file,) = land_files({"table.csv": header + b"\n1,2\n"}).files.to_dicts()
    assert (file["outcome"], file["format"]) == ("rejected", "unknown")
    assert "columns no reader knows" in file["reason"]


def test_the_query_on_the_page_holds_two_sweeps_against_each_other(lake: Lake, land_files: LandFiles) -> None:
    land_files({"pinned.csv": b"size,bw\n64,0.004\n128,2\n"}, "off")
    land_files({"pinned.csv": b"size,bw\n64,0.001\n128,1\n256,3\n"}, "cc")
    (text,) = re.findall(r"```sql\n(SELECT[^`]*bronze\.copy_rates[^`]*)```", PAGE)
    with sandbox.ask(lake, text, {"run": "cc", "baseline": "off"}) as answer:
        rows = answer.rows().read_all().to_pylist()
    assert [tuple(row.values()) for row in rows] == [(64, 1e6, 4e6, 4.0), (128, 1e9, 2e9, 2.0)]
