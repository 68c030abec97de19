"""The stage that brings training runs up to date: any number of them in one step, each through all three tiers.

One step, because a run whose file is broken must stop alone: Dagster blocks, retries and fails steps, not partitions.
The step tells of every partition by itself (docs/decisions/0010).
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial

import dagster as dg

from assets import dagster_events
from assets.build import gold
from assets.build.comparisons import make_pairs
from assets.build.context import BuildContext
from assets.build.freshness import Look, mark_landing
from assets.build.tiers import TIERS, build_tier, list_left_out, select_tables
from assets.checks import outcomes
from assets.checks.outcomes import asset_checks, read_verdicts
from assets.launch_checks import LaunchChecks, check_specs
from assets.launch_locks import tag_launch
from assets.pool_wait import POOL
from assets.specs import asset_key, asset_spec, on_new_content, tables_of
from gold import attested_runs
from lake.engines import engine
from lake.errors import ContractBroken, LakeError, is_stop
from lake.tables import Table
from report.terminal_text import make_printable

# Enough at once to fill the cores and to share the price of a look at each table; few enough to be told of early.
_RUNS_AT_ONCE = 32
_FAULTS_SHOWN = 5
RETRIES = dg.RetryPolicy(max_retries=3, delay=1, backoff=dg.Backoff.EXPONENTIAL, jitter=dg.Jitter.PLUS_MINUS)
OWN_TABLES = tuple(table for tables in TIERS.values() for table in tables)
TABLES = (*OWN_TABLES, *gold.PAIR_TABLES)


class LaunchConfig(dg.Config):
    """What a launch may choose."""

    engine: str = "polars"
    full: bool = False


@dg.multi_asset(
    name="training_runs",
    specs=[
        *(asset_spec(table) for table in OWN_TABLES),
        # Pairs are made with their runs; where only a part of a run was made by hand, they follow by themselves.
        *(asset_spec(table, condition=on_new_content()) for table in gold.PAIR_TABLES),
    ],
    check_specs=list(check_specs(TABLES)),
    can_subset=True,
    backfill_policy=dg.BackfillPolicy.single_run(),
    retry_policy=RETRIES,
    pool=POOL,
)
def training_runs(
    context: dg.AssetExecutionContext, config: LaunchConfig, build_context: dg.ResourceParam[BuildContext]
) -> Iterator[object]:
    """Bring the runs of this launch up to date."""
    tag_launch(context.instance, context.run.run_id, engine=config.engine)
    with retry_if_transient():
        try:
            yield from _Launch(context, config, build_context).work()
        except BaseException:
            with suppress(LakeError):  # the next launch adds what this one could not
                build_context.lake.log_statements()
            raise
        build_context.lake.log_statements()


def count_runs(run_ids: Sequence[str]) -> str:
    """How many runs, in words."""
    return "1 run" if len(run_ids) == 1 else f"{len(run_ids):,} runs"


class Stopped(dg.DagsterExecutionInterruptedError, dg.DagsterError):
    """Someone stopped the launch. Dagster retries an interruption like any failure, but not an error of its own."""


@contextmanager
def retry_if_transient() -> Iterator[None]:
    """Let Dagster try again what may mend by itself, and nothing else: it would retry any exception, a stop too."""
    try:
        yield
    except dg.Failure:
        raise
    except (KeyboardInterrupt, dg.DagsterExecutionInterruptedError) as error:
        raise Stopped from error
    except Exception as error:
        if is_stop(error):
            raise Stopped from error
        if isinstance(error, LakeError):
            raise dg.Failure(str(error), allow_retries=error.is_transient) from error
        raise dg.Failure(f"{type(error).__name__}: {error}", allow_retries=False) from error


class _Launch:
    """One launch: what was asked, and what failed so far."""

    def __init__(self, context: dg.AssetExecutionContext, config: LaunchConfig, build_context: BuildContext) -> None:
        # One listing for all that this launch decides; bronze lists a directory again when it has read it.
        build_context = replace(build_context, zone=build_context.zone.listed_once())
        if config.full:
            build_context = replace(build_context, lake=build_context.lake.rewriting())
        build_context = replace(build_context, lake=build_context.lake.noting(engine=config.engine))
        self._context = context
        self._build_context = build_context
        self._is_full = config.full
        self._make = partial(
            build_tier, build_context, engines=partial(engine, config.engine, build_context.spark), full=config.full
        )
        self._event_writer = dagster_events.EventWriter(
            context.instance, build_context.lake, TABLES, engine=config.engine
        )
        wanted = tables_of(context.selected_asset_keys, TABLES)
        self._tables = select_tables(table.full_name for table in wanted)
        self._tiers = list(self._tables)
        self._is_paired = not set(wanted).isdisjoint(gold.PAIR_TABLES)
        self._checking = LaunchChecks(build_context, context.selected_asset_check_keys, list_left_out(self._tables))
        self._faults: dict[str, LakeError] = {}

    def work(self) -> Iterator[object]:
        for table in (*TABLES, outcomes.TABLE):  # nobody else writes while this launch does
            self._build_context.lake.replace_outdated(table)
        run_ids = self._list_requested()
        for first in range(0, len(run_ids), _RUNS_AT_ONCE):
            yield from self._build_some(run_ids[first : first + _RUNS_AT_ONCE])
        if self._is_paired:
            yield from self._replays()
            yield from self._pairs([run_id for run_id in self._context.partition_keys if run_id not in self._faults])
        if not self._tiers and not self._is_paired:
            self._checking.check(TABLES, None)
            self._checking.record()
        yield from self._checking.evaluations(self._context.instance)
        if self._faults:
            raise self._failure()

    def _list_requested(self) -> list[str]:
        """The runs of this launch, less those that an earlier try of it has made, or has seen fail for good."""
        if not self._tiers:
            return []  # only pairs, or only checks
        asked = list(self._context.partition_keys)
        if not self._context.retry_number:
            return asked
        last = {asset_key(table.full_name) for table in self._tables[self._tiers[-1]]}
        kinds = {dg.DagsterEventType.ASSET_MATERIALIZATION, dg.DagsterEventType.ASSET_OBSERVATION}
        made = set()
        for entry in self._context.instance.all_logs(self._context.run.run_id, of_type=kinds):
            event = entry.dagster_event
            if event is None or event.asset_key not in last or event.partition is None:
                continue
            reason = dagster_events.find_terminal_failure(event)
            if reason is not None:
                self._faults[event.partition] = ContractBroken(reason)
            elif event.is_step_materialization:
                made.add(event.partition)
        done = self._finish(made) if self._context.selected_asset_check_keys else made
        return [run_id for run_id in asked if run_id not in done and run_id not in self._faults]

    def _finish(self, made: set[str]) -> set[str]:
        """Those of the runs made that were checked too; a check that failed is not held again."""
        lake, tables = self._build_context.lake, [table for some in self._tables.values() for table in some]
        verdicts = read_verdicts(lake, Look(lake), made, asset_checks(tables, list_left_out(self._tables)))
        for run_id, verdict in verdicts.items():
            for one in verdict.failed:
                if one.is_blocking:
                    self._faults.setdefault(run_id, ContractBroken(f"check failed: {one}"))
        return {run_id for run_id, verdict in verdicts.items() if not verdict.unchecked}

    def _build_some(self, run_ids: Sequence[str]) -> Iterator[object]:
        """Some runs, tier by tier; one that fails goes no further."""
        standing = list(run_ids)
        for place, tier in enumerate(self._tiers):
            if tier == "bronze":
                yield from self._event_writer.observe_landings(self._marks(standing))
            self._build_context.listener.on_begun(f"{tier} of {count_runs(standing)}")
            made = self._make(tier, standing, tables=self._tables)
            yield from self._event_writer.materialise_tier(made)
            faults = {one.run_id: one.fault for one in made if one.fault is not None}
            yield from self._fail(faults, self._tables_from(place))
            standing = [one.run_id for one in made if one.fault is None]
            # Records may keep events until something else is logged: now, and not when the next tier is made.
            self._context.log.info("made %s of %s", tier, count_runs(standing))
            self._begin_checks(tier, standing)
            broken = self._checking.check(self._tables[tier], standing)
            yield from self._fail(broken, self._tables_from(place + 1))
            standing = [run_id for run_id in standing if run_id not in broken]
        self._checking.record()

    def _replays(self) -> Iterator[object]:
        """Say of runs that are not in this launch that their attestation tokens are now in another run too, or not."""
        written = gold.flag_replays(self._build_context.lake)
        yield from self._event_writer.materialise_partitions(written)
        self._faults |= self._checking.check([attested_runs.TABLE], [one.run_id for one in written])

    def _pairs(self, run_ids: Sequence[str]) -> Iterator[object]:
        """Pair runs with their baselines; a changed baseline also brings the pairs of other runs up to date."""
        lake = self._build_context.lake
        self._build_context.listener.on_begun("pairs")
        made, faults = make_pairs(
            lake, self._context.partition_keys if self._is_full else (), self._build_context.margin
        )
        written = {(one.table, one.run_id): one for one in made}
        yield from self._fail(faults, gold.PAIR_TABLES)
        finished = sorted({*run_ids, *(run_id for _, run_id in written)} - faults.keys())
        for table in gold.PAIR_TABLES:
            snapshot = lake.snapshot(table)
            for run_id in finished:
                written.setdefault((table.full_name, run_id), snapshot.partition(run_id))
        yield from self._event_writer.materialise_partitions(written.values())
        self._begin_checks("pairs", finished)
        yield from self._fail(self._checking.check(gold.PAIR_TABLES, finished), ())
        self._checking.record()

    def _begin_checks(self, what: str, run_ids: Sequence[str]) -> None:
        if self._context.selected_asset_check_keys and run_ids:
            self._build_context.listener.on_begun(f"checks of {what}, {count_runs(run_ids)}")

    def _marks(self, run_ids: Sequence[str]) -> dict[str, str]:
        zone, marks = self._build_context.zone, {}
        complete, _ = zone.run_ids()
        for run_id in set(complete).intersection(run_ids):
            with suppress(LakeError):  # a directory that cannot be listed says so when it is read
                marks[run_id] = mark_landing(zone, run_id, self._build_context.keys)
        return marks

    def _tables_from(self, place: int) -> list[Table]:
        """The tables of this launch from one tier on."""
        return [table for tier in self._tiers[place:] for table in self._tables[tier]]

    def _fail(self, faults: Mapping[str, LakeError], tables: Sequence[Table]) -> Iterator[dg.AssetObservation]:
        """Write the reason on the page of every partition that will not be made for it."""
        self._faults |= faults
        for run_id, fault in faults.items():
            self._context.log.error("%s: %s", run_id, make_printable(str(fault)))
            self._build_context.listener.on_failed(run_id, fault)
            for table in tables:
                yield dagster_events.observe_failure(table, run_id, str(fault), is_transient=fault.is_transient)

    def _failure(self) -> dg.Failure:
        shown = [f"{run_id}: {fault}" for run_id, fault in list(self._faults.items())[:_FAULTS_SHOWN]]
        more = len(self._faults) - len(shown)
        return dg.Failure(
            f"{len(self._faults)} of {len(self._context.partition_keys)} runs failed; the others are up to date. "
            + "; ".join(shown)
            + (f"; and {more} more" if more else ""),
            metadata={"failed_runs": dg.MetadataValue.json({name: str(fault) for name, fault in self._faults.items()})},
            allow_retries=any(fault.is_transient for fault in self._faults.values()),
        )
