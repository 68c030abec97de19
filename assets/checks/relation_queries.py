"""The queries that find rows which break a relation: `checked` is the table in question, the others go by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb

# Each finds the rows that break a promise, by columns that are sensitive nowhere.
_QUERIES = {
    "belongs": """
        SELECT run_id FROM checked ANTI JOIN silver.runs USING (run_id) ORDER BY run_id""",
    "files": """
        SELECT run_id, files_count, kept_files_count, merged_files_count, rejected_files_count FROM checked
        WHERE files_count <> kept_files_count + merged_files_count + rejected_files_count
        ORDER BY run_id""",
    "file_outcomes": """
        WITH found AS (
            SELECT run_id, count(*) AS files_count, coalesce(sum(events_count), 0) AS events_count,
                coalesce(sum(unreadable_count), 0) AS unreadable_count
            FROM bronze.source_files GROUP BY run_id)
        SELECT run_id, c.files_count, f.files_count AS found_files_count, c.events_count,
            f.events_count AS found_events_count
        FROM checked c LEFT JOIN found f USING (run_id)
        WHERE (c.files_count, c.events_count, c.unreadable_count)
            <> (coalesce(f.files_count, 0), coalesce(f.events_count, 0), coalesce(f.unreadable_count, 0))
        ORDER BY run_id""",
    "landed_events": """
        WITH found AS (
            SELECT run_id, source_sha256, count(*) AS found_count FROM checked GROUP BY run_id, source_sha256),
        told AS (
            SELECT run_id, source_sha256, events_count FROM bronze.source_files
            WHERE outcome = 'kept' AND events_count > 0)
        SELECT run_id, source_sha256, events_count, found_count
        FROM told FULL JOIN found USING (run_id, source_sha256)
        WHERE events_count IS DISTINCT FROM found_count
        ORDER BY run_id, source_sha256""",
    "landed_records": """
        WITH found AS (
            SELECT run_id, source_sha256, count(*) AS found_count FROM checked GROUP BY run_id, source_sha256),
        told AS (
            SELECT run_id, source_sha256, format, rows_count FROM bronze.source_files WHERE outcome = 'kept')
        SELECT run_id, source_sha256, rows_count, found_count
        FROM found LEFT JOIN told USING (run_id, source_sha256)
        WHERE rows_count IS NULL OR found_count > rows_count OR (format <> 'job_log' AND found_count < rows_count)
        ORDER BY run_id, source_sha256""",
    "kept_records": """
        WITH rows AS (
            SELECT run_id, source_sha256 FROM bronze.nsys_events
            UNION ALL SELECT run_id, source_sha256 FROM bronze.training_log
            UNION ALL SELECT run_id, source_sha256 FROM bronze.collective_records
            UNION ALL SELECT run_id, source_sha256 FROM bronze.device_samples
            UNION ALL SELECT run_id, source_sha256 FROM bronze.attestations
            UNION ALL SELECT run_id, source_sha256 FROM bronze.copy_rates
            UNION ALL SELECT run_id, source_sha256 FROM bronze.span_patterns),
        found AS (SELECT run_id, source_sha256, count(*) AS found_count FROM rows GROUP BY run_id, source_sha256)
        SELECT run_id, source_sha256, rows_count, coalesce(found_count, 0) AS found_count
        FROM (SELECT * FROM checked WHERE outcome = 'kept') LEFT JOIN found USING (run_id, source_sha256)
        WHERE rows_count - events_count <> coalesce(found_count, 0)
        ORDER BY run_id, source_sha256""",
    "byte_ranges": """
        WITH found AS (
            SELECT run_id, source_sha256, count(*) AS found_count FROM checked GROUP BY run_id, source_sha256),
        told AS (
            SELECT run_id, source_sha256, unreadable_count FROM bronze.source_files
            WHERE outcome = 'kept' AND unreadable_count > 0)
        SELECT run_id, source_sha256, unreadable_count, found_count
        FROM told FULL JOIN found USING (run_id, source_sha256)
        WHERE unreadable_count IS DISTINCT FROM found_count
        ORDER BY run_id, source_sha256""",
    "conserved": """
        WITH settled AS (
            SELECT run_id, source_sha256,
                sum(CASE WHEN effect = 'split' THEN -events_count ELSE events_count END) AS settled_count FROM checked
            WHERE effect IN ('kept', 'merged', 'rejected', 'split') GROUP BY run_id, source_sha256),
        landed AS (
            SELECT run_id, source_sha256,
                CASE WHEN format IN ('nsys_csv', 'nsys_sqlite') THEN rows_count ELSE events_count END AS events_count
            FROM bronze.source_files
            WHERE outcome = 'kept' AND (events_count > 0 OR (rows_count > 0 AND format IN ('nsys_csv', 'nsys_sqlite'))))
        SELECT run_id, source_sha256, events_count, settled_count
        FROM landed FULL JOIN settled USING (run_id, source_sha256)
        WHERE events_count IS DISTINCT FROM settled_count
        ORDER BY run_id, source_sha256""",
    "kept": """
        WITH told AS (
            SELECT run_id, source_sha256, sum(events_count) AS kept_count FROM silver.rule_counts
            WHERE effect = 'kept' GROUP BY run_id, source_sha256),
        found AS (
            SELECT run_id, source_sha256, count(*) AS found_count FROM checked GROUP BY run_id, source_sha256)
        SELECT run_id, source_sha256, kept_count, found_count
        FROM told FULL JOIN found USING (run_id, source_sha256)
        WHERE kept_count IS DISTINCT FROM found_count
        ORDER BY run_id, source_sha256""",
    "refused": """
        WITH told AS (
            SELECT run_id, source_sha256, sum(events_count) AS rejected_count FROM silver.rule_counts
            WHERE effect = 'rejected' AND rule <> 'untold_rank' GROUP BY run_id, source_sha256),
        found AS (
            SELECT run_id, source_sha256, count(*) AS found_count FROM checked
            WHERE level = 'event' GROUP BY run_id, source_sha256)
        SELECT run_id, source_sha256, rejected_count, found_count
        FROM told FULL JOIN found USING (run_id, source_sha256)
        WHERE rejected_count IS DISTINCT FROM found_count
        ORDER BY run_id, source_sha256""",
    "spanned": """
        SELECT run_id, rank, source_sha256, ordinal FROM checked
        ANTI JOIN silver.spans USING (run_id, rank, source_sha256, ordinal)
        ORDER BY run_id, rank, source_sha256, ordinal""",
    "counted": """
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
    "logged": """
        WITH landed AS (
            SELECT run_id, source_sha256, ordinal FROM bronze.training_log WHERE record = 'csv')
        SELECT run_id, source_sha256, ordinal FROM (SELECT * FROM checked WHERE record = 'csv')
        FULL JOIN landed l USING (run_id, source_sha256, ordinal)
        WHERE period IS NULL OR l.ordinal IS NULL
        ORDER BY run_id, source_sha256, ordinal""",
    "parts": """
        WITH summed AS (
            SELECT run_id, rank, step_number, duration_ns,
                coalesce(compute_ns, 0) + coalesce(collective_ns, 0) + coalesce(copy_ns, 0) + coalesce(memset_ns, 0)
                + coalesce(crypto_ns, 0) + coalesce(transport_ns, 0) + coalesce(wait_ns, 0)
                + coalesce(blocking_copy_ns, 0) + coalesce(launch_ns, 0) + coalesce(sync_ns, 0)
                + coalesce(host_ns, 0) + coalesce(idle_ns, 0) + unattributed_ns AS parts_ns
            FROM checked)
        SELECT * FROM summed WHERE duration_ns <> parts_ns
        ORDER BY run_id, rank, step_number""",
    "stepped": """
        SELECT run_id, rank, step_number, c.duration_ns, s.duration_ns AS step_duration_ns
        FROM checked c FULL JOIN silver.steps s USING (run_id, rank, step_number)
        WHERE (c.duration_ns, c.is_warmup) IS DISTINCT FROM (s.duration_ns, s.is_warmup)
        ORDER BY run_id, rank, step_number""",
    "worked": """
        WITH found AS (
            SELECT run_id, count(*) AS found_count, sum(duration_ns) AS found_ns FROM silver.spans
            WHERE is_gpu GROUP BY run_id),
        told AS (
            SELECT run_id, sum(kernels_count) AS kernels_count, sum(total_ns) AS total_ns FROM checked GROUP BY run_id)
        SELECT run_id, kernels_count, found_count, total_ns, found_ns
        FROM told FULL JOIN found USING (run_id)
        WHERE (kernels_count, total_ns) IS DISTINCT FROM (found_count, found_ns)
        ORDER BY run_id""",
    "covered": """
        WITH found AS (
            SELECT run_id, boundary, count(*) AS found_count, count(violation) AS found_violations_count
            FROM silver.crossings GROUP BY run_id, boundary)
        SELECT run_id, boundary, crossings_count, found_count, violations_count, found_violations_count
        FROM checked FULL JOIN found USING (run_id, boundary)
        WHERE (crossings_count, violations_count) IS DISTINCT FROM (found_count, found_violations_count)
        ORDER BY run_id, boundary""",
    "fates": """
        SELECT run_id, boundary, promised_message_count, promised_bytes FROM checked
        WHERE promised_message_count
            <> sealed_message_count + claimed_message_count + contradicted_message_count + plain_message_count
            + unknown_message_count
        OR promised_bytes <> sealed_bytes + claimed_bytes + contradicted_bytes + plain_bytes + unknown_bytes
        ORDER BY run_id, boundary""",
    "shared": """
        SELECT run_id, match_id FROM checked ANTI JOIN silver.collectives USING (run_id, match_id)
        ORDER BY run_id, match_id""",
    "powered": """
        WITH timed AS (
            SELECT run_id, 'profile' AS timed_by, rank, 'step' AS period, step_number, ts_ns, duration_ns
            FROM silver.steps
            UNION ALL
            SELECT run_id, 'log' AS timed_by, rank, period, period_number AS step_number, ts_ns, duration_ns
            FROM silver.throughput)
        SELECT run_id, timed_by, rank, period, step_number, device_id, ts_ns, duration_ns FROM checked
        ANTI JOIN timed USING (run_id, timed_by, rank, period, step_number, ts_ns, duration_ns)
        ORDER BY run_id, timed_by, rank, period, step_number, device_id""",
    "timed": """
        WITH found AS (
            SELECT run_id, 'trace' AS source, count(*) AS found_count FROM silver.steps GROUP BY run_id
            UNION ALL
            SELECT run_id, 'log' AS source, count(*) AS found_count FROM silver.throughput GROUP BY run_id)
        SELECT run_id, source, step_ns, steps_count, found_count
        FROM checked FULL JOIN found USING (run_id, source)
        WHERE found_count IS NULL OR steps_count IS NULL OR steps_count > found_count
        OR (step_ns IS NULL) <> (evidence = 'unobservable') OR (step_ns IS NULL AND reason IS NULL)
        ORDER BY run_id, source""",
    "paired": """
        SELECT run_id, baseline_run_id FROM checked
        WHERE run_id NOT IN (SELECT run_id FROM silver.runs)
        OR (baseline_run_id IS NOT NULL
            AND baseline_run_id NOT IN (SELECT run_id FROM silver.runs WHERE regime = 'cc_off'))
        ORDER BY run_id""",
    "differs": """
        SELECT run_id, baseline_run_id, step_ns, baseline_step_ns, overhead_ns FROM checked
        WHERE overhead_ns IS DISTINCT FROM step_ns - baseline_step_ns
        ORDER BY run_id""",
    "deltas": """
        WITH means AS (
            SELECT run_id, baseline_run_id, sum(overhead_ns) AS parts_ns,
                sum(step_ns) - sum(baseline_step_ns) AS overhead_ns,
                sum(step_ns) AS step_ns, sum(baseline_step_ns) AS baseline_step_ns
            FROM checked GROUP BY run_id, baseline_run_id),
        bounds AS (
            SELECT run_id, min(duration_ns) AS least_ns, max(duration_ns) AS most_ns FROM gold.time_breakdown
            WHERE NOT is_warmup GROUP BY run_id)
        SELECT m.run_id, m.baseline_run_id, parts_ns, overhead_ns, step_ns, baseline_step_ns
        FROM means m
        LEFT JOIN bounds ours ON ours.run_id = m.run_id
        LEFT JOIN bounds baselines ON baselines.run_id = m.baseline_run_id
        WHERE parts_ns IS DISTINCT FROM overhead_ns
        OR (step_ns BETWEEN ours.least_ns AND ours.most_ns) IS NOT TRUE
        OR (baseline_step_ns BETWEEN baselines.least_ns AND baselines.most_ns) IS NOT TRUE
        ORDER BY m.run_id""",
    "scaled": """
        SELECT c.family_id, c.tee_run_id, c.axis, c.overhead_ns, s.overhead_ns
        FROM checked c LEFT JOIN gold.step_overhead s
        ON s.run_id = c.tee_run_id AND s.baseline_run_id = c.baseline_run_id
        WHERE c.overhead_ns IS DISTINCT FROM s.overhead_ns
        ORDER BY c.family_id, c.tee_run_id, c.axis""",
}


def get_query(question: str) -> str:
    """The text of a query."""
    return _QUERIES[question]


def list_violations(connection: duckdb.DuckDBPyConnection, question: str) -> duckdb.DuckDBPyRelation:
    """The rows that break a relation, on a connection where its tables are."""
    return connection.sql(_QUERIES[question])
