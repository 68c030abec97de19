"""`teetotal forget`: a run leaves the landing zone, the lake with all its versions, and Dagster's records."""

from __future__ import annotations

import re
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from assets.build.catalogue import TABLES
from assets.checks import outcomes
from assets.training_runs import training_runs
from lake.digest import combine
from lake.errors import EvidenceRejected, LakeError, nearest
from lake.forgetting import Removed, drop_runs, list_pending, purge_history, remove_notes, set_pending
from lake.identity import slug
from lake.open_tables import is_table
from pipelines.cli import baselines
from pipelines.cli.progress import ProgressListener
from pipelines.cli.run import claim_writer, compare_again
from pipelines.definitions import build_context
from pipelines.forgotten_records import ForgottenRecords
from pipelines.instance import open_instance, report_unreachable_records
from pipelines.partitions import list_known
from silver import runs as conformed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from assets.build.context import BuildContext
    from lake.landing_zone import LandingZone
    from lake.store import Lake
    from pipelines.settings import Settings

# Most of the work on a table is waiting, for a disk or for a store.
_TABLES_AT_ONCE = 8
T = TypeVar("T")


@dataclass
class Forgotten:
    """What was removed."""

    landed_files: int = 0
    landed_bytes: int = 0
    tables: list[Removed] = field(default_factory=list)
    launches: int = 0
    events: int = 0
    pages: int = 0
    baselines: list[str] = field(default_factory=list)
    # Why pairs and comparisons could not be computed without the run; the run itself is gone all the same.
    fault: LakeError | None = None


@dataclass(frozen=True)
class Found:
    """What there is of a run before it is forgotten."""

    run_id: str
    landed_files: int
    tables: int
    rows: int


def find_runs(chosen: Settings, run_ids: Sequence[str]) -> list[Found]:
    """What there is of each run; one that neither the landing zone, nor the lake, nor the records know is refused."""
    place = build_context(chosen)
    snapshots = [place.lake.snapshot(table) for table in (*TABLES.values(), outcomes.TABLE)]
    own = [snapshot for snapshot in snapshots if snapshot.table.partition_key == "run_id"]
    # How checks ended is kept by run too, but also under names that are no runs': those of comparisons across runs.
    stored = {run_id for snapshot in own if snapshot.table is not outcomes.TABLE for run_id in snapshot.run_ids}
    complete, incomplete = place.zone.run_ids()
    known = {*complete, *incomplete, *stored, *list_pending(place.lake.place)}
    if not known.issuperset(run_ids):
        with report_unreachable_records(chosen.home), open_instance(chosen.home) as records:
            known |= set(list_known(records))
    for run_id in run_ids:
        if slug(run_id) not in known:
            raise EvidenceRejected(f"no run {run_id!r} in {chosen.landing} or {chosen.lake}", nearest(run_id, known))
    found = []
    for run_id in run_ids:
        partitions = [one for snapshot in own if (one := snapshot.partition(run_id)).files]
        files = len(place.zone.files(run_id)) + 1 if run_id in complete else 0
        found.append(Found(run_id, files, len(partitions), sum(one.rows for one in partitions)))
    return found


def list_mentions(lake: Lake, run_ids: Sequence[str]) -> list[str]:
    """One sentence for each other run that names one of these: that is its own claim, and stays."""
    return [
        f"{other}: its manifest still names {claims[name]} ({name}); land it anew without that to forget the name too"
        for other, claims in sorted(lake.skipping_damaged().snapshot(conformed.TABLE).index().items())
        for name in ("baseline", "repeat_of")
        if other not in run_ids and claims[name] in run_ids
    ]


def forget_runs(chosen: Settings, run_ids: Sequence[str], tell: Callable[[str], None]) -> Forgotten:
    """Remove all that there is of some runs; a command that is stopped halfway finishes when it is repeated.

    Rows go first, then pairs and comparisons are computed without them, then the files and log entries of all earlier
    versions are deleted, and Dagster's records last.
    """
    place, done = build_context(chosen), Forgotten()
    wanted = sorted({*run_ids, *list_pending(place.lake.place)})
    with report_unreachable_records(chosen.home), open_instance(chosen.home) as records:
        with claim_writer(records, training_runs, tell):
            set_pending(place.lake.place, wanted)
            _remove_landed(place.zone, wanted, done)
            rows = _state_empty(place.lake, wanted)
            dropped = _map_tables(_list_tables(place), partial(drop_runs, place.lake.place, run_ids=wanted))
            rows.update(dropped)
        try:
            compare_again(chosen, ProgressListener(), tell)
        except LakeError as error:
            done.fault = error
        with claim_writer(records, training_runs, tell):
            purged = _map_tables(_list_tables(place), partial(purge_history, place.lake.place, run_ids=wanted))
            done.tables = [replace(removed, rows=rows[name]) for name, removed in purged.items()]
            remove_notes(place.lake.place, wanted)
            done.pages = _remove_pages(chosen.docs, wanted)
            done.baselines = _remove_baselines(place.lake, wanted)
            forgotten = ForgottenRecords(records, chosen.home, wanted)
            forgotten.remove()
            done.launches, done.events = forgotten.launches, forgotten.events
            set_pending(place.lake.place, ())
    return done


def _state_empty(lake: Lake, run_ids: Sequence[str]) -> Counter[str]:
    """Commit the runs' partitions without rows, so that a signed statement says that they are empty, and why.

    Gives the rows that each table held. The log of statements has them before the entries of the tables' own logs go.
    """
    rows: Counter[str] = Counter()
    stating = lake.noting(note="forgotten")
    for table in (*TABLES.values(), outcomes.TABLE):
        if table.partition_key != "run_id":
            continue
        snapshot = lake.snapshot(table)
        for run_id in sorted(set(run_ids).intersection(snapshot.run_ids)):
            rows[table.full_name] += snapshot.partition(run_id).rows
            stating.replace(table, run_id, table.arrow_schema.empty_table(), combine([run_id, "forgotten"]), read=())
    lake.log_statements()
    return rows


def _map_tables(names: Sequence[str], work: Callable[[str], T]) -> dict[str, T]:
    """Do some work on each table, several at once; after an error no further table is begun."""
    pool = ThreadPoolExecutor(_TABLES_AT_ONCE, thread_name_prefix="forget")
    try:
        return dict(zip(names, pool.map(work, names), strict=True))
    finally:
        pool.shutdown(cancel_futures=True)


def _list_tables(place: BuildContext) -> list[str]:
    """All tables of the lake, those that an earlier version left over too."""
    lake = place.lake
    tiers = sorted({name.partition(".")[0] for name in (*TABLES, outcomes.TABLE.full_name)})
    return [name for name in lake.list_stored(tiers) if is_table(lake.place.child(*name.split(".")))]


def _remove_landed(zone: LandingZone, run_ids: Sequence[str], done: Forgotten) -> None:
    for run_id in run_ids:
        files, size = zone.remove(run_id)
        done.landed_files += files
        done.landed_bytes += size


def _remove_pages(docs: Path, run_ids: Sequence[str]) -> int:
    """Delete the pages of checks that show a run: its own, and those of several runs that name it."""
    named = re.compile("|".join(rf"(?<![\w.-]){re.escape(run_id)}(?![\w.-])" for run_id in run_ids))
    pages = [path for table in TABLES.values() for path in (docs / table.tier / table.name).glob("*.html")]
    gone = [path for path in pages if path.stem in run_ids or named.search(path.read_text("utf-8", "replace"))]
    for path in gone:
        path.unlink()
    return len(gone)


def _remove_baselines(lake: Lake, run_ids: Sequence[str]) -> list[str]:
    """Take away the names of baselines that stood for one of these runs."""
    known = baselines.read_baselines(lake.place)
    gone = [name for name, runs in known.items() if not set(runs.split(",")).isdisjoint(run_ids)]
    for name in gone:
        baselines.remove_baseline(lake.place, name)
    return gone
