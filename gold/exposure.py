"""One row per rank, step and collective: when it could begin, what it did, and what of it compute did not hide."""

from __future__ import annotations

import narwhals as nw

from lake.frames import Frame, add_latest_end, compute_once, join_reasons, number_rows, select_declared
from lake.tables import RUN_ID, Table, boolean, int32, int64, text
from silver.collectives import COLLECTIVES
from silver.crossings import PATHS
from silver.patterns import PATTERNS
from silver.span_context import find_containing
from silver.spans import TABLE as SPANS
from silver.steps import EVIDENCE

# A collective that begins so soon after the one before it was waiting for that one: its data may have been ready long
# before. The collector's own thread needs up to this long from one bucket to the next.
AT_ONCE_NS = 350_000

TABLE = Table(
    tier="gold",
    name="exposure",
    grain="One row per rank, step and timed collective that leaves a GPU; none where nothing timed one.",
    key=("rank", "step_number", "collective_number"),
    inputs=("silver.crossings", "silver.spans", "silver.steps"),
    is_empty_without_first_input=True,
    columns=(
        RUN_ID,
        int32("rank", "Rank that recorded it.", minimum=0),
        int64("step_number", "Step that launched it.", minimum=0),
        int64("collective_number", "Its place among the collectives of the rank and step, from 1.", minimum=1),
        text("source_sha256", "The source file, by the digest of its bytes as they landed."),
        int64("ordinal", "Place of the event that stands for it in its source.", minimum=0),
        boolean("is_warmup", "Whether the step is left out of pairs."),
        text("collective", "What it does.", one_of=COLLECTIVES),
        text("path", "Library that ran it, or the hook.", one_of=PATHS),
        int64("group_size", "Ranks that take part.", nullable=True),
        int64("buffer_bytes", "Size of the whole buffer.", nullable=True, minimum=0),
        int64("message_count", "Messages that this rank sends.", nullable=True, minimum=0),
        int64("payload_bytes", "Bytes that this rank sends: those that are sealed.", nullable=True, minimum=0),
        int64("step_ns", "Duration of the step on the host.", minimum=0),
        int64("start_ns", "Start, from the start of the step."),
        int64("end_ns", "End, from the start of the step."),
        int64(
            "ready_ns",
            "When its data was there on all ranks, from the start of the step: its end less what it was at work.",
        ),
        boolean(
            "is_ready_censored",
            "Whether it began as soon as the one before it ended: then `ready_ns` is an upper bound.",
        ),
        int64(
            "wait_ns", "Time within it spent waiting for the GPU or for other ranks; null for kernels.", nullable=True
        ),
        int64("copy_ns", "Time of its copies between GPU and host.", minimum=0),
        int64("host_copy_ns", "Time of copies in host memory that sealing and opening would replace.", minimum=0),
        int64("crypto_ns", "Time spent sealing and opening; null where no span shows it.", nullable=True, minimum=0),
        int64(
            "hidden_ns",
            "Time of it during which a compute kernel of the rank ran; null without GPU rows.",
            nullable=True,
            minimum=0,
        ),
        int64(
            "tail_ns",
            "From the end of the last collective to the end of the step; null for all others.",
            nullable=True,
        ),
        text("evidence", "Where the numbers come from.", one_of=EVIDENCE),
        text("reason", "What could not be seen, as sentences.", nullable=True),
    ),
)
_ID = ["run_id", "rank", *SPANS.key]
_STEP = ["run_id", "rank", "step_number"]
_INT = nw.Int64
_ZERO = nw.lit(0).cast(_INT)


def measure(crossings: Frame, spans: Frame, steps: Frame) -> Frame:
    """Take what a collective waited for out of its time: what is left is what it costs whenever its data is there."""
    timed = crossings.filter(
        ~nw.col("collective").is_null(), ~nw.col("duration_ns").is_null(), ~nw.col("step_number").is_null()
    )
    timed = timed.drop("evidence", strict=False).join(_describe_steps(steps), on=_STEP, how="inner")
    found = compute_once(timed).join(_sum_parts(spans), on=_ID, how="left")
    found = found.with_columns(
        is_hook=nw.col("path") == "hook",
        copy_ns=nw.col("_copied_ns").fill_null(0),
        host_copy_ns=nw.col("_host_copy_ns").fill_null(0),
        crypto_ns=nw.col("seal_ns") + nw.col("open_ns"),
        hidden_ns=nw.col("duration_ns") - nw.col("exposed_ns"),
        start_ns=nw.col("ts_ns") - nw.col("_began_ns"),
    )
    # Staging waits until the GPU has made the data: what its copy does not explain.
    staged = nw.col("_staging_ns").fill_null(0) - nw.col("_staged_ns").fill_null(0)
    waited = nw.col("_waited_ns").fill_null(0) + nw.when(staged > 0).then(staged).otherwise(_ZERO)
    waited = nw.when(waited > nw.col("duration_ns")).then(nw.col("duration_ns")).otherwise(waited)
    found = found.with_columns(
        end_ns=nw.col("start_ns") + nw.col("duration_ns"), wait_ns=nw.when(nw.col("is_hook")).then(waited)
    )
    found = found.with_columns(ready_ns=nw.col("start_ns") + nw.col("wait_ns").fill_null(0))
    return select_declared(_add_order(found), TABLE)


def _describe_steps(steps: Frame) -> Frame:
    return steps.select(*_STEP, "is_warmup", step_ns=nw.col("duration_ns"), _began_ns=nw.col("ts_ns"))


def _add_order(found: Frame) -> Frame:
    """Number the collectives of a step, and say which of them had to wait for the one before."""
    order = ["start_ns", "source_sha256", "ordinal"]
    found = number_rows(found, "collective_number", _STEP, order).with_columns(_end_ns=nw.col("end_ns"))
    found = add_latest_end(found, _STEP, order)
    found = found.with_columns(_last=nw.col("collective_number").max().over(*_STEP))
    is_first = nw.col("collective_number") == 1
    is_queued = ~is_first & (nw.col("ready_ns") < nw.col("_before_ns") + AT_ONCE_NS)
    is_last = nw.col("collective_number") == nw.col("_last")
    return found.with_columns(
        is_ready_censored=is_queued,
        tail_ns=nw.when(is_last).then(nw.col("step_ns") - nw.col("end_ns")),
        evidence=nw.lit("measured"),
        reason=join_reasons(
            (is_queued, "it waited for the collective before it, so its data may have been ready earlier"),
            (nw.col("wait_ns").is_null(), "a kernel does not say how much of it was waiting for other ranks"),
            (nw.col("hidden_ns").is_null(), "no GPU rows were recorded, so what was hidden cannot be told"),
        ),
    )


def _sum_parts(spans: Frame) -> Frame:
    """What hooks spent on waiting, on copies in host memory and on staging, by hook."""
    thread = nw.col("thread_id").fill_null("")
    keys, order = ["run_id", "rank", "source_sha256", "_thread"], ["ts_ns", "ordinal"]
    hooks = spans.filter(PATTERNS.has_pattern("pattern", "hook_collective"))
    hooks = hooks.select("run_id", "rank", *SPANS.key, "ts_ns", "duration_ns", _thread=thread)
    hooks = compute_once(number_rows(hooks, "_hook", keys, order))
    is_wait = PATTERNS.has_pattern("pattern", "hook_receive", "hook_wait")
    is_copy = PATTERNS.has_pattern("pattern", "hook_copy", "hook_keep", "hook_transport", "hook_sized_transport")
    # With parts apart (a pipelined ring) the copies are only launched in the first, and waited for in the second.
    is_staging = nw.col("name").is_in(["tee::d2h", "tee::d2h_wait"]).fill_null(False)
    parts = spans.filter(is_wait | is_copy | is_staging).select(
        *("run_id", "rank", *SPANS.key, "ts_ns", "duration_ns"),
        _thread=thread,
        _waited_ns=nw.when(is_wait).then(nw.col("duration_ns")).otherwise(_ZERO),
        _host_copy_ns=nw.when(is_copy).then(nw.col("duration_ns")).otherwise(_ZERO),
        _staging_ns=nw.when(is_staging).then(nw.col("duration_ns")).otherwise(_ZERO),
    )
    parts = compute_once(_take_out_waits(parts, keys, order))
    sums = ("_waited_ns", "_host_copy_ns", "_staging_ns")
    within = find_containing(parts, hooks, keys, "_hook").filter(~nw.col("_hook").is_null())
    within = within.group_by(*keys, "_hook").agg(*(nw.col(name).sum().cast(_INT) for name in sums))
    found = hooks.join(within, on=[*keys, "_hook"], how="left").join(
        _sum_copies(spans, hooks), on=["run_id", "rank", *SPANS.key], how="left"
    )
    return found.select(*_ID, *sums, "_copied_ns", "_staged_ns")


def _take_out_waits(parts: Frame, keys: list[str], order: list[str]) -> Frame:
    """A send of the older hook includes its wait for a free slot, which is no copying."""
    sends = number_rows(parts.filter(nw.col("_host_copy_ns") > 0), "_send", keys, order)
    waits = parts.filter(nw.col("_waited_ns") > 0)
    inside = find_containing(waits, sends, keys, "_send").filter(~nw.col("_send").is_null())
    inside = inside.group_by(*keys, "_send").agg(_within_ns=nw.col("_waited_ns").sum().cast(_INT))
    inside = sends.join(inside, on=[*keys, "_send"], how="inner").select(*_ID, "_within_ns")
    parts = parts.join(inside, on=_ID, how="left")
    return parts.with_columns(_host_copy_ns=nw.col("_host_copy_ns") - nw.col("_within_ns").fill_null(0)).drop(
        "_within_ns"
    )


def _sum_copies(spans: Frame, hooks: Frame) -> Frame:
    """Copies between GPU and host that were launched during a hook, whichever thread the profiler saw launch them."""
    keys = ["run_id", "rank"]
    numbered = number_rows(hooks, "_nth", keys, ["ts_ns", "source_sha256", "ordinal"])
    copies = spans.filter(
        nw.col("is_gpu"),
        nw.col("kind") == "copy",
        nw.col("direction").is_in(["gpu_to_host", "host_to_gpu"]),
        ~nw.col("launch_ts_ns").is_null(),
    ).select(*keys, "direction", _copied_ns=nw.col("duration_ns"), ts_ns=nw.col("launch_ts_ns"))
    found = find_containing(copies, numbered.select(*keys, "ts_ns", "duration_ns", "_nth"), keys, "_nth")
    found = found.filter(~nw.col("_nth").is_null()).with_columns(
        _staged_ns=nw.when(nw.col("direction") == "gpu_to_host").then(nw.col("_copied_ns")).otherwise(_ZERO)
    )
    found = found.group_by(*keys, "_nth").agg(
        _copied_ns=nw.col("_copied_ns").sum().cast(_INT), _staged_ns=nw.col("_staged_ns").sum().cast(_INT)
    )
    return numbered.join(found, on=[*keys, "_nth"], how="inner").select(*_ID, "_copied_ns", "_staged_ns")
