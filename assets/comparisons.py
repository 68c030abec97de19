"""The stage that sets all runs against each other: how a family's toll grows, and what others have published."""

from collections.abc import Iterator

import dagster as dg

from assets import events
from assets.checking import Checking, check_specs
from assets.pairing import COMPARISON_TABLES, publish, scale
from assets.processes import tag
from assets.specs import asset_spec, on_new_content, tables_of
from assets.training_runs import RETRIES, retried_if_transient
from assets.waiting import POOL
from assets.workplace import Workplace

TABLES = COMPARISON_TABLES


class Comparing(dg.Config):
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
    context: dg.AssetExecutionContext, config: Comparing, workplace: dg.ResourceParam[Workplace]
) -> Iterator[object]:
    """Bring all comparisons across runs up to date; only what has changed is read."""
    tag(context.instance, context.run.run_id)
    lake = workplace.lake.rewriting() if config.full else workplace.lake
    wanted = tables_of(context.selected_asset_keys, TABLES)
    with retried_if_transient():
        if wanted:
            scale(lake, full=config.full)
            publish(lake)
        telling = events.Telling(context.instance, lake, TABLES)
        for table in wanted:
            snapshot = lake.snapshot(table)
            yield telling.whole(table, [snapshot.partition(run_id) for run_id in snapshot.run_ids])
        checking = Checking(workplace, context.selected_asset_check_keys)
        checking.hold(TABLES, None)
        checking.record()
        yield from checking.results()
