from __future__ import annotations

from typing import TYPE_CHECKING, Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from assets.build.catalogue import TABLES
from lake.errors import ContractBroken
from lake.tables import RUN_ID, Table, int64, text
from tests.support.sample_tables import CELLS, READINGS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DECLARED = [*TABLES.values(), READINGS, CELLS]
NAMES = [table.full_name for table in DECLARED]


def table(**other: Any) -> Table:
    facts = {"tier": "gold", "name": "answers", "grain": "One row.", "key": ("ordinal",)}
    columns = (RUN_ID, int64("ordinal", "Place."), text("label", "Name.", nullable=True))
    return Table(**{**facts, "columns": columns, **other})


@pytest.mark.parametrize("declared", DECLARED, ids=NAMES)
def test_polars_holds_what_is_declared(declared: Table) -> None:
    frame = pl.DataFrame(schema=declared.polars_schema)
    kinds = [
        pa.string() if field.type == pa.large_string() else field.type
        for field in frame.to_arrow(compat_level=pl.CompatLevel.oldest()).schema
    ]
    assert frame.columns == declared.arrow_schema.names
    assert kinds == declared.arrow_schema.types


@pytest.mark.parametrize("declared", DECLARED, ids=NAMES)
def test_duckdb_makes_the_declared_table(declared: Table) -> None:
    columns = ", ".join(f'"{name}" {kind}' for name, kind in declared.duckdb_types.items())
    with duckdb.connect(":memory:") as connection:
        connection.execute(f"CREATE TABLE made ({columns})")
        schema = connection.table("made").to_arrow_table().schema
    assert schema.names == declared.arrow_schema.names
    assert schema.types == declared.arrow_schema.types


@pytest.mark.parametrize("declared", DECLARED, ids=NAMES)
def test_spark_reads_its_ddl_as_what_is_declared(declared: Table, spark: SparkSession) -> None:
    parsed = StructType.fromDDL(declared.spark_ddl)
    assert isinstance(parsed, StructType)
    assert to_arrow_schema(parsed) == declared.arrow_schema
    assert spark.createDataFrame([], declared.spark_ddl).schema == parsed


def test_partition_columns_live_in_the_path_and_not_in_the_file() -> None:
    assert CELLS.file_schema.names == ["cell"]
    assert READINGS.file_schema.names == ["ordinal", "slot", "label", "power_w", "is_valid"]


def test_a_table_is_its_name_and_its_path() -> None:
    assert (table().full_name, table().path) == ("gold.answers", "gold/answers")


def test_a_column_declared_twice_is_refused() -> None:
    with pytest.raises(ContractBroken, match=r"gold\.answers declares ordinal twice"):
        table(columns=(RUN_ID, int64("ordinal", "Place."), int64("ordinal", "Place again.")))


@pytest.mark.parametrize("role", ["key", "partition_by"])
def test_a_key_or_a_partition_that_may_be_null_is_refused(role: str) -> None:
    with pytest.raises(ContractBroken, match=r"gold\.answers\.label is a key or a partition and may not be null"):
        table(**{role: ("run_id", "label")})


@pytest.mark.parametrize("partition_by", [(), ("ordinal",), ("ordinal", "run_id")])
def test_a_table_is_partitioned_by_run_first(partition_by: tuple[str, ...]) -> None:
    with pytest.raises(ContractBroken, match="must be partitioned by run_id first"):
        table(partition_by=partition_by)


@pytest.mark.parametrize("role", ["key", "partition_by"])
def test_a_key_or_a_partition_that_is_no_column_is_refused_with_the_nearest(role: str) -> None:
    with pytest.raises(ContractBroken, match=r"no column 'ordinals' \(did you mean 'ordinal'\?\)"):
        table(**{role: ("run_id", "ordinals")})
