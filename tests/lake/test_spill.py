from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lake.spill import SpilledRows

if TYPE_CHECKING:
    from collections.abc import Iterator

SCHEMA = pa.schema([("number", pa.int64()), ("text", pa.string())])


def batch(numbers: list[int]) -> pa.RecordBatch:
    return pa.record_batch([numbers, [f"row {number}" for number in numbers]], schema=SCHEMA)


def spill_and_read(folder: Path, batches: list[list[int]], count: int) -> list[list[int]]:
    """Numbers by their remainder, and what comes back of each share."""
    with SpilledRows(folder, SCHEMA, count) as shares:
        for numbers in batches:
            shares.add(batch(numbers), np.array(numbers, dtype=np.int64) % count)
    found = [shares.read(place).to_pylist() for place in range(count)]
    assert all(row["text"] == f"row {row['number']}" for rows in found for row in rows)
    return [[row["number"] for row in rows] for rows in found]


def test_a_sealed_share_says_nothing_on_disk_and_comes_back(tmp_path: Path) -> None:
    numbers = list(range(20_000))
    for is_sealed in (True, False):
        with SpilledRows(tmp_path, SCHEMA, 2, is_sealed=is_sealed) as shares:
            for first in range(0, len(numbers), 5_000):
                part = numbers[first : first + 5_000]
                shares.add(batch(part), np.array(part, dtype=np.int64) % 2)
        on_disk = [path.read_bytes() for path in tmp_path.iterdir()]
        assert all((b"ARROW1" in data) is not is_sealed for data in on_disk)
        assert shares.read(1).column("number").to_pylist() == numbers[1::2]
        assert shares.read(0).column("number").to_pylist() == numbers[::2]
        assert list(tmp_path.iterdir()) == []


@pytest.fixture
def few_files() -> Iterator[int]:
    """A process that may have hardly more files open than it has now, unless it asks for more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    few = 256
    resource.setrlimit(resource.RLIMIT_NOFILE, (few, hard))
    yield few
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@given(batches=st.lists(st.lists(st.integers(0, 1 << 40))), count=st.integers(1, 7))
def test_every_row_comes_back_once_in_its_share_and_in_its_order(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[int]], count: int
) -> None:
    folder = tmp_path_factory.mktemp("shares")
    rows = [number for numbers in batches for number in numbers]
    wanted = [[number for number in rows if number % count == place] for place in range(count)]
    assert spill_and_read(folder, batches, count) == wanted
    assert list(folder.iterdir()) == []


def test_a_rank_may_have_more_shares_than_files_may_be_open_at_first(tmp_path: Path, few_files: int) -> None:
    count = few_files * 2
    found = spill_and_read(tmp_path, [list(range(count)), list(range(count))], count)
    assert found == [[place, place] for place in range(count)]


SCRIPT = """
import resource, sys
from pathlib import Path
import pyarrow as pa
from lake.spill import SpilledRows
resource.setrlimit(resource.RLIMIT_NOFILE, (200, 300))
with SpilledRows(Path(sys.argv[1]), pa.schema([("number", pa.int64())]), 1000):
    pass
"""


def test_where_the_machine_allows_no_more_files_the_error_says_what_to_raise(tmp_path: Path) -> None:
    settings = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run([sys.executable, "-c", SCRIPT, str(tmp_path)], env=settings, capture_output=True, check=False)
    assert b"ContractBroken: 1,000 shares of a rank need as many files open at once" in done.stderr
    assert b"ulimit -Hn" in done.stderr
    assert list(tmp_path.iterdir()) == []
