"""One row per interval that a rank recorded: what it was, when it ran, in which step, and what launched it."""

from __future__ import annotations

import narwhals as nw

from lake.frames import Frame, compute_once, select_declared, to_flag
from lake.tables import RUN_ID, Table, boolean, int32, int64, text
from silver.event_rules import IDENTITY, drop_duplicates, select_intervals
from silver.patterns import KINDS, PATTERNS
from silver.profiler_events import NOTES
from silver.site_patterns import NO_SITE, SitedPatterns
from silver.span_context import assign_launches, assign_steps, classify_names

DIRECTIONS = PATTERNS.words("direction")
MEMORIES = PATTERNS.words("memory")
# Regimes in which the driver moves every host copy through encrypted bounce buffers.
BOUNCED_REGIMES = ("hopper_spt_cc", "hopper_ppcie", "blackwell_mpt_nvle")

TABLE = Table(
    tier="silver",
    name="spans",
    grain="One row per interval on a rank, duplicates merged.",
    key=("source_sha256", "ordinal"),
    partition_by=("run_id", "rank"),
    inputs=(
        "bronze.trace_events",
        "bronze.nsys_events",
        "bronze.source_files",
        "bronze.runs",
        "bronze.span_patterns",
        "silver.steps",
        "silver.clock_offsets",
        "silver.nsys_ranks",
    ),
    columns=(
        RUN_ID,
        int32("rank", "Rank that recorded the trace.", minimum=0),
        text("source_sha256", "The source file, by the digest of its bytes as they landed."),
        int64("ordinal", "Place of the event among the readable events of its source, from 0.", minimum=0),
        text(
            "kind",
            "What the time went into; a call that starts a copy is blocking_copy where it lasted until the copy's end.",
            one_of=KINDS,
        ),
        text(
            "pattern",
            "Line of silver/span_kinds.toml that decided the kind; site_…: a line of the site's own.",
            one_of=PATTERNS.ids,
        ),
        boolean("is_gpu", "Whether it ran on a GPU: its category says so."),
        text(
            "category",
            "Category as today's profiler spells it; `other` for a text of somebody's own, empty where there is none.",
        ),
        text("name", "Name that a library or the profiler gave; null where it is a person's own text.", nullable=True),
        text("label", "Name where a person chose it: annotations, Python frames.", nullable=True, sensitive=True),
        text("thread_id", "Host thread, or stream of GPU work, as the source says.", nullable=True, sensitive=True),
        int64("device_id", "GPU on which the work ran.", nullable=True),
        int64("stream_id", "CUDA stream of the work.", nullable=True),
        int64(
            "ts_ns",
            "Start, UTC, as the rank's own clock says; of Nsight's CSV one more than the time since its session began.",
            minimum=1,
        ),
        int64("duration_ns", "Duration.", minimum=0),
        int64(
            "aligned_ts_ns",
            "Start on the clock of the reference rank; null where the offset is not known.",
            nullable=True,
        ),
        int64("step_number", "Step during which it started; null between steps.", nullable=True, minimum=0),
        int64("launch_step_number", "Step during which GPU work was launched.", nullable=True, minimum=0),
        int64("correlation_id", "Id that ties a runtime call to the GPU work it launched.", nullable=True),
        int64("external_id", "Id that ties an operator to the calls and GPU work it caused.", nullable=True),
        int64("launch_ts_ns", "Start of the call that launched GPU work.", nullable=True, minimum=1),
        int64("launch_duration_ns", "Duration of that call.", nullable=True, minimum=0),
        int64("payload_bytes", "Bytes that a copy or a memset touched.", nullable=True),
        text("direction", "Where a copy went; null where CC hides it beyond recall.", nullable=True, one_of=DIRECTIONS),
        text("reported_direction", "Where the source says that it went.", nullable=True, one_of=DIRECTIONS),
        text("memory", "Host memory of a copy.", nullable=True, one_of=MEMORIES),
        boolean("is_orphan", "Whether GPU work has no recorded launch."),
        boolean("is_before_launch", "Whether GPU work starts before its launch."),
        boolean("is_relabelled", "Whether direction and memory were taken back from what CC made of them (R1)."),
        boolean("has_queued_work", "Whether the call's time holds queued work, so that it is no copy time (R5)."),
        int64(
            "duplicates_count", "Further events of the same name, place, time, ids and size, merged here.", minimum=0
        ),
    ),
)

# Plans that put frames on top of each other read every column of both: only these go in.
READ = (
    "run_id",
    "ordinal",
    "phase",
    *IDENTITY,
)


def conform(
    events: Frame,
    sources: Frame,
    runs: Frame,
    steps: Frame,
    clock_offsets: Frame,
    site: SitedPatterns = NO_SITE,
) -> Frame:
    """Keep every interval once, and say what it was; time stays as recorded, with the aligned time beside it."""
    spans = classify_names(
        drop_duplicates(select_intervals(events.select(*READ, *NOTES), sources)), site, **_list_words()
    )
    spans = assign_launches(assign_steps(spans, steps), _called="_direction")
    spans = _read_copies(spans.join(_list_modes(runs), on="run_id", how="left"))
    spans = _mark_blocking_copies(spans)
    spans = spans.join(clock_offsets.select("rank", "offset_ns"), on="rank", how="left")
    is_private = PATTERNS.is_private("pattern")
    return select_declared(
        spans.with_columns(
            category=nw.when(PATTERNS.is_known("category") | (nw.col("category") == ""))
            .then(nw.col("category"))
            .otherwise(nw.lit("other")),
            aligned_ts_ns=nw.col("ts_ns") - nw.col("offset_ns"),
            label=nw.when(is_private).then(nw.col("name")),
            name=nw.when(~is_private).then(nw.col("name")),
            has_queued_work=nw.col("_is_cc") & PATTERNS.has_pattern("pattern", "copy_call"),
        ),
        TABLE,
    )


def _list_modes(runs: Frame) -> Frame:
    """Whether CC was on, as the run claims; a run that claims nothing is not reinterpreted."""
    is_on = nw.col("cc_mode").is_in(["on", "devtools"])
    is_implied = nw.col("cc_mode").is_null() & nw.col("regime").is_in(BOUNCED_REGIMES)
    return runs.select("run_id", _is_cc=(is_on.fill_null(False) | is_implied.fill_null(False)))


def _list_words() -> dict[str, nw.Expr]:
    """What a name says of a copy: direction, memory, and on which side Managed memory is."""
    name = nw.col("name")
    left, right = (name.str.contains(text, literal=True) for text in ("Managed -> Device", "Device -> Managed"))
    side = nw.when(left).then(nw.lit("host_to_gpu")).otherwise(nw.when(right).then(nw.lit("gpu_to_host")))
    return {"_direction": PATTERNS.word("direction", name), "_memory": PATTERNS.word("memory", name), "_side": side}


def _read_copies(spans: Frame) -> Frame:
    """Read direction and memory from a copy's name; under CC take back what Managed, Device-to-Device hides (R1)."""
    is_copy = (nw.col("kind") == "copy") & nw.col("is_gpu")
    spans = spans.with_columns(
        _is_cc=nw.col("_is_cc").fill_null(False),
        reported_direction=nw.when(is_copy).then(nw.col("_direction")),
        _memory=nw.when(is_copy).then(nw.col("_memory")),
    )
    hidden = nw.col("_is_cc") & (nw.col("reported_direction") == "on_gpu") & (nw.col("_memory") == "managed")
    # A driver call that says Device-to-Device itself is believed; one that is silent leaves the side that is Managed.
    hidden &= (nw.col("_called") != "on_gpu").fill_null(True)
    stated = nw.when(nw.col("_called").is_in(["host_to_gpu", "gpu_to_host"])).then(nw.col("_called"))
    spans = spans.with_columns(_is_hidden=hidden.fill_null(False))
    spans = spans.with_columns(_true=nw.when(nw.col("_is_hidden")).then(nw.coalesce(stated, nw.col("_side"))))
    is_relabelled = ~nw.col("_true").is_null()
    return spans.with_columns(
        is_relabelled=is_relabelled,
        direction=nw.when(nw.col("_is_hidden")).then(nw.col("_true")).otherwise(nw.col("reported_direction")),
        memory=nw.when(is_relabelled).then(nw.lit("pinned")).otherwise(nw.col("_memory")),
    )


def _mark_blocking_copies(spans: Frame) -> Frame:
    """Tell a call that waits for its copy from one that returns: by the times of both, by its name where none is seen.

    A copy on one GPU never holds the host; one whose memory is pageable is staged by the host, which may return a
    little before the last piece has moved. Under CC a copy of which no row shows the end is taken to block (R5).
    """
    spans = compute_once(spans)
    is_call = PATTERNS.has_pattern("pattern", "copy_call", "blocking_copy_call")
    is_copy = nw.col("is_gpu") & nw.col("kind").is_in(["copy", "memset"]) & ~nw.col("is_orphan")
    keys = ["rank", "_recording", "correlation_id"]
    is_host = nw.col("direction").is_in(["host_to_gpu", "gpu_to_host"]).fill_null(False)
    copies = spans.filter(is_copy).with_columns(
        _copy_end_ns=nw.col("ts_ns") + nw.col("duration_ns"),
        _is_host=to_flag(is_host),
        _is_pageable=to_flag((nw.col("memory") == "pageable").fill_null(False)),
    )
    copies = copies.group_by(*keys, "launch_ts_ns").agg(
        _copy_ns=nw.col("ts_ns").min(),
        _copy_end_ns=nw.col("_copy_end_ns").max(),
        _is_host=nw.col("_is_host").max(),
        _is_pageable=nw.col("_is_pageable").max(),
    )
    calls = spans.filter(is_call).join(
        copies.rename({"launch_ts_ns": "_call_ns"}), left_on=[*keys, "ts_ns"], right_on=[*keys, "_call_ns"], how="left"
    )
    end, start, done = nw.col("ts_ns") + nw.col("duration_ns"), nw.col("_copy_ns"), nw.col("_copy_end_ns")
    is_staged = (nw.col("_is_pageable") == 1) & ((end - start) * 2 > done - start)
    is_held = ((nw.col("_is_host") == 1) & ((end >= done) | is_staged)).fill_null(False)
    is_queued = nw.col("_is_cc") & nw.col("name").str.contains("Memcpy", literal=True)
    by_name = is_queued | (nw.col("kind") == "blocking_copy")
    is_blocking = nw.when(done.is_null()).then(by_name).otherwise(is_held)
    calls = calls.with_columns(kind=nw.when(is_blocking).then(nw.lit("blocking_copy")).otherwise(nw.lit("launch")))
    columns = spans.collect_schema().names()
    return nw.concat([spans.filter(~is_call).select(columns), calls.select(columns)])
