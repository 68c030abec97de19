"""Files that would fill memory or time if they were believed: passed over in bounds, and the rest is read."""

from __future__ import annotations

import gzip
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bronze.formats import recognise_format
from bronze.limits import Limits
from bronze.lines import split_lines
from tests.support.bronze_sources import read_source

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import LandFiles

_ROOT = Path(__file__).parent.parent.parent
_API = b"Start (ns),Duration (ns),Name,Tid\n"
_GOOD = b"1,2,f,9\n"


def test_one_giant_line_is_passed_over() -> None:
    found = read_source(_API + b"1,2," + b"x" * (3 << 20) + b",9\n" + _GOOD)
    assert [row["name"] for row in found.table("nsys_events")] == ["f"]
    assert found.reasons == ["the line is longer than 1,048,576 bytes"]
    assert (found.unreadable[0].offset, found.unreadable[0].length) == (len(_API), 4 + (3 << 20) + 3)


def test_a_record_of_a_million_cells_is_reported() -> None:
    found = read_source(_API + b"," * 1_000_000 + b"\n" + _GOOD)
    assert [row["name"] for row in found.table("nsys_events")] == ["f"]
    assert found.reasons == ["it has 1,000,001 cells where the header names 4"]


def test_a_header_of_too_many_columns_is_no_header() -> None:
    header = b"Start (ns),Duration (ns),Name,Tid" + b",x" * 5000 + b"\n"
    assert recognise_format(header + _GOOD, lambda: iter([header])) is None


@pytest.mark.parametrize("cell", [b" " * 60_000, b"(" * 60_000, b"a (" * 20_000, b"[" * 60_000, b'""' * 30_000])
def test_a_header_made_to_take_long_does_not(cell: bytes) -> None:
    begun = time.process_time()
    recognise_format((b'"' + cell + b'",b\n') * 4, lambda: iter(()))
    assert time.process_time() - begun < 5


@pytest.mark.parametrize(
    "line",
    [
        b"DCGM_X" + b" " * 500_000 + b"z",
        b"DCGM_X{" + b'a="b",' * 80_000,
        b"h:1:2 [0] NCCL INFO AllReduce: opCount 1 " + b"a=1 " * 100_000,
        b":" * 300_000 + b" NCCL INFO AllReduce: opCount 1",
        b":::MLLOG " + b"[" * 900_000,
        b"8 " * 300_000,
        b"." * 900_000 + b" : x",
    ],
    ids=["spaces", "labels", "pairs", "colons", "brackets", "numbers", "dots"],
)
def test_a_line_made_to_take_long_does_not(line: bytes) -> None:
    begun = time.process_time()
    for head in (b"DCGM_X 1\n", b":::MLLOG {}\n#  (B)  (elements)\n", b"CC State : ON\n"):
        read_source(head + line + b"\n")
    assert time.process_time() - begun < 10


def test_a_cell_larger_than_any_is_reported() -> None:
    found = read_source(_API + b"1,2," + b"x" * 200_000 + b",9\n" + _GOOD)
    assert len(found.table("nsys_events")) == 1
    assert found.reasons == ["it is no CSV record: field larger than field limit (131072)"]


def test_bytes_that_are_no_text_are_escaped_or_reported() -> None:
    found = read_source(_API + b"1,2,\xff\xfe\x00,9\n" + b"1,2,a\rb,9\n")
    assert [row["name"] for row in found.table("nsys_events")] == ["\\xff\\xfe\x00"]
    assert len(found.reasons) == 1


def test_lines_are_found_wherever_blocks_end() -> None:
    data = b"a\nbb\r\n\n" + b"c" * 90 + b"\nd"

    def blocks(size: int) -> Iterator[bytes]:
        return (data[place : place + size] for place in range(0, len(data), size))

    expected = [*split_lines(iter([data]), 64)]
    assert [line if isinstance(line, tuple) else (line.offset, line.length) for line in expected] == [
        (0, b"a"),
        (2, b"bb"),
        (6, b""),
        (7, 91),
        (98, b"d"),
    ]
    for size in range(1, len(data)):
        assert [*split_lines(blocks(size), 64)] == expected


def test_a_bomb_is_refused(land_files: LandFiles) -> None:
    landed = land_files(
        {"a.csv.gz": gzip.compress(_API + b"\n" * (1 << 20))}, limits=Limits(max_inflated_bytes=1 << 16)
    )
    assert "inflates to more than" in str(landed.file("a.csv.gz")["reason"])
    assert landed.nsys.is_empty()


def test_a_cut_stream_gives_its_rows_and_says_that_it_is_cut(land_files: LandFiles) -> None:
    packed = gzip.compress(_API + b"".join(b"%d,2,name-%d,9\n" % (n, n * 7919) for n in range(20_000)))
    landed = land_files({"a.csv.gz": packed[: len(packed) // 2]})
    file = landed.file("a.csv.gz")
    assert (file["outcome"], file["is_complete"]) == ("kept", False)
    assert "the gzip stream is cut short" in landed.reasons_of("a.csv.gz")
    assert landed.nsys["ordinal"].to_list() == list(range(int(str(file["rows_count"]))))
    assert len(landed.nsys) > 1000


_PEAK = """
import resource, sys
from itertools import repeat
from bronze.limits import Limits
from bronze.nsys_csv import NsysCsvReader
line = b"1700000000,25,void kernel<float, 128>(float *),77\\n" * 1000
def blocks():
    yield b"Start (ns),Duration (ns),Name,Tid\\n"
    yield from repeat(line.replace(b"<float, 128>", b"<float>"), int(sys.argv[1]))
rows = sum(batch.num_rows for _, batch in NsysCsvReader(blocks(), Limits()))
assert rows == 1000 * int(sys.argv[1]), rows
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def test_a_file_ten_times_larger_takes_the_same_memory() -> None:
    assert resource.RUSAGE_SELF == 0
    peaks = [
        int(subprocess.run([sys.executable, "-c", _PEAK, str(size)], cwd=_ROOT, check=True, capture_output=True).stdout)
        for size in (30, 300)
    ]
    assert peaks[1] < 1.1 * peaks[0], peaks
