"""What happens by itself at night: stale runs, comparisons across runs, and the upkeep of the lake."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import dagster as dg

from assets.build.catalogue import TABLES
from assets.build.comparisons import COMPARISON_TABLES
from pipelines.schedules import nightly
from silver import spans
from tests.support.build_runs import build_runs, record_passed

if TYPE_CHECKING:
    from tests.support.deployment import Deployment


def _requests(deployment: Deployment) -> list[dg.RunRequest]:
    with dg.build_schedule_context(
        deployment.records,
        scheduled_execution_time=datetime(2026, 11, 15, 2, tzinfo=UTC),
        resources={"build_context": deployment.build_context},
    ) as context:
        found: Any = nightly(context)
        return list(found)


def test_every_night_stale_runs_are_launched_and_all_runs_compared(lasting: Deployment) -> None:
    for run_id in ("a", "b", "c"):
        lasting.land(run_id)
    build_runs(lasting.build_context.lake, lasting.build_context.zone, ["b"])
    record_passed(lasting.build_context.lake, ["b"])
    *runs, across = _requests(lasting)
    assert [
        (run.tags["dagster/asset_partition_range_start"], run.tags["dagster/asset_partition_range_end"]) for run in runs
    ] == [("a", "a"), ("c", "c")]
    compared = {table.name for table in COMPARISON_TABLES}
    assert {key.path[-1] for key in across.asset_selection or []} == compared >= {"scaling", "published", "what_if"}
    # What is asked for can be launched.
    for run in runs:
        result = lasting.definitions.resolve_job_def("catch_up").execute_in_process(
            instance=lasting.records,
            tags=dict(run.tags),
            asset_selection=list(run.asset_selection or []),
        )
        assert result.success
    assert len(_requests(lasting)) == 1


def test_upkeep_removes_what_no_version_holds_and_no_row(deployment: Deployment) -> None:
    deployment.land("a")
    lake, zone = deployment.build_context.lake, deployment.build_context.zone
    build_runs(lake, zone, ["a"])
    orphan = deployment.place / "lake" / "silver" / "spans" / "run_id=a" / "left-by-a-killed-writer.parquet"
    orphan.write_bytes(b"PAR1")
    before = {name: lake.scan(table).collect() for name, table in TABLES.items()}
    marks = {name: lake.snapshot(table).mark("a") for name, table in TABLES.items()}
    job = deployment.definitions.resolve_job_def("maintenance")
    assert job.execute_in_process(instance=deployment.records).success
    assert orphan.exists(), "a writer may still be at work on it"
    last_week = time.time() - 8 * 24 * 3600
    os.utime(orphan, (last_week, last_week))
    assert job.execute_in_process(instance=deployment.records).success
    assert not orphan.exists()
    for name, table in TABLES.items():
        assert lake.scan(table).collect().equals(before[name]), name
        assert lake.snapshot(table).mark("a") == marks[name], "what is fresh stays fresh"
    log = deployment.place / "lake" / spans.TABLE.path / "_delta_log"
    assert list(log.glob("*.checkpoint.parquet"))
