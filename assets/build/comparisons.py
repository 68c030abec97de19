"""What is measured across runs: pairs, families of pairs, and what others have published; each is made when stale."""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Any

from assets.build.catalogue import select
from assets.build.freshness import Look, explain_stale, fingerprint
from assets.build.gold import PAIR_TABLES
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
    step_times,
    throughput_overhead,
    time_breakdown,
)
from gold.comparison import Sides
from gold.margin import MARGIN
from lake.errors import explain, is_stop, naming
from lake.tables import Scope
from silver import runs, throughput

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    import pyarrow as pa

    from assets.build.freshness import Snapshots
    from gold.pairs import Pair
    from lake.errors import LakeError
    from lake.snapshot import Written
    from lake.store import Lake
    from lake.tables import Table

    Rows = list[dict[str, Any]]

COMPARISON_TABLES = select("gold", Scope.FAMILY, Scope.REGIME, Scope.WORKLOAD, Scope.LAKE)


@dataclass(frozen=True)
class StalePair:
    """A run whose pair tables must be made, and why; without a pair where it has none any more."""

    run_id: str
    pair: Pair | None
    partners: tuple[str, ...]
    made_from: Mapping[Table, str]
    why: str
    # Other groups of repeats, whose noise stands in for missing ones.
    noise: tuple[tuple[str, ...], ...] = ()
    margin: float = MARGIN


@dataclass(frozen=True)
class StaleFamily:
    """A partition of `gold.scaling` that must be made, and why; without members where its last pair is gone."""

    partition: str
    family: str
    regime: str
    members: tuple[str, ...]
    made_from: str
    why: str


# -- pairs ------------------------------------------------------------------------------------------------------------


def make_pairs(
    lake: Lake, full: Collection[str] = (), margin: float = MARGIN
) -> tuple[list[Written], dict[str, LakeError]]:
    """Bring every pair up to date; one that cannot be made fails alone: what was written, and what failed by run."""
    written: list[Written] = []
    faults: dict[str, LakeError] = {}
    for stale in stale_pairs(lake, full, margin=margin):
        try:
            written += make_pair(lake, stale)
        except BaseException as error:
            if is_stop(error):
                raise
            faults[stale.run_id] = explain(error, stale.run_id)
    return written, faults


def stale_pairs(
    lake: Snapshots, full: Collection[str] = (), only: Collection[str] | None = None, margin: float = MARGIN
) -> list[StalePair]:
    """The pairs that are not made from their runs as they are, and those of the runs in `full`; or `only` some.

    Runs of a pair are all repeats of both sides. Where a side has fewer than 3, other repeats on the same hardware and
    software are read as well, so a new one of them makes the pair stale too.
    """
    look = lake if isinstance(lake, Look) else Look(lake)
    only = None if only is None else set(only)
    found = look.pairs
    lent = pairs.find_noise_groups(found, look.measured_runs)
    stale = []
    for run_id, one in found.items():
        if only is not None and run_id not in only:
            continue
        partners, noise = [*one.repeats, *one.baselines], lent.get(run_id, [])
        read = (run_id, *partners, *(name for group in noise for name in group))
        made_from = {
            table: fingerprint(
                table, [[name, *look.list_marks(table, name)] for name in read], astuple(one), noise, margin
            )
            for table in PAIR_TABLES
        }
        others = f"its baseline {one.baseline_run_id}" if partners else "the runs that it may be paired with"
        changed = f"the run, {others}, a repeat or the margin changed"
        reasons = (explain_stale(look, table, run_id, mark, changed) for table, mark in made_from.items())
        why = next((why for why in reasons if why is not None), None)
        if look.snapshot(pairs.TABLE).mark(run_id) is None and not look.snapshot(pairs.TABLE).outdated:
            why = "its pair was never made"
        elif why is None and not set(full).isdisjoint((run_id, *partners)):
            why = "its pair is to be made again"
        if why is not None:
            stale.append(StalePair(run_id, one, tuple(partners), made_from, why, tuple(noise), margin))
    held = {run_id for table in PAIR_TABLES for run_id in look.snapshot(table).run_ids}
    for run_id in sorted(held - set(found)):
        if only is not None and run_id not in only:
            continue
        nothing = {table: fingerprint(table, run_id, "no pair") for table in PAIR_TABLES}
        stale.append(StalePair(run_id, None, (), nothing, "its pair is stale: it has none any more"))
    return stale


def make_pair(lake: Lake, stale: StalePair) -> list[Written]:
    """The tables of one pair; empty where it has no baseline, but for the row that says why."""
    frames = {table: table.arrow_schema.empty_table() for table in PAIR_TABLES}
    if stale.pair is not None:
        with naming(f"comparing {stale.run_id} with {', '.join(stale.partners) or 'nothing'}"):
            frames |= compare_pair(lake, stale.pair, stale.noise, stale.margin)
    read = sorted({stale.run_id, *stale.partners, *(name for group in stale.noise for name in group)})
    return [
        lake.replace(table, stale.run_id, frame, stale.made_from[table], read=read) for table, frame in frames.items()
    ]


def compare_pair(
    lake: Lake, pair: Pair, noise: Sequence[Sequence[str]] = (), margin: float = MARGIN
) -> dict[Table, pa.Table]:
    """All comparisons of a pair, whether the lake keeps it or a person asks for it; nothing is written."""
    frames = {pairs.TABLE: pairs.measure(pair)}
    if pair.baseline_run_id is None:
        return frames

    def read(table: Table, names: Sequence[str]) -> list[pa.Table]:
        return [_rows(lake, table, name) for name in names]

    def list_sides(table: Table) -> tuple[list[Rows], list[Rows], list[list[Rows]]]:
        groups = ([rows.to_pylist() for rows in read(table, names)] for names in (ours, theirs, *noise))
        candidate, baseline, *others = groups
        return candidate, baseline, others

    ours, theirs = pair.candidates, pair.baselines
    run, other = (read(runs.TABLE, names)[0].to_pylist()[0] for names in (ours, theirs))
    tee, baseline = (read(time_breakdown.TABLE, names[:1])[0] for names in (ours, theirs))
    steps = Sides(*list_sides(step_times.TABLE))
    frames[step_overhead.TABLE] = step_overhead.measure(pair, run, steps, (tee, baseline), margin)
    frames[overhead_breakdown.TABLE] = overhead_breakdown.measure(pair, tee, baseline)
    costs, baseline_costs = (read(operation_costs.TABLE, names) for names in (ours, theirs))
    frames[operation_overhead.TABLE] = operation_overhead.measure(pair, costs, baseline_costs, margin)
    logs = Sides(*list_sides(throughput.TABLE))
    frames[throughput_overhead.TABLE] = throughput_overhead.measure(pair, (run, other), logs, margin)
    energies, baseline_energies = (read(step_energy.TABLE, names) for names in (ours, theirs))
    frames[energy_overhead.TABLE] = energy_overhead.measure(pair, run, energies, baseline_energies, steps, margin)
    return frames


# -- comparisons ------------------------------------------------------------------------------------------------------


def build_families(lake: Lake, *, full: bool = False) -> list[Written]:
    """Bring every family up to date; gives the partitions of those that were not."""
    return [make_family(lake, one) for one in stale_families(lake, full=full)]


def stale_families(lake: Snapshots, *, full: bool = False) -> list[StaleFamily]:
    """The families of which a member's pair is new; all of them if `full`."""
    look = lake if isinstance(lake, Look) else Look(lake)
    families: dict[tuple[str, str], list[str]] = {}
    for run_id, pair_of_run in look.pairs.items():
        family = look.measured_runs[run_id]["family"]
        if pair_of_run.is_tee_overhead and family is not None:
            families.setdefault((family, str(pair_of_run.regime)), []).append(run_id)
    snapshot = look.snapshot(scaling.TABLE)
    stale = []
    for (family, regime), members in sorted(families.items()):
        partition = scaling.partition(family, regime)
        made_from = fingerprint(scaling.TABLE, [[name, *look.list_marks(scaling.TABLE, name)] for name in members])
        why = explain_stale(look, scaling.TABLE, partition, made_from, "a pair of its family changed")
        if full or why is not None:
            why = why or f"{scaling.TABLE.full_name} is to be made again"
            stale.append(StaleFamily(partition, family, regime, tuple(members), made_from, why))
    known = {scaling.partition(family, regime) for family, regime in families}
    for partition in sorted(set(snapshot.run_ids) - known):
        nothing = fingerprint(scaling.TABLE, partition, "no family")
        why = f"{scaling.TABLE.full_name} is stale: the last pair of a family is gone"
        stale.append(StaleFamily(partition, "", "", (), nothing, why))
    return stale


def make_family(lake: Lake, stale: StaleFamily) -> Written:
    """The partition of one family; empty where its last pair is gone."""
    rows = scaling.TABLE.arrow_schema.empty_table()
    if stale.members:
        points = [point for name in stale.members for point in _list_points(lake, name)]
        rows = scaling.measure(stale.family, stale.regime, points)
    return lake.replace(scaling.TABLE, stale.partition, rows, stale.made_from, read=stale.members)


def build_published(lake: Lake) -> Written:
    """Write down what others have published."""
    return lake.replace(published.TABLE, published.COLLECTION, published.rows(), _fingerprint_published())


def explain_published(look: Look) -> str | None:
    """Why what others have published is not in the lake as this version has it; none where it is."""
    return explain_stale(look, published.TABLE, published.COLLECTION, _fingerprint_published())


def _fingerprint_published() -> str:
    return fingerprint(published.TABLE, published.PUBLISHED.sha256)


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
            "evidence": row["evidence"],
            "world_size": row["world_size"],
            "bucket_cap_mib": run["bucket_cap_mib"],
            "sealed_message_count": _per_cell(coverage, "promised_message_count", cells),
            "sealed_bytes": _per_cell(coverage, "promised_bytes", cells),
        }


def _per_cell(coverage: list[dict[str, Any]], name: str, cells: int) -> int | None:
    return sum(row[name] or 0 for row in coverage) // cells if cells else None


def _rows(lake: Lake, table: Table, run_id: str) -> pa.Table:
    return lake.scan(table, [run_id]).collect().to_arrow()
