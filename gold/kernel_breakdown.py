"""One row per kind and name of GPU work in a run: how often it ran, how long, and its share of all GPU time."""

from __future__ import annotations

import narwhals as nw

from gold.percentiles import find_percentiles
from lake.frames import Frame, divide_down, divide_to_fraction, join_reasons, select_declared
from lake.tables import RUN_ID, Table, float64, int64, text
from silver.patterns import KINDS
from silver.steps import EVIDENCE

TABLE = Table(
    tier="gold",
    name="kernel_breakdown",
    grain="One row per run, kind and kernel name; a run whose GPU was not observed has none.",
    key=("kind", "name"),
    columns=(
        RUN_ID,
        text("kind", "What the time went into.", one_of=KINDS),
        text("name", "Name of the kernel, copy or memset; empty where the source gives none."),
        int64("kernels_count", "How often it ran, over all ranks.", minimum=1),
        int64("ranks_count", "Ranks on which it ran.", minimum=1),
        int64("total_ns", "Time of all of them together; what ran side by side counts each for itself.", minimum=0),
        int64("mean_ns", "Mean duration, its fraction of a nanosecond cut off.", minimum=0),
        int64("p50_ns", "Median duration: the observed one at rank ceil(n / 2).", minimum=0),
        int64("p95_ns", "Duration at rank ceil(0.95 n).", minimum=0),
        int64("p99_ns", "Duration at rank ceil(0.99 n).", minimum=0),
        float64(
            "share_fraction",
            "Share of the run's summed GPU time; null where that is zero.",
            nullable=True,
            minimum=0,
            maximum=1,
        ),
        text("evidence", "Where the numbers come from.", one_of=EVIDENCE),
        text("reason", "Why there is no share, as a sentence.", nullable=True),
    ),
)
_KEYS = ("run_id", "kind", "name")


def measure(spans: Frame) -> Frame:
    """Sum durations as they are, overlap included: it is work, not elapsed time, that is shared out here."""
    work = spans.filter(nw.col("is_gpu")).select(
        "run_id", "rank", "kind", "duration_ns", name=nw.col("name").fill_null("")
    )
    sums = work.group_by(*_KEYS).agg(
        kernels_count=nw.len().cast(nw.Int64),
        ranks_count=nw.col("rank").n_unique().cast(nw.Int64),
        total_ns=nw.col("duration_ns").sum().cast(nw.Int64),
    )
    sums = sums.with_columns(_run_ns=nw.col("total_ns").sum().over("run_id").cast(nw.Int64))
    sums = sums.join(find_percentiles(work, _KEYS, "duration_ns"), on=list(_KEYS), how="inner")
    return select_declared(
        sums.with_columns(
            mean_ns=divide_down(nw.col("total_ns"), nw.col("kernels_count")),
            share_fraction=divide_to_fraction(nw.col("total_ns"), nw.col("_run_ns")),
            evidence=nw.lit("measured"),
            reason=join_reasons((nw.col("_run_ns") == 0, "all GPU work of the run lasted no time at all")),
        ),
        TABLE,
    )
