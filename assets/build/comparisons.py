"""What is measured across runs: pairs, families of pairs, and what others have published; each is made when stale."""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Any

from assets.build.freshness import Look
from assets.build.gold import PAIR_TABLES, find_origins, flag_replays, made_from
from gold import (
    energy_overhead,
    operation_costs,
    operation_overhead,
    overhead_breakdown,
    pairs,
    published,
    scaling,
    sealing_coverage,
    step_energy,
    step_overhead,
    throughput_overhead,
    time_breakdown,
)
from lake.errors import explain, is_stop, naming
from silver import runs, throughput

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    import pyarrow as pa

    from assets.build.freshness import Snapshots
    from gold.pairs import Pair
    from lake.errors import LakeError
    from lake.snapshot import Written
    from lake.store import Lake
    from lake.tables import Table

COMPARISON_TABLES = (scaling.TABLE, published.TABLE)


@dataclass(frozen=True)
class StalePair:
    """A run whose pair tables must be made, and why; without a pair where it has none any more."""

    run_id: str
    pair: Pair | None
    partners: tuple[str, ...]
    made_from: str
    why: str


@dataclass(frozen=True)
class StaleFamily:
    """A partition of `gold.scaling` that must be made, and why; without members where its last pair is gone."""

    partition: str
    family: str
    regime: str
    members: tuple[str, ...]
    made_from: str
    why: str


def build_comparisons(lake: Lake) -> list[Written]:
    """Bring pairs and families up to date: only those are read whose own runs have changed."""
    return [*flag_replays(lake), *build_pairs(lake), *build_families(lake), build_published(lake)]


# -- pairs ------------------------------------------------------------------------------------------------------------


def build_pairs(lake: Lake, full: Collection[str] = ()) -> list[Written]:
    """Bring every pair up to date; gives the partitions of those that were not."""
    written, faults = make_pairs(lake, full)
    for fault in faults.values():
        raise fault
    return written


def make_pairs(lake: Lake, full: Collection[str] = ()) -> tuple[list[Written], dict[str, LakeError]]:
    """The same, where a pair that cannot be made fails alone: what was written, and what failed by run."""
    written: list[Written] = []
    faults: dict[str, LakeError] = {}
    for stale in stale_pairs(lake, full):
        try:
            written += make_pair(lake, stale)
        except BaseException as error:
            if is_stop(error):
                raise
            faults[stale.run_id] = explain(error, stale.run_id)
    return written, faults


def stale_pairs(lake: Snapshots, full: Collection[str] = (), only: Collection[str] | None = None) -> list[StalePair]:
    """The pairs that are not made from their runs as they are, and those of the runs in `full`; or `only` some."""
    look = Look(lake)
    upstream, known = find_origins(look, PAIR_TABLES), _index_measured_runs(look)
    found = pairs.pair_runs(known)
    snapshots = [look.snapshot(table) for table in PAIR_TABLES]
    stale = []
    for run_id, one in found.items():
        if only is not None and run_id not in only:
            continue
        partners = _list_partners(one, known)
        fingerprint = made_from([[name, *upstream.marks(name)] for name in (run_id, *partners)], astuple(one))
        if snapshots[-1].mark(run_id) is None:
            why = "its pair was never made"
        elif any(not snapshot.is_made_from(run_id, fingerprint) for snapshot in snapshots):
            baseline = f"its baseline {one.baseline_run_id}" if partners else "the runs that it may be paired with"
            why = f"its pair is stale: the run or {baseline} changed"
        elif not full or set(full).isdisjoint((run_id, *partners)):
            continue
        else:
            why = "its pair is to be made again"
        stale.append(StalePair(run_id, one, tuple(partners), fingerprint, why))
    for run_id in sorted({run_id for snapshot in snapshots for run_id in snapshot.run_ids} - set(found)):
        if only is not None and run_id not in only:
            continue
        nothing = made_from(run_id, "no pair")
        stale.append(StalePair(run_id, None, (), nothing, "its pair is stale: it has none any more"))
    return stale


def make_pair(lake: Lake, stale: StalePair) -> list[Written]:
    """The tables of one pair; empty where it has no baseline, but for the row that says why."""
    frames = {table: table.arrow_schema.empty_table() for table in PAIR_TABLES}
    if stale.pair is not None:
        with naming(f"comparing {stale.run_id} with {', '.join(stale.partners) or 'nothing'}"):
            frames |= _compare(lake, stale.pair, stale.partners)
    return [lake.replace(table, stale.run_id, frame, stale.made_from) for table, frame in frames.items()]


def _compare(lake: Lake, pair: Pair, partners: tuple[str, ...]) -> dict[Table, pa.Table]:
    frames = {pairs.TABLE: pairs.measure(pair)}
    if partners:
        names = (pair.run_id, *partners)
        run, other = (_rows(lake, runs.TABLE, name).to_pylist()[0] for name in names[:2])
        tee, baseline, *repeats = (_rows(lake, time_breakdown.TABLE, name) for name in names)
        frames[step_overhead.TABLE] = step_overhead.measure(pair, run, tee, baseline, repeats)
        frames[overhead_breakdown.TABLE] = overhead_breakdown.measure(pair, tee, baseline)
        tee, baseline = (_rows(lake, operation_costs.TABLE, name) for name in names[:2])
        frames[operation_overhead.TABLE] = operation_overhead.measure(pair, tee, baseline)
        tee, baseline, *repeats = (_rows(lake, throughput.TABLE, name) for name in names)
        frames[throughput_overhead.TABLE] = throughput_overhead.measure(pair, (run, other), (tee, baseline), repeats)
        tee, baseline, *repeats = (_rows(lake, step_energy.TABLE, name) for name in names)
        frames[energy_overhead.TABLE] = energy_overhead.measure(pair, run, (tee, baseline), repeats)
    return frames


def _index_measured_runs(lake: Snapshots) -> pairs.Index:
    """What the log says of every run that has its own gold."""
    marks = lake.snapshot(time_breakdown.TABLE)
    index = lake.snapshot(runs.TABLE).index()
    return {run_id: run for run_id, run in index.items() if marks.mark(run_id) is not None}


def _list_partners(pair: Pair, index: pairs.Index) -> list[str]:
    """The baseline, and the repeats of the baseline."""
    if pair.baseline_run_id is None:
        return []
    baseline = pair.baseline_run_id
    repeats = [
        name for name, run in sorted(index.items()) if run["repeat_of"] == baseline and run["regime"] == "cc_off"
    ]
    return [baseline, *repeats]


# -- comparisons ------------------------------------------------------------------------------------------------------


def build_families(lake: Lake, *, full: bool = False) -> list[Written]:
    """Bring every family up to date; gives the partitions of those that were not."""
    return [make_family(lake, one) for one in stale_families(lake, full=full)]


def stale_families(lake: Snapshots, *, full: bool = False) -> list[StaleFamily]:
    """The families of which a member's pair is new; all of them if `full`."""
    look = Look(lake)
    index = _index_measured_runs(look)
    families: dict[tuple[str, str], list[str]] = {}
    for run_id, pair_of_run in pairs.pair_runs(index).items():
        family = index[run_id]["family"]
        if pair_of_run.baseline_run_id is not None and pair_of_run.regime is not None and family is not None:
            families.setdefault((family, pair_of_run.regime), []).append(run_id)
    upstream, snapshot = find_origins(look, [scaling.TABLE]), look.snapshot(scaling.TABLE)
    stale = []
    for (family, regime), members in sorted(families.items()):
        partition = scaling.partition(family, regime)
        fingerprint = made_from([[name, *upstream.marks(name)] for name in members])
        if full or not snapshot.is_made_from(partition, fingerprint):
            why = "it was never made" if snapshot.mark(partition) is None else "a pair of its family changed"
            stale.append(StaleFamily(partition, family, regime, tuple(members), fingerprint, why))
    known = {scaling.partition(family, regime) for family, regime in families}
    for partition in sorted(set(snapshot.run_ids) - known):
        nothing = made_from(partition, "no family")
        stale.append(StaleFamily(partition, "", "", (), nothing, "its last pair is gone"))
    return stale


def make_family(lake: Lake, stale: StaleFamily) -> Written:
    """The partition of one family; empty where its last pair is gone."""
    rows = scaling.TABLE.arrow_schema.empty_table()
    if stale.members:
        points = [point for name in stale.members for point in _list_points(lake, name)]
        rows = scaling.measure(stale.family, stale.regime, points)
    return lake.replace(scaling.TABLE, stale.partition, rows, stale.made_from)


def build_published(lake: Lake) -> Written:
    """Write down what others have published."""
    return lake.replace(published.TABLE, published.PUBLISHED_RUN, published.rows(), _fingerprint_published())


def is_published(lake: Snapshots) -> bool:
    """Whether what others have published is in the lake as it is in the catalogue."""
    return lake.snapshot(published.TABLE).is_made_from(published.PUBLISHED_RUN, _fingerprint_published())


def _fingerprint_published() -> str:
    return made_from(published.PUBLISHED.sha256)


def _list_points(lake: Lake, run_id: str) -> Iterator[dict[str, Any]]:
    """A run as a point of its family: its overhead, and what it must seal per rank and step."""
    run = _rows(lake, runs.TABLE, run_id).to_pylist()[0]
    cells = _rows(lake, time_breakdown.TABLE, run_id).num_rows
    coverage = _rows(lake, sealing_coverage.TABLE, run_id).to_pylist()
    for row in _rows(lake, step_overhead.TABLE, run_id).to_pylist():
        if row["slowdown_ratio"] is None:
            continue
        yield {
            "tee_run_id": run_id,
            "baseline_run_id": row["baseline_run_id"],
            "overhead_ns": row["overhead_ns"],
            "slowdown_ratio": row["slowdown_ratio"],
            "world_size": row["world_size"],
            "bucket_cap_mib": run["bucket_cap_mib"],
            "sealed_message_count": _per_cell(coverage, "promised_message_count", cells),
            "sealed_bytes": _per_cell(coverage, "promised_bytes", cells),
        }


def _per_cell(coverage: list[dict[str, Any]], name: str, cells: int) -> int | None:
    return sum(row[name] or 0 for row in coverage) // cells if cells else None


def _rows(lake: Lake, table: Table, run_id: str) -> pa.Table:
    return lake.scan(table, [run_id]).collect().to_arrow()
