"""What bronze's tables promise of each other: nothing that landed is lost, nothing appears that did not land."""

from __future__ import annotations

from assets.build.catalogue import table
from assets.checks.relation import Relation
from bronze import formats

RELATIONS = (
    Relation(
        name="files_are_kept_merged_or_rejected",
        sentence="files_count is the sum of those kept, merged and rejected",
        table=table("bronze.runs"),
        query="""
            SELECT run_id, files_count, kept_files_count, merged_files_count, rejected_files_count FROM checked
            WHERE files_count <> kept_files_count + merged_files_count + rejected_files_count
            ORDER BY run_id""",
    ),
    Relation(
        name="counts_agree_with_source_files",
        sentence="files, events and unreadable byte ranges are as many as bronze.source_files says",
        table=table("bronze.runs"),
        reads=(table("bronze.source_files"),),
        query="""
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
    ),
    Relation(
        name="events_are_those_that_landed",
        sentence="every source has as many events as bronze.source_files says",
        table=table("bronze.trace_events"),
        reads=(table("bronze.source_files"),),
        query="""
            WITH found AS (
                SELECT run_id, source_sha256, count(*) AS found_count FROM checked GROUP BY run_id, source_sha256),
            reported AS (
                SELECT run_id, source_sha256, events_count FROM bronze.source_files
                WHERE outcome = 'kept' AND events_count > 0)
            SELECT run_id, source_sha256, events_count, found_count
            FROM reported FULL JOIN found USING (run_id, source_sha256)
            WHERE events_count IS DISTINCT FROM found_count
            ORDER BY run_id, source_sha256""",
    ),
    *(
        Relation(
            name="records_are_those_that_landed",
            sentence=(
                "a source has as many rows as bronze.source_files says; "
                "a job's output may share them between two tables"
            ),
            table=each,
            reads=(table("bronze.source_files"),),
            is_of_rows=True,
            query="""
                WITH found AS (
                    SELECT run_id, source_sha256, count(*) AS found_count FROM checked GROUP BY run_id, source_sha256),
                reported AS (
                    SELECT run_id, source_sha256, format, rows_count FROM bronze.source_files WHERE outcome = 'kept')
                SELECT run_id, source_sha256, rows_count, found_count
                FROM found LEFT JOIN reported USING (run_id, source_sha256)
                WHERE rows_count IS NULL OR found_count > rows_count
                OR (format <> 'job_log' AND found_count < rows_count)
                ORDER BY run_id, source_sha256""",
        )
        for each in formats.TABLES
    ),
    Relation(
        name="rows_are_in_the_tables",
        sentence="the tables of records hold as many rows of every source as it says, none of them lost",
        table=table("bronze.source_files"),
        reads=formats.TABLES,
        query="""
            WITH rows AS (
                SELECT run_id, source_sha256 FROM bronze.nsys_events
                UNION ALL SELECT run_id, source_sha256 FROM bronze.training_log
                UNION ALL SELECT run_id, source_sha256 FROM bronze.collective_records
                UNION ALL SELECT run_id, source_sha256 FROM bronze.device_samples
                UNION ALL SELECT run_id, source_sha256 FROM bronze.attestations
                UNION ALL SELECT run_id, source_sha256 FROM bronze.copy_rates
                UNION ALL SELECT run_id, source_sha256 FROM bronze.span_patterns
                UNION ALL SELECT run_id, source_sha256 FROM bronze.recording_statements),
            found AS (SELECT run_id, source_sha256, count(*) AS found_count FROM rows GROUP BY run_id, source_sha256)
            SELECT run_id, source_sha256, rows_count, coalesce(found_count, 0) AS found_count
            FROM (SELECT * FROM checked WHERE outcome = 'kept') LEFT JOIN found USING (run_id, source_sha256)
            WHERE rows_count - events_count <> coalesce(found_count, 0)
            ORDER BY run_id, source_sha256""",
    ),
    Relation(
        name="byte_ranges_are_those_that_landed",
        sentence="every source has as many byte ranges as bronze.source_files says",
        table=table("bronze.unreadable"),
        reads=(table("bronze.source_files"),),
        query="""
            WITH found AS (
                SELECT run_id, source_sha256, count(*) AS found_count FROM checked GROUP BY run_id, source_sha256),
            reported AS (
                SELECT run_id, source_sha256, unreadable_count FROM bronze.source_files
                WHERE outcome = 'kept' AND unreadable_count > 0)
            SELECT run_id, source_sha256, unreadable_count, found_count
            FROM reported FULL JOIN found USING (run_id, source_sha256)
            WHERE unreadable_count IS DISTINCT FROM found_count
            ORDER BY run_id, source_sha256""",
    ),
)
