"""One row per kind and size of collective: how fast it moved its bytes, as an algorithm sees it and as a link does."""

from __future__ import annotations

import narwhals as nw

from gold.percentiles import find_percentiles
from lake.frames import Frame, divide_to_fraction, join_reasons, select_declared, to_flag
from lake.tables import RUN_ID, Table, boolean, float64, int64, text
from silver.collectives import COLLECTIVES, LIBRARIES
from silver.steps import EVIDENCE

TABLE = Table(
    tier="gold",
    name="collective_bandwidth",
    grain="One row per library, collective, element type, size and number of ranks.",
    key=("library", "collective", "dtype", "buffer_bytes", "group_size"),
    inputs=("silver.collectives",),
    is_empty_without_first_input=True,
    columns=(
        RUN_ID,
        text("library", "Library that ran it.", one_of=LIBRARIES),
        text("collective", "What it does.", one_of=COLLECTIVES),
        text("dtype", "Element type, as the source spells it; empty where it names none."),
        int64("buffer_bytes", "Size of the whole buffer, the largest over ranks; 0 where none is known.", minimum=0),
        int64("group_size", "Ranks that take part; 0 where that is not known.", minimum=0),
        int64("collectives_count", "How many were seen, each counted once over its ranks.", minimum=1),
        int64("untimed_count", "Of these, those that no rank timed: they are in no other number.", minimum=0),
        int64(
            "transfer_total_ns",
            "Time of all: of each the shortest duration over ranks, which is that of the rank that came last.",
            nullable=True,
            minimum=0,
        ),
        int64(
            "transfer_p50_ns", "Median of these times: the observed one at rank ceil(n / 2).", nullable=True, minimum=0
        ),
        int64("transfer_min_ns", "The shortest of them.", nullable=True, minimum=0),
        float64(
            "algorithm_bytes_per_second",
            "Bytes of the whole buffers over that time: algbw of nccl-tests, `algo bw` of TraceLens.",
            nullable=True,
            minimum=0,
        ),
        float64(
            "bus_factor_ratio",
            "What each link moves per byte of the buffer (nccl-tests): 2 (n - 1) / n for all_reduce, (n - 1) / n for "
            "reduce_scatter, all_gather and all_to_all, 1 for broadcast, reduce, send and receive.",
            nullable=True,
            minimum=0,
        ),
        float64("bus_bytes_per_second", "Their product: busbw of nccl-tests.", nullable=True, minimum=0),
        float64("p50_bus_bytes_per_second", "The same of the median time.", nullable=True, minimum=0),
        float64("best_bus_bytes_per_second", "The same of the shortest time.", nullable=True, minimum=0),
        boolean(
            "is_lower_bound",
            "Whether some were recorded by fewer ranks than take part: their time may hold waiting, and the rates are "
            "at least these.",
        ),
        text("evidence", "Whether any of them was timed.", one_of=EVIDENCE),
        text("reason", "What could not be seen, and why, as sentences.", nullable=True),
    ),
)
_INT = nw.Int64
_KEYS = ("run_id", *TABLE.key)
_ONE = ("run_id", "match_id", "library", "collective")
# Per byte of the whole buffer a link moves (n - 1) / n so many times; once where the whole buffer passes it.
_PARTS = {"all_reduce": 2, "reduce_scatter": 1, "all_gather": 1, "all_to_all": 1}
_WHOLE = ("broadcast", "reduce", "send_recv", "send", "recv")
# Each rank states its own part, and which rank holds the whole is not told.
_PARTIAL = ("gather", "scatter")


def measure(collectives: Frame) -> Frame:
    """Take the shortest duration over ranks for the transfer, and all bytes over all time for the rate."""
    once = collectives.group_by(*_ONE).agg(
        dtype=nw.col("dtype").min(),
        buffer_bytes=nw.col("buffer_bytes").max(),
        group_size=nw.col("group_size").max(),
        _ranks=nw.col("ranks_count").max(),
        _transfer_ns=nw.col("duration_ns").min(),
    )
    is_alone = (nw.col("_ranks") < nw.col("group_size")).fill_null(True)
    once = once.with_columns(
        nw.col("buffer_bytes", "group_size").fill_null(0),
        dtype=nw.col("dtype").fill_null(""),
        untimed_count=to_flag(nw.col("_transfer_ns").is_null()),
        _alone=to_flag(is_alone & ~nw.col("_transfer_ns").is_null()),
    )
    found = once.group_by(*_KEYS).agg(
        nw.col("untimed_count").sum().cast(_INT),
        collectives_count=nw.len().cast(_INT),
        transfer_total_ns=nw.col("_transfer_ns").sum().cast(_INT),
        transfer_min_ns=nw.col("_transfer_ns").min(),
        _alone=nw.col("_alone").sum().cast(_INT),
    )
    found = found.join(find_percentiles(once, _KEYS, "_transfer_ns", "transfer_"), on=list(_KEYS), how="left")
    return select_declared(_add_rates(found), TABLE)


def _add_rates(found: Frame) -> Frame:
    """Rates where size, time and ranks are known; the reason where one is not."""
    size, timed = nw.col("group_size"), nw.col("collectives_count") - nw.col("untimed_count")
    is_timed = timed > 0
    factor: nw.Expr = nw.when(nw.col("collective").is_in(_WHOLE)).then(nw.lit(1.0))
    for collective, times in _PARTS.items():
        one = divide_to_fraction((size - 1) * times, size)
        factor = nw.when(nw.col("collective") == collective).then(one).otherwise(factor)
    is_sized = (nw.col("buffer_bytes") > 0) & ~nw.col("collective").is_in(_PARTIAL)

    def divide_bytes(count: nw.Expr, over: str) -> nw.Expr:
        return nw.when(is_sized).then(
            divide_to_fraction(nw.col("buffer_bytes").cast(nw.Float64) * count, nw.col(over)) * 1e9
        )

    one = nw.lit(1).cast(_INT)
    found = found.with_columns(
        transfer_total_ns=nw.when(is_timed).then(nw.col("transfer_total_ns")),
        bus_factor_ratio=factor,
        is_lower_bound=nw.col("_alone") > 0,
    )
    found = found.with_columns(
        algorithm_bytes_per_second=divide_bytes(timed, "transfer_total_ns"),
        _p50=divide_bytes(one, "transfer_p50_ns"),
        _best=divide_bytes(one, "transfer_min_ns"),
    )
    return found.with_columns(
        bus_bytes_per_second=nw.col("algorithm_bytes_per_second") * nw.col("bus_factor_ratio"),
        p50_bus_bytes_per_second=nw.col("_p50") * nw.col("bus_factor_ratio"),
        best_bus_bytes_per_second=nw.col("_best") * nw.col("bus_factor_ratio"),
        evidence=nw.when(is_timed).then(nw.lit("measured")).otherwise(nw.lit("unobservable")),
        reason=join_reasons(
            (~is_timed, "the calls were seen, not the transfers"),
            (
                (nw.col("buffer_bytes") == 0) & (nw.col("collective") != "barrier"),
                "the trace does not give its size",
            ),
            (nw.col("group_size") == 0, "how many ranks take part is not known"),
            (
                nw.col("collective").is_in(_PARTIAL),
                "each rank states its own part, so the size of the whole buffer is not known",
            ),
            (
                nw.col("is_lower_bound") & is_timed,
                "fewer ranks recorded it than take part: waiting is not told from transfer, so rates are lower bounds",
            ),
        ),
    )
