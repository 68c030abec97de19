"""Which table comes from which: every dependency written out, so that a reader and a test can hold it to the code."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

LANDING = "landing.runs"

# A table, and the tables that its rows are computed from.
UPSTREAM: dict[str, tuple[str, ...]] = {
    "bronze.trace_events": (LANDING,),
    "bronze.nsys_events": (LANDING,),
    "bronze.training_log": (LANDING,),
    "bronze.collective_records": (LANDING,),
    "bronze.device_samples": (LANDING,),
    "bronze.attestations": (LANDING,),
    "bronze.copy_rates": (LANDING,),
    "bronze.unreadable": (LANDING,),
    "bronze.source_files": (LANDING,),
    "bronze.runs": (LANDING,),
    "silver.clock_offsets": ("bronze.trace_events", "bronze.source_files"),
    "silver.steps": (
        "bronze.trace_events",
        "bronze.nsys_events",
        "bronze.source_files",
        "bronze.runs",
        "silver.clock_offsets",
    ),
    "silver.rejects": ("bronze.trace_events", "bronze.nsys_events", "bronze.source_files", "bronze.unreadable"),
    "silver.spans": (
        "bronze.trace_events",
        "bronze.nsys_events",
        "bronze.source_files",
        "bronze.runs",
        "silver.steps",
        "silver.clock_offsets",
    ),
    "silver.rule_counts": (
        "bronze.trace_events",
        "bronze.nsys_events",
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
    "silver.device_samples": ("bronze.device_samples", "bronze.runs", "silver.steps", "silver.throughput"),
    "silver.attestations": ("bronze.attestations", "bronze.runs", "silver.steps", "silver.throughput"),
    "silver.runs": (
        "bronze.runs",
        "bronze.device_samples",
        "bronze.collective_records",
        "silver.spans",
        "silver.steps",
        "silver.crossings",
        "silver.throughput",
        "silver.attestations",
    ),
    "gold.trace_summary": ("silver.spans", "silver.steps"),
    "gold.time_breakdown": ("silver.spans", "silver.steps", "silver.collectives"),
    "gold.kernel_breakdown": ("silver.spans",),
    "gold.launches": ("silver.spans",),
    "gold.operation_costs": ("silver.spans", "silver.steps"),
    "gold.stragglers": ("silver.collectives", "silver.clock_offsets"),
    "gold.sealing_coverage": ("silver.crossings", "silver.nonce_budgets", "silver.runs"),
    "gold.step_energy": ("silver.device_samples", "silver.steps", "silver.throughput"),
    "gold.step_times": ("silver.steps", "silver.spans", "silver.collectives", "silver.throughput", "silver.runs"),
    "gold.attested_runs": ("silver.runs",),
    "gold.pairs": ("silver.runs", "gold.time_breakdown"),
    "gold.step_overhead": ("silver.runs", "gold.step_times", "gold.time_breakdown"),
    "gold.overhead_breakdown": ("silver.runs", "gold.time_breakdown"),
    "gold.operation_overhead": ("silver.runs", "gold.operation_costs", "gold.time_breakdown"),
    "gold.throughput_overhead": ("silver.runs", "silver.throughput", "gold.time_breakdown"),
    "gold.energy_overhead": ("silver.runs", "gold.step_energy", "gold.time_breakdown"),
    "gold.scaling": ("silver.runs", "gold.time_breakdown", "gold.sealing_coverage", "gold.step_overhead"),
    "gold.published": (),
}


# Spans never go without the count that holds that no event was lost on the way to them.
_PROVED_BY = {"silver.spans": "silver.rule_counts"}


def list_required(names: Iterable[str]) -> frozenset[str]:
    """These tables, all that they are made from, and what proves that nothing of it was lost."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in found and name != LANDING:
            found.add(name)
            waiting += UPSTREAM[name]
            waiting += [_PROVED_BY[name]] if name in _PROVED_BY else []
    return frozenset(found)
