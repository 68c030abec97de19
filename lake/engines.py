"""The engines that run our transforms: each reads tables of the lake as frames, and gives rows back as Arrow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import duckdb
import narwhals as nw

from lake.connections import all_cores
from lake.errors import ContractBroken, nearest

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from lake.cluster import Cluster
    from lake.executors import Executors
    from lake.frames import Frame
    from lake.store import Lake
    from lake.tables import Table


class Engine(Protocol):
    """One way to run a transform; which one makes no difference to what comes out."""

    name: str
    # Other machines that a tier's work can be handed out to; none where all of it is done in this process.
    executors: Executors | None
    # How many tables a tier may make side by side.
    tables_at_once: int

    def read(self, lake: Lake, table: Table, run_ids: Sequence[str]) -> Frame:
        """Some runs of a table."""
        ...

    def wrap(self, rows: pa.Table) -> Frame:
        """Rows at hand, as a frame that can be joined with what was read."""
        ...

    def rows(self, frame: Frame, *, is_small: bool = False, is_lean: bool = False) -> pa.Table:
        """Run the plan; `is_small`: all of its inputs fit memory at once; `is_lean`: read twice rather than keep."""
        ...


class PolarsEngine:
    """Polars, the default: quick on one machine."""

    name = "polars"
    executors: Executors | None = None
    tables_at_once = 2

    def read(self, lake: Lake, table: Table, run_ids: Sequence[str]) -> Frame:
        """A lazy scan of the table's files."""
        return nw.from_native(lake.scan(table, run_ids))

    def wrap(self, rows: pa.Table) -> Frame:
        """The same memory, without a copy where Polars can read it."""
        import polars as pl

        return nw.from_native(pl.DataFrame(rows).lazy())

    def rows(self, frame: Frame, *, is_small: bool = False, is_lean: bool = False) -> pa.Table:
        """Run the plan on all cores, in batches unless its inputs are small: whole columns then take less of both.

        What a plan uses twice Polars computes once and keeps whole, unless it is to be lean.
        """
        from polars import QueryOptFlags
        from polars.exceptions import PolarsError

        plan, how = frame.to_native(), QueryOptFlags(comm_subplan_elim=not is_lean)
        try:
            return plan.collect(engine="in-memory" if is_small else "streaming", optimizations=how).to_arrow()
        except PolarsError as error:
            raise _broken(self.name, error) from error


class DuckDBEngine:
    """DuckDB, with a connection of its own: slower here, and a second opinion."""

    name = "duckdb"
    executors: Executors | None = None
    tables_at_once = 1  # a connection is one thread's

    def __init__(self) -> None:
        self._connection = all_cores()

    def read(self, lake: Lake, table: Table, run_ids: Sequence[str]) -> Frame:
        """A relation over the table's files."""
        return nw.from_native(lake.relation(self._connection, table, run_ids))

    def wrap(self, rows: pa.Table) -> Frame:
        """A relation over the same memory."""
        return nw.from_native(self._connection.from_arrow(rows))

    def rows(self, frame: Frame, *, is_small: bool = False, is_lean: bool = False) -> pa.Table:  # noqa: ARG002
        """Run the query; DuckDB decides for itself what to keep."""
        try:
            return frame.collect("pyarrow").to_native()
        except duckdb.Error as error:
            raise _broken(self.name, error) from error


def _broken(engine: str, error: Exception) -> ContractBroken:
    """What went wrong, without the engine's own text: that may quote values that are to be sealed."""
    return ContractBroken(
        f"{engine} could not compute this: {type(error).__name__}",
        "try another engine with --engine; if both fail, it is a fault of teetotal: please report it",
    )


_LOCAL = {engine.name: engine for engine in (PolarsEngine, DuckDBEngine)}
LOCAL_ENGINES = tuple(_LOCAL)
ENGINES = (*LOCAL_ENGINES, "spark")


def engine(name: str, cluster: Cluster | None = None) -> Engine:
    """The engine of that name; a wrong one is answered with the nearest right one."""
    if name == "spark":
        from lake.spark import SparkEngine

        return SparkEngine(cluster=cluster)
    if name not in _LOCAL:
        raise ContractBroken(f"there is no engine {name!r}", nearest(name, ENGINES))
    return _LOCAL[name]()
