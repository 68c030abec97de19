"""What can be launched: runs through the tiers, everything, and the upkeep of the lake; in one process unless asked."""

import logging
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

import dagster as dg
from dagster._core.execution.context.system import PlanOrchestrationContext
from dagster._core.execution.plan.plan import ExecutionPlan
from dagster._core.execution.retries import RetryMode
from dagster._core.execution.step_dependency_config import StepDependencyConfig

from assets.addresses import DATA_DOCS
from assets.build.catalogue import TABLES
from assets.build.context import BuildContext
from assets.checks import outcomes
from assets.checks.expectations import check_tables
from assets.comparisons import comparisons
from assets.launch_locks import lock_launch, tag_launch, tags_of
from assets.pool_wait import POOL
from assets.specs import asset_key
from assets.training_runs import training_runs
from lake.store import Lake
from pipelines.cli.verification import advise, audit_statements, format_damage, verify_lake

_EITHER = dg.multi_or_in_process_executor
# Delta keeps what a slow reader may still hold for a week.
_RETENTION_HOURS = 168
_DAMAGES_SHOWN = 5


class _LockedExecutor(dg.Executor):
    """Executes as another does, with the launch's lock held: who waits for it can tell whether it lives."""

    def __init__(self, inner: dg.Executor) -> None:
        self._inner = inner
        self._work = inner.execute

    @property
    def retries(self) -> RetryMode:
        return self._inner.retries

    @property
    def step_dependency_config(self) -> StepDependencyConfig:
        return self._inner.step_dependency_config

    def execute(
        self, plan_context: PlanOrchestrationContext, execution_plan: ExecutionPlan
    ) -> Iterator[dg.DagsterEvent]:
        with lock_launch(plan_context.instance, plan_context.run_id):
            plan_context.instance.add_run_tags(plan_context.run_id, tags_of(plan_context.run_id))
            yield from self._work(plan_context, execution_plan)


@dg.executor(
    name="in_process_or_multiprocess",
    config_schema=dg.Field(_EITHER.config_schema.config_type, default_value={"in_process": {}}),
    requirements=[],
)
def executor(context: dg.InitExecutorContext) -> dg.Executor:
    """One process by default, since a second one costs seconds a step; `multiprocess` by the launch's configuration."""
    return _LockedExecutor(_EITHER.executor_creation_fn(context))  # type: ignore[misc]


@dg.logger({"log_level": dg.Field(str, default_value="WARNING"), "name": dg.Field(str, default_value="dagster")})
def console(context: dg.InitLoggerContext) -> logging.Logger:
    """What a launch prints: warnings, unless its configuration asks for more; every event is on its page."""
    return dg.colored_console_logger.logger_fn(context)


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


def limit_job(job: dg.JobDefinition, names: Iterable[str], *, check: bool) -> dg.JobDefinition | None:
    """The part of a job that makes the tables named, with their checks or without; none where it makes none of them."""
    keys = {asset_key(name) for name in names} & job.asset_layer.selected_asset_keys
    if check and keys == job.asset_layer.selected_asset_keys:
        return job
    return job.get_subset(asset_selection=keys, asset_check_selection=None if check else set()) if keys else None


class Upkeep(dg.Config):
    """What a launch may choose."""

    retention_hours: int = _RETENTION_HOURS
    # Every data file, not only those that are due today.
    verify_all: bool = False


@dg.op(pool=POOL)
def tidy_tables(context: dg.OpExecutionContext, config: Upkeep, build_context: dg.ResourceParam[BuildContext]) -> None:
    """Checkpoint every table's log, delete files no version of the last week holds, verify some and all signatures."""
    tag_launch(context.instance, context.run.run_id)
    build_context.lake.log_statements()  # before entries that carry statements are deleted
    removed, tables = 0, (*TABLES.values(), outcomes.TABLE)
    for table in tables:
        files = build_context.lake.tidy(table, config.retention_hours)
        removed += len(files)
        context.log.info("%s: log checkpointed, %d files removed", table.full_name, len(files))
    # Each day another sixteenth: a damaged file is found while its source and its backups are still there.
    verified = verify_lake(build_context.lake, day=None if config.verify_all else datetime.now(UTC).date())
    forged, unsigned = _find_forged(build_context.lake)
    context.add_output_metadata(
        {
            "files_removed": removed,
            "tables": len(tables),
            "files_verified": verified.files,
            "files_damaged": len(verified.damages),
            "not_as_signed": len(forged),
            "unsigned_partitions": unsigned,
        }
    )
    if forged:
        raise dg.Failure(
            f"not what was signed, so rely on none of its numbers: {'; '.join(forged[:_DAMAGES_SHOWN])}. "
            "`teetotal verify` names all of it",
            metadata={"not_as_signed": dg.MetadataValue.json(forged)},
            allow_retries=False,
        )
    if verified.damages:
        damages = [format_damage(damage) for damage in verified.damages]
        raise dg.Failure(
            f"{len(damages)} damaged files: {'; '.join(damages[:_DAMAGES_SHOWN])}. "
            f"{'; '.join(advise(verified.damages))}",
            metadata={"damaged_files": dg.MetadataValue.json(damages)},
            allow_retries=False,
        )


def _find_forged(lake: Lake) -> tuple[list[str], int]:
    """What the tables hold that nobody signed so, by their logs alone; and how many partitions are unsigned."""
    keys = lake.signing_keys
    if keys is None:
        return [], 0
    history, audit = audit_statements(lake, keys.trust)
    return [*history.faults, *(format_damage(damage) for damage in audit.damages)], len(audit.unsigned)


@dg.job(description="Keep the lake small and quick to open.")
def maintenance() -> None:
    """Tidy all tables, and verify some of their files."""
    tidy_tables()


@dg.op(pool=POOL)
def write_data_docs(context: dg.OpExecutionContext, build_context: dg.ResourceParam[BuildContext]) -> None:
    """Have Great Expectations validate all rows of every table, and write a page for each."""
    tag_launch(context.instance, context.run.run_id)
    spark = build_context.spark if build_context.checks == "spark" else None
    failed = []
    for table in TABLES.values():
        results = check_tables(build_context.lake, table, None, build_context.docs, spark, is_documented=True)
        failed += [f"{table.full_name}: {one.check.sentence}" for one in results if not one.is_held]
    context.add_output_metadata(
        {
            "data_docs": dg.MetadataValue.url(f"{DATA_DOCS}/"),
            "directory": dg.MetadataValue.path(str(build_context.docs)),
            "tables": len(TABLES),
            "failed": failed,
        }
    )
    if failed:
        raise dg.Failure(
            f"{len(failed)} checks fail, among them {failed[0]}; {build_context.docs} has a page for each table",
            allow_retries=False,
        )


@dg.job(description="Validate all tables with Great Expectations and write their Data Docs.")
def data_docs() -> None:
    """Write the Data Docs of all tables."""
    write_data_docs()
