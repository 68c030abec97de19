"""What gold adds up slice of time by slice: the spans of a slice are read once, for all tables that are summed."""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING

import narwhals as nw
import numpy as np
import pyarrow as pa

from gold import (
    copy_bandwidth,
    idle_breakdown,
    kernel_sequences,
    launches,
    module_time,
    operation_costs,
    operator_time,
    queue_length,
    queue_timeline,
    roofline,
    time_breakdown,
    trace_summary,
)
from gold.call_nesting import select_launched

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from lake.engines import Engine
    from lake.frames import Frame
    from lake.tables import Table

# The tables for which slices of time are added up.
SLICED_TABLES = (
    trace_summary.TABLE,
    time_breakdown.TABLE,
    launches.TABLE,
    operation_costs.TABLE,
    idle_breakdown.TABLE,
    queue_length.TABLE,
    queue_timeline.TABLE,
    roofline.TABLE,
    copy_bandwidth.TABLE,
    kernel_sequences.TABLE,
    operator_time.TABLE,
    module_time.TABLE,
)
# All that is read of a span to add it up.
SPAN_COLUMNS = (
    *("run_id", "rank", "source_sha256", "ordinal", "kind", "pattern", "is_gpu", "category", "name", "label"),
    *("ts_ns", "duration_ns", "correlation_id", "launch_ts_ns", "launch_duration_ns", "direction", "memory"),
    *("payload_bytes", "thread_id", "has_queued_work"),
    *("is_orphan", "is_before_launch", "step_number", "launch_step_number", "device_id", "stream_id"),
)


class SliceSums:
    """One slice of a run's time, as rows in memory; `known` is what only the whole run shows."""

    def __init__(
        self, engine: Engine, rows: pa.Table, bounds: tuple[int, int], steps: pa.Table, known: Mapping[str, pa.Table]
    ) -> None:
        for name, moment in zip(("_low_ns", "_high_ns"), bounds, strict=True):
            rows = rows.append_column(name, pa.array(np.full(rows.num_rows, moment)))
        self._engine = engine
        self._spanned = engine.wrap(rows)
        self._bounds = bounds
        self._steps = steps
        self._known = known

    def add_up(self, names: Sequence[str]) -> dict[str, pa.Table]:
        """The sums, by the table that they are for."""
        spanned, known, compute = self._spanned, self._wrap_known, self._compute
        builds: dict[str, Callable[[], pa.Table]] = {
            trace_summary.TABLE.name: lambda: compute(trace_summary.unite_intervals, spanned),
            time_breakdown.TABLE.name: self._charge_parts,
            launches.TABLE.name: lambda: compute(launches.pick_shorter, spanned),
            idle_breakdown.TABLE.name: lambda: compute(idle_breakdown.find_gaps, spanned),
            queue_length.TABLE.name: lambda: compute(queue_length.count_queued, spanned),
            queue_timeline.TABLE.name: lambda: compute(queue_timeline.sum_waits, spanned, known("queue_times")),
            roofline.TABLE.name: lambda: compute(roofline.sum_launched, spanned),
            kernel_sequences.TABLE.name: lambda: compute(kernel_sequences.count_sequences, spanned),
            operator_time.TABLE.name: lambda: operator_time.sum_calls(
                compute(operator_time.select_calls, spanned), compute(select_launched, spanned), *self._bounds
            ),
            module_time.TABLE.name: self._sum_modules,
            copy_bandwidth.TABLE.name: lambda: compute(copy_bandwidth.sum_copies, spanned, known("copy_times")),
            operation_costs.TABLE.name: lambda: compute(
                operation_costs.count_operations, spanned, self._engine.wrap(self._steps), known("first_calls")
            ),
        }
        return {name: _copy_rows(builds[name]()) for name in names}

    def _charge_parts(self) -> pa.Table:
        work = self._engine.compute(time_breakdown.select_work, self._spanned, self._wrap_known("waits"), is_small=True)
        return time_breakdown.charge_parts(work, self._steps, *self._bounds)

    def _sum_modules(self) -> pa.Table:
        if not self._known["module_ranks"].num_rows:
            return module_time.SCHEMA.empty_table()
        framed = self._spanned.join(self._wrap_known("module_ranks"), on="rank", how="semi")
        calls, work = (self._compute(choose, framed) for choose in (module_time.select_calls, select_launched))
        return module_time.sum_modules(calls, work, *self._bounds)

    def _compute(self, plan: Callable[..., Frame], *inputs: Frame) -> pa.Table:
        return self._engine.compute(_bound(plan), *inputs, is_small=True)

    def _wrap_known(self, name: str) -> Frame:
        return self._engine.wrap(self._known[name])


def select_sliced(tables: Iterable[Table]) -> list[str]:
    """Those of the tables for which slices of time are added up."""
    return [table.name for table in tables if table in SLICED_TABLES]


def combine_sums(parts: Sequence[dict[str, pa.Table]]) -> dict[str, pa.Table]:
    """The sums of all slices, by the table that they are for."""
    return {name: pa.concat_tables([part[name] for part in parts]) for name in (parts[0] if parts else ())}


@cache
def _bound(plan: Callable[..., Frame]) -> Callable[..., Frame]:
    """A plan over a slice of time whose bounds are columns of the spans, so that it serves every slice."""
    return partial(plan, low_ns=nw.col("_low_ns"), high_ns=nw.col("_high_ns"))


def _copy_rows(rows: pa.Table) -> pa.Table:
    """Rows in memory of their own: a few sums that are views would hold whatever their slice was computed with."""
    return rows.take(pa.array(np.arange(rows.num_rows)))
