"""What the log says of a run's indexed columns, wherever they stand in the table."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import pyarrow as pa

from lake.tables import RUN_ID, Table, text

if TYPE_CHECKING:
    from lake.store import Lake

# Delta reads the statistics of 32 columns unless it is told otherwise.
MANY = tuple(text(f"column_{number}", "One of many.", nullable=True) for number in range(40))
TABLE = Table(
    tier="silver",
    name="wide",
    grain="One row per run.",
    key=("run_id",),
    indexed=("last",),
    columns=(RUN_ID, *MANY, text("last", "Behind all others.", nullable=True)),
)
RUNS = [f"run-{number}" for number in range(3)]


def put(lake: Lake, run_id: str, value: str) -> None:
    rows = pa.Table.from_pylist([{"run_id": run_id, "last": value}], TABLE.arrow_schema)
    lake.replace(TABLE, run_id, rows, hashlib.sha256(value.encode()).hexdigest())


def test_an_indexed_column_behind_many_others_is_in_the_log_and_in_its_checkpoint(lake: Lake) -> None:
    for run_id in RUNS:
        put(lake, run_id, f"{run_id} {'x' * 3000}")
    expected = {run_id: {"last": f"{run_id} {'x' * 3000}"} for run_id in RUNS}
    assert lake.snapshot(TABLE).index() == expected
    lake.tidy(TABLE, 168)
    assert lake.snapshot(TABLE).index() == expected
    assert lake.snapshot(TABLE).index(["run-1", "nowhere"]) == {"run-1": expected["run-1"]}
