"""The engines that run our transforms: each reads tables of the lake as frames, and gives rows back as Arrow."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Protocol

import duckdb
import narwhals as nw

from lake.connections import open_parallel
from lake.errors import ContractBroken, describe_engine_error, nearest
from lake.few_rows import FEW_ROWS

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from lake.cluster import Cluster
    from lake.executors import Executors
    from lake.frames import Frame
    from lake.kept_plans import KeptPlans
    from lake.store import Lake
    from lake.tables import Table

    Plan = Callable[[Frame], Frame]


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

    def compute(
        self, plan: Callable[..., Frame], *inputs: Frame, is_small: bool, is_lean: bool = False, **how: Hashable
    ) -> pa.Table:
        """Run a plan which its inputs and `how` alone decide: where they are small, an engine may keep it."""
        ...

    def each(self, plan: Plan, shares: Iterable[pa.Table]) -> Iterator[pa.Table]:
        """Run one plan on each of many small shares that have the same columns."""
        ...


class ReplanningEngine:
    """An engine whose plans hold their rows: each share has a plan of its own."""

    def compute(
        self: Engine,
        plan: Callable[..., Frame],
        *inputs: Frame,
        is_small: bool,
        is_lean: bool = False,
        **how: Hashable,
    ) -> pa.Table:
        """Plan and run."""
        return self.rows(plan(*inputs, **how), is_small=is_small, is_lean=is_lean)

    def each(self: Engine, plan: Plan, shares: Iterable[pa.Table]) -> Iterator[pa.Table]:
        """Plan and run, share by share."""
        for share in shares:
            yield self.rows(plan(self.wrap(share)), is_small=True)


class PolarsEngine:
    """Polars, the default: quick on one machine."""

    name = "polars"
    executors: Executors | None = None
    tables_at_once = 2

    def read(self, lake: Lake, table: Table, run_ids: Sequence[str]) -> Frame:
        """A lazy scan of the table's files; few rows are read at once, since many plans will ask for them."""
        few = None if lake.has_sealed_source(table, run_ids) else lake.read_few(table, run_ids, FEW_ROWS)
        return nw.from_native(lake.scan(table, run_ids)) if few is None else self.wrap(few)

    def wrap(self, rows: pa.Table) -> Frame:
        """The same memory, without a copy where Polars can read it."""
        import polars as pl

        return nw.from_native(pl.DataFrame(rows).lazy())

    def rows(self, frame: Frame, *, is_small: bool = False, is_lean: bool = False) -> pa.Table:
        """Run the plan on all cores, in batches unless its inputs are small: whole columns then take less of both.

        What a plan uses twice Polars computes once and keeps whole, unless it is to be lean.
        """
        from polars import QueryOptFlags
        from polars.exceptions import PanicException, PolarsError

        plan, how = frame.to_native(), QueryOptFlags(comm_subplan_elim=not is_lean)
        try:
            return plan.collect(engine="in-memory" if is_small else "streaming", optimizations=how).to_arrow()
        except (PolarsError, PanicException) as error:
            raise describe_engine_error(self.name, error) from error

    def compute(
        self, plan: Callable[..., Frame], *inputs: Frame, is_small: bool, is_lean: bool = False, **how: Hashable
    ) -> pa.Table:
        """Run a plan; one of small inputs may have been made before, for another run."""
        if is_small:
            return self._compute(_share_plans(), plan, inputs, how)
        return self.rows(plan(*inputs, **how), is_lean=is_lean)

    def each(self, plan: Plan, shares: Iterable[pa.Table]) -> Iterator[pa.Table]:
        """Plan once, over whatever share is at hand when it runs: to plan takes a fifth of the time of a share."""
        from lake.kept_plans import KeptPlans

        plans = KeptPlans()
        for share in shares:
            yield self._compute(plans, plan, [self.wrap(share)], {})

    def _compute(
        self, plans: KeptPlans, plan: Callable[..., Frame], inputs: Sequence[Frame], how: Mapping[str, Hashable]
    ) -> pa.Table:
        with plans.take(plan, [one.to_native() for one in inputs], how) as planned:
            return self.rows(planned, is_small=True)


@cache
def _share_plans() -> KeptPlans:
    """The plans of this process."""
    from lake.kept_plans import KeptPlans

    return KeptPlans()


class DuckDBEngine(ReplanningEngine):
    """DuckDB, with a connection of its own: slower here, and a second opinion."""

    name = "duckdb"
    executors: Executors | None = None
    tables_at_once = 1  # a connection is one thread's

    def __init__(self) -> None:
        self._connection = open_parallel()

    def read(self, lake: Lake, table: Table, run_ids: Sequence[str]) -> Frame:
        """A relation over the table's files."""
        if lake.has_sealed_source(table, run_ids):
            # DuckDB opens files by itself: what is sealed in them, we open. What it would spill would lie in the clear.
            self._connection.execute("SET temp_directory = ''")
            return self.wrap(lake.read_opened(table, run_ids))
        return nw.from_native(lake.relation(self._connection, table, run_ids))

    def wrap(self, rows: pa.Table) -> Frame:
        """A relation over the same memory."""
        return nw.from_native(self._connection.from_arrow(rows))

    def rows(self, frame: Frame, *, is_small: bool = False, is_lean: bool = False) -> pa.Table:  # noqa: ARG002
        """Run the query; DuckDB decides for itself what to keep."""
        try:
            return frame.collect("pyarrow").to_native()
        except duckdb.Error as error:
            raise describe_engine_error(self.name, error) from error


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
