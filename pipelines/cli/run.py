"""`teetotal run`: bring every run that is new or stale up to date, through Dagster, and go on where one fails."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING
from uuid import uuid4

import dagster as dg
from dagster._core.execution.plan.objects import ErrorSource

from assets.build.catalogue import UPSTREAM, list_required, table
from assets.build.comparisons import COMPARISON_TABLES
from assets.build.freshness import Look
from assets.build.gold import PAIR_TABLES
from assets.build.state import assess_comparisons, assess_gone, assess_runs, find_stale, list_left_over
from assets.build.state_memory import recall
from assets.build.tiers import select_tables
from assets.comparisons import comparisons
from assets.launch_locks import lock_launch, tags_of
from assets.pool_wait import claim_pool
from assets.training_runs import training_runs
from bronze import runs as landed
from gold import attested_runs
from lake.errors import ContractBroken, EvidenceRejected, LakeError, nearest
from lake.identity import slug
from lake.settled_runs import SettledRuns
from pipelines.cli.memory_advice import advise_memory, find_memory
from pipelines.cli.status import remember_lines
from pipelines.cli.stopping import is_stopped
from pipelines.definitions import build_context, build_definitions
from pipelines.instance import open_instance, report_unreachable_records
from pipelines.jobs import COMPARE, INGEST, limit_job
from pipelines.partitions import MANIFEST_TABLE, find_ranges, list_known, make_range_tags, plan_launches, register_runs
from pipelines.process_costs import keep_objects, start_without_pandas

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from lake.landing_zone import LandingZone
    from lake.snapshot import Written
    from lake.store import Lake
    from pipelines.cli.progress import ProgressListener
    from pipelines.settings import Settings

# A command tells what became of each run itself.
_SILENT = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


@dataclass(frozen=True)
class Outcome:
    """What became of one run: the tables written, or the reason why none was."""

    run_id: str
    written: tuple[Written, ...] = ()
    fault: LakeError | None = None
    is_skipped: bool = False


@dataclass(frozen=True)
class _LaunchPlan:
    """What a command has to launch: of some tables, with their checks or without."""

    names: Collection[str]
    check: bool
    config: dict[str, object]
    stale: list[str]
    # Runs that are no longer in the landing zone, and whose pairs are stale because a baseline changed.
    unpaired: list[str]
    is_compared: bool


def run(
    chosen: Settings,
    watcher: ProgressListener,
    run_ids: Sequence[str] = (),
    *,
    engine: str = "polars",
    full: bool = False,
    check: bool = True,
    to: Sequence[str] = (),
    tell: Callable[[str], None] = lambda _: None,
) -> list[Outcome]:
    """Build the named runs, or all, up to some tables, or all; what is up to date is left alone unless `full`.

    A check that failed before, on the same rows and by the same rules, is told again and not held again.
    """
    names = list_required(table(name).full_name for name in to or UPSTREAM)
    paired, compared = ([one for one in some if one.full_name in names] for some in (PAIR_TABLES, COMPARISON_TABLES))
    place = build_context(chosen, watcher)
    for name in place.zone.remove_abandoned():
        tell(f"removed {place.zone.place}/{name}, the copy that a landing left when it was stopped")
    for sentence in list_left_over(place.lake):
        tell(sentence)
    zone = place.zone.listed_once()
    complete, _ = zone.run_ids()
    for run_id in run_ids:
        if slug(run_id) not in complete:
            raise EvidenceRejected(f"no run {run_id!r} in {place.zone.place}", nearest(run_id, complete))
    wanted = list(run_ids) or complete
    assess = partial(
        assess_runs,
        place.lake,
        zone,
        keys=place.keys,
        tables=select_tables(names),
        pair_tables=paired,
        check=check,
        names=names,
        margin=place.margin,
    )
    states = assess(run_ids=wanted)
    stale = [run_id for run_id in wanted if full or states[run_id].needs_launch(check=check)]
    unpaired = _list_unpaired(place.lake, complete, place.margin) if paired and not run_ids else []
    across = assess_comparisons(place.lake, compared).values() if wanted else ()
    is_compared = bool(stale or unpaired) or any(state.needs_launch(check=check) for state in across)
    watcher.total = len(stale)
    _advise_memory(zone, engine, stale, tell)
    watcher.on_begun(f"{len(stale):,} of {len(wanted):,} runs to build or check: opening Dagster's records")
    if stale or unpaired or is_compared:
        config: dict[str, object] = {"engine": engine, "full": full}
        _launch(chosen, watcher, _LaunchPlan(names, check, config, stale, unpaired, is_compared), tell)
        if SettledRuns.is_kept(place.lake.place):  # what was built is settled now, and the next look goes on from there
            memory = recall(Look(place.lake))
            remember_lines(place.lake, zone, memory, assess(run_ids=stale, memory=memory), place.margin)
    if is_compared and not stale:
        tell("pairs or comparisons across runs were stale or not checked: brought up to date")
    faults: dict[str, LakeError | None] = {
        run_id: state.fault for run_id, state in states.items() if run_id not in stale
    }
    if not check:  # a check that failed before is failed still where the rows are the same
        faults |= {run_id: state.fault for run_id, state in assess(run_ids=stale).items()}
    faults |= watcher.faults
    faults |= {name: one.fault for (name, _), one in assess_comparisons(place.lake, compared).items() if one.failed}
    return [
        *(
            Outcome(run_id, tuple(watcher.written[run_id]), faults.get(run_id), is_skipped=run_id not in stale)
            for run_id in wanted
        ),
        # Of a pair whose run was not named, and of what is measured across runs.
        *(Outcome(name, fault=fault) for name, fault in faults.items() if name not in wanted),
    ]


def compare_again(chosen: Settings, watcher: ProgressListener, tell: Callable[[str], None]) -> None:
    """Bring pairs and comparisons up to date with the runs that the lake holds now, and make no run's own tables."""
    place = build_context(chosen, watcher)
    left = place.lake.snapshot(landed.TABLE).run_ids
    stale = {*assess_gone(place.lake, left, place.margin), *find_stale(Look(place.lake), [attested_runs.TABLE], left)}
    config: dict[str, object] = {"engine": "polars", "full": False}
    plan = _LaunchPlan(list_required(UPSTREAM), True, config, [], sorted(stale), True)
    _launch(chosen, watcher, plan, tell)


def _list_unpaired(lake: Lake, complete: Sequence[str], margin: float) -> list[str]:
    gone = set(lake.snapshot(landed.TABLE).run_ids) - set(complete)
    return sorted(assess_gone(lake, gone, margin)) if gone else []


def _advise_memory(zone: LandingZone, engine: str, run_ids: Sequence[str], tell: Callable[[str], None]) -> None:
    """Say so where a run is large for this machine."""
    files = {}
    for run_id in run_ids if engine != "spark" else ():
        with suppress(LakeError):  # a directory that cannot be listed says so when it is read
            files[run_id] = zone.files(run_id)
    hint = advise_memory(files, find_memory()) if files else None
    if hint is not None:
        tell(hint)


def _launch(chosen: Settings, watcher: ProgressListener, work: _LaunchPlan, tell: Callable[[str], None]) -> None:
    """One launch for each range of runs, then one for what is measured across runs, of the tables named."""
    if work.config["engine"] != "spark":  # whose driver may be handed values of pandas'
        start_without_pandas()
    with keep_objects():
        definitions = build_definitions(chosen, watcher)
        ingest, compare = (definitions.resolve_job_def(str(job.name)) for job in (INGEST, COMPARE))
    pairs = {one.full_name for one in PAIR_TABLES}.intersection(work.names)
    with report_unreachable_records(chosen.home), open_instance(chosen.home) as records:
        register_runs(records, [*work.stale, *work.unpaired])
        zone = build_context(chosen).zone
        planned = [
            *(
                (some, work.names if is_readable else [MANIFEST_TABLE.full_name])
                for some, is_readable in plan_launches(zone, work.stale, list_known(records))
            ),
            *((some, pairs) for some in find_ranges(work.unpaired, list_known(records))),
        ]
        limited = cache(partial(limit_job, ingest, check=work.check))
        for neighbours, names in planned:
            job = limited(frozenset(names))
            if job is None:
                continue
            before = dict(watcher.faults)
            with claim_writer(records, training_runs, tell) as (run_id, tags):
                result = job.execute_in_process(
                    run_id=run_id,
                    instance=records,
                    tags={**tags, **make_range_tags(neighbours)},
                    run_config={**_SILENT, "ops": {"training_runs": {"config": work.config}}},
                    raise_on_error=False,
                )
            _raise_if_stopped(result)
            if not result.success and watcher.faults == before:
                raise _describe_failed_launch(result)  # no run's own fault: the watcher would have been told of it
        job = limit_job(compare, work.names, check=work.check) if work.is_compared else None
        if job is not None:
            with claim_writer(records, comparisons, tell) as (run_id, tags):
                result = job.execute_in_process(
                    run_id=run_id,
                    instance=records,
                    tags=tags,
                    run_config={**_SILENT, "ops": {"comparisons": {"config": {"full": work.config["full"]}}}},
                    raise_on_error=False,
                )
            _raise_if_stopped(result)
            states = assess_comparisons(build_context(chosen).lake).values()
            if not result.success and not any(state.failed for state in states):
                raise _describe_failed_launch(result)


@contextmanager
def claim_writer(
    records: dg.DagsterInstance, step: dg.AssetsDefinition, tell: Callable[[str], None]
) -> Iterator[tuple[str, dict[str, str]]]:
    """The id and the tags of a launch that may begin: its lock is held, and nobody else writes to the lake."""
    run_id = str(uuid4())
    with lock_launch(records, run_id), claim_pool(records, run_id, step.node_def.name, tell):
        yield run_id, tags_of(run_id)


def _raise_if_stopped(result: dg.ExecuteInProcessResult) -> None:
    """End the command where a signal ended the launch, or came while Dagster kept it back and then let it go."""
    if is_stopped():
        raise KeyboardInterrupt
    for event in result.all_events:
        if event.is_step_failure and event.step_failure_data.error_source is ErrorSource.INTERRUPT:
            raise KeyboardInterrupt


def _describe_failed_launch(result: dg.ExecuteInProcessResult) -> ContractBroken:
    failures = [event for event in result.all_events if event.is_step_failure]
    error = failures[-1].step_failure_data.error if failures else None
    return ContractBroken(
        f"launch {result.run_id} failed: {error.message.strip() if error else 'no step says why'}",
        "`teetotal ui` shows it with its log; if it is no fault of this machine, please report it",
    )
