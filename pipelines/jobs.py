"""What can be launched: runs through the tiers, everything, and the upkeep of the lake; in one process unless asked."""

import dagster as dg

from assets.catalogue import TABLES
from assets.comparisons import comparisons
from assets.training_runs import POOL, training_runs
from assets.workplace import Workplace

_EITHER = dg.multi_or_in_process_executor
# Delta keeps what a slow reader may still hold for a week.
_RETENTION_HOURS = 168


@dg.executor(
    name="in_process_or_multiprocess",
    config_schema=dg.Field(_EITHER.config_schema.config_type, default_value={"in_process": {}}),
    requirements=[],
)
def executor(context: dg.InitExecutorContext) -> dg.Executor:
    """One process by default, since a second one costs seconds a step; `multiprocess` by the launch's configuration."""
    return _EITHER.executor_creation_fn(context)  # type: ignore[misc]


INGEST = dg.define_asset_job(
    "ingest",
    selection=dg.AssetSelection.assets(training_runs),
    description="Bring training runs up to date: land, conform, measure, pair and check them.",
)
COMPARE = dg.define_asset_job(
    "compare",
    selection=dg.AssetSelection.assets(comparisons),
    description="Set all runs against each other.",
)
CATCH_UP = dg.define_asset_job(
    "catch_up",
    selection=dg.AssetSelection.assets(training_runs, comparisons),
    description="What the nightly schedule launches: runs that are stale, then what is measured across all of them.",
)


class Upkeep(dg.Config):
    """What a launch may choose."""

    retention_hours: int = _RETENTION_HOURS


@dg.op(pool=POOL)
def tidy(context: dg.OpExecutionContext, config: Upkeep, workplace: dg.ResourceParam[Workplace]) -> None:
    """Checkpoint every table's log, and delete files that no version of the last week holds."""
    removed = 0
    for table in TABLES.values():
        files = workplace.lake.tidy(table, config.retention_hours)
        removed += len(files)
        context.log.info("%s: log checkpointed, %d files removed", table.full_name, len(files))
    context.add_output_metadata({"files_removed": removed, "tables": len(TABLES)})


@dg.job(description="Keep the lake small and quick to open.")
def maintenance() -> None:
    """Tidy all tables."""
    tidy()
