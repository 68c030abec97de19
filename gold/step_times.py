"""One row per run and source: how long a step of the whole job takes, and how far that can be relied on."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from gold.logged_steps import read_log
from gold.step_cycles import find_cycle, keep_whole_cycles, mean_step, measure_scatter
from gold.step_series import RANK_RULES, TIMINGS, Series, read_numbers
from gold.traced_steps import is_tied, read_trace
from lake.tables import RUN_ID, Table, float64, int64, text
from silver.steps import EVIDENCE
from silver.throughput import PERIODS

SOURCES = ("log", "trace")
# Mean and median of the steps that differ by more than this are both said.
TELLING_FRACTION = 0.02

TABLE = Table(
    tier="gold",
    name="step_times",
    grain="One row per run and source that timed its steps: the training log, or the trace.",
    key=("source",),
    inputs=("silver.steps", "silver.spans", "silver.collectives", "silver.throughput", "silver.runs"),
    columns=(
        RUN_ID,
        text(
            "source",
            "log: the training log (silver.throughput); trace: the profiler's trace (silver.steps).",
            one_of=SOURCES,
        ),
        text("period", "What one step of the row is.", one_of=PERIODS),
        text(
            "timed_by",
            "host_step: from start to end on the host; gpu_completion: from the end of the GPU work that one step "
            "launched to the end of the next one's; log_duration: as the log says; log_elapsed: between two records "
            "of the log.",
            nullable=True,
            one_of=TIMINGS,
        ),
        text(
            "rank_rule",
            "Whose step is the step of the job. one_rank: only one was recorded; median_rank: the median over ranks, "
            "because collectives tie them; slowest_rank: that of the rank with the longest mean step.",
            nullable=True,
            one_of=RANK_RULES,
        ),
        int64("ranks_count", "Ranks whose steps were timed.", minimum=0),
        int64(
            "step_ns", "Mean step of the job over whole cycles, rounded down: the headline.", nullable=True, minimum=0
        ),
        int64("median_step_ns", "Median of the same steps, rounded down.", nullable=True, minimum=0),
        int64("steps_count", "Steps in whole cycles, warm-up aside: those that the mean is taken over.", minimum=0),
        int64("found_warmup_steps_count", "Steps of all ranks that are left out as warm-up.", minimum=0),
        int64(
            "cycle_steps_count",
            "Steps after which the pattern of collectives repeats (gradient accumulation); 1 where it does not.",
            nullable=True,
            minimum=1,
        ),
        int64(
            "effective_steps_count",
            "Independent steps that those steps are worth, because neighbours are alike, rounded down; null below 8 "
            "whole cycles.",
            nullable=True,
            minimum=1,
        ),
        float64(
            "log_standard_error",
            "Standard error of the logarithm of the mean step within this run, corrected for autocorrelation; it says "
            "nothing about other runs. Null below 8 whole cycles.",
            nullable=True,
            minimum=0,
        ),
        float64(
            "rounding_fraction",
            "How far the mean may lie from the true one because the log rounds: half of the unit of its last digit, of "
            "the mean, where steps differ by less than that; else 0. Null for a trace.",
            nullable=True,
            minimum=0,
        ),
        int64("batch_size", "Samples of a step, where the log says one number for all of them.", nullable=True),
        float64(
            "samples_per_step",
            "Samples of a step as the log's rate and the step's time make them: the median.",
            nullable=True,
            minimum=0,
        ),
        float64("tokens_per_step", "The same in tokens.", nullable=True, minimum=0),
        int64(
            "gpu_lag_ns",
            "Longest time from the end of a step on the host to the end of the GPU work that it launched.",
            nullable=True,
            minimum=0,
        ),
        float64("gpu_lag_fraction", "The same, of the time that all steps take.", nullable=True, minimum=0),
        float64(
            "recording_slowdown_ratio",
            "What the profiler costs: mean traced step over mean step of the log without the profiler; the manifest's "
            "ratio where only that is known.",
            nullable=True,
            minimum=0,
        ),
        text(
            "evidence",
            "measured: the source times the step; modelled: its bounds were inferred; unobservable: there is no step.",
            one_of=EVIDENCE,
        ),
        text("caveat", "What a reader should know of the value, as sentences.", nullable=True),
        text("reason", "Why a number is null, as sentences.", nullable=True),
    ),
)


def measure(observed: pa.Table, log: pa.Table, runs: pa.Table) -> pa.Table:
    """Take the mean over whole cycles of the job's steps, from each source by itself, and say what limits it.

    `observed` are rows of `traced_steps.observe_steps`, `log` of `logged_steps.observe_log`, `runs` of silver.runs,
    all of one run.
    """
    run = {**dict.fromkeys(("found_world_size", "world_size", "recording_slowdown_ratio")), **_first(runs)}
    traced = read_trace(observed, run["found_world_size"] or run["world_size"])
    logged = read_log(log, _find_window(observed), is_tied=is_tied(observed))
    found = [_Row(source, series) for source, series in (("log", logged), ("trace", traced)) if series is not None]
    burden = _find_burden({row.source: row for row in found}, run["recording_slowdown_ratio"])
    run_id = {**_first(log), **_first(observed)}.get("run_id")
    return pa.Table.from_pylist([row.fill(run_id, *burden) for row in found], schema=TABLE.arrow_schema)


def _first(rows: pa.Table) -> dict[str, Any]:
    return rows.slice(0, 1).to_pylist()[0] if rows.num_rows else {}


def _find_window(observed: pa.Table) -> tuple[int, int] | None:
    """The time in which the profiler recorded steps."""
    if not observed.num_rows:
        return None
    begins = read_numbers(observed, "ts_ns")
    return int(begins.min()), int((begins + read_numbers(observed, "duration_ns")).max())


@dataclass(frozen=True)
class _Row:
    """What one source says of the steps of a run."""

    source: str
    series: Series

    def mean(self) -> int | None:
        """The mean step over whole cycles; none where no step has a length."""
        if self.series.reason is not None or not self.series.values:
            return None
        return mean_step(self.series) or None

    def fill(self, run_id: str | None, ratio: float | None, burden: str | None) -> dict[str, Any]:
        """The row of the table."""
        series = self.series
        row: dict[str, Any] = {
            **dict.fromkeys(TABLE.column_names),
            "run_id": run_id,
            "source": self.source,
            "period": series.period,
            "timed_by": series.timed_by,
            "rank_rule": series.rank_rule,
            "ranks_count": series.ranks_count,
            "steps_count": 0,
            "found_warmup_steps_count": series.warmup_count,
            "rounding_fraction": series.rounding_fraction,
            **asdict(series.work),
            "gpu_lag_ns": series.lag_ns,
            "gpu_lag_fraction": series.lag_fraction,
            "recording_slowdown_ratio": ratio,
            "evidence": series.evidence,
        }
        step = self.mean()
        if step is None:
            nothing = f"the {series.period}s have no length" if series.values else "no step lies outside warm-up"
            row |= {"evidence": "unobservable", "reason": series.reason or nothing}
            return row | {"caveat": "; ".join(series.caveats) or None}
        cycle = find_cycle(series)
        kept = keep_whole_cycles(series, cycle)
        scatter = measure_scatter(kept, cycle or 1)
        row |= {
            "step_ns": step,
            "median_step_ns": kept.median(),
            "steps_count": len(kept.values),
            "cycle_steps_count": cycle or 1,
            "effective_steps_count": scatter.effective_count,
            "log_standard_error": scatter.log_standard_error,
            "reason": scatter.reason,
        }
        said = [*_compare_with_median(step, row["median_step_ns"], series.period), *series.caveats]
        if cycle is None:
            said.append("collectives follow no cycle that repeats: all steps are taken")
        elif cycle > 1:
            said.append(f"collectives repeat every {cycle} steps: only whole cycles are taken")
        said += [burden] if burden and self.source == "trace" else []
        return row | {"caveat": "; ".join(said) or None}


def _compare_with_median(mean: int, median: int, period: str) -> list[str]:
    """Say where the two differ: some steps then cost far more than most do."""
    if not median:
        return [f"the median {period} has no length"] if mean else []
    ratio = mean / median
    if abs(ratio - 1) <= TELLING_FRACTION:
        return []
    return [f"the mean {period} is {ratio:.2f} times the median one, so {period}s differ and the median hides a part"]


def _find_burden(rows: dict[str, _Row], claimed: float | None) -> tuple[float | None, str | None]:
    """What the profiler costs a step, from the run's own log where it has one of steps, else as its manifest says."""
    log, trace = rows.get("log"), rows.get("trace")
    bare = log.mean() if log and log.series.period == "step" and log.series.is_bare else None
    traced = trace.mean() if trace else None
    if bare and traced:
        ratio = traced / bare
        return ratio, f"traced steps take {ratio:.2f} times as long as those of the log without the profiler"
    if claimed is not None:
        return claimed, f"traced steps take {claimed:.2f} times as long as others, as the manifest says"
    is_unplaced = log is not None and log.mean() is not None and not log.series.is_placed
    why = "the log does not say when its steps ran" if is_unplaced else "no step without it was logged"
    return None, f"what the profiler costs is not known, because {why}"
