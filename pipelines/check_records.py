"""What the index of Dagster's records says of asset checks, of many events at once: as Dagster's own storage says it.

That one makes each event text twice, and puts each statement together anew.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any

from dagster import DagsterEventType
from dagster._core.errors import DagsterInvariantViolationError
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus
from dagster._core.storage.event_log.schema import AssetCheckExecutionsTable
from sqlalchemy import bindparam

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from dagster import AssetCheckEvaluation
    from dagster._core.definitions.asset_checks.asset_check_evaluation import AssetCheckEvaluationPlanned
    from dagster._core.events.log import EventLogEntry
    from sqlalchemy.engine import Connection

_COLUMNS = AssetCheckExecutionsTable.c
_ADD = AssetCheckExecutionsTable.insert()
# What was planned of one check in one launch. A partition that is null is one too.
_END = AssetCheckExecutionsTable.update().where(
    _COLUMNS.asset_key == bindparam("of_asset"),
    _COLUMNS.check_name == bindparam("of_check"),
    _COLUMNS.run_id == bindparam("of_run"),
    _COLUMNS.partition.is_not_distinct_from(bindparam("of_partition")),
)


def store_check_events(index: Connection, told: Iterable[tuple[EventLogEntry, dict[str, Any], int]]) -> None:
    """Store what launches plan and find of checks: of each event its row in the log, and its number there."""
    for kind, group in groupby(told, key=lambda one: one[0].dagster_event_type):
        if kind is DagsterEventType.ASSET_CHECK_EVALUATION_PLANNED:
            index.execute(_ADD, [row for one in group for row in _plan_check(*one)])
        else:
            for one in group:
                _end_check(index, *one)


def _plan_check(event: EventLogEntry, row: dict[str, Any], event_id: int) -> Iterator[dict[str, Any]]:
    """A row for each partition, or one for a check without."""
    planned: AssetCheckEvaluationPlanned = event.get_dagster_event().event_specific_data  # type: ignore[assignment]  # by its kind
    subset = planned.partitions_subset
    for partition in subset.get_partition_keys() if subset else [None]:
        yield {
            "asset_key": planned.asset_key.to_string(),
            "check_name": planned.check_name,
            "partition": partition,
            "run_id": event.run_id,
            "execution_status": AssetCheckExecutionRecordStatus.PLANNED.value,
            **_describe_event(row, event_id),
        }


def _end_check(index: Connection, event: EventLogEntry, row: dict[str, Any], event_id: int) -> None:
    """Write how a check ended into the row that its plan has made; a check that was not planned gets a row."""
    found: AssetCheckEvaluation = event.get_dagster_event().event_specific_data  # type: ignore[assignment]  # by its kind
    statuses, target = AssetCheckExecutionRecordStatus, found.target_materialization_data
    ended = {
        "execution_status": (statuses.SUCCEEDED if found.passed else statuses.FAILED).value,
        **_describe_event(row, event_id),
        "materialization_event_storage_id": target.storage_id if target else None,
    }
    named = {"asset": found.asset_key.to_string(), "check": found.check_name, "run": event.run_id}
    bound = {f"of_{name}": value for name, value in named.items()}
    ended_rows = index.execute(_END, {**bound, "of_partition": found.partition, **ended}).rowcount
    if ended_rows > 1:
        raise DagsterInvariantViolationError(
            f"launch {event.run_id} planned {found.asset_check_key} {ended_rows} times, expected once"
        )
    if not ended_rows:
        key = {"asset_key": named["asset"], "check_name": named["check"], "run_id": named["run"]}
        index.execute(_ADD, {**key, "partition": found.partition, **ended})


def _describe_event(row: dict[str, Any], event_id: int) -> dict[str, Any]:
    return {
        "evaluation_event": row["event"],
        "evaluation_event_timestamp": row["timestamp"],
        "evaluation_event_storage_id": event_id,
    }
