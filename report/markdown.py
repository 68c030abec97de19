"""A few rows of a gold table as Markdown, in human units; whatever a name says, it is shown and never obeyed."""

from __future__ import annotations

import re
from html import escape
from typing import TYPE_CHECKING, Any

from gold import (
    attested_runs,
    collective_bandwidth,
    copy_bandwidth,
    cost_model,
    critical_path,
    energy_overhead,
    exposure,
    history,
    idle_breakdown,
    kernel_breakdown,
    kernel_sequences,
    launches,
    memory_timeline,
    module_time,
    operation_costs,
    operation_overhead,
    operator_time,
    overhead_breakdown,
    pairs,
    prediction_checks,
    published,
    queue_length,
    queue_timeline,
    roofline,
    scaling,
    sealing_coverage,
    source_lines,
    step_energy,
    step_overhead,
    step_times,
    stragglers,
    throughput_overhead,
    time_breakdown,
    trace_summary,
    what_if,
)
from lake.tables import Kind
from report.units import (
    NOTHING,
    format_change,
    format_duration,
    format_number,
    format_percent,
    format_ratio,
    format_size,
    legible,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from lake.tables import Column, Table

# The most telling columns of a table, in the order in which a person asks for them; all of them where none are named.
TELLING: dict[str, tuple[str, ...]] = {
    attested_runs.TABLE.full_name: ("run_id", "verdict", "regime", "cc_mode", "conflicts", "evidence", "reason"),
    collective_bandwidth.TABLE.full_name: (
        *("run_id", "library", "collective", "dtype", "buffer_bytes", "group_size", "collectives_count"),
        *(
            "transfer_p50_ns",
            "algorithm_bytes_per_second",
            "bus_bytes_per_second",
            "is_lower_bound",
            "evidence",
            "reason",
        ),
    ),
    copy_bandwidth.TABLE.full_name: (
        *("run_id", "rank", "device_id", "copy_kind", "period", "period_number", "copies_count", "payload_bytes"),
        *("busy_ns", "bytes_per_second", "evidence", "reason"),
    ),
    cost_model.TABLE.full_name: (
        *("regime", "machine", "term", "direction", "memory", "chains_count", "bytes_per_second"),
        *("low_bytes_per_second", "high_bytes_per_second", "baseline_bytes_per_second", "alpha_ns"),
        *("baseline_alpha_ns", "slowdown_ratio", "pairs_count", "models_count"),
        *("median_error_fraction", "p90_error_fraction", "source", "evidence", "reason"),
    ),
    critical_path.TABLE.full_name: (
        *("run_id", "rank", "step_number", "duration_ns", "bound", *(f"{part}_ns" for part in critical_path.PARTS)),
        *("evidence", "reason"),
    ),
    energy_overhead.TABLE.full_name: (
        *("run_id", "baseline_run_id", "energy_j", "baseline_energy_j", "overhead_j", "energy_ratio"),
        *("energy_low_ratio", "energy_high_ratio", "readings_count", "verdict_class", "evidence", "reason"),
    ),
    history.TABLE.full_name: (
        *("run_id", "recorded_at", "step_ns", "overhead_ns", "driver_version", "cuda_version", "torch_version"),
        *("is_change_point", "change_ratio", "changed", "verdict", "evidence", "reason"),
    ),
    exposure.TABLE.full_name: (
        *("run_id", "rank", "step_number", "collective_number", "buffer_bytes", "start_ns", "ready_ns"),
        *("is_ready_censored", "wait_ns", "crypto_ns", "host_copy_ns", "hidden_ns", "tail_ns", "evidence", "reason"),
    ),
    idle_breakdown.TABLE.full_name: (
        *("run_id", "rank", "device_id", "stream", "total_ns", "idle_ns", "host_wait_ns", "kernel_wait_ns", "other_ns"),
        *("longest_ns", "evidence", "reason"),
    ),
    kernel_breakdown.TABLE.full_name: (
        *("run_id", "name", "kind", "total_ns", "share_fraction"),
        *("kernels_count", "p50_ns", "p99_ns", "evidence"),
    ),
    kernel_sequences.TABLE.full_name: (
        *("run_id", "rank", "place_number", "first_name", "second_name", "third_name", "sequences_count", "total_ns"),
        *("share_fraction", "evidence", "reason"),
    ),
    launches.TABLE.full_name: (
        *("run_id", "rank", "launches_count", "first_launch_ns", "launch_p50_ns", "launch_p99_ns"),
        *("queue_p50_ns", "queue_p99_ns", "short_kernels_fraction", "evidence", "gpu_evidence", "reason"),
    ),
    memory_timeline.TABLE.full_name: (
        *("run_id", "rank", "device", "period", "period_number", "peak_allocated_bytes", "peak_allocated_ts_ns"),
        *("peak_allocated_step_number", "peak_reserved_bytes", "evidence", "reason"),
    ),
    operation_costs.TABLE.full_name: (
        *("run_id", "operation", "name", "direction", "memory", "size_class", "operations_count"),
        *("median_ns", "median_low_ns", "median_high_ns", "bytes_per_second", "evidence", "reason"),
    ),
    operation_overhead.TABLE.full_name: (
        *("run_id", "operation", "name", "direction", "memory", "size_class", "baseline_median_ns", "median_ns"),
        *("slowdown_ratio", "slowdown_low_ratio", "slowdown_high_ratio", "q_value", "verdict_class"),
        *("runs_count", "operations_count", "evidence", "reason"),
    ),
    module_time.TABLE.full_name: (
        *("run_id", "rank", "module", "calls_count", "total_ns", "self_ns", "cuda_ns", "launched_count"),
        *("launched_ns", "evidence", "reason"),
    ),
    operator_time.TABLE.full_name: (
        *("run_id", "rank", "category", "name", "calls_count", "total_ns", "self_ns", "launched_count", "launched_ns"),
        *("evidence", "reason"),
    ),
    pairs.TABLE.full_name: (
        *("run_id", "baseline_run_id", "regime", "baseline_regime", "paired_by", "repeats", "baseline_repeats"),
        *("repeated_run_id", "caveat", "reason"),
    ),
    prediction_checks.TABLE.full_name: (
        *("regime", "task", "scheme", "left_out", "predicted_run_id", "predicted_step_ns", "measured_step_ns"),
        *("error_fraction", "is_inside", "interval_level", "noise_fraction", "constant_error_fraction"),
        *("nearest_error_fraction", "per_byte_error_fraction", "evidence", "reason"),
    ),
    published.TABLE.full_name: (
        *("source", "workload", "hardware", "regime", "metric", "statistic", "value_number", "unit"),
        *("slowdown_ratio", "evidence_class"),
    ),
    queue_timeline.TABLE.full_name: (
        *("run_id", "rank", "device_id", "period_number", "duration_ns", "launched_count", "started_count"),
        *("waiting_count", "mean_length", "evidence", "reason"),
    ),
    queue_length.TABLE.full_name: (
        *("run_id", "rank", "device_id", "stream", "mean_length", "p50_length", "p99_length", "peak_length"),
        *("peak_ts_ns", "empty_fraction", "evidence", "reason"),
    ),
    roofline.TABLE.full_name: (
        *("run_id", "operator", "input_shapes", "timed_count", "total_ns", "operations_per_second", "bound"),
        *("roof_fraction", "evidence", "roof_evidence", "reason"),
    ),
    scaling.TABLE.full_name: (
        *("tee_run_id", "regime", "axis", "axis_number", "overhead_ns", "slowdown_ratio"),
        *("slope_ns", "slope_low_ns", "slope_high_ns", "evidence", "reason"),
    ),
    sealing_coverage.TABLE.full_name: (
        *("run_id", "boundary", "regime", "verdict", "promised_bytes", "sealed_bytes", "covered_bytes_fraction"),
        *("promised_message_count", "sealed_message_count", "violations_count", "evidence", "reason"),
    ),
    step_energy.TABLE.full_name: (
        *("run_id", "timed_by", "rank", "step_number", "device_id", "duration_ns", "energy_j", "mean_power_w"),
        *("samples_count", "sensor_period_ns", "has_enough_readings", "evidence", "reason"),
    ),
    step_overhead.TABLE.full_name: (
        *("run_id", "baseline_run_id", "verdict", "verdict_class", "source", "slowdown_ratio", "slowdown_low_ratio"),
        *("slowdown_high_ratio", "interval_over", "runs_count", "baseline_runs_count", "more_runs_count"),
        *("step_ns", "baseline_step_ns", "dominant_part", "regime", "baseline_regime", "evidence"),
    ),
    step_times.TABLE.full_name: (
        *("run_id", "source", "period", "step_ns", "median_step_ns", "steps_count", "cycle_steps_count"),
        *("log_standard_error", "recording_slowdown_ratio", "evidence", "caveat", "reason"),
    ),
    stragglers.TABLE.full_name: (
        *("run_id", "match_id", "collective", "step_number", "transfer_ns", "skew_ns", "skew_uncertainty_ns"),
        *("late_rank", "total_wait_ns", "buffer_bytes", "evidence"),
    ),
    throughput_overhead.TABLE.full_name: (
        *("run_id", "baseline_run_id", "verdict", "verdict_class", "slowdown_ratio", "slowdown_low_ratio"),
        *("slowdown_high_ratio", "interval_over", "runs_count", "baseline_runs_count", "period", "periods_count"),
        *("compared_by", "caveat", "unobservable", "regime", "baseline_regime", "evidence"),
    ),
    time_breakdown.TABLE.full_name: (
        *("run_id", "rank", "step_number", "is_warmup", "duration_ns"),
        *(f"{part}_ns" for part in time_breakdown.PARTS),
        "evidence",
    ),
    overhead_breakdown.TABLE.full_name: (
        *(
            "run_id",
            "part_group",
            "group_overhead_ns",
            "part",
            "overhead_ns",
            "share_fraction",
            "step_ns",
            "baseline_step_ns",
            "evidence",
            "reason",
        ),
    ),
    source_lines.TABLE.full_name: (
        *("run_id", "operation", "source_sha256", "ordinal", "calls_count", "ranks_count", "total_ns"),
        *("share_fraction", "payload_bytes", "evidence"),
    ),
    trace_summary.TABLE.full_name: (
        *("run_id", "rank", "total_ns", "busy_ns", "idle_ns", "tl_compute_ns", "tl_comm_ns"),
        *("tl_exposed_comm_ns", "tl_exposed_memcpy_ns", "evidence", "reason"),
    ),
    what_if.TABLE.full_name: (
        *("regime", "run_id", "change", "current_step_ns", "predicted_step_ns", "predicted_low_ns"),
        *("predicted_high_ns", "interval_level", "slowdown_ratio", "saved_ns", "dominant_term", "is_extrapolated"),
        *("verdict", "evidence", "reason"),
    ),
}
# Where the first rows by key say little: the largest of these come first.
_LEADING = {
    kernel_breakdown.TABLE.full_name: "total_ns",
    roofline.TABLE.full_name: "total_ns",
    source_lines.TABLE.full_name: "total_ns",
    stragglers.TABLE.full_name: "skew_ns",
}
_LONGEST_CELL = 160
_UNITS: dict[str, Callable[[Any], str]] = {
    "ns": format_duration,
    "bytes": format_size,
    "fraction": format_percent,
    "ratio": format_ratio,
}
_SIGNED = {
    "overhead_ns",
    "group_overhead_ns",
    "slope_ns",
    "slope_low_ns",
    "slope_high_ns",
}
_MARKS = re.compile(r"([\\`*_\[\]~])")
# Renderers make links of bare addresses even where every mark is escaped; a joiner that is not seen keeps them apart.
_ADDRESS = re.compile(r"(?i)(https?|ftp|mailto|xmpp|www)(?=[:.])|(?<=@)")
_JOINER = "\N{WORD JOINER}"


def markdown(table: Table, rows: pa.Table, most: int = 10) -> str:
    """The first rows by run and key, or the largest, numbers to the right, and how many more there are."""
    columns = [table.column(name) for name in TELLING.get(table.full_name, table.column_names)]
    if not rows.num_rows:
        return f"no rows: {escape_markdown(table.grain)}\n"
    leading = [(_LEADING[table.full_name], "descending")] if table.full_name in _LEADING else []
    order = [*leading, *((name, "ascending") for name in table.row_key)]
    shown = rows.sort_by(order).slice(0, most).select([column.name for column in columns]).to_pylist()
    lines = [
        _line([_heading(column) for column in columns]),
        _line(["---" if column.kind in {Kind.TEXT, Kind.BOOL} else "---:" for column in columns]),
        *(_line([_cell(column, row[column.name]) for column in columns]) for row in shown),
    ]
    rest = rows.num_rows - len(shown)
    more = [f"\nand {rest:,} more row{'' if rest == 1 else 's'}"] if rest else []
    return "\n".join([*lines, *more, ""])


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _heading(column: Column) -> str:
    """The column's name in words; a unit that stands beside each number is left out."""
    words = column.name.split("_")
    if words[0] == "slope":
        # The one number whose evidence is another than its row's.
        words.insert(-1, "(modelled)")
    return " ".join(words[:-1] if words[-1] in {"ns", "fraction", "ratio"} else words)


def _cell(column: Column, value: Any) -> str:
    """A value in the unit that its column's name says."""
    if value is None:
        return NOTHING
    if column.kind is Kind.TEXT:
        text = legible(value)
        return escape_markdown(text if len(text) <= _LONGEST_CELL else text[: _LONGEST_CELL - 1] + "…") or NOTHING
    if column.kind is Kind.BOOL:
        return "yes" if value else "no"
    format_cell = format_change if column.name in _SIGNED else _UNITS.get(column.name.rpartition("_")[2], format_number)
    return escape_markdown(format_cell(value))


def escape_markdown(text: str) -> str:
    """A text that no renderer takes for HTML, Markdown or an address."""
    apart = _ADDRESS.sub(lambda found: found[0] + _JOINER, legible(text).strip())
    return escape(_MARKS.sub(r"\\\1", apart), quote=False).replace("|", "&#124;")
