"""One row per rank and training step: as the source marks them, else as its optimizer or its profiler was called."""

from __future__ import annotations

import narwhals as nw

from lake.frames import Frame, add_latest_end, compute_once, cut_plan, number_rows, select_declared, to_flag
from lake.tables import RUN_ID, Table, boolean, int32, int64, text
from silver.event_rules import drop_duplicates, select_intervals
from silver.patterns import PATTERNS, SITE_STEP
from silver.site_patterns import NO_SITE, SitedPatterns
from silver.span_context import classify_names
from silver.warmup import flag_warmup

STEP_SOURCES = (
    "profiler_step",
    "step_annotation",
    "optimizer_step",
    "profiler_capture",
    "collective_bursts",
    "inferred",
)
EVIDENCE = ("measured", "modelled", "unobservable")

TABLE = Table(
    tier="silver",
    name="steps",
    grain="One row per rank and training step.",
    key=("rank", "step_number"),
    inputs=(
        "bronze.trace_events",
        "bronze.nsys_events",
        "bronze.source_files",
        "bronze.runs",
        "bronze.span_patterns",
        "silver.clock_offsets",
        "silver.nsys_ranks",
    ),
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
            "profiler_step: an annotation of the profiler; step_annotation: a range that is named a step, or matches a "
            "site's pattern of one; optimizer_step: from the end of one optimizer step to the end of the next; "
            "profiler_capture: from cudaProfilerStart to cudaProfilerStop; collective_bursts: from one burst of "
            "collectives to the next, where all bursts are alike; inferred: all that was recorded.",
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
        text("warmup_reason", "Why it is left out of pairs, as a sentence.", nullable=True),
        text("source_sha256", "The source file that holds it.", nullable=True),
        text("evidence", "measured: the source marks the step; modelled: its bounds were inferred.", one_of=EVIDENCE),
    ),
)

_PROFILER, _ANNOTATED, _OPTIMIZER, _CAPTURE, _PERIODIC, _WHOLE = range(6)
# A name that ends in its only number.
_NUMBERED = "^[^0-9]*[0-9]{1,9}\\z"
_FEWEST_BURSTS = 3
EMPTY = "nothing ran in it: the recording ended where it began"
_ANNOTATIONS = ("step_annotation", SITE_STEP)
_MARKS = ["run_id", "rank", "source_sha256", "ordinal", "name", "ts_ns", "end_ns", "_rung"]


def conform(
    events: Frame,
    sources: Frame,
    runs: Frame,
    clock_offsets: Frame,
    nsys_ranks: Frame,
    site: SitedPatterns = NO_SITE,
    *,
    is_profiled: bool = True,
) -> Frame:
    """Take the best marks that a rank has; far slower first steps and an empty last one are left out of pairs."""
    spans = select_intervals(events, sources).with_columns(end_ns=nw.col("ts_ns") + nw.col("duration_ns"))
    picked = compute_once(spans.filter(_is_annotation(site) | _is_capture()))
    stated = compute_once(nw.concat([_select_marks(picked, site), _captures(picked)]))
    whole = compute_once(_sum_up_ranks(spans))
    marks = [stated, _copy_to_siblings(stated, nsys_ranks), _use_whole_recording(whole)]
    marks += [_bursts(spans, nsys_ranks)] if is_profiled else []
    found = _number_steps(_bound_optimizer_steps(_outermost(_choose_source(cut_plan(nw.concat(marks))))))
    found = found.with_columns(duration_ns=nw.col("end_ns") - nw.col("ts_ns"))
    found = _flag_empty_end(found, whole)
    found = found.with_columns(_ran_ns=nw.when(~nw.col("_is_empty")).then(nw.col("duration_ns")))
    found = flag_warmup(found, runs, "rank", "step_ordinal", "_ran_ns", "rank", nw.lit(True))
    reason = nw.when(nw.col("_is_empty")).then(nw.lit(EMPTY)).otherwise(nw.col("warmup_reason"))
    found = found.with_columns(warmup_reason=reason, is_warmup=nw.col("is_warmup") | nw.col("_is_empty"))
    found = found.join(clock_offsets.select("rank", "offset_ns"), on="rank", how="left")
    sources_of = nw.lit(STEP_SOURCES[_WHOLE])
    for rung in (_PERIODIC, _CAPTURE, _OPTIMIZER, _ANNOTATED, _PROFILER):
        sources_of = nw.when(nw.col("_rung") == rung).then(nw.lit(STEP_SOURCES[rung])).otherwise(sources_of)
    is_marked = nw.col("_rung").is_in([_PROFILER, _ANNOTATED])
    return select_declared(
        found.with_columns(
            step_source=sources_of,
            source_sha256=nw.when(nw.col("_rung") < _PERIODIC).then(nw.col("source_sha256")),
            aligned_ts_ns=nw.col("ts_ns") - nw.col("offset_ns"),
            evidence=nw.when(is_marked).then(nw.lit("measured")).otherwise(nw.lit("modelled")),
        ),
        TABLE,
    )


def _is_annotation(site: SitedPatterns) -> nw.Expr:
    """Whether an annotation may mark a step: few do, and they are picked before anything is kept in memory."""
    named_so = PATTERNS.may_be("name", "", "profiler_step", "step_annotation", "optimizer_step")
    return PATTERNS.is_category("category", "user_annotation") & (named_so.fill_null(False) | site.may_be_step("name"))


def _is_capture() -> nw.Expr:
    """Whether a call may start or stop the profiler."""
    is_call = PATTERNS.is_category("category", "cuda_runtime", "cuda_driver")
    return is_call & PATTERNS.may_be("name", "", "profiler_start_call", "profiler_stop_call").fill_null(False)


def _select_marks(spans: Frame, site: SitedPatterns) -> Frame:
    """The annotations that mark steps: the profiler's own, those named a step, and the optimizer's."""
    marks = spans.filter(_is_annotation(site))
    marks = classify_names(marks, site)
    marks = drop_duplicates(
        marks.filter(PATTERNS.has_pattern("pattern", "profiler_step", *_ANNOTATIONS, "optimizer_step"))
    )
    is_profiler, is_step = (
        PATTERNS.has_pattern("pattern", "profiler_step"),
        PATTERNS.has_pattern("pattern", *_ANNOTATIONS),
    )
    rung = nw.when(is_profiler).then(_PROFILER).otherwise(nw.when(is_step).then(_ANNOTATED).otherwise(_OPTIMIZER))
    return marks.with_columns(_rung=rung).select(_MARKS)


def _captures(spans: Frame) -> Frame:
    """What lies between a call that starts the profiler and the next that stops it."""
    calls = spans.filter(_is_capture())
    is_start = nw.col("name").str.contains("Start", literal=True)
    calls = calls.with_columns(_is_start=is_start)
    order = ["ts_ns", "source_sha256", "ordinal"]
    calls = calls.with_columns(
        _next_ns=nw.col("ts_ns").shift(-1).over("rank", order_by=order),
        _next_is_start=nw.col("_is_start").shift(-1).over("rank", order_by=order),
    )
    calls = calls.filter(nw.col("_is_start"), ~nw.col("_next_is_start").fill_null(True))
    return calls.with_columns(end_ns=nw.col("_next_ns"), _rung=nw.lit(_CAPTURE)).select(_MARKS)


def _bursts(spans: Frame, nsys_ranks: Frame) -> Frame:
    """From one burst of collectives to the next, of ranks that Nsight Systems timed, where all whole bursts are alike.

    A burst begins after a gap of at least half the longest. The first and the last may be cut by the recording: what
    lies before the second and after the last is no step.
    """
    timed = nsys_ranks.filter(~nw.col("rank").is_null(), nw.col("rule").is_null()).select("run_id", "rank").unique()
    known = spans.filter(PATTERNS.is_category("category", "kernel"), PATTERNS.may_be("name", "collective"))
    known = known.join(timed, on=["run_id", "rank"], how="semi")
    order = ["ts_ns", "source_sha256", "ordinal"]
    known = known.with_columns(_gap=nw.col("ts_ns") - nw.col("end_ns").shift(1).over("rank", order_by=order))
    known = known.with_columns(_longest=nw.col("_gap").max().over("rank"))
    is_first = (nw.col("_gap") > 0) & (nw.col("_gap") * 2 >= nw.col("_longest"))
    known = known.with_columns(_first=to_flag(is_first.fill_null(False)))
    known = known.with_columns(_burst=nw.col("_first").cum_sum().over("rank", order_by=order).cast(nw.Int64))
    bursts = known.group_by("run_id", "rank", "_burst").agg(ts_ns=nw.col("ts_ns").min(), _size=nw.len().cast(nw.Int64))
    bursts = bursts.with_columns(_last=nw.col("_burst").max().over("rank"))
    bursts = bursts.with_columns(end_ns=nw.col("ts_ns").shift(-1).over("rank", order_by="_burst"))
    bursts = bursts.filter(nw.col("_burst") > 0, nw.col("_burst") < nw.col("_last"))
    length = nw.col("end_ns") - nw.col("ts_ns")
    bursts = bursts.with_columns(_length=length).with_columns(
        _smallest=nw.col("_size").min().over("rank"),
        _largest=nw.col("_size").max().over("rank"),
        _shortest=nw.col("_length").min().over("rank"),
        _longest=nw.col("_length").max().over("rank"),
        _count=nw.col("_size").count().over("rank"),
    )
    is_alike = (nw.col("_smallest") == nw.col("_largest")) & (nw.col("_longest") * 2 <= nw.col("_shortest") * 3)
    return (
        bursts.filter(is_alike & (nw.col("_count") >= _FEWEST_BURSTS))
        .with_columns(source_sha256=nw.lit(""), ordinal=nw.col("_burst"), name=nw.lit(""), _rung=nw.lit(_PERIODIC))
        .select(_MARKS)
    )


def _copy_to_siblings(marks: Frame, nsys_ranks: Frame) -> Frame:
    """The marks of a process that drives several GPUs hold for each of its ranks."""
    keys = ["run_id", "source_sha256"]
    known = nsys_ranks.filter(~nw.col("rank").is_null(), nw.col("rule").is_null())
    known = known.with_columns(_process=nw.col("process_id").fill_null(""), _host=nw.col("host_ordinal").fill_null(-1))
    main = known.filter(nw.col("is_shared")).select(*keys, "_host", "_process", "rank").unique()
    others = known.select(*keys, "_host", "_process", _sibling=nw.col("rank")).unique()
    pairs = main.join(others, on=[*keys, "_host", "_process"], how="inner").filter(nw.col("_sibling") != nw.col("rank"))
    found = marks.join(pairs.drop("_host", "_process"), on=[*keys, "rank"], how="inner")
    return found.with_columns(rank=nw.col("_sibling")).select(_MARKS)


def _sum_up_ranks(spans: Frame) -> Frame:
    """When the recording of a rank began and ended, and when it last launched, called or ran something.

    To wait is no call: the profiler itself does so where it ends.
    """
    is_call = PATTERNS.is_category("category", "cuda_runtime", "cuda_driver")
    is_launch = is_call & PATTERNS.may_be("name", "", "launch_call").fill_null(False)
    is_call &= ~PATTERNS.may_be("name", "", "sync_call").fill_null(False)
    is_call |= PATTERNS.is_category("category", "cpu_op")
    is_run = is_call | PATTERNS.is_category("category", "kernel", "gpu_memcpy", "gpu_memset")
    spans = spans.with_columns(
        _launch_ns=nw.when(is_launch).then(nw.col("ts_ns")),
        _call_ns=nw.when(is_call).then(nw.col("ts_ns")),
        _run_ns=nw.when(is_run).then(nw.col("ts_ns")),
    )
    return spans.group_by("run_id", "rank").agg(
        ts_ns=nw.col("ts_ns").min(),
        end_ns=nw.col("end_ns").max(),
        _launch_ns=nw.col("_launch_ns").max(),
        _call_ns=nw.col("_call_ns").max(),
        _run_ns=nw.col("_run_ns").max(),
    )


def _use_whole_recording(ranks: Frame) -> Frame:
    """All that a rank recorded."""
    return ranks.with_columns(
        source_sha256=nw.lit(""), ordinal=nw.lit(0).cast(nw.Int64), name=nw.lit(""), _rung=nw.lit(_WHOLE)
    ).select(_MARKS)


def _with_longest(marks: Frame) -> Frame:
    """Add the name, numbers aside, of those ranges that take the longest together: a step holds what is in it."""
    stem = nw.col("name").str.replace_all("[0-9]+", "#")
    marks = marks.with_columns(_stem=stem, _long=nw.col("end_ns") - nw.col("ts_ns"))
    marks = marks.with_columns(_total=nw.col("_long").sum().over("rank", "_stem"))
    marks = marks.with_columns(_longest=nw.col("_total").max().over("rank"))
    marks = marks.with_columns(_longest_stem=nw.when(nw.col("_total") == nw.col("_longest")).then(nw.col("_stem")))
    return marks.with_columns(_longest_stem=nw.col("_longest_stem").min().over("rank"))


def _choose_source(marks: Frame) -> Frame:
    """Keep what a rank has of the highest rung, and where several optimizers step, the one that does so most often."""
    begin = nw.when(nw.col("_rung") == _WHOLE).then(nw.col("ts_ns"))
    marks = marks.with_columns(_begin_ns=begin).with_columns(
        _begin_ns=nw.col("_begin_ns").min().over("rank"),
        _highest=nw.col("_rung").min().over("rank"),
        _same=nw.col("ordinal").count().over("rank", "_rung", "name"),
    )
    marks = marks.filter(nw.col("_rung") == nw.col("_highest"))
    marks = _with_longest(marks)
    marks = marks.with_columns(_most=nw.col("_same").max().over("rank"))
    marks = marks.with_columns(_name=nw.when(nw.col("_same") == nw.col("_most")).then(nw.col("name")))
    marks = marks.with_columns(_name=nw.col("_name").min().over("rank"))
    is_other = (nw.col("_rung") == _OPTIMIZER) & (nw.col("name") != nw.col("_name"))
    is_other |= (nw.col("_rung") == _ANNOTATED) & (nw.col("_stem") != nw.col("_longest_stem"))
    return marks.filter(~is_other)


def _outermost(marks: Frame) -> Frame:
    """Of ranges that are named a step and lie within each other, or on several threads, the one that began first."""
    marks = marks.with_columns(_end_ns=nw.col("end_ns"), _turn=nw.col("ts_ns"))
    marks = add_latest_end(marks, ["rank"], ["_turn", "source_sha256", "ordinal"])
    return marks.filter((nw.col("_rung") != _ANNOTATED) | (nw.col("ts_ns") >= nw.col("_before_ns")))


def _bound_optimizer_steps(marks: Frame) -> Frame:
    """An optimizer's step ends a training step that began where the one before it ended."""
    previous = nw.col("end_ns").shift(1).over("rank", order_by=["end_ns", "source_sha256", "ordinal"])
    is_end = nw.col("_rung") == _OPTIMIZER
    marks = marks.with_columns(_previous_ns=previous)
    begins = nw.coalesce(nw.col("_previous_ns"), nw.col("_begin_ns"))
    return marks.with_columns(ts_ns=nw.when(is_end).then(begins).otherwise(nw.col("ts_ns")))


def _flag_empty_end(steps: Frame, ranks: Frame) -> Frame:
    """Flag the last step of a profiler's in which nothing was launched; where nothing ever is, no operator ran.

    `torch.profiler` begins a step where the last one ends: training that ends while it records leaves one behind,
    which may be all that there is.
    """
    known = ranks.select("run_id", "rank", "_launch_ns", "_call_ns", "_run_ns")
    steps = steps.join(known, on=["run_id", "rank"], how="left")
    steps = steps.with_columns(_last=nw.col("step_ordinal").max().over("rank"))
    is_end = (nw.col("step_ordinal") == nw.col("_last")) & (nw.col("_rung") == _PROFILER)
    before = (nw.coalesce(nw.col("_launch_ns"), nw.col("_call_ns")) < nw.col("ts_ns")).fill_null(False)
    is_empty = ((nw.col("_last") > 0) & before) | ((nw.col("_last") == 0) & nw.col("_run_ns").is_null())
    return steps.with_columns(_is_empty=is_end & is_empty)


def _number_steps(steps: Frame) -> Frame:
    """Number the steps of a rank by place, and by the profiler's numbers where those are distinct."""
    digits = nw.col("name").str.replace_all("[^0-9]", "")
    is_named = nw.col("_rung").is_in([_PROFILER, _ANNOTATED]) & nw.col("name").str.contains(_NUMBERED)
    steps = steps.with_columns(_number=nw.when(is_named).then(digits).cast(nw.Int64))
    steps = number_rows(steps, "_place", ["rank"], ["ts_ns", "source_sha256", "ordinal"])
    steps = steps.with_columns(
        step_ordinal=nw.col("_place") - 1, _repeats=nw.col("ordinal").count().over("rank", "_number")
    )
    steps = steps.with_columns(_repeats=nw.col("_repeats").max().over("rank"))
    is_own = ~nw.col("_number").is_null() & (nw.col("_repeats") == 1)
    return steps.with_columns(step_number=nw.when(is_own).then(nw.col("_number")).otherwise(nw.col("step_ordinal")))
