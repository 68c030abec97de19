from __future__ import annotations

from typing import TYPE_CHECKING

import duckdb
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from lake.errors import ContractBroken, EvidenceRejected
from lake.locations import Location
from lake.store import Lake
from tests.support.sample_tables import CELLS, FIRST, READINGS, readings

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from lake.tables import Table

RUNS = ("a", "a.b", "b")


@pytest.fixture
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(":memory:") as opened:
        yield opened


def read(lake: Lake, connection: duckdb.DuckDBPyConnection, run_ids: Sequence[str] | None = None) -> pl.DataFrame:
    """What both engines read; they must agree in names, types and values."""
    return read_table(lake, connection, READINGS, run_ids)


def read_table(
    lake: Lake, connection: duckdb.DuckDBPyConnection, table: Table, run_ids: Sequence[str] | None = None
) -> pl.DataFrame:
    order = list(table.row_key)
    by_polars = lake.scan(table, run_ids).collect()
    by_duckdb = lake.relation(connection, table, run_ids).pl()
    assert by_polars.schema == table.polars_schema
    assert_frame_equal(by_duckdb.sort(order), by_polars.sort(order))
    return by_polars.sort(order)


def expect_rows(*run_ids: str) -> pl.DataFrame:
    frames = [pl.DataFrame(readings(run_id).to_pydict(), schema=READINGS.polars_schema) for run_id in run_ids]
    return pl.concat(frames)


def fill(lake: Lake) -> None:
    for run_id in RUNS:
        lake.replace(READINGS, run_id, readings(run_id), FIRST)


def test_polars_and_duckdb_read_equal_frames(lake: Lake, connection: duckdb.DuckDBPyConnection) -> None:
    fill(lake)
    assert_frame_equal(read(lake, connection), expect_rows(*RUNS))


@pytest.mark.parametrize("run_ids", [("a",), ("b", "a"), ("a", "a"), ("nobody",), ("a", "nobody"), ()])
def test_both_read_just_the_runs_asked_for(
    lake: Lake, connection: duckdb.DuckDBPyConnection, run_ids: tuple[str, ...]
) -> None:
    fill(lake)
    wanted = [run_id for run_id in RUNS if run_id in run_ids]
    assert_frame_equal(read(lake, connection, run_ids), expect_rows(*wanted) if wanted else expect_rows("a").clear())


@pytest.mark.parametrize("run_ids", [None, ("a",), ()])
def test_an_absent_table_is_an_empty_one(
    lake: Lake, connection: duckdb.DuckDBPyConnection, run_ids: Sequence[str] | None
) -> None:
    assert read(lake, connection, run_ids).is_empty()
    assert not lake.place.directory.exists()


def test_an_emptied_table_is_an_empty_one(lake: Lake, connection: duckdb.DuckDBPyConnection) -> None:
    lake.replace(READINGS, "a", readings(), FIRST)
    lake.replace(READINGS, "a", readings(powers=[]), FIRST)
    assert read(lake, connection).is_empty()
    assert read(lake, connection, ["a"]).is_empty()


def test_partition_values_keep_their_type_whatever_they_look_like(
    lake: Lake, connection: duckdb.DuckDBPyConnection
) -> None:
    sites = ["007", "1e5", "true", "null", "NULL", "nan", "2024-01-01", "None"]
    for site in sites:
        with lake.stage(CELLS, site) as stage:
            unit = stage.unit()
            unit.write(
                pl.DataFrame({"cell": ["one"]})
                .to_arrow(compat_level=pl.CompatLevel.oldest())
                .cast(CELLS.file_schema)
                .to_batches()[0]
            )
            unit.finish(rank=7, site=site)
            lake.commit(stage, FIRST)
    assert read_table(lake, connection, CELLS).rows() == [(site, 7, site, "one") for site in sorted(sites)]


@pytest.mark.parametrize("folder", ["with space", "ünï", "a'b", "a;b", "a,b", "a&b"])
def test_a_lake_may_lie_in_a_folder_with_an_odd_name(
    tmp_path: Path, connection: duckdb.DuckDBPyConnection, folder: str
) -> None:
    lake = Lake(Location.of(tmp_path / folder / "lake"))
    fill(lake)
    assert_frame_equal(read(lake, connection), expect_rows(*RUNS))
    assert_frame_equal(read(lake, connection, ["b"]), expect_rows("b"))
    assert {path.name for path in tmp_path.iterdir()} == {folder}


@pytest.mark.parametrize("folder", ["x=y", "run_id=b", "a[b]", "a*b", "a?b", "a#b", "a%20b", "a{b,c}"])
def test_a_lake_whose_path_readers_would_take_for_a_pattern_is_refused(tmp_path: Path, folder: str) -> None:
    with pytest.raises(ContractBroken, match="the lake cannot lie in") as caught:
        Lake(Location.of(tmp_path / folder / "lake"))
    assert "choose a path without" in caught.value.hint
    assert list(tmp_path.iterdir()) == []


def test_a_reader_keeps_the_rows_it_has_opened(lake: Lake) -> None:
    lake.replace(READINGS, "a", readings(), FIRST)
    opened = lake.scan(READINGS)
    lake.replace(READINGS, "a", readings(powers=[9.0]), FIRST)
    assert_frame_equal(opened.collect().sort("ordinal"), expect_rows("a"))


def test_an_id_that_is_none_is_refused_by_both(lake: Lake, connection: duckdb.DuckDBPyConnection) -> None:
    fill(lake)
    with pytest.raises(EvidenceRejected, match="cannot be a run id"):
        lake.scan(READINGS, ["a' OR '1'='1"])
    with pytest.raises(EvidenceRejected, match="cannot be a run id"):
        lake.relation(connection, READINGS, ["a' OR '1'='1"])
