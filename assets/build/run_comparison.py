"""A comparison of any two runs of the lake, or groups of repeats, that a person asks for: nothing is written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import narwhals as nw
import polars as pl

from assets.build.comparisons import compare_pair
from assets.build.freshness import Look
from assets.build.measured_runs import require_measured
from bronze import trace_events
from gold import comparison, exposure, operation_costs, pairs, step_work, work_changes
from gold.inference import RunValue, compare_runs
from gold.margin import MARGIN
from gold.pairs import explain_incomparable
from gold.run_differences import list_differences, make_pair
from lake.errors import EvidenceRejected
from silver import device_samples, runs, spans, steps

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa

    from gold.pairs import Pair
    from lake.store import Lake
    from lake.tables import Table

    Rows = list[dict[str, Any]]

_LONGEST_SHAPE = 120


@dataclass(frozen=True)
class RunComparison:
    """Two groups of runs side by side: what they say of themselves, and all that is measured of both."""

    pair: Pair
    differences: Rows
    tables: Mapping[Table, pa.Table]
    kernels: Rows
    operations: Rows
    collectives: Rows
    # Peak memory of a GPU; None where one side was not sampled.
    memory: dict[str, Any] | None
    notes: tuple[str, ...]

    def rows(self, table: Table) -> Rows:
        """The rows of one comparison, in the order of their key."""
        return sorted(self.tables[table].to_pylist(), key=lambda row: [row[name] for name in table.row_key])


def select_pair(lake: Lake, baseline: str, candidate: str) -> tuple[Pair, pairs.Index]:
    """The pair of two sides as a person names them: a run, which stands for its repeats too, or run ids with commas."""
    index = Look(lake).measured_runs
    pair = make_pair(index, split_side(index, baseline), split_side(index, candidate))
    reason = explain_incomparable(index, pair)
    if reason is not None:
        raise EvidenceRejected(reason, "name two runs of one workload: their software and settings may differ")
    return pair, index


def split_side(index: pairs.Index, side: str) -> list[str]:
    """The runs that a person names, each of which the lake has."""
    names = [name.strip() for name in side.split(",") if name.strip()]
    for name in names:
        require_measured(index, name)
    if not names:
        raise EvidenceRejected("a side names no run", "expected a run id, or several with commas between them")
    return names


def compare_runs_of(lake: Lake, baseline: str, candidate: str, margin: float = MARGIN) -> RunComparison:
    """Compare by the functions that make the lake's own pairs, then kernels, operations and collectives in total."""
    pair, index = select_pair(lake, baseline, candidate)
    noise = pairs.find_noise_groups({pair.run_id: pair}, index).get(pair.run_id, [])
    sides = pair.candidates, pair.baselines
    has_shapes = all(_has_shapes(lake, name) for side in sides for name in side)
    listed: dict[str, Callable[[str], Rows]] = {
        "kernels": lambda name: _measure_kernels(lake, name, has_shapes=has_shapes),
        "operations": lambda name: step_work.list_operations(list_rows(lake, operation_costs.TABLE, [name])),
        "collectives": lambda name: step_work.sum_collectives(list_rows(lake, exposure.TABLE, [name])),
    }
    changes: dict[str, Rows] = {}
    silent: dict[tuple[str, ...], list[str]] = {}
    for what, list_work in listed.items():
        ours, theirs = ([list_work(name) for name in side] for side in sides)
        recorded = zip((*sides[0], *sides[1]), (*ours, *theirs), strict=True)
        lacking = tuple(name for name, rows in recorded if not rows)
        # Where a side recorded nothing of a kind, all of the other would look new.
        is_compared = any(ours) and any(theirs)
        changes[what] = (
            work_changes.measure(*([run for run in side if run] for side in (ours, theirs)), margin=margin)
            if is_compared
            else []
        )
        if lacking and any((*ours, *theirs)):
            silent.setdefault(lacking, []).append(what)
    notes = [pair.caveat] if pair.caveat else []
    notes += [f"{' and '.join(kinds)}: none recorded by {', '.join(names)}" for names, kinds in silent.items()]
    return RunComparison(
        pair,
        list_differences(*(list_rows(lake, runs.TABLE, names) for names in sides)),
        compare_pair(lake, pair, noise, margin),
        changes["kernels"],
        changes["operations"],
        changes["collectives"],
        _compare_memory(lake, pair, margin),
        tuple(notes),
    )


def list_rows(lake: Lake, table: Table, names: Sequence[str]) -> Rows:
    """Rows of some runs, in the order of the names."""
    rows = lake.scan(table, names).collect().to_dicts()
    return sorted(rows, key=lambda row: names.index(row["run_id"]))


def _measure_kernels(lake: Lake, run_id: str, *, has_shapes: bool) -> Rows:
    work, stepped = (nw.from_native(lake.scan(table, [run_id])) for table in (spans.TABLE, steps.TABLE))
    shapes = nw.from_native(_find_shapes(lake, run_id)) if has_shapes else None
    made: pl.LazyFrame = step_work.measure_kernels(work, stepped, shapes).to_native()
    return made.collect(engine="streaming").sort(step_work.KEY).to_dicts()


def _find_shapes(lake: Lake, run_id: str) -> pl.LazyFrame:
    """The shapes of the inputs of each operator, where the profiler recorded them."""
    shape = pl.col("args").str.json_path_match("$['Input Dims']").str.slice(0, _LONGEST_SHAPE)
    return (
        lake.scan(trace_events.TABLE, [run_id])
        .filter(pl.col("category") == "cpu_op", pl.col("args").str.contains("Input Dims", literal=True))
        .select("rank", "source_sha256", "external_id", shape=shape)
        .drop_nulls()
        .unique(["rank", "source_sha256", "external_id"])
    )


def _has_shapes(lake: Lake, run_id: str) -> bool:
    return not _find_shapes(lake, run_id).head(1).collect().is_empty()


def _compare_memory(lake: Lake, pair: Pair, margin: float) -> dict[str, Any] | None:
    """Compare the peak of memory in use on any GPU, run by run."""
    is_memory = pl.col("quantity") == "memory_used"
    peaks = (
        lake.scan(device_samples.TABLE, [*pair.candidates, *pair.baselines])
        .filter(is_memory)
        .group_by("run_id")
        .agg(pl.col("value_number").max())
        .collect()
    )
    found = dict(peaks.iter_rows())
    sides = [[found[name] for name in names if name in found] for names in (pair.candidates, pair.baselines)]
    estimate = compare_runs(*([RunValue(value) for value in side] for side in sides), margin=margin)
    if estimate is None:
        return None
    counts = len(sides[0]), len(sides[1])
    return {
        "peak_bytes": int(max(sides[0])),
        "baseline_peak_bytes": int(max(sides[1])),
        "peak_ratio": estimate.ratio,
        "runs_count": counts[0],
        "baseline_runs_count": counts[1],
        "verdict_class": estimate.verdict_class,
        "verdict": comparison.format_verdict(estimate, counts, margin, "more"),
        "evidence": "measured",
    }
