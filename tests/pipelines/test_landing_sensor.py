"""The sensor: what is complete and new or changed is launched, once, and nothing else."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING
from uuid import uuid4

import dagster as dg
import pytest

from lake.identity import MANIFEST, OPEN
from pipelines.landing_sensor import build_landing_sensor
from pipelines.partitions import list_known
from tests.support.build_runs import build_runs, record_passed
from tests.support.small_runs import OFF, TEE, trace

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.deployment import Deployment


class Ticking:
    """The sensor, tick after tick, as the daemon would: what it asks for is done, and its cursor kept."""

    def __init__(self, deployment: Deployment) -> None:
        self._orchestra = deployment
        self.cursor: str | None = None

    def tick(self) -> list[tuple[str, str]]:
        """The first and the last run of each launch that the sensor asks for."""
        resources = {"build_context": self._orchestra.build_context}
        with dg.build_sensor_context(self._orchestra.records, cursor=self.cursor, resources=resources) as context:
            result = build_landing_sensor(15)(context)
            cursor = context.cursor
        if isinstance(result, dg.SkipReason):
            self.cursor = cursor
            return []
        assert isinstance(result, dg.SensorResult)
        self.cursor = result.cursor
        for request in result.dynamic_partitions_requests or []:
            self._orchestra.records.add_dynamic_partitions(request.partitions_def_name, list(request.partition_keys))
        self.observed = [event.partition for event in result.asset_events]
        requests = result.run_requests or []
        self.keys = [request.run_key for request in requests]
        self.tables = [[key.to_user_string() for key in request.asset_selection or ()] for request in requests]
        return [
            (
                request.tags["dagster/asset_partition_range_start"],
                request.tags["dagster/asset_partition_range_end"],
            )
            for request in requests
        ]


@pytest.fixture
def ticking(deployment: Deployment) -> Ticking:
    return Ticking(deployment)


def test_new_runs_become_partitions_and_one_launch(deployment: Deployment, ticking: Ticking) -> None:
    for run_id in ("b", "a", "c"):
        deployment.land(run_id)
    assert ticking.tick() == [("a", "c")]
    assert list_known(deployment.records) == ["a", "b", "c"]
    assert ticking.observed == ["a", "b", "c"]


def test_a_manifest_that_cannot_be_read_is_launched_up_to_the_table_that_it_fails_in(
    deployment: Deployment, ticking: Ticking
) -> None:
    for run_id in ("a", "b", "c"):
        deployment.land(run_id)
    (deployment.build_context.zone.place.directory / "b" / MANIFEST).write_text("schema = 99\n", "utf-8")
    assert ticking.tick() == [("a", "a"), ("c", "c"), ("b", "b")]
    assert ticking.tables == [[], [], ["bronze/runs"]], "all tables, unless the manifest is broken"


def test_nothing_new_asks_for_nothing(deployment: Deployment, ticking: Ticking) -> None:
    deployment.land("a")
    assert ticking.tick() == [("a", "a")]
    assert ticking.tick() == []


def test_a_changed_file_asks_for_its_run_alone(deployment: Deployment, ticking: Ticking) -> None:
    for run_id in ("a", "b", "c"):
        deployment.land(run_id)
    ticking.tick()
    first = ticking.keys
    deployment.land("b", 140)
    assert ticking.tick() == [("b", "b")]
    assert ticking.keys != first
    assert ticking.tick() == []


def test_runs_that_are_no_neighbours_are_launches_of_their_own(deployment: Deployment, ticking: Ticking) -> None:
    for run_id in ("a", "b", "c"):
        deployment.land(run_id)
    ticking.tick()
    deployment.land("a", 140)
    deployment.land("c", 140)
    assert ticking.tick() == [("a", "a"), ("c", "c")]


def test_a_run_that_is_half_written_waits(deployment: Deployment, ticking: Ticking) -> None:
    directory: Path = deployment.place / "landing" / "half"
    directory.mkdir(parents=True)
    (directory / "rank0.json").write_bytes(trace(100))
    assert ticking.tick() == []
    assert list_known(deployment.records) == []
    deployment.land("half")
    assert ticking.tick() == [("half", "half")]


def test_a_run_that_is_gone_is_forgotten_and_may_come_back(deployment: Deployment, ticking: Ticking) -> None:
    directory = deployment.land("a")
    ticking.tick()
    shutil.rmtree(directory)
    assert ticking.tick() == []
    assert ticking.cursor is not None
    assert json.loads(ticking.cursor) == {}
    assert list_known(deployment.records) == ["a"], "its tables stay in the lake, and so does its partition"
    deployment.land("a", 140)
    assert ticking.tick() == [("a", "a")]


def test_what_a_command_has_made_already_is_a_partition_but_no_launch(deployment: Deployment, ticking: Ticking) -> None:
    deployment.land("off", 100, OFF)
    deployment.land("tee", 120, TEE)
    build_runs(deployment.build_context.lake, deployment.build_context.zone, ["off", "tee"])
    record_passed(deployment.build_context.lake, ["off", "tee"])
    assert ticking.tick() == []
    assert list_known(deployment.records) == ["off", "tee"]
    assert ticking.tick() == []


def test_an_open_run_waits_for_the_launch_before_its_own(ticking: Ticking, deployment: Deployment) -> None:
    run = deployment.land("grows")
    (run / OPEN).touch()
    assert ticking.tick() == [("grows", "grows")]
    (run / "more.json").write_bytes(trace(120))
    launched = dg.DagsterRun(job_name="ingest", run_id=str(uuid4()), status=dg.DagsterRunStatus.STARTED)
    deployment.records.add_run(launched)
    assert ticking.tick() == []
    assert ticking.tick() == []
    deployment.records.delete_run(launched.run_id)
    assert ticking.tick() == [("grows", "grows")]
    assert ticking.tick() == []
    (run / OPEN).unlink()
    assert ticking.tick() == [("grows", "grows")]
