"""The stage that sets all runs against each other: how overhead grows, what it would become, its history."""

from collections.abc import Iterator

import dagster as dg

from assets import dagster_events
from assets.build.comparisons import COMPARISON_TABLES, build_families, build_published
from assets.build.context import BuildContext
from assets.build.forecasts import build_forecasts
from assets.build.histories import build_histories
from assets.launch_checks import LaunchChecks, check_specs
from assets.launch_locks import tag_launch
from assets.pool_wait import POOL
from assets.specs import asset_spec, on_new_content, tables_of
from assets.training_runs import RETRIES, retry_if_transient

TABLES = COMPARISON_TABLES


class ComparisonConfig(dg.Config):
    """What a launch may choose."""

    full: bool = False


@dg.multi_asset(
    name="comparisons",
    specs=[asset_spec(table, None, on_new_content()) for table in TABLES],
    check_specs=list(check_specs(TABLES)),
    can_subset=True,
    retry_policy=RETRIES,
    pool=POOL,
)
def comparisons(
    context: dg.AssetExecutionContext, config: ComparisonConfig, build_context: dg.ResourceParam[BuildContext]
) -> Iterator[object]:
    """Bring all comparisons across runs up to date; only what has changed is read."""
    tag_launch(context.instance, context.run.run_id)
    lake = build_context.lake.rewriting() if config.full else build_context.lake
    wanted = tables_of(context.selected_asset_keys, TABLES)
    with retry_if_transient():
        for table in TABLES:  # nobody else writes while this launch does
            lake.replace_outdated(table)
        if wanted:
            build_context.listener.on_begun("comparisons across runs, and forecasts")
            build_families(lake, full=config.full)
            build_published(lake)
            build_forecasts(lake, full=config.full)
            build_histories(lake, full=config.full)
        event_writer = dagster_events.EventWriter(context.instance, lake, TABLES)
        for table in wanted:
            snapshot = lake.snapshot(table)
            yield event_writer.materialise_table(table, [snapshot.partition(run_id) for run_id in snapshot.run_ids])
        checking = LaunchChecks(build_context, context.selected_asset_check_keys)
        if context.selected_asset_check_keys:
            build_context.listener.on_begun("checks of comparisons")
        checking.check(TABLES, None)
        checking.record()
        lake.log_statements()
        yield from checking.evaluations(context.instance)
