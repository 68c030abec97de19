from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gold import logged_steps, step_times, traced_steps
from tests.support.gold_rows import TABLES
from tests.support.silver_rows import RUN, ordered, rows_of, settled

if TYPE_CHECKING:
    from tests.support.silver_rows import Bench

MS = 1_000_000
NOON = 1_700_000_000_000 * MS
Rows = list[dict[str, Any]]


def steps_of(*durations_ms: float, rank: int = 0, first: int = 0, **fields: Any) -> Rows:
    """Steps of a rank, one after the other."""
    rows, at = [], NOON
    for place, length in enumerate(durations_ms):
        known = {"step_source": "profiler_step", "evidence": "measured", "run_id": RUN, "rank": rank}
        numbers = {"step_number": first + place, "step_ordinal": place}
        rows.append({**known, **numbers, "ts_ns": at, "duration_ns": round(length * MS), **fields})
        at += round(length * MS)
    return rows


def logged(*durations_ms: float, rank: int = 0, **fields: Any) -> Rows:
    """Steps of a log that does not say when they were."""
    known = {"run_id": RUN, "rank": rank, "source_sha256": f"log-{rank}", "record": "csv", "period": "step"}
    known |= {"numbered_by": "number", "duration_source": "told", "evidence": "measured"}
    return [
        {**known, "ordinal": place, "period_number": place, "duration_ns": round(length * MS), **fields}
        for place, length in enumerate(durations_ms)
    ]


def measured(bench: Bench, steps: Rows = [], log: Rows = [], **rows: Rows) -> dict[str, dict[str, Any]]:  # noqa: B006
    """The rows of the table by source, from rows of silver."""
    frames = {name: bench.wrap(rows_of(TABLES[name], rows.get(name, []))) for name in ("spans", "collectives")}
    observed = bench.rows(traced_steps.observe_steps(bench.wrap(rows_of(TABLES["steps"], steps)), **frames))
    claimed = rows_of(TABLES["runs"], [{"run_id": RUN, **row} for row in rows.get("runs", [{}])])
    logs = bench.rows(logged_steps.observe_log(bench.wrap(rows_of(TABLES["throughput"], log))))
    found = step_times.measure(observed, logs, claimed)
    told = ordered(step_times.TABLE, settled(bench, bench.wrap(found), step_times.TABLE))
    return {row["source"]: row for row in told.to_dicts()}


def test_the_headline_is_the_mean_and_the_median_stands_beside_it(engine: Bench) -> None:
    row = measured(engine, steps_of(100, 100, 100, 100, 300))["trace"]
    assert (row["step_ns"], row["median_step_ns"], row["steps_count"]) == (140 * MS, 100 * MS, 5)
    assert "the mean step is 1.40 times the median one" in row["caveat"]


def test_a_log_and_a_trace_have_a_row_each(engine: Bench) -> None:
    rows = measured(engine, steps_of(110, 130), logged(100, 100, 100))
    assert {source: row["step_ns"] for source, row in rows.items()} == {"trace": 120 * MS, "log": 100 * MS}
