"""What silver's tables promise of each other and of bronze: every event is kept, merged or rejected, and counted."""

from __future__ import annotations

from assets.build.catalogue import select, table
from assets.checks.relation import Relation
from lake.tables import Scope

RELATIONS = (
    *(
        Relation(
            name="rows_belong_to_a_run",
            sentence="every row belongs to a run of silver.runs",
            table=each,
            reads=(table("silver.runs"),),
            is_of_rows=True,
            matched_column="run_id",
            query="""
                SELECT run_id FROM checked ANTI JOIN silver.runs USING (run_id) ORDER BY run_id""",
        )
        for each in (*select("silver", Scope.RUN), *select("gold", Scope.RUN))
        if each.full_name != "silver.runs"
    ),
    Relation(
        name="landed_is_kept_merged_or_rejected",
        sentence="of every profile, events landed and split = kept + merged + rejected",
        table=table("silver.rule_counts"),
        reads=(table("bronze.source_files"),),
        query="""
            WITH settled AS (
                SELECT run_id, source_sha256,
                    sum(CASE WHEN effect = 'split' THEN -events_count ELSE events_count END) AS settled_count
                FROM checked
                WHERE effect IN ('kept', 'merged', 'rejected', 'split') GROUP BY run_id, source_sha256),
            landed AS (
                SELECT run_id, source_sha256,
                    CASE WHEN format IN ('nsys_csv', 'nsys_sqlite') THEN rows_count ELSE events_count END
                    AS events_count
                FROM bronze.source_files
                WHERE outcome = 'kept' AND is_counted
                AND (events_count > 0 OR (rows_count > 0 AND format IN ('nsys_csv', 'nsys_sqlite'))))
            SELECT run_id, source_sha256, events_count, settled_count
            FROM landed FULL JOIN settled USING (run_id, source_sha256)
            WHERE events_count IS DISTINCT FROM settled_count
            ORDER BY run_id, source_sha256""",
    ),
    Relation(
        name="spans_are_the_events_kept",
        sentence="every source has as many spans as silver.rule_counts says were kept",
        table=table("silver.spans"),
        reads=(table("silver.rule_counts"),),
        query="""
            WITH reported AS (
                SELECT run_id, source_sha256, sum(events_count) AS kept_count FROM silver.rule_counts
                WHERE effect = 'kept' GROUP BY run_id, source_sha256),
            found AS (
                SELECT run_id, source_sha256, count(*) AS found_count FROM checked GROUP BY run_id, source_sha256)
            SELECT run_id, source_sha256, kept_count, found_count
            FROM reported FULL JOIN found USING (run_id, source_sha256)
            WHERE kept_count IS DISTINCT FROM found_count
            ORDER BY run_id, source_sha256""",
    ),
    Relation(
        name="rejects_are_the_events_rejected",
        sentence="every source has as many rejected events as silver.rule_counts says",
        table=table("silver.rejects"),
        reads=(table("silver.rule_counts"),),
        query="""
            WITH reported AS (
                SELECT run_id, source_sha256, sum(events_count) AS rejected_count FROM silver.rule_counts
                WHERE effect = 'rejected' AND rule <> 'unknown_rank' GROUP BY run_id, source_sha256),
            found AS (
                SELECT run_id, source_sha256, count(*) AS found_count FROM checked
                WHERE level = 'event' GROUP BY run_id, source_sha256)
            SELECT run_id, source_sha256, rejected_count, found_count
            FROM reported FULL JOIN found USING (run_id, source_sha256)
            WHERE rejected_count IS DISTINCT FROM found_count
            ORDER BY run_id, source_sha256""",
    ),
    Relation(
        name="collectives_are_spans",
        sentence="the event that stands for a collective is a row of silver.spans",
        table=table("silver.collectives"),
        reads=(table("silver.spans"),),
        is_of_rows=True,
        query="""
            SELECT run_id, rank, source_sha256, ordinal FROM checked
            ANTI JOIN silver.spans USING (run_id, rank, source_sha256, ordinal)
            ORDER BY run_id, rank, source_sha256, ordinal""",
    ),
    Relation(
        name="crossings_are_spans",
        sentence="the event that stands for a crossing is a row of silver.spans",
        table=table("silver.crossings"),
        reads=(table("silver.spans"),),
        is_of_rows=True,
        query="""
            SELECT run_id, rank, source_sha256, ordinal FROM checked
            ANTI JOIN silver.spans USING (run_id, rank, source_sha256, ordinal)
            ORDER BY run_id, rank, source_sha256, ordinal""",
    ),
    Relation(
        name="counts_agree_with_tables",
        sentence="spans, steps, crossings and periods are as many as the tables hold",
        table=table("silver.runs"),
        reads=(
            table("silver.spans"),
            table("silver.steps"),
            table("silver.crossings"),
            table("silver.throughput"),
        ),
        query="""
            WITH found AS (
                SELECT run_id,
                    (SELECT count(*) FROM silver.spans s WHERE s.run_id = c.run_id) AS spans_count,
                    (SELECT count(*) FROM silver.steps s WHERE s.run_id = c.run_id) AS steps_count,
                    (SELECT count(*) FROM silver.crossings s WHERE s.run_id = c.run_id) AS crossings_count,
                    (SELECT count(*) FROM silver.throughput s WHERE s.run_id = c.run_id) AS periods_count,
                    found_spans_count, found_steps_count, found_crossings_count, found_periods_count
                FROM checked c)
            SELECT * FROM found
            WHERE (spans_count, steps_count, crossings_count, periods_count)
                <> (found_spans_count, found_steps_count, found_crossings_count, found_periods_count)
            ORDER BY run_id""",
    ),
    Relation(
        name="periods_are_those_of_the_logs",
        sentence="every record of a training table is one period, and no other is made of one",
        table=table("silver.throughput"),
        reads=(table("bronze.training_log"),),
        query="""
            WITH landed AS (
                SELECT run_id, source_sha256, ordinal FROM bronze.training_log WHERE record = 'csv')
            SELECT run_id, source_sha256, ordinal FROM (SELECT * FROM checked WHERE record = 'csv')
            FULL JOIN landed l USING (run_id, source_sha256, ordinal)
            WHERE period IS NULL OR l.ordinal IS NULL
            ORDER BY run_id, source_sha256, ordinal""",
    ),
)
