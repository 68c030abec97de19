"""A lake, a landing zone and Dagster's real records in a temporary place, for tests that launch."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import dagster as dg
from dagster._core.definitions.data_version import CachingStaleStatusResolver
from dagster._core.loader import LoadingContextForTest
from dagster._core.storage.partition_status_cache import get_and_update_asset_status_cache_value

from assets.build.catalogue import UPSTREAM
from assets.specs import TRAINING_RUNS, asset_key
from lake.identity import MANIFEST
from pipelines.definitions import build_context, build_definitions
from pipelines.jobs import limit_job
from pipelines.partitions import make_range_tags, register_runs
from pipelines.settings import settings
from tests.support.small_runs import OFF, trace

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from dagster._core.definitions.data_version import StaleStatus

    from assets.build.context import BuildContext

_SILENT = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


@dataclass
class Deployment:
    """What a deployment has, and what a test wants to know of it."""

    place: Path
    records: dg.DagsterInstance
    environment: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.chosen = settings(str(self.place / "lake"), str(self.place / "landing"), environment=self.environment)
        self.definitions = build_definitions(self.chosen)

    @property
    def build_context(self) -> BuildContext:
        """The lake and the landing zone."""
        return build_context(self.chosen)

    def land(self, run_id: str, step_us: int = 100, manifest: str = OFF, name: str = "rank0.json") -> Path:
        """Put a small run into the landing zone, or change one that is there."""
        directory = self.place / "landing" / run_id
        directory.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(trace(step_us))
        (directory / MANIFEST).write_text(manifest, "utf-8")
        return directory

    def launch(
        self,
        run_ids: Sequence[str],
        only: Sequence[str] | None = None,
        *,
        check: bool = False,
        listener: Callable[[dg.EventLogEntry], None] | None = None,
        **config: Any,
    ) -> dg.ExecuteInProcessResult:
        """One launch of the job `ingest` for neighbouring runs, without checks unless they are asked for."""
        register_runs(self.records, run_ids)
        job = limit_job(self.definitions.resolve_job_def("ingest"), only or UPSTREAM, check=check)
        assert job is not None
        launch_id = str(uuid.uuid4())
        if listener is not None:
            self.records.add_event_listener(launch_id, listener)
        return job.execute_in_process(
            instance=self.records,
            run_id=launch_id,
            tags=make_range_tags(run_ids),
            run_config={**_SILENT, "ops": {"training_runs": {"config": config}}},
            raise_on_error=False,
        )

    def events(self, result: dg.ExecuteInProcessResult, kind: dg.DagsterEventType) -> list[dg.DagsterEvent]:
        """The events of one kind that a launch left in the records."""
        entries = self.records.all_logs(result.run_id, of_type={kind})
        return [entry.dagster_event for entry in entries if entry.dagster_event is not None]

    def list_materialised(self, result: dg.ExecuteInProcessResult) -> set[tuple[str, str]]:
        """The assets and partitions that a launch has materialised."""
        events = self.events(result, dg.DagsterEventType.ASSET_MATERIALIZATION)
        return {(event.asset_key.to_user_string(), str(event.partition)) for event in events if event.asset_key}

    def versions(self, full_name: str) -> dict[str, str]:
        """The data version of each partition, as Dagster knows it."""
        found = {}
        for run_id in self.records.get_dynamic_partitions(str(TRAINING_RUNS.name)):
            record = self.records.get_latest_data_version_record(asset_key(full_name), False, run_id)
            if record is not None:
                found[run_id] = (record.event_log_entry.tags or {})["dagster/data_version"]
        return found

    def status(self, full_name: str, run_id: str) -> StaleStatus:
        """Whether Dagster shows a partition as fresh, stale or missing."""
        resolver = CachingStaleStatusResolver(
            instance=self.records,
            asset_graph=self.definitions.resolve_asset_graph(),
            loading_context=LoadingContextForTest(self.records),
        )
        return resolver.get_status(asset_key(full_name), run_id)

    def failed(self, full_name: str) -> set[str]:
        """The partitions that Dagster shows as failed."""
        value = get_and_update_asset_status_cache_value(self.records, asset_key(full_name), TRAINING_RUNS)
        assert value is not None
        return set(value.deserialize_failed_partition_subsets(TRAINING_RUNS).get_partition_keys())
