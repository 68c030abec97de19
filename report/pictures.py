"""Which figure a gold table has: one a table where a picture says more than its rows do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gold import (
    attested_runs,
    collective_bandwidth,
    copy_bandwidth,
    energy_overhead,
    history,
    idle_breakdown,
    kernel_breakdown,
    launches,
    memory_timeline,
    operation_costs,
    operation_overhead,
    overhead_breakdown,
    prediction_checks,
    published,
    queue_length,
    queue_timeline,
    roofline,
    scaling,
    sealing_coverage,
    step_overhead,
    stragglers,
    throughput_overhead,
    time_breakdown,
    trace_summary,
    what_if,
)
from report import (
    analyses,
    claims,
    forecasts,
    histories,
    literature,
    operations,
    ranges,
    rankings,
    series,
    slopes,
    stacked,
    waterfall,
)
from report.colours import MUTED
from report.figure import Figure, Row

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from lake.tables import Table

FIGURES: dict[str, Callable[[Sequence[Row]], Figure]] = {
    attested_runs.TABLE.full_name: claims.attested_runs,
    collective_bandwidth.TABLE.full_name: analyses.collective_bandwidth,
    copy_bandwidth.TABLE.full_name: series.copy_bandwidth,
    energy_overhead.TABLE.full_name: ranges.energy_overhead,
    history.TABLE.full_name: histories.history,
    idle_breakdown.TABLE.full_name: stacked.idle_breakdown,
    kernel_breakdown.TABLE.full_name: rankings.kernel_breakdown,
    launches.TABLE.full_name: operations.launches,
    memory_timeline.TABLE.full_name: series.memory_timeline,
    operation_costs.TABLE.full_name: operations.operation_costs,
    operation_overhead.TABLE.full_name: operations.operation_overhead,
    prediction_checks.TABLE.full_name: forecasts.prediction_checks,
    published.TABLE.full_name: literature.published,
    queue_length.TABLE.full_name: analyses.queue_length,
    queue_timeline.TABLE.full_name: series.queue_timeline,
    roofline.TABLE.full_name: analyses.roofline,
    scaling.TABLE.full_name: slopes.scaling,
    sealing_coverage.TABLE.full_name: stacked.sealing_coverage,
    step_overhead.TABLE.full_name: ranges.step_overhead,
    stragglers.TABLE.full_name: rankings.stragglers,
    throughput_overhead.TABLE.full_name: ranges.throughput_overhead,
    time_breakdown.TABLE.full_name: stacked.time_breakdown,
    overhead_breakdown.TABLE.full_name: waterfall.overhead_breakdown,
    trace_summary.TABLE.full_name: stacked.trace_summary,
    what_if.TABLE.full_name: forecasts.what_if,
}


def figure(table: Table, rows: pa.Table) -> Figure | None:
    """The figure of the rows of a table, in whatever order they come; no rows are an answer as well."""
    made = FIGURES.get(table.full_name)
    if made is None:
        return None
    if not rows.num_rows:
        return empty(f"{table.full_name}: no rows", table.grain)
    ordered = sorted(rows.to_pylist(), key=lambda row: tuple(row[name] for name in table.row_key))
    found = made(ordered)
    return found if found.rows else empty(found.title, "; ".join(found.notes) or "there is nothing to draw")


def empty(title: str, text: str) -> Figure:
    """What stands where there is nothing to draw: why that is so."""
    mark = {"type": "text", "align": "left", "color": MUTED, "fontSize": 12}
    spec: Row = {
        "width": 640,
        "height": 20,
        "mark": mark,
        "encoding": {"x": {"value": 0}, "text": {"field": "value", "type": "nominal"}},
    }
    rows = ({"label": "nothing", "value": text},)
    return Figure(title, "there is nothing to draw", rows, spec, is_empty=True)
