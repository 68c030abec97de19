"""When things happen by themselves: every night what is stale, then the upkeep of the lake."""

from collections.abc import Iterator

import dagster as dg

from assets import comparisons
from assets.build.context import BuildContext
from assets.build.state import assess_runs
from assets.specs import asset_key
from assets.training_runs import TABLES
from pipelines.jobs import CATCH_UP, data_docs, maintenance
from pipelines.partitions import MANIFEST_TABLE, list_known, make_range_tags, plan_launches, register_runs


@dg.schedule(
    name="nightly",
    job=CATCH_UP,
    cron_schedule="0 2 * * *",
    execution_timezone="UTC",
    default_status=dg.DefaultScheduleStatus.RUNNING,
    description="Catches up on every run that is stale or not checked, also through new code; compares all runs anew.",
)
def nightly(
    context: dg.ScheduleEvaluationContext, build_context: dg.ResourceParam[BuildContext]
) -> Iterator[dg.RunRequest]:
    """One launch for each range of stale runs, and one for what is measured across runs."""
    complete, _ = build_context.zone.run_ids()
    states = assess_runs(
        build_context.lake, build_context.zone, complete, build_context.keys, margin=build_context.margin
    )
    register_runs(context.instance, complete)
    stale = [run_id for run_id in complete if states[run_id].needs_launch()]
    for neighbours, is_readable in plan_launches(build_context.zone, stale, list_known(context.instance)):
        yield dg.RunRequest(
            run_key=None,
            tags=make_range_tags(neighbours),
            asset_selection=[asset_key(table.full_name) for table in (TABLES if is_readable else [MANIFEST_TABLE])],
        )
    yield dg.RunRequest(run_key=None, asset_selection=[asset_key(table.full_name) for table in comparisons.TABLES])


maintenance_schedule = dg.ScheduleDefinition(
    name="maintenance",
    job=maintenance,
    cron_schedule="0 4 * * *",
    execution_timezone="UTC",
    default_status=dg.DefaultScheduleStatus.RUNNING,
    description="Checkpoints the logs of all tables and deletes files that no recent version holds.",
)

data_docs_schedule = dg.ScheduleDefinition(
    name="data_docs",
    job=data_docs,
    cron_schedule="0 5 * * 0",
    execution_timezone="UTC",
    default_status=dg.DefaultScheduleStatus.RUNNING,
    description="Every Sunday, has Great Expectations validate all tables and write their Data Docs.",
)
