"""What one table cannot say of itself: how its rows relate to those of other tables, as queries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from assets.checks.relation_queries import list_violations
from assets.checks.rules import Check
from bronze import formats, source_files, trace_events, training_log, unreadable
from bronze import runs as claimed
from gold import (
    attested_runs,
    energy_overhead,
    kernel_breakdown,
    launches,
    operation_costs,
    operation_overhead,
    overhead_breakdown,
    pairs,
    scaling,
    sealing_coverage,
    step_energy,
    step_overhead,
    step_times,
    stragglers,
    throughput_overhead,
    time_breakdown,
    trace_summary,
)
from lake.identity import is_slug
from silver import (
    attestations,
    clock_offsets,
    collectives,
    crossings,
    device_samples,
    nonce_budgets,
    rejects,
    rule_counts,
    runs,
    spans,
    steps,
    throughput,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    import duckdb

    from lake.store import Lake
    from lake.tables import Table

MOST_SAMPLES = 5
_USE = {"bronze": "USE bronze", "silver": "USE silver", "gold": "USE gold"}


@dataclass(frozen=True)
class Relation(Check):
    """A promise about a table, `checked` in its query, and others, which it reads of the same runs and of partners."""

    table: Table
    # Its query, by its name in assets/checks/relation_queries.py.
    question: str
    reads: tuple[Table, ...] = ()
    # Columns that name further runs, whose rows are read too.
    partners: tuple[str, ...] = ()


_OF_A_RUN = (
    clock_offsets.TABLE,
    steps.TABLE,
    spans.TABLE,
    collectives.TABLE,
    crossings.TABLE,
    nonce_budgets.TABLE,
    rejects.TABLE,
    rule_counts.TABLE,
    throughput.TABLE,
    attestations.TABLE,
    device_samples.TABLE,
    trace_summary.TABLE,
    time_breakdown.TABLE,
    kernel_breakdown.TABLE,
    launches.TABLE,
    operation_costs.TABLE,
    stragglers.TABLE,
    sealing_coverage.TABLE,
    step_energy.TABLE,
    step_times.TABLE,
    attested_runs.TABLE,
)


def _declare_blocking(
    table: Table, question: str, name: str, sentence: str, *reads: Table, partners: tuple[str, ...] = ()
) -> Relation:
    return Relation(name, sentence, True, table, question, reads, partners)


RELATIONS = (
    *(
        _declare_blocking(
            table, "belongs", "rows_belong_to_a_run", "every row belongs to a run of silver.runs", runs.TABLE
        )
        for table in _OF_A_RUN
    ),
    _declare_blocking(
        claimed.TABLE,
        "files",
        "files_are_kept_merged_or_rejected",
        "files_count is the sum of those kept, merged and rejected",
    ),
    _declare_blocking(
        claimed.TABLE,
        "file_outcomes",
        "counts_agree_with_source_files",
        "files, events and unreadable byte ranges are as many as bronze.source_files says",
        source_files.TABLE,
    ),
    _declare_blocking(
        trace_events.TABLE,
        "landed_events",
        "events_are_those_that_landed",
        "every source has as many events as bronze.source_files says",
        source_files.TABLE,
    ),
    *(
        _declare_blocking(
            table,
            "landed_records",
            "records_are_those_that_landed",
            "a source has as many rows as bronze.source_files says; a job's output may share them between two tables",
            source_files.TABLE,
        )
        for table in formats.TABLES
    ),
    _declare_blocking(
        source_files.TABLE,
        "kept_records",
        "rows_are_in_the_tables",
        "the tables of records hold as many rows of every source as it says, none of them lost",
        *formats.TABLES,
    ),
    _declare_blocking(
        unreadable.TABLE,
        "byte_ranges",
        "byte_ranges_are_those_that_landed",
        "every source has as many byte ranges as bronze.source_files says",
        source_files.TABLE,
    ),
    _declare_blocking(
        rule_counts.TABLE,
        "conserved",
        "landed_is_kept_merged_or_rejected",
        "of every profile, events landed and split = kept + merged + rejected",
        source_files.TABLE,
    ),
    _declare_blocking(
        spans.TABLE,
        "kept",
        "spans_are_the_events_kept",
        "every source has as many spans as silver.rule_counts says were kept",
        rule_counts.TABLE,
    ),
    _declare_blocking(
        rejects.TABLE,
        "refused",
        "rejects_are_the_events_rejected",
        "every source has as many rejected events as silver.rule_counts says",
        rule_counts.TABLE,
    ),
    _declare_blocking(
        collectives.TABLE,
        "spanned",
        "collectives_are_spans",
        "the event that stands for a collective is a row of silver.spans",
        spans.TABLE,
    ),
    _declare_blocking(
        crossings.TABLE,
        "spanned",
        "crossings_are_spans",
        "the event that stands for a crossing is a row of silver.spans",
        spans.TABLE,
    ),
    _declare_blocking(
        runs.TABLE,
        "counted",
        "counts_agree_with_tables",
        "spans, steps, crossings and periods are as many as the tables hold",
        spans.TABLE,
        steps.TABLE,
        crossings.TABLE,
        throughput.TABLE,
    ),
    _declare_blocking(
        throughput.TABLE,
        "logged",
        "periods_are_those_of_the_logs",
        "every record of a training table is one period, and no other is made of one",
        training_log.TABLE,
    ),
    _declare_blocking(
        time_breakdown.TABLE,
        "parts",
        "parts_sum_to_the_step",
        "the parts of a step sum to its duration, to the nanosecond",
    ),
    _declare_blocking(
        time_breakdown.TABLE,
        "stepped",
        "steps_are_those_of_silver",
        "the steps are those of silver.steps, each with its duration",
        steps.TABLE,
    ),
    _declare_blocking(
        kernel_breakdown.TABLE,
        "worked",
        "kernels_are_the_gpu_spans",
        "count and time of a run's kernels are those of its GPU rows in silver.spans",
        spans.TABLE,
    ),
    _declare_blocking(
        sealing_coverage.TABLE,
        "covered",
        "crossings_are_those_of_silver",
        "crossings and violations of a boundary are as many as in silver.crossings",
        crossings.TABLE,
    ),
    _declare_blocking(
        sealing_coverage.TABLE,
        "fates",
        "promises_have_one_fate",
        "promised = sealed + claimed + contradicted + plain + unknown, in messages and in bytes",
    ),
    _declare_blocking(
        stragglers.TABLE,
        "shared",
        "collectives_are_those_of_silver",
        "every collective is one of silver.collectives",
        collectives.TABLE,
    ),
    _declare_blocking(
        step_energy.TABLE,
        "powered",
        "steps_are_those_of_their_clock",
        "every step is one of silver.steps or silver.throughput, with its start and duration",
        steps.TABLE,
        throughput.TABLE,
    ),
    _declare_blocking(
        step_times.TABLE,
        "timed",
        "steps_are_timed_or_explained",
        "every source of steps has a row, with a time of no more steps than it has, or with a reason why there is none",
        steps.TABLE,
        throughput.TABLE,
    ),
    *(
        _declare_blocking(
            table,
            "paired",
            "runs_of_the_pair_exist",
            "the run is in silver.runs, and so is its baseline, with regime cc_off",
            runs.TABLE,
            partners=("baseline_run_id",),
        )
        for table in (
            pairs.TABLE,
            step_overhead.TABLE,
            overhead_breakdown.TABLE,
            throughput_overhead.TABLE,
            operation_overhead.TABLE,
            energy_overhead.TABLE,
        )
    ),
    _declare_blocking(
        step_overhead.TABLE,
        "differs",
        "overhead_is_that_of_the_steps",
        "overhead_ns is step_ns less baseline_step_ns",
    ),
    _declare_blocking(
        overhead_breakdown.TABLE,
        "deltas",
        "parts_sum_to_the_overhead",
        "the deltas sum to the difference of the mean steps, which lie among those of gold.time_breakdown",
        time_breakdown.TABLE,
        partners=("baseline_run_id",),
    ),
    _declare_blocking(
        scaling.TABLE,
        "scaled",
        "overheads_are_those_of_the_pairs",
        "the overhead of every point is that of its pair in gold.step_overhead",
        step_overhead.TABLE,
        partners=("tee_run_id",),
    ),
)


def list_relations(table: Table) -> tuple[Relation, ...]:
    """The relations that a table is held to."""
    return tuple(relation for relation in RELATIONS if relation.table.full_name == table.full_name)


def find_violations(
    connection: duckdb.DuckDBPyConnection, lake: Lake, relation: Relation, run_ids: Sequence[str] | None
) -> tuple[int, list[dict[str, Any]]]:
    """How many rows break a relation, and some of them, on a connection that shows the runs' rows as `checked`."""
    connection.execute("CREATE SCHEMA IF NOT EXISTS bronze")
    connection.execute("CREATE SCHEMA IF NOT EXISTS silver")
    connection.execute("CREATE SCHEMA IF NOT EXISTS gold")
    read = _with_partners(connection, relation, run_ids)
    for table in relation.reads:
        rows = lake.relation(connection, table, read)
        connection.execute(_USE[table.tier])
        rows.create_view(table.name)
        connection.execute("USE main")
    found = list_violations(connection, relation.question)
    names, rows_found = found.columns, found.limit(MOST_SAMPLES + 1).fetchall()
    count = len(rows_found) if len(rows_found) <= MOST_SAMPLES else len(found)
    return count, [dict(zip(names, row, strict=True)) for row in rows_found[:MOST_SAMPLES]]


def _with_partners(
    connection: duckdb.DuckDBPyConnection, relation: Relation, run_ids: Sequence[str] | None
) -> list[str] | None:
    """The runs to read: those in question, and those that their rows name."""
    if run_ids is None:
        return None
    rows = connection.view("checked")
    named = {value for name in relation.partners for (value,) in rows.select(name).distinct().fetchall()}
    return sorted({*run_ids, *(value for value in named if value is not None and is_slug(value))})
