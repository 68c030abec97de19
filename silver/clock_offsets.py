"""One row per rank: how far its clock is off the reference rank's, as far as shared collectives can tell."""

from __future__ import annotations

import narwhals as nw

from lake.frames import Frame, divide_down, select_declared
from lake.tables import RUN_ID, Table, int32, int64, text
from silver.collective_identity import identify_collectives
from silver.event_rules import drop_duplicates, select_intervals
from silver.patterns import PATTERNS
from silver.profiler_events import adapt_trace_events
from silver.span_context import classify_names
from silver.steps import EVIDENCE

# No rank can leave one of these before every rank has entered it.
SYNCHRONISING = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier")

TABLE = Table(
    tier="silver",
    name="clock_offsets",
    grain="One row per rank of a run.",
    key=("rank",),
    inputs=("bronze.trace_events", "bronze.source_files", "silver.nsys_ranks"),
    columns=(
        RUN_ID,
        int32("rank", "Rank whose clock it is.", minimum=0),
        int32("reference_rank", "Rank whose clock it is compared with: the lowest that has a trace.", minimum=0),
        int64(
            "offset_ns",
            "Time of this clock minus time of the reference's: the middle of all offsets under which no rank leaves a "
            "shared collective before another enters it.",
            nullable=True,
        ),
        int64("uncertainty_ns", "Half the width of that range: it is wrong by no more.", nullable=True, minimum=0),
        int64("collectives_count", "Shared collectives that bound the offset.", minimum=0),
        text("evidence", "Where the offset comes from.", one_of=EVIDENCE),
        text("reason", "Why there is no offset, as a sentence.", nullable=True),
    ),
)


def conform(events: Frame, sources: Frame, nsys_ranks: Frame) -> Frame:
    """Take the clock of a host as one for all its processes, else bound clocks by collectives that ranks share."""
    ranks = _ranks(sources, nsys_ranks)
    ranks = ranks.with_columns(reference_rank=nw.col("rank").min().over("run_id"))
    is_reference = nw.col("rank") == nw.col("reference_rank")
    clocks = ranks.filter(is_reference).select("run_id", _reference_clock="_clock")
    ranks = ranks.join(clocks, on="run_id", how="left")
    ranks = ranks.with_columns(_is_one_clock=(nw.col("_clock") == nw.col("_reference_clock")).fill_null(False))
    shared = _select_shared_collectives(events, sources).select("rank", "match_id", "ts_ns", "end_ns")
    references = ranks.filter(nw.col("rank") == nw.col("reference_rank")).select("rank")
    reference = shared.join(references, on="rank", how="semi").select(
        "match_id", _reference_ts_ns=nw.col("ts_ns"), _reference_end_ns=nw.col("end_ns")
    )
    bounds = (
        shared.join(reference, on="match_id", how="inner")
        .with_columns(
            _low_ns=nw.col("ts_ns") - nw.col("_reference_end_ns"),
            _high_ns=nw.col("end_ns") - nw.col("_reference_ts_ns"),
        )
        .group_by("rank")
        .agg(_low_ns=nw.col("_low_ns").max(), _high_ns=nw.col("_high_ns").min(), collectives_count=nw.len())
    )
    return select_declared(_decide_offsets(ranks.join(bounds, on="rank", how="left")), TABLE)


def _ranks(sources: Frame, nsys_ranks: Frame) -> Frame:
    """The ranks that a trace or Nsight Systems timed, and the clock of the latter: a trace does not name its own."""
    traces = sources.filter(nw.col("outcome") == "kept", nw.col("format") == "kineto", ~nw.col("rank").is_null())
    traces = traces.select("run_id", "rank").unique()
    timed = nsys_ranks.filter(~nw.col("rank").is_null(), nw.col("rule").is_null())
    timed = timed.group_by("run_id", "rank").agg(_clock=nw.col("clock_id").min(), _other=nw.col("clock_id").max())
    timed = timed.join(traces, on=["run_id", "rank"], how="anti")
    one_clock = nw.when(nw.col("_clock") == nw.col("_other")).then(nw.col("_clock"))
    timed = timed.select("run_id", "rank", _clock=one_clock, _is_timed=nw.lit(True))
    nothing = {"_clock": nw.lit(None).cast(nw.String), "_is_timed": nw.lit(False)}
    return nw.concat([traces.select("run_id", "rank", **nothing), timed])


def _select_shared_collectives(events: Frame, sources: Frame) -> Frame:
    """The synchronising collectives of every rank: kernels, and the annotations of libraries that have none."""
    # Collectives are few among kernels: they are picked before anything is joined, compared or sorted.
    known = events.filter(
        PATTERNS.is_category("category", "kernel", "user_annotation"),
        PATTERNS.may_be("name", "collective", "gloo_call", "hook_collective"),
    )
    found = classify_names(drop_duplicates(select_intervals(adapt_trace_events(known), sources)))
    found = found.filter(
        (nw.col("kind") == "collective") | PATTERNS.has_pattern("pattern", "gloo_call", "hook_collective")
    )
    spelled = nw.coalesce(nw.col("collective_name"), nw.col("name"))
    found = found.with_columns(
        library=PATTERNS.word("library", nw.col("name")).fill_null("other"),
        collective=PATTERNS.collective(spelled),
        end_ns=nw.col("ts_ns") + nw.col("duration_ns"),
    )
    return identify_collectives(found.filter(nw.col("collective").is_in(SYNCHRONISING)))


def _decide_offsets(ranks: Frame) -> Frame:
    """The middle of the range and half its width; nothing, with the reason, where there is no range."""
    width = nw.col("_high_ns") - nw.col("_low_ns")
    is_reference = nw.col("rank") == nw.col("reference_rank")
    is_reference |= nw.col("_is_one_clock")
    is_bounded = ~nw.col("_low_ns").is_null() & (width >= 0)
    zero, two = nw.lit(0).cast(nw.Int64), nw.lit(2).cast(nw.Int64)
    reason = (
        nw.when(is_reference | is_bounded)
        .then(nw.lit(None).cast(nw.String))
        .otherwise(
            nw.when(nw.col("_is_timed"))
            .then(nw.lit("Nsight Systems recorded it in another session: whether the clocks are one is not known"))
            .otherwise(
                nw.when(nw.col("_low_ns").is_null())
                .then(nw.lit("no synchronising collective is shared with the reference rank"))
                .otherwise(
                    nw.lit("the shared collectives contradict each other: one clock drifts, or they are not the same")
                )
            )
        )
    )
    return ranks.with_columns(
        offset_ns=nw.when(is_reference)
        .then(zero)
        .otherwise(nw.when(is_bounded).then(nw.col("_low_ns") + divide_down(width, two))),
        uncertainty_ns=nw.when(is_reference)
        .then(zero)
        .otherwise(nw.when(is_bounded).then(divide_down(width + 1, two))),
        collectives_count=nw.when(~is_reference).then(nw.col("collectives_count")).otherwise(zero).fill_null(0),
        evidence=nw.when(is_reference | is_bounded).then(nw.lit("measured")).otherwise(nw.lit("unobservable")),
        reason=reason,
    )
