"""What a table is: one frozen declaration, compiled to the schema of every engine."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa

from lake.errors import ContractBroken, nearest

if TYPE_CHECKING:
    from collections.abc import Iterable

    import polars as pl


class Kind(StrEnum):
    """The few kinds of value that every engine stores alike."""

    TEXT = "text"
    INT32 = "int32"
    INT64 = "int64"
    FLOAT64 = "float64"
    BOOL = "bool"


class Scope(StrEnum):
    """What a partition of a table is made from, and so how it is built."""

    RUN = "run"
    PAIR = "pair"
    FAMILY = "family"
    REGIME = "regime"
    WORKLOAD = "workload"
    LAKE = "lake"
    # Computed when a command asks, and kept nowhere.
    QUESTION = "question"


_ARROW = {
    Kind.TEXT: pa.string(),
    Kind.INT32: pa.int32(),
    Kind.INT64: pa.int64(),
    Kind.FLOAT64: pa.float64(),
    Kind.BOOL: pa.bool_(),
}
_DUCKDB = {
    Kind.TEXT: "VARCHAR",
    Kind.INT32: "INTEGER",
    Kind.INT64: "BIGINT",
    Kind.FLOAT64: "DOUBLE",
    Kind.BOOL: "BOOLEAN",
}
_SPARK = {
    Kind.TEXT: "STRING",
    Kind.INT32: "INT",
    Kind.INT64: "BIGINT",
    Kind.FLOAT64: "DOUBLE",
    Kind.BOOL: "BOOLEAN",
}
# Spark's word for a kind, and DuckDB's.
DUCKDB_KINDS = {_SPARK[kind]: _DUCKDB[kind] for kind in Kind}
# The physical type, and the logical one.
_PARQUET = {
    Kind.TEXT: ("BYTE_ARRAY", "STRING"),
    Kind.INT32: ("INT32", "NONE"),
    Kind.INT64: ("INT64", "NONE"),
    Kind.FLOAT64: ("DOUBLE", "NONE"),
    Kind.BOOL: ("BOOLEAN", "NONE"),
}
_POLARS = {
    Kind.TEXT: "String",
    Kind.INT32: "Int32",
    Kind.INT64: "Int64",
    Kind.FLOAT64: "Float64",
    Kind.BOOL: "Boolean",
}


@dataclass(frozen=True)
class Column:
    """One column: its kind, what it means, and what its values may be."""

    name: str
    kind: Kind
    meaning: str
    nullable: bool = False
    minimum: int | float | None = None
    maximum: int | float | None = None
    one_of: tuple[str, ...] = ()
    sensitive: bool = False
    is_free_text: bool = False
    repeats: bool = True

    def __post_init__(self) -> None:
        if self.sensitive and self.kind is not Kind.TEXT:
            raise ContractBroken(f"column {self.name} is declared {self.kind}: only text can be sensitive")
        if self.is_free_text and not self.sensitive:
            raise ContractBroken(f"column {self.name} is free text, which may say anything: declare it sensitive")


@dataclass(frozen=True)
class Table:
    """One table of the lake: the name is the module, the asset key and the path."""

    tier: str
    name: str
    grain: str
    key: tuple[str, ...]
    columns: tuple[Column, ...]
    partition_by: tuple[str, ...] = ("run_id",)
    # The tables that its rows are computed from, by name, in the order in which its transform takes them. The graph is
    # derived from this alone (assets/build/catalogue.py); a table of bronze is made from the landing zone.
    inputs: tuple[str, ...] = ()
    # Whether each row comes of rows of the first input: where that has none, nothing is planned.
    is_empty_without_first_input: bool = False
    # What one partition is made from: the inputs of one run, of a pair of runs, of a family of pairs, of all pairs of a
    # regime, of all runs of a workload, no run's, or what a person asks on the command line (docs/decisions/0036).
    scope: Scope = Scope.RUN
    # Of a table with one row a run: columns that the log itself knows, so that runs are found without opening a file.
    indexed: tuple[str, ...] = ()
    # Of a copy of a table of bronze: what the source wrote is stored as tokens too (docs/decisions/0046).
    is_source_sealed: bool = False

    def __post_init__(self) -> None:
        names = [column.name for column in self.columns]
        doubled = sorted({name for name in names if names.count(name) > 1})
        if doubled:
            raise ContractBroken(f"{self.full_name} declares {', '.join(doubled)} twice")
        for name in (*self.key, *self.partition_by):
            if self.column(name).nullable:
                raise ContractBroken(f"{self.full_name}.{name} is a key or a partition and may not be null")
        self._check_partition(names)
        for column in self.sealed if not self.is_source_sealed else ():
            if column.name in (*self.key, *self.partition_by, *self.indexed):
                # Keys and indexed columns stand in the statistics, partitions stand in the path.
                raise ContractBroken(f"{self.full_name}.{column.name} is sensitive: it may be no key and no partition")
        if self.indexed and (self.key != ("run_id",) or self.partition_by != ("run_id",)):
            raise ContractBroken(f"{self.full_name} is indexed: it must have one row per run")
        for name in self.indexed:
            if self.column(name).kind is not Kind.TEXT:
                raise ContractBroken(f"{self.full_name}.{name} is indexed: only text can be")

    def _check_partition(self, names: list[str]) -> None:
        if self.scope in {Scope.RUN, Scope.PAIR}:
            if self.partition_by[:1] != ("run_id",):
                raise ContractBroken(f"{self.full_name} is made run by run: it must be partitioned by run_id first")
        elif "run_id" in names and "run_id" not in self.key:
            raise ContractBroken(f"{self.full_name} is made for no single run: a column run_id would name one")
        elif not self.partition_by or self.column(self.partition_key).kind is not Kind.TEXT:
            raise ContractBroken(f"{self.full_name} must be partitioned by a text first")

    @cached_property
    def full_name(self) -> str:
        """The name that people type: `bronze.trace_events`."""
        return f"{self.tier}.{self.name}"

    @property
    def path(self) -> str:
        """Where the table lies under the lake's root."""
        return f"{self.tier}/{self.name}"

    @property
    def partition_key(self) -> str:
        """The column whose value names a partition: that partition is replaced whole, in one commit."""
        return self.partition_by[0]

    @cached_property
    def row_key(self) -> tuple[str, ...]:
        """The columns that tell a row from all others of the table: the key tells it from those of its partition."""
        return tuple(dict.fromkeys((self.partition_key, *self.key)))

    @cached_property
    def column_names(self) -> tuple[str, ...]:
        """All column names in declared order."""
        return tuple(column.name for column in self.columns)

    @cached_property
    def sealed(self) -> tuple[Column, ...]:
        """What is stored as tokens: what is sensitive; in bronze, which repeats the source, all or none."""
        if self.tier == "bronze":
            return tuple(filter(self._is_source_text, self.columns)) if self.is_source_sealed else ()
        return tuple(column for column in self.columns if column.sensitive)

    @cached_property
    def source_sealed(self) -> Table:
        """The same table of bronze where every text that a source wrote is stored as a token; keys are tokens too."""
        return replace(self, is_source_sealed=True) if self.tier == "bronze" else self

    def _is_source_text(self, column: Column) -> bool:
        """Whether a column may repeat a source's own words: no closed set, no digest, no partition."""
        is_ours = column.one_of or column.name in self.partition_by or column.name.endswith("_sha256")
        return column.kind is Kind.TEXT and not is_ours

    def column(self, name: str) -> Column:
        """The column of that name, or an error that names the nearest one."""
        for column in self.columns:
            if column.name == name:
                return column
        raise ContractBroken(f"{self.full_name} has no column {name!r}", nearest(name, (c.name for c in self.columns)))

    @cached_property
    def arrow_schema(self) -> pa.Schema:
        """The schema that the store compares with, in declared order."""
        return pa.schema([pa.field(c.name, _ARROW[c.kind], c.nullable) for c in self.columns])

    @cached_property
    def arrow_types(self) -> dict[str, str]:
        """The kind of each column, as Arrow names it."""
        return {field.name: str(field.type) for field in self.arrow_schema}

    @cached_property
    def nullable_schema(self) -> pa.Schema:
        """The schema as engines read it: any value may be null."""
        return pa.schema([field.with_nullable(True) for field in self.arrow_schema])

    def arrow_schema_of(self, names: Iterable[str]) -> pa.Schema:
        """The same of some columns, in the order of their names as given."""
        return pa.schema([self.arrow_schema.field(name) for name in names])

    @cached_property
    def file_schema(self) -> pa.Schema:
        """The schema inside a data file: partition columns live in the path, not in the file."""
        return pa.schema([f for f in self.arrow_schema if f.name not in self.partition_by])

    @cached_property
    def stored_types(self) -> dict[str, tuple[str, str]]:
        """The columns of a data file, with the physical and the logical type that Parquet itself gives each."""
        return {c.name: _PARQUET[c.kind] for c in self.columns if c.name not in self.partition_by}

    @property
    def polars_schema(self) -> pl.Schema:
        """The same schema for Polars."""
        import polars as pl

        return pl.Schema({c.name: getattr(pl, _POLARS[c.kind])() for c in self.columns})

    @property
    def duckdb_types(self) -> dict[str, str]:
        """The same schema for DuckDB: column name to type."""
        return {c.name: _DUCKDB[c.kind] for c in self.columns}

    @cached_property
    def spark_ddl(self) -> str:
        """The same schema as Spark's DDL text."""
        return ", ".join(f"`{c.name}` {_SPARK[c.kind]}{'' if c.nullable else ' NOT NULL'}" for c in self.columns)


def text(
    name: str,
    meaning: str,
    *,
    nullable: bool = False,
    one_of: tuple[str, ...] = (),
    sensitive: bool = False,
    is_free_text: bool = False,
    repeats: bool = True,
) -> Column:
    """Declare a text column.

    `sensitive` is sealed from silver on, as a name that can still be joined and counted, or with `is_free_text` as a
    text whose token says nothing of other rows. `repeats` is false where values hardly ever recur, so that no
    dictionary is tried.
    """
    return Column(
        name,
        Kind.TEXT,
        meaning,
        nullable=nullable,
        one_of=one_of,
        sensitive=sensitive,
        is_free_text=is_free_text,
        repeats=repeats,
    )


def int64(
    name: str, meaning: str, *, nullable: bool = False, minimum: int | None = None, maximum: int | None = None
) -> Column:
    """Declare a 64-bit whole-number column."""
    return Column(name, Kind.INT64, meaning, nullable=nullable, minimum=minimum, maximum=maximum)


def int32(
    name: str, meaning: str, *, nullable: bool = False, minimum: int | None = None, maximum: int | None = None
) -> Column:
    """Declare a 32-bit whole-number column."""
    return Column(name, Kind.INT32, meaning, nullable=nullable, minimum=minimum, maximum=maximum)


def float64(
    name: str,
    meaning: str,
    *,
    nullable: bool = False,
    minimum: float | None = None,
    maximum: float | None = None,
) -> Column:
    """Declare a floating-point column."""
    return Column(name, Kind.FLOAT64, meaning, nullable=nullable, minimum=minimum, maximum=maximum)


def boolean(name: str, meaning: str, *, nullable: bool = False) -> Column:
    """Declare a yes-or-no column."""
    return Column(name, Kind.BOOL, meaning, nullable=nullable)


RUN_ID = text("run_id", "The training run: the name of its landing directory.")
