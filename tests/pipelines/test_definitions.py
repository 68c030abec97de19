"""All that Dagster is told, as one text that a reviewer can read: whoever changes the graph changes this snapshot."""

from __future__ import annotations

from typing import TYPE_CHECKING

import dagster as dg
import pytest
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode

from pipelines.definitions import build_definitions
from pipelines.settings import settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from syrupy.assertion import SnapshotAssertion


class _Text(SingleFileSnapshotExtension):
    file_extension = "txt"
    _write_mode = WriteMode.TEXT


@pytest.fixture
def definitions(tmp_path: Path) -> dg.Definitions:
    return build_definitions(settings(str(tmp_path / "lake"), str(tmp_path / "landing"), environment={}))


def test_the_graph_is_as_reviewed(definitions: dg.Definitions, snapshot: SnapshotAssertion) -> None:
    assert snapshot(extension_class=_Text, name="graph") == "\n".join(_describe(definitions)) + "\n"


def test_the_definitions_load_as_the_ui_loads_them(definitions: dg.Definitions) -> None:
    dg.Definitions.validate_loadable(definitions)


def _describe(definitions: dg.Definitions) -> Iterator[str]:
    graph = definitions.resolve_asset_graph()
    for key in sorted(graph.get_all_asset_keys(), key=lambda key: key.to_user_string()):
        node = graph.get(key)
        yield f"asset {key.to_user_string()}"
        yield f"  group {node.group_name}; owners {', '.join(node.owners)}; kinds {', '.join(sorted(node.kinds))}"
        partitions = node.partitions_def
        yield f"  partitions {partitions.name if isinstance(partitions, dg.DynamicPartitionsDefinition) else 'none'}"
        yield f"  {node.description}"
        if node.automation_condition is not None:
            yield f"  made when {node.automation_condition.get_label()}"
        for parent in sorted(parent.to_user_string() for parent in node.parent_keys):
            yield f"  from {parent}"
        for check in sorted(node.check_keys, key=lambda check: check.name):
            spec = graph.get_check_spec(check)
            yield f"  {'must' if spec.blocking else 'should'} {check.name}"
        yield ""
    for job in sorted(definitions.jobs or [], key=lambda job: str(job.name)):
        yield f"job {job.name}: {job.description}"
    for schedule in sorted(definitions.schedules or [], key=lambda schedule: str(schedule.name)):
        assert isinstance(schedule, dg.ScheduleDefinition)
        answer = f"{schedule.cron_schedule} {schedule.execution_timezone}, {schedule.default_status.value}"
        yield f"schedule {schedule.name}: {answer}, job {schedule.job_name}"
    for sensor in sorted(definitions.sensors or [], key=lambda sensor: str(sensor.name)):
        answer = f"every {sensor.minimum_interval_seconds} s, {sensor.default_status.value}"
        yield f"sensor {sensor.name}: {answer}"
    yield f"executor {definitions.executor.name if definitions.executor else 'none'}"  # type: ignore[union-attr]
