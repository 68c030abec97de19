"""Runs as rows of gold.step_times: shared by the tests of pairs."""

from __future__ import annotations

from typing import Any

from gold.step_times import TABLE

MS = 1_000_000
Rows = list[dict[str, Any]]


def make_step_times(step_ms: float, source: str = "log", **fields: Any) -> Rows:
    """A run whose steps one source timed: fifty of them, unless it says otherwise."""
    known = {
        "run_id": "r",
        "source": source,
        "period": "step",
        "timed_by": "log_duration" if source == "log" else "host_step",
        "step_ns": int(step_ms * MS),
        "median_step_ns": int(step_ms * MS),
        "steps_count": 50,
        "log_standard_error": 0.005,
        "effective_steps_count": 50.0,
        "evidence": "measured",
    }
    return [{**dict.fromkeys(TABLE.column_names), **known, **fields}]


def short(step_ms: float, source: str = "log", **fields: Any) -> Rows:
    """A run with too few steps for a standard error."""
    nothing = {"log_standard_error": None, "effective_steps_count": None}
    return make_step_times(step_ms, source, steps_count=2, **nothing, **fields)
