from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lake import few_rows
from lake.errors import DataDamaged
from tests.support.sample_tables import CELLS, FIRST, READINGS, readings
from tests.support.tampered_tables import put

if TYPE_CHECKING:
    from lake.store import Lake
    from lake.tables import Table


def fill(lake: Lake) -> None:
    for run_id in ("a", "b"):
        lake.replace(READINGS, run_id, readings(run_id), FIRST)


def read_by_duckdb(lake: Lake, table: Table) -> pl.DataFrame:
    with duckdb.connect(":memory:") as connection:
        found: pl.DataFrame = lake.relation(connection, table).pl()
        return found.sort(table.row_key)


def rewrite(lake: Lake, rows: pa.Table) -> None:
    """Make other rows the data file of a run."""
    put(lake, READINGS, "a", rows.append_column("run_id", pa.repeat(pa.scalar("a"), rows.num_rows)))


def read_stored(lake: Lake) -> pa.Table:
    return pq.ParquetFile(lake.files(READINGS, ["a"])[0]).read()


def test_few_rows_are_those_that_an_engine_reads(lake: Lake) -> None:
    fill(lake)
    found = lake.read_few(READINGS, None, 10_000)
    assert found is not None
    assert found.schema.names == list(READINGS.column_names)
    assert found.schema.types == READINGS.arrow_schema.types
    assert pl.DataFrame(found).sort(READINGS.row_key).equals(read_by_duckdb(lake, READINGS))
    assert (lake.read_few(READINGS, ["nobody"], 10_000) or pa.table({})).num_rows == 0


@pytest.mark.parametrize("site", ["007", "1e5", "true", "null", "NULL", "nan", "2024-01-01", "None"])
def test_partition_values_are_those_that_an_engine_reads(lake: Lake, site: str) -> None:
    rows = pa.table({"run_id": ["a"], "rank": pa.array([7], pa.int32()), "site": [site], "cell": ["one"]})
    lake.replace(CELLS, "a", rows, FIRST)
    found = lake.read_few(CELLS, None, 10_000)
    assert found is not None
    assert pl.DataFrame(found).equals(read_by_duckdb(lake, CELLS))


def test_more_rows_or_files_than_few_are_left_to_an_engine(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(lake)
    count = 2 * readings("a").num_rows
    assert lake.read_few(READINGS, None, count) is not None
    assert lake.read_few(READINGS, None, count - 1) is None
    monkeypatch.setattr(few_rows, "MOST_FILES", 1)
    assert lake.read_few(READINGS, None, count) is None
    assert lake.read_few(READINGS, ["a"], count) is not None


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("ordinal", pa.int32()),
        ("ordinal", pa.uint64()),
        ("ordinal", pa.string()),
        ("ordinal", pa.float64()),
        ("ordinal", pa.timestamp("ns")),
        ("ordinal", pa.decimal128(19, 0)),
        ("slot", pa.int64()),
        ("slot", pa.int16()),
        ("slot", pa.date32()),
        ("power_w", pa.float32()),
        ("is_valid", pa.int32()),
        ("label", pa.binary()),
        ("label", pa.large_string()),
        ("label", pa.dictionary(pa.int32(), pa.string())),
    ],
)
def test_a_file_with_a_column_of_another_kind_is_left_to_an_engine(lake: Lake, name: str, kind: pa.DataType) -> None:
    fill(lake)
    rows = read_stored(lake)
    place = rows.schema.get_field_index(name)
    rewrite(lake, rows.set_column(place, name, rows.column(name).cast(kind)))
    assert lake.read_few(READINGS, ["a"], 10_000) is None
    assert lake.read_few(READINGS, ["b"], 10_000) is not None
    assert lake.read_few(READINGS, None, 10_000) is None


def test_a_file_with_more_fewer_or_nested_columns_is_left_to_an_engine(lake: Lake) -> None:
    fill(lake)
    rows = read_stored(lake)
    lists = pa.array([[value] for value in rows.column("slot").to_pylist()], pa.list_(pa.int32()))
    for odd in (
        rows.drop_columns(["label"]),
        rows.append_column("more", rows.column("slot")),
        rows.rename_columns(["ordinal", "Slot", "label", "power_w", "is_valid"]),
        rows.set_column(rows.schema.get_field_index("slot"), "slot", lists),
    ):
        rewrite(lake, odd)
        assert lake.read_few(READINGS, ["a"], 10_000) is None


@pytest.mark.parametrize("path", ["one.parquet", "rank=0/one.parquet", "run_id=a/rank=0/one.parquet", "run_id=/x"])
def test_a_file_outside_its_partition_is_left_to_an_engine(lake: Lake, path: str) -> None:
    fill(lake)
    root = lake.root(READINGS)
    (root.directory / path).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(read_stored(lake), root.directory / path)
    assert few_rows.read_few_rows(READINGS, root, [path], 10_000) is None


def test_text_that_is_none_is_left_to_an_engine(lake: Lake) -> None:
    fill(lake)
    rows = read_stored(lake)
    broken = pa.chunked_array([pa.array([b"\xff"] * rows.num_rows, pa.binary()).view(pa.string())])
    rewrite(lake, rows.set_column(rows.schema.get_field_index("label"), "label", broken))
    assert lake.read_few(READINGS, ["a"], 10_000) is None


def test_a_file_that_cannot_be_read_is_left_to_an_engine_and_one_that_is_gone_is_named(lake: Lake) -> None:
    fill(lake)
    path = Path(lake.files(READINGS, ["a"])[0])
    path.write_bytes(b"\0" * path.stat().st_size)
    assert lake.read_few(READINGS, ["a"], 10_000) is None
    path.unlink()
    with pytest.raises(DataDamaged, match="is missing"):
        lake.read_few(READINGS, ["a"], 10_000)
