"""Rule violations counted on any engine: one pass over the rows of a table, whatever its rules."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import duckdb
import narwhals as nw

from assets.checks.rules import Must
from lake.frames import to_flag

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from assets.checks.rules import Rule
    from lake.frames import Frame
    from lake.store import Lake
    from lake.tables import Table

# One table at a time: a backend shows one set of rows.
LOCK = threading.Lock()
# So few keys are compared by their values at once: a hash first would cost more than it saves.
_FEW_ROWS = 100_000


@dataclass(frozen=True)
class Counts:
    """How many rows there are, and how many of them violate each rule, by its name."""

    rows: int
    violations: dict[str, int]

    @classmethod
    def without_violations(cls, rows: int, rules: Sequence[Rule]) -> Self:
        """So many rows, none of which violates a rule."""
        return cls(rows, {rule.name: 0 for rule in rules if rule.must is not Must.BE_DECLARED})


class Backend(ABC):
    """An engine that reads the data files of one table; what it counts in them is the same whatever the engine."""

    name: str
    rows: Frame
    # Whether the selected runs have no data file: then no row can violate a rule, and the engine need not be asked.
    is_empty: bool = False

    def select(self, lake: Lake, table: Table, run_ids: Sequence[str] | None) -> list[dict[str, str]]:
        """Select the rows of some runs, or of all; give the name and the kind of each column, as DuckDB names it."""
        self.is_empty = not lake.files(table, run_ids)
        return self.read(lake, table, run_ids)

    @abstractmethod
    def read(self, lake: Lake, table: Table, run_ids: Sequence[str] | None) -> list[dict[str, str]]:
        """Show the engine these rows; give the name and the kind of each column."""

    @abstractmethod
    def reading(self) -> AbstractContextManager[None]:
        """Turn what the engine says of files that it cannot read into one line."""

    def count(self, rules: Sequence[Rule]) -> Counts:
        """Count the selected rows, and those that violate each of these rules."""
        if self.is_empty:
            return Counts.without_violations(0, rules)
        with self.reading():
            return count_violations(self.rows, rules)

    def samples(self, rule: Rule, names: Sequence[str], most: int) -> list[dict[str, Any]]:
        """Some rows that violate a rule on rows, by these columns."""
        if rule.must is Must.BE_UNIQUE:
            found = _find_shared_keys(self.rows, tuple(dict.fromkeys((*names, *rule.columns))))
            found = found.select(*names).unique()
        else:
            found = self.rows.filter(_is_violated(rule)).select(*names)
        with self.reading():
            return _fetch(found.head(most))


def count_violations(rows: Frame, rules: Sequence[Rule]) -> Counts:
    """Count all rules on single rows in one query; a unique key needs a query of its own."""
    single = [rule for rule in rules if rule.must not in {Must.BE_DECLARED, Must.BE_UNIQUE}]
    sums = {f"count_{place}": to_flag(_is_violated(rule)).sum() for place, rule in enumerate(single)}
    (found,) = _fetch(rows.select(rows=nw.len(), **sums))
    counts = {rule.name: int(found[f"count_{place}"] or 0) for place, rule in enumerate(single)}
    total = int(found["rows"])
    for rule in rules:
        if rule.must is Must.BE_UNIQUE:
            find = _count_shared if total <= _FEW_ROWS else _find_shared_keys
            (shared,) = _fetch(find(rows, rule.columns).select(sum=nw.col("_size").sum()))
            counts[rule.name] = int(shared["sum"] or 0)
    return Counts(total, counts)


def _find_shared_keys(rows: Frame, names: Sequence[str]) -> Frame:
    """The values of these columns that more than one row has, and how many rows.

    First by a hash of them, which takes a fraction of the memory; then only what may be double, by the values.
    """
    hashed = _add_hash(rows, names)
    doubtful = hashed.group_by("_short").agg(_size=nw.len()).filter(nw.col("_size") > 1)
    return _count_shared(hashed.join(doubtful.select("_short"), on="_short", how="semi"), names)


def _count_shared(rows: Frame, names: Sequence[str]) -> Frame:
    return rows.group_by(*names).agg(_size=nw.len()).filter(nw.col("_size") > 1)


def _add_hash(rows: Frame, names: Sequence[str]) -> Frame:
    """Add `_short`, a number that rows of equal values share; each engine has its own."""
    native: Any = rows.to_native()
    if nw.dependencies.is_duckdb_relation(native):
        short = duckdb.FunctionExpression("hash", *map(duckdb.ColumnExpression, names)).alias("_short")
        return nw.from_native(native.select(duckdb.StarExpression(), short))
    from pyspark.sql import functions as sf

    hashed: Frame = nw.from_native(native.withColumn("_short", sf.xxhash64(*names)))
    return hashed


def _is_violated(rule: Rule) -> nw.Expr:
    """What is true of a row that violates the rule; a null violates none but the one that forbids it."""
    column = nw.col(rule.columns[0])
    if rule.must is Must.BE_PRESENT:
        return column.is_null()
    if rule.must is Must.BE_ONE_OF:
        return (~column.is_in(rule.arguments)).fill_null(False)
    if rule.must is Must.BE_FINITE:
        return (~column.is_finite()).fill_null(False)
    if rule.must is Must.BE_SHAPED:
        return (~column.str.contains(rule.whole_pattern)).fill_null(False)
    low, high = rule.arguments
    # What is no number breaks a rule of its own. Engines take it for more than any number, unless a file's statistics,
    # which leave it out, have already told them that no row is above.
    is_number = ~column.cast(nw.Float64).is_nan()
    below = nw.lit(False) if low is None else column < nw.lit(low)
    return ((below if high is None else below | (column > nw.lit(high))) & is_number).fill_null(False)


def _fetch(rows: Frame) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = rows.collect("pyarrow").to_native().to_pylist()
    return found


def list_column_differences(found: Sequence[dict[str, Any]], rule: Rule) -> list[str]:
    """Where the columns that are there and those that the rule declares differ, position by position."""
    there = [f"{column['name']} {column['type']}" for column in found]
    declared = [f"{name} {kind}" for name, kind in zip(rule.columns, rule.arguments, strict=True)]
    longest = max(len(there), len(declared))
    pairs = zip(*(texts + ["nothing"] * (longest - len(texts)) for texts in (there, declared)), strict=True)
    return [f"{one} where {other} is declared" for one, other in pairs if one != other]
