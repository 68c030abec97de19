"""`teetotal run`: bring every run that is new or stale up to date, through Dagster, and go on where one fails."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import uuid4

import dagster as dg
from dagster._core.execution.plan.objects import ErrorSource

from assets.catalogue import table
from assets.comparisons import comparisons
from assets.lineage import UPSTREAM, needed
from assets.making import part, up_to_date
from assets.processes import lock_launch, tags_of
from assets.training_runs import training_runs
from assets.waiting import claim_pool
from lake.errors import ContractBroken, EvidenceRejected, LakeError, nearest
from lake.identity import slug
from pipelines.definitions import build, workplace
from pipelines.fitting import advice, memory
from pipelines.instance import instance, reaching_records
from pipelines.jobs import COMPARE, INGEST, limited
from pipelines.partitions import known, range_tags, register, stretches

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from lake.snapshot import Written
    from pipelines.progress import Watcher
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


def run(
    chosen: Settings,
    watcher: Watcher,
    run_ids: Sequence[str] = (),
    *,
    engine: str = "polars",
    full: bool = False,
    check: bool = True,
    to: Sequence[str] = (),
    tell: Callable[[str], None] = lambda _: None,
) -> list[Outcome]:
    """Make the runs that were named, or all, up to some tables, or all; a fresh one is left alone unless `full`."""
    names = needed(table(name).full_name for name in to or UPSTREAM)
    tables = part(names)
    place = workplace(chosen, watcher)
    for name in place.zone.remove_abandoned():
        tell(f"removed {place.zone.place}/{name}, the copy that a landing left when it was stopped")
    complete, _ = place.zone.run_ids()
    for run_id in run_ids:
        if slug(run_id) not in complete:
            raise EvidenceRejected(f"no run {run_id!r} in {place.zone.place}", nearest(run_id, complete))
    wanted = list(run_ids) or complete
    fresh = set() if full else up_to_date(place.lake, place.zone, wanted, place.keys, tables)
    stale = [run_id for run_id in wanted if run_id not in fresh]
    watcher.total = len(stale)
    hint = None if engine == "spark" else advice({run_id: place.zone.files(run_id) for run_id in stale}, memory())
    if hint is not None:
        tell(hint)
    if stale:
        _launch(chosen, watcher, stale, {"engine": engine, "full": full}, names, check=check, tell=tell)
    return [
        Outcome(run_id, is_skipped=True)
        if run_id in fresh
        else Outcome(run_id, tuple(watcher.written[run_id]), watcher.faults.get(run_id))
        for run_id in wanted
    ]


def _launch(
    chosen: Settings,
    watcher: Watcher,
    run_ids: list[str],
    config: dict[str, object],
    names: Collection[str],
    *,
    check: bool,
    tell: Callable[[str], None],
) -> None:
    """One launch for each stretch of runs, then one for what is measured across runs, of the tables named."""
    definitions = build(chosen, watcher)
    jobs = (definitions.resolve_job_def(str(job.name)) for job in (INGEST, COMPARE))
    ingest, compare = (limited(job, names, check=check) for job in jobs)
    with reaching_records(chosen.home), instance(chosen.home) as records:
        register(records, run_ids)
        for stretch in stretches(run_ids, known(records)):
            if ingest is None:
                break
            with _ready_to_write(records, training_runs, tell) as (run_id, tags):
                result = ingest.execute_in_process(
                    run_id=run_id,
                    instance=records,
                    tags={**tags, **range_tags(stretch)},
                    run_config={**_SILENT, "ops": {"training_runs": {"config": config}}},
                    raise_on_error=False,
                )
            if _is_stopped(result):
                raise KeyboardInterrupt
            if not result.success and watcher.faults.keys().isdisjoint(stretch):
                raise _broken(result)  # no run's own fault: the watcher would have been told of it
        if compare is not None:
            with _ready_to_write(records, comparisons, tell) as (run_id, tags):
                compare.execute_in_process(run_id=run_id, instance=records, tags=tags, run_config=_SILENT)


@contextmanager
def _ready_to_write(
    records: dg.DagsterInstance, step: dg.AssetsDefinition, tell: Callable[[str], None]
) -> Iterator[tuple[str, dict[str, str]]]:
    """The id and the tags of a launch that may begin: its lock is held, and nobody else writes to the lake."""
    run_id = str(uuid4())
    with lock_launch(records, run_id), claim_pool(records, run_id, step.node_def.name, tell):
        yield run_id, tags_of(run_id)


def _is_stopped(result: dg.ExecuteInProcessResult) -> bool:
    """Whether a signal ended the launch."""
    return any(
        event.is_step_failure and event.step_failure_data.error_source is ErrorSource.INTERRUPT
        for event in result.all_events
    )


def _broken(result: dg.ExecuteInProcessResult) -> ContractBroken:
    failures = [event for event in result.all_events if event.is_step_failure]
    error = failures[-1].step_failure_data.error if failures else None
    return ContractBroken(
        f"launch {result.run_id} failed: {error.message.strip() if error else 'no step says why'}",
        "`teetotal ui` shows it with its log; if it is no fault of this machine, please report it",
    )
