"""Which table comes from which: every dependency written out, so that a reader and a test can hold it to the code."""

from __future__ import annotations

LANDING = "landing.runs"

# A table, and the tables that its rows are computed from.
UPSTREAM: dict[str, tuple[str, ...]] = {
    "bronze.trace_events": (LANDING,),
    "bronze.nsys_events": (LANDING,),
    "bronze.training_log": (LANDING,),
    "bronze.collective_records": (LANDING,),
    "bronze.device_samples": (LANDING,),
    "bronze.attestations": (LANDING,),
    "bronze.unreadable": (LANDING,),
    "bronze.source_files": (LANDING,),
    "bronze.runs": (LANDING,),
    "silver.clock_offsets": ("bronze.trace_events", "bronze.source_files"),
    "silver.steps": ("bronze.trace_events", "bronze.source_files", "bronze.runs", "silver.clock_offsets"),
    "silver.rejects": ("bronze.trace_events", "bronze.source_files", "bronze.unreadable"),
    "silver.spans": (
        "bronze.trace_events",
        "bronze.source_files",
        "bronze.runs",
        "silver.steps",
        "silver.clock_offsets",
    ),
    "silver.rule_counts": (
        "bronze.trace_events",
        "bronze.source_files",
        "bronze.runs",
        "silver.spans",
        "silver.steps",
        "silver.rejects",
    ),
    "silver.collectives": ("silver.spans", "bronze.trace_events", "bronze.runs"),
    "silver.crossings": ("silver.spans", "silver.collectives", "bronze.runs"),
    "silver.nonce_budgets": ("silver.crossings",),
    "silver.throughput": ("bronze.training_log", "bronze.source_files", "bronze.runs"),
    "silver.runs": ("bronze.runs", "silver.spans", "silver.steps", "silver.crossings", "silver.throughput"),
    "gold.trace_summary": ("silver.spans", "silver.steps"),
    "gold.time_breakdown": ("silver.spans", "silver.steps"),
    "gold.kernel_breakdown": ("silver.spans",),
    "gold.launches": ("silver.spans",),
    "gold.stragglers": ("silver.collectives", "silver.clock_offsets"),
    "gold.sealing_coverage": ("silver.crossings", "silver.nonce_budgets"),
    "gold.attested_runs": ("silver.runs",),
    "gold.pairs": ("silver.runs", "gold.time_breakdown"),
    "gold.step_overhead": ("silver.runs", "gold.time_breakdown"),
    "gold.toll_breakdown": ("silver.runs", "gold.time_breakdown"),
    "gold.throughput_overhead": ("silver.runs", "silver.throughput", "gold.time_breakdown"),
    "gold.scaling": ("silver.runs", "gold.time_breakdown", "gold.sealing_coverage", "gold.step_overhead"),
    "gold.published": (),
}
