"""`silver.timeline`: one view over everything that has a time, for `teetotal query`; its text is fixed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bronze import collective_records
from silver import collectives, device_samples, steps, throughput

if TYPE_CHECKING:
    import duckdb

NAME = "silver.timeline"
READS = (steps.TABLE, throughput.TABLE, collectives.TABLE, device_samples.TABLE, collective_records.TABLE)

_VIEW = """
CREATE VIEW silver.timeline AS
SELECT run_id, 'silver.steps' AS source, 'step' AS kind, rank, NULL::BIGINT AS device_id, step_number, ts_ns,
    duration_ns, step_source AS name, NULL::DOUBLE AS value_number, NULL::VARCHAR AS unit, evidence
FROM silver.steps
UNION ALL
SELECT run_id, 'silver.throughput', period, rank, NULL, CASE WHEN period = 'step' THEN period_number END, ts_ns,
    duration_ns, CASE WHEN samples_per_second IS NOT NULL THEN 'samples_per_second'
        WHEN tokens_per_second IS NOT NULL THEN 'tokens_per_second' END,
    coalesce(samples_per_second, tokens_per_second),
    CASE WHEN coalesce(samples_per_second, tokens_per_second) IS NOT NULL THEN '1/s' END, evidence
FROM silver.throughput
UNION ALL
SELECT run_id, 'silver.collectives', 'collective', rank, NULL, step_number, ts_ns, duration_ns, collective,
    buffer_bytes::DOUBLE, CASE WHEN buffer_bytes IS NOT NULL THEN 'B' END, evidence
FROM silver.collectives
UNION ALL
SELECT run_id, 'silver.device_samples', 'reading', NULL, device_id, NULL, ts_ns, NULL, quantity, value_number, unit,
    CASE WHEN evidence = 'measured' AND ts_source = 'inferred' THEN 'modelled' ELSE evidence END
FROM silver.device_samples
UNION ALL
SELECT run_id, 'bronze.collective_records', 'collective', rank, device_id, NULL, ts_ns, duration_ns, collective_name,
    payload_bytes::DOUBLE, CASE WHEN payload_bytes IS NOT NULL THEN 'B' END,
    CASE WHEN duration_ns IS NULL THEN 'unobservable' ELSE 'measured' END
FROM bronze.collective_records WHERE record = 'inspector'
"""


def create_view(connection: duckdb.DuckDBPyConnection) -> None:
    """Make the view, on a connection where its tables are."""
    connection.execute(_VIEW)
