"""One row per collective that several ranks recorded: how far apart they arrived, and what the rest waited."""

from __future__ import annotations

import narwhals as nw

from lake.frames import Frame, join_reasons, select_declared, to_flag
from lake.tables import RUN_ID, Table, boolean, int32, int64, text
from silver.collectives import COLLECTIVES, LIBRARIES
from silver.steps import EVIDENCE

TABLE = Table(
    tier="gold",
    name="stragglers",
    grain="One row per collective that more than one rank recorded.",
    key=("match_id",),
    inputs=("silver.collectives", "silver.clock_offsets"),
    is_empty_without_first_input=True,
    columns=(
        RUN_ID,
        text("match_id", "Equal on all ranks for the same collective."),
        text("library", "Library that ran it.", one_of=LIBRARIES),
        text("collective", "What it does.", one_of=COLLECTIVES),
        int64("step_number", "Earliest step that launched it.", nullable=True, minimum=0),
        int64("ranks_count", "Ranks of the run that recorded it.", minimum=2),
        int64(
            "group_size", "Ranks that take part; those without a trace are in no number here.", nullable=True, minimum=1
        ),
        int64(
            "buffer_bytes",
            "Size of the whole buffer, the largest where ranks differ; a barrier has none.",
            nullable=True,
            minimum=0,
        ),
        int64(
            "transfer_ns",
            "Shortest duration over ranks: of the rank that came last, so it approximates the transfer itself, sealing "
            "included.",
            nullable=True,
            minimum=0,
        ),
        int64(
            "total_wait_ns", "What the durations exceed the transfer by, summed over ranks.", nullable=True, minimum=0
        ),
        int64("skew_ns", "From the first rank's arrival to the last one's, on one clock.", nullable=True, minimum=0),
        int64(
            "skew_uncertainty_ns",
            "The skew is wrong by no more: the two largest clock uncertainties of its ranks together.",
            nullable=True,
            minimum=0,
        ),
        boolean("is_skew_certain", "Whether the skew exceeds its uncertainty.", nullable=True),
        int32(
            "late_rank",
            "Rank that arrived last: the earliest that it can have come is later than the latest of every other; null "
            "where the clocks do not decide it.",
            nullable=True,
            minimum=0,
        ),
        text("evidence", "Whether the collective was timed on every rank that recorded it.", one_of=EVIDENCE),
        text("reason", "What could not be seen, and why, as sentences.", nullable=True),
    ),
)
_KEYS = ("run_id", "match_id")
_INT = nw.Int64


def measure(collectives: Frame, clock_offsets: Frame) -> Frame:
    """Compare starts on aligned clocks only, and durations only where every rank's was timed."""
    offsets = clock_offsets.select("run_id", "rank", "uncertainty_ns")
    seen = collectives.filter(nw.col("ranks_count") > 1).join(offsets, on=["run_id", "rank"], how="left")
    seen = seen.with_columns(
        _one=nw.lit(1).cast(_INT),
        _low_ns=nw.col("aligned_ts_ns") - nw.col("uncertainty_ns"),
        _high_ns=nw.col("aligned_ts_ns") + nw.col("uncertainty_ns"),
    )
    seen = seen.with_columns(
        _from_last=nw.col("_one").cum_sum(reverse=True).over(*_KEYS, order_by=["_high_ns", "rank", "ordinal"])
    )
    seen = seen.with_columns(
        _latest_ns=nw.when(nw.col("_from_last") == 1).then(nw.col("_high_ns")).max().over(*_KEYS),
        _next_latest_ns=nw.when(nw.col("_from_last") == 2).then(nw.col("_high_ns")).max().over(*_KEYS),
    )
    others = nw.when(nw.col("_from_last") == 1).then(nw.col("_next_latest_ns")).otherwise(nw.col("_latest_ns"))
    seen = seen.with_columns(
        _late_rank=nw.when(nw.col("_low_ns") > others).then(nw.col("rank")),
        _place=nw.col("_one").cum_sum(reverse=True).over(*_KEYS, order_by=["uncertainty_ns", "rank", "ordinal"]),
        _is_timed=to_flag(~nw.col("duration_ns").is_null()),
        _is_aligned=to_flag(~nw.col("aligned_ts_ns").is_null() & ~nw.col("uncertainty_ns").is_null()),
    )
    seen = seen.with_columns(_doubt_ns=nw.when(nw.col("_place") <= 2).then(nw.col("uncertainty_ns")))
    together = seen.group_by(*_KEYS).agg(
        library=nw.col("library").min(),
        collective=nw.col("collective").min(),
        step_number=nw.col("step_number").min(),
        ranks_count=nw.col("ranks_count").max(),
        group_size=nw.col("group_size").max(),
        buffer_bytes=nw.col("buffer_bytes").max(),
        late_rank=nw.col("_late_rank").min(),
        _rows=nw.len().cast(_INT),
        _timed=nw.col("_is_timed").sum().cast(_INT),
        _aligned=nw.col("_is_aligned").sum().cast(_INT),
        _shortest_ns=nw.col("duration_ns").min(),
        _total_ns=nw.col("duration_ns").sum().cast(_INT),
        _first_ns=nw.col("aligned_ts_ns").min(),
        _last_ns=nw.col("aligned_ts_ns").max(),
        _doubt_ns=nw.col("_doubt_ns").sum().cast(_INT),
    )
    return select_declared(_add_evidence(together), TABLE)


def _add_evidence(together: Frame) -> Frame:
    """Give times and skew where all ranks have them, else the reason why not."""
    is_timed = nw.col("_timed") == nw.col("_rows")
    is_aligned = nw.col("_aligned") == nw.col("_rows")
    skew = nw.col("_last_ns") - nw.col("_first_ns")
    return together.with_columns(
        transfer_ns=nw.when(is_timed).then(nw.col("_shortest_ns")),
        total_wait_ns=nw.when(is_timed).then(nw.col("_total_ns") - nw.col("_shortest_ns") * nw.col("_rows")),
        skew_ns=nw.when(is_aligned).then(skew),
        skew_uncertainty_ns=nw.when(is_aligned).then(nw.col("_doubt_ns")),
        is_skew_certain=nw.when(is_aligned).then(skew > nw.col("_doubt_ns")),
        late_rank=nw.when(is_aligned).then(nw.col("late_rank")),
        evidence=nw.when(is_timed).then(nw.lit("measured")).otherwise(nw.lit("unobservable")),
        reason=join_reasons(
            (~is_timed, "on some rank only the call was seen, not the transfer"),
            (~is_aligned, "the clock offset of some rank is not known, so its arrival cannot be compared"),
            (
                is_aligned & nw.col("late_rank").is_null(),
                "which rank came last is undecided: their clocks are not known well enough",
            ),
            (
                nw.col("buffer_bytes").is_null() & (nw.col("collective") != "barrier"),
                "the trace does not give its size",
            ),
        ),
    )
