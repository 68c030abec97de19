"""Small files that become large ones: bounded by their ratio and by their rows, told, and no other file is lost."""

from __future__ import annotations

import gzip
import random
from typing import TYPE_CHECKING, Any

import pytest
from backports import zstd

from bronze.inflate import Inflated
from bronze.limits import Limits
from lake.errors import EvidenceRejected
from pipelines.settings import settings
from tests.support.bronze_sources import read_source
from tests.support.traces import trace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.bronze.conftest import Beside

_MIB = 1 << 20


def count_inflated_bytes(data: bytes, limits: Limits, block_bytes: int = _MIB) -> int:
    """How much a source gives, read to its end."""
    blocks: Iterator[bytes] = (data[place : place + block_bytes] for place in range(0, len(data), block_bytes))
    return sum(map(len, Inflated(blocks, limits)))


@pytest.mark.parametrize("pack", [gzip.compress, zstd.compress])
def test_a_file_beyond_the_ratio_is_refused_and_the_setting_is_named(pack: Any) -> None:
    packed = pack(b" " * (17 * _MIB))
    with pytest.raises(EvidenceRejected, match=r"more than 100 times its size: [\d,]+ bytes gave") as caught:
        count_inflated_bytes(packed, Limits(max_inflation_ratio=100))
    assert "TEETOTAL_MAX_INFLATION_RATIO" in caught.value.hint
    assert count_inflated_bytes(packed, Limits(max_inflation_ratio=10_000_000)) == 17 * _MIB


def test_a_small_file_may_have_any_ratio_and_a_plain_one_has_none() -> None:
    few = Limits(max_inflation_ratio=1)
    assert count_inflated_bytes(zstd.compress(b" " * (15 * _MIB)), few) == 15 * _MIB
    assert count_inflated_bytes(b" " * (17 * _MIB), few) == 17 * _MIB


def test_a_large_file_of_a_usual_ratio_is_read() -> None:
    noise = random.Random(1).randbytes(_MIB // 2).hex().encode()
    lines = b"".join(noise[place : place + 64] + b" " * 192 for place in range(0, len(noise), 64))
    packed = gzip.compress(lines * 5)
    assert 5 < len(lines) * 5 / len(packed) < 100
    assert count_inflated_bytes(packed, Limits(max_inflation_ratio=100), 4096) == 5 * len(lines)


def test_a_bomb_of_events_is_rejected_and_costs_no_other_file(beside: Beside) -> None:
    bomb = zstd.compress(b'{"traceEvents": [' + b'{"ph": "X"},' * 1_500_000 + b"{}]}", 3)
    assert len(bomb) < 24_000
    reason = beside(bomb).rejected()
    assert "more than 1,000 times its size" in reason
    assert "TEETOTAL_MAX_INFLATION_RATIO" in reason


def test_a_file_of_too_many_events_is_rejected_and_costs_no_other_file(beside: Beside) -> None:
    company = beside(trace(*['{"ph": "X"}'] * 300), Limits(max_file_rows=299))
    assert "more than 299 rows" in company.rejected()
    assert "TEETOTAL_MAX_FILE_ROWS" in company.rejected()


def test_a_file_of_too_many_records_or_unreadable_lines_is_rejected(beside: Beside) -> None:
    header = b"Start (ns),Duration (ns),Name,Tid\n"
    company = beside(
        {
            "rows.csv": header + b"1,2,f,9\n" * 300,
            "broken.csv": header + b"1\n" * 5_000,
            "few.csv": header + b"1,2,f,9\n",
        },
        Limits(max_file_rows=299),
    )
    assert "more than 299 rows" in company.rejected("rows.csv")
    assert "more than 299 rows" in company.rejected("broken.csv")
    assert company.landed.file("few.csv")["outcome"] == "kept"


def test_both_limits_can_be_set_from_outside() -> None:
    given = {"TEETOTAL_MAX_INFLATION_RATIO": "7", "TEETOTAL_MAX_FILE_ROWS": "8"}
    limits = settings("lake", environment=given).limits
    assert (limits.max_inflation_ratio, limits.max_file_rows) == (7, 8)


def test_unreadable_lines_are_handed_over_as_they_come() -> None:
    header = b"Start (ns),Duration (ns),Name,Tid\n"
    found = read_source(header + b"1,2,f,9\n" + b"1\n" * 20_000 + b"3,4,g,9\n")
    assert [row["name"] for row in found.table("nsys_events")] == ["f", "g"]
    assert [row["ordinal"] for row in found.table("nsys_events")] == [0, 1]
    assert len(found.reasons) == 20_000
