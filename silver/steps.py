"""One row per rank and training step: the profiler's own steps, else the optimizer's, else the whole recording."""

from __future__ import annotations

import narwhals as nw

from lake.frames import Frame, number_rows, select_declared
from lake.tables import RUN_ID, Table, boolean, int32, int64, text
from silver.event_rules import drop_duplicates, select_intervals
from silver.patterns import PATTERNS
from silver.span_context import classify_names
from silver.warmup import flag_warmup

STEP_SOURCES = ("profiler_step", "optimizer_step", "inferred")
EVIDENCE = ("measured", "modelled", "unobservable")

TABLE = Table(
    tier="silver",
    name="steps",
    grain="One row per rank and training step.",
    key=("rank", "step_number"),
    columns=(
        RUN_ID,
        int32("rank", "Rank that recorded the trace.", minimum=0),
        int64(
            "step_number",
            "Number of the step: the source's own, or its place where the source has none or repeats one.",
            minimum=0,
        ),
        int64("step_ordinal", "Place of the step among those of its rank, from 0.", minimum=0),
        text(
            "step_source",
            "profiler_step: an annotation of the profiler; optimizer_step: from the end of one optimizer step to the "
            "end of the next; inferred: all that was recorded.",
            one_of=STEP_SOURCES,
        ),
        int64("ts_ns", "Start, UTC, as the rank's own clock says.", minimum=1),
        int64("duration_ns", "Duration.", minimum=0),
        int64(
            "aligned_ts_ns",
            "Start on the clock of the reference rank; null where the offset is not known.",
            nullable=True,
        ),
        boolean("is_warmup", "Whether it is left out of pairs (R7)."),
        text("warmup_reason", "Why it counts as warm-up, as a sentence.", nullable=True),
        text("source_sha256", "The source file that holds it.", nullable=True),
        text("evidence", "measured: the source marks the step; modelled: its bounds were inferred.", one_of=EVIDENCE),
    ),
)

_PROFILER, _OPTIMIZER, _WHOLE = 0, 1, 2
_MARKS = ["run_id", "rank", "source_sha256", "ordinal", "name", "ts_ns", "end_ns", "_rung"]


def conform(events: Frame, sources: Frame, runs: Frame, clock_offsets: Frame) -> Frame:
    """Take the best marks that a rank has; a first step that is far longer than the others is warm-up."""
    spans = select_intervals(events, sources).with_columns(end_ns=nw.col("ts_ns") + nw.col("duration_ns"))
    found = _number_steps(
        _bound_optimizer_steps(_choose_source(nw.concat([_select_marks(spans), _use_whole_recording(spans)])))
    )
    found = found.with_columns(duration_ns=nw.col("end_ns") - nw.col("ts_ns"))
    found = flag_warmup(found, runs, "rank", "step_ordinal", "duration_ns", "rank", nw.lit(True))
    found = found.join(clock_offsets.select("rank", "offset_ns"), on="rank", how="left")
    sources_of = nw.lit(STEP_SOURCES[_WHOLE])
    for rung in (_OPTIMIZER, _PROFILER):
        sources_of = nw.when(nw.col("_rung") == rung).then(nw.lit(STEP_SOURCES[rung])).otherwise(sources_of)
    is_marked = nw.col("_rung") == _PROFILER
    return select_declared(
        found.with_columns(
            step_source=sources_of,
            source_sha256=nw.when(nw.col("_rung") != _WHOLE).then(nw.col("source_sha256")),
            aligned_ts_ns=nw.col("ts_ns") - nw.col("offset_ns"),
            evidence=nw.when(is_marked).then(nw.lit("measured")).otherwise(nw.lit("modelled")),
        ),
        TABLE,
    )


def _select_marks(spans: Frame) -> Frame:
    """The annotations that mark steps: the profiler's own, and the optimizer's."""
    marks = classify_names(spans.filter(PATTERNS.is_category("category", "user_annotation")))
    marks = drop_duplicates(marks.filter(PATTERNS.has_pattern("pattern", "profiler_step", "optimizer_step")))
    is_profiler = PATTERNS.has_pattern("pattern", "profiler_step")
    return marks.with_columns(_rung=nw.when(is_profiler).then(_PROFILER).otherwise(_OPTIMIZER)).select(_MARKS)


def _use_whole_recording(spans: Frame) -> Frame:
    """All that a rank recorded."""
    whole = spans.group_by("run_id", "rank").agg(ts_ns=nw.col("ts_ns").min(), end_ns=nw.col("end_ns").max())
    return whole.with_columns(
        source_sha256=nw.lit(""), ordinal=nw.lit(0).cast(nw.Int64), name=nw.lit(""), _rung=nw.lit(_WHOLE)
    ).select(_MARKS)


def _choose_source(marks: Frame) -> Frame:
    """Keep what a rank has of the highest rung, and where several optimizers step, the one that does so most often."""
    begin = nw.when(nw.col("_rung") == _WHOLE).then(nw.col("ts_ns"))
    marks = marks.with_columns(_begin_ns=begin).with_columns(
        _begin_ns=nw.col("_begin_ns").min().over("rank"),
        _highest=nw.col("_rung").min().over("rank"),
        _same=nw.col("ordinal").count().over("rank", "_rung", "name"),
    )
    marks = marks.filter(nw.col("_rung") == nw.col("_highest"))
    marks = marks.with_columns(_most=nw.col("_same").max().over("rank"))
    marks = marks.with_columns(_name=nw.when(nw.col("_same") == nw.col("_most")).then(nw.col("name")))
    marks = marks.with_columns(_name=nw.col("_name").min().over("rank"))
    return marks.filter((nw.col("_rung") != _OPTIMIZER) | (nw.col("name") == nw.col("_name")))


def _bound_optimizer_steps(marks: Frame) -> Frame:
    """An optimizer's step ends a training step that began where the one before it ended."""
    previous = nw.col("end_ns").shift(1).over("rank", order_by=["end_ns", "source_sha256", "ordinal"])
    is_end = nw.col("_rung") == _OPTIMIZER
    marks = marks.with_columns(_previous_ns=previous)
    begins = nw.coalesce(nw.col("_previous_ns"), nw.col("_begin_ns"))
    return marks.with_columns(ts_ns=nw.when(is_end).then(begins).otherwise(nw.col("ts_ns")))


def _number_steps(steps: Frame) -> Frame:
    """Number the steps of a rank by place, and by the profiler's numbers where those are distinct."""
    number = nw.when(nw.col("_rung") == _PROFILER).then(
        nw.col("name").str.replace_all("ProfilerStep#", "", literal=True)
    )
    steps = steps.with_columns(_number=number.cast(nw.Int64))
    steps = number_rows(steps, "_place", ["rank"], ["ts_ns", "source_sha256", "ordinal"])
    steps = steps.with_columns(
        step_ordinal=nw.col("_place") - 1, _repeats=nw.col("ordinal").count().over("rank", "_number")
    )
    steps = steps.with_columns(_repeats=nw.col("_repeats").max().over("rank"))
    is_own = ~nw.col("_number").is_null() & (nw.col("_repeats") == 1)
    return steps.with_columns(step_number=nw.when(is_own).then(nw.col("_number")).otherwise(nw.col("step_ordinal")))
