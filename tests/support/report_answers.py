"""A small lake's worth of answers as literals: two models, two world sizes, one run without a baseline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from assets.build import gold
from bronze import source_files
from gold import (
    attested_runs,
    operation_overhead,
    overhead_breakdown,
    pairs,
    prediction_checks,
    published,
    scaling,
    sealing_coverage,
    step_overhead,
    stragglers,
    time_breakdown,
    trace_summary,
    what_if,
)
from silver import nonce_budgets, rejects, rule_counts, runs
from tests.support.drawn_figures import rows_of

if TYPE_CHECKING:
    from lake.tables import Table

MS = 1_000_000
REGIME = "sw_per_hop_aesgcm"
MEASURED = {"evidence": "measured"}
# run, its baseline, model, ranks, milliseconds a step of the baseline and of the run
PAIRS = (("small-sealed", "small-plain", "Small", 2, 100, 150), ("large-sealed", "large-plain", "Large", 4, 400, 500))


def answers(suffix: str = "") -> dict[str, list[dict[str, Any]]]:
    """Rows of all tables that the page is made of; the suffix goes onto every name that comes from outside."""
    literal = {
        table.full_name: [{**row, table.partition_key: f"{row[table.partition_key]}{suffix}"} for row in rows]
        for table, rows in _literals(suffix).items()
    }
    tables = (*gold.TABLES, source_files.TABLE, nonce_budgets.TABLE, rejects.TABLE, rule_counts.TABLE, runs.TABLE)
    return {table.full_name: rows_of(table, literal.get(table.full_name, [])).to_pylist() for table in tables}


def _literals(suffix: str) -> dict[Table, list[dict[str, Any]]]:
    found: dict[Table, list[dict[str, Any]]] = {
        pairs.TABLE: [{"run_id": "lone-sealed", "regime": REGIME, "reason": "no run without a TEE is like it"}],
        published.TABLE: [
            {
                "collection_id": "published",
                "source": f"Somebody et al.{suffix}",
                "workload": "w",
                "hardware": "h",
                "entry_id": f"e{n}",
                "regime": "hopper_spt_cc",
                "slowdown_ratio": at,
                "evidence_class": kind,
            }
            for n, (at, kind) in enumerate(((1.1, "primary"), (3.0, "secondary")))
        ],
        rule_counts.TABLE: [
            {
                "run_id": "small-plain",
                "source_sha256": "0" * 64,
                "effect": "merged",
                "rule": "flow_arrow",
                "sentence": "A flow arrow is carried by the two spans.",
                "events_count": 7,
            }
        ],
        runs.TABLE: [{"run_id": "lone-sealed", "model": f"Lone{suffix}", "regime": REGIME, "ranks_count": 2}],
    }
    for run, baseline, model, ranks, before, after in PAIRS:
        for table, rows in _pair(run, baseline, f"{model}{suffix}", ranks, before, after).items():
            found.setdefault(table, []).extend(rows)
    return {
        table: [
            {
                name: f"{value}{suffix}" if name in {"baseline_run_id", "tee_run_id", "label", "reason"} else value
                for name, value in row.items()
            }
            for row in rows
        ]
        for table, rows in found.items()
    }


def _pair(
    run: str, baseline: str, model: str, ranks: int, before: int, after: int
) -> dict[Table, list[dict[str, Any]]]:
    added = (after - before) * MS
    both = {"run_id": run, "baseline_run_id": baseline, "regime": REGIME, "baseline_regime": "cc_off"}
    ratio = after / before
    return {
        pairs.TABLE: [{**both, "paired_by": "manifest"}],
        step_overhead.TABLE: [
            {
                **both,
                **MEASURED,
                "model": model,
                "world_size": ranks,
                "verdict_class": "slower",
                "slowdown_ratio": ratio,
                "slowdown_low_ratio": ratio - 0.1,
                "slowdown_high_ratio": ratio + 0.1,
                "verdict": f"{ratio:.2f}x slower",
                "run_noise_fraction": 0.05,
                "source": "trace",
                "interval_over": "runs",
                "runs_count": 3,
                "baseline_runs_count": 3,
                "steps_count": 9,
                "dominant_part": "crypto",
                "dominant_fraction": 1.0,
            }
        ],
        overhead_breakdown.TABLE: [
            {
                **both,
                **MEASURED,
                "part_ordinal": place,
                "part": part,
                "cells_count": 8,
                **_change(first, last),
                "part_group": group,
                "group_overhead_ns": (last - first) * MS,
            }
            for place, part, group, first, last in (
                (0, "compute", "compute", before, before),
                (4, "crypto", "hop", 0, after - before),
            )
        ],
        time_breakdown.TABLE: [
            _step(one, 0, whole, sealing) for one, whole, sealing in _steps(run, baseline, before, after)
        ],
        trace_summary.TABLE: [
            {
                "run_id": run,
                "rank": 0,
                "total_ns": after * MS,
                "idle_ns": 10 * MS,
                **MEASURED,
                "tl_compute_ns": (after - 10) * MS,
                "tl_comm_ns": 20 * MS,
                "tl_exposed_comm_ns": 0,
                "tl_exposed_memcpy_ns": 0,
            }
        ],
        stragglers.TABLE: [
            {
                "run_id": run,
                "match_id": "1",
                "collective": "all_reduce",
                "transfer_ns": 4 * MS,
                **MEASURED,
                "skew_ns": 2 * MS,
                "skew_uncertainty_ns": MS,
                "is_skew_certain": True,
                "late_rank": 1,
            }
        ],
        sealing_coverage.TABLE: [
            {
                "run_id": run,
                "boundary": "gpu_to_gpu",
                "regime": REGIME,
                "promised_crossings_count": 4,
                "promised_bytes": 1000,
                "sealed_bytes": 750,
                "plain_bytes": 250,
                "violations_count": 1,
                **MEASURED,
            }
        ],
        operation_overhead.TABLE: [
            {
                **both,
                **MEASURED,
                "operation": "copy",
                "median_ns": 30_000,
                "baseline_median_ns": 20_000,
                "overhead_ns": 10_000,
                "operations_count": 5,
                "slowdown_ratio": 1.5,
            }
        ],
        what_if.TABLE: [
            {
                "regime": REGIME,
                "run_id": run,
                "change": change,
                "method": "bucket_replay",
                "current_step_ns": 200 * MS,
                "predicted_step_ns": step * MS,
                "predicted_low_ns": (step - 10) * MS,
                "predicted_high_ns": (step + 10) * MS,
                "interval_level": 0.75,
                "slowdown_ratio": step / 200,
                "saved_ns": (200 - step) * MS,
                "verdict": verdict,
                "evidence": "modelled",
            }
            for change, step, verdict in (
                ("chains=4", 150, "worth it"),
                ("bucket_cap_mib=5", 198, "within model error"),
                ("sealing_gb_per_second=5", 170, "worth it"),
                ("sealing_gb_per_second=50", 120, "worth it"),
            )
        ],
        prediction_checks.TABLE: [
            {
                "regime": REGIME,
                "task": "regime",
                "scheme": "model",
                "left_out": "Any",
                "predicted_run_id": run,
                "known_run_id": "plain",
                "predicted_step_ns": 190 * MS,
                "measured_step_ns": 200 * MS,
                "known_step_ns": 100 * MS,
                "error_fraction": -0.05,
                "predicted_low_ns": 180 * MS,
                "predicted_high_ns": 210 * MS,
                "interval_level": 0.67,
                "is_inside": True,
                "noise_fraction": 0.02,
                "evidence": "modelled",
            }
        ],
        scaling.TABLE: [
            {
                "family_id": "family-1",
                "family": "model=Any|dtype=float32",
                "regime": REGIME,
                "axis": "world_size",
                "tee_run_id": run,
                "axis_number": float(ranks),
                "overhead_ns": added,
                "slowdown_ratio": ratio,
                "slope_ns": 25 * MS,
                "slope_low_ns": 10 * MS,
                "slope_high_ns": 40 * MS,
                **MEASURED,
            }
        ],
        attested_runs.TABLE: [{"run_id": run, "regime": REGIME, "verdict": "as it claims", **MEASURED}],
        nonce_budgets.TABLE: [
            {
                "run_id": run,
                "key_scope": "rank 0 to the next",
                "sealed_message_count": 40,
                **MEASURED,
                "limit_count": 1 << 32,
                "used_fraction": 40 / (1 << 32),
            }
        ],
        rejects.TABLE: [{"run_id": run, "level": "file", "source_sha256": "1" * 64, "reason": "No reader takes it."}],
        source_files.TABLE: [
            {
                "run_id": run,
                "file_name": "secret-name.json",
                "source_sha256": "2" * 64,
                "size_bytes": 9,
                "is_counted": True,
            }
        ],
        runs.TABLE: [
            {"run_id": one, "model": model, "regime": regime, "world_size": ranks, "ranks_count": ranks}
            for one, regime in ((run, REGIME), (baseline, "cc_off"))
        ],
    }


def _steps(run: str, baseline: str, before: int, after: int) -> tuple[tuple[str, int, int], ...]:
    return (baseline, before, 0), (run, after, after - before)


def _step(run: str, rank: int, whole: int, sealing: int) -> dict[str, Any]:
    parts = dict.fromkeys((f"{part}_ns" for part in time_breakdown.PARTS), 0)
    times = {"duration_ns": whole * MS, "compute_ns": (whole - sealing) * MS, "crypto_ns": sealing * MS}
    return {"run_id": run, "rank": rank, **MEASURED, **parts, **times}


def _change(before: int, after: int) -> dict[str, Any]:
    return {"baseline_step_ns": before * MS, "step_ns": after * MS, "overhead_ns": (after - before) * MS}
