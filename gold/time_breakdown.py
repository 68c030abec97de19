"""One row per run, rank and step: where the step's time went, in exclusive parts that sum to it exactly."""

from __future__ import annotations

from typing import TYPE_CHECKING

import narwhals as nw

from gold.interval_sweep import clip_to_slice, cut_segments, is_running, merge_intervals, sum_before
from lake.frames import join_reasons, select_declared
from lake.tables import RUN_ID, Table, boolean, int32, int64, text
from silver.interval_cover import add_covered_time
from silver.patterns import PATTERNS, PYTHON_FRAMES
from silver.steps import EVIDENCE

if TYPE_CHECKING:
    from lake.frames import Frame

# The fixed priority: a moment belongs to the first of these that runs. What the GPU does comes before what the host
# does, so that the host's parts are idle GPU time, charged to what the host was doing.
GPU_PARTS = ("compute", "collective", "copy", "memset")
HOST_PARTS = ("crypto", "transport", "wait", "blocking_copy", "launch", "sync", "host")
KINDS = (*GPU_PARTS, *HOST_PARTS)
PARTS = (*KINDS, "idle", "unattributed")
# A kernel that waits for a peer comes last of what the GPU does, a host that waits after what another thread does.
KERNEL_WAIT = "kernel_wait"
CLASSES = (*GPU_PARTS, KERNEL_WAIT, *HOST_PARTS)
# Parts of which also the whole is told, hidden behind compute or not.
_WHOLES = ("collective", "copy", "crypto", "transport", "wait")

_MEANINGS = {
    "compute": "A compute kernel ran.",
    "collective": "A collective kernel moved data, and no compute kernel ran.",
    "copy": "A copy ran, and no kernel.",
    "memset": "A memset ran, and nothing above.",
    "crypto": "The GPU was idle while the host sealed or opened (or a crypto kernel ran).",
    "transport": "The GPU was idle while the host sent or received.",
    "wait": "A rank waited for a peer, and nothing above ran: what a collective kernel or a receive of the host took "
    "beyond the shortest over those ranks of the same collective that have a trace, or a wait that the host recorded.",
    "blocking_copy": "The GPU was idle while the host was in a call that waited for its own copy.",
    "launch": "The GPU was idle while the host launched work.",
    "sync": "The GPU was idle while the host waited for it.",
    "host": "The GPU was idle while the host did other work.",
    "idle": "Neither GPU nor host did anything that was recorded.",
}

TABLE = Table(
    tier="gold",
    name="time_breakdown",
    grain="One row per run, rank and training step.",
    key=("rank", "step_number"),
    inputs=("silver.spans", "silver.steps", "silver.collectives"),
    columns=(
        RUN_ID,
        int32("rank", "Rank that recorded the trace.", minimum=0),
        int64("step_number", "Number of the step.", minimum=0),
        boolean("is_warmup", "Whether it is left out of pairs (R7)."),
        int64("duration_ns", "Duration of the step: the sum of the parts below.", minimum=0),
        *(int64(f"{part}_ns", meaning, nullable=True, minimum=0) for part, meaning in _MEANINGS.items()),
        int64(
            "unattributed_ns",
            "Time of a step whose GPU was not observed, less what the host is known to have done.",
            minimum=0,
        ),
        int64("collective_whole_ns", "Transfers of collective kernels, hidden or not.", nullable=True, minimum=0),
        int64("copy_whole_ns", "Copies, hidden or not.", nullable=True, minimum=0),
        int64("crypto_whole_ns", "Sealing and opening, hidden or not.", nullable=True, minimum=0),
        int64("transport_whole_ns", "Sending and receiving, hidden or not.", nullable=True, minimum=0),
        int64("wait_whole_ns", "Waiting for peers, hidden or not.", nullable=True, minimum=0),
        int64(
            "unmatched_ns",
            "Time in collectives and receives that no record of another rank could be matched with: their waiting is "
            "within collective and transport.",
            nullable=True,
            minimum=0,
        ),
        int64("orphan_ns", "GPU work without a recorded launch, within the parts above.", nullable=True, minimum=0),
        text("evidence", "measured: spans show it; unobservable: the GPU's parts are null.", one_of=EVIDENCE),
        text("reason", "Why a part is null, or holds what it should not, as sentences.", nullable=True),
    ),
)
_COVERED = ("unmatched_ns", "orphan_ns")
CHARGED = (*(f"{kind}_ns" for kind in KINDS), *(f"{kind}_whole_ns" for kind in _WHOLES), *_COVERED)
_STEP = ["run_id", "rank", "step_number"]


def charge_parts(spans: Frame, steps: Frame, waits: Frame, low_ns: int, high_ns: int) -> Frame:
    """Charge every moment of a step within a slice of time to the first thing in the priority that ran.

    `waits` are those of gold.waiting, of all ranks.
    """
    spans = split_waits(spans, waits)
    spans, steps = clip_to_slice(spans, low_ns, high_ns), clip_to_slice(steps, low_ns, high_ns)
    working = spans.filter(~nw.col("_class").is_null())
    points = nw.concat([_points(steps, is_end=False), _points(steps, is_end=True)])
    swept = cut_segments(merge_intervals(working), points)
    known = sum_before(swept, **_lengths()).join(points, on=["run_id", "rank", "_at_ns", "_tie"], how="inner")
    names = [name for name in CHARGED if name not in _COVERED]
    # What had lasted before the step's end, less what had lasted before its start.
    known = known.with_columns((nw.col(name) * nw.col("_sign")).alias(name) for name in names)
    known = known.group_by(*_STEP).agg(*(nw.col(name).sum().cast(nw.Int64) for name in names))
    for name, rows in (("unmatched_ns", nw.col("_is_unmatched")), ("orphan_ns", nw.col("is_orphan"))):
        known = known.join(_cover(steps, spans.filter(rows), name), on=_STEP, how="left")
    return known.select(*_STEP, *CHARGED)


def cut_parts(spans: Frame, waits: Frame, low_ns: int, high_ns: int) -> Frame:
    """The same within a slice of time as intervals: each rank's moments, and the part that they are charged to."""
    working = clip_to_slice(split_waits(spans, waits), low_ns, high_ns).filter(~nw.col("_class").is_null())
    swept = cut_segments(merge_intervals(working)).filter(nw.col("_length_ns") > 0)
    part = nw.lit(None).cast(nw.String)
    for place in reversed(range(len(CLASSES))):
        name = "wait" if CLASSES[place] == KERNEL_WAIT else CLASSES[place]
        part = nw.when(is_running(place)).then(nw.lit(name)).otherwise(part)
    end = nw.col("_at_ns") + nw.col("_length_ns")
    return swept.select("rank", part=part, begin_ns=nw.col("_at_ns"), end_ns=end).filter(~nw.col("part").is_null())


def measure(charges: Frame, steps: Frame, seeing: Frame) -> Frame:
    """Sum the charges of all slices; what no slice charged is idle, or unattributed where the GPU was not seen.

    `seeing` names the ranks (`run_id`, `rank`) that recorded GPU rows.
    """
    sums = charges.group_by(*_STEP).agg(*(nw.col(name).sum().cast(nw.Int64) for name in CHARGED))
    found = steps.select(*_STEP, "duration_ns", "is_warmup").join(sums, on=_STEP, how="left")
    found = found.with_columns(nw.col(*CHARGED).fill_null(0))
    seeing = seeing.select("run_id", "rank").unique().with_columns(_sees=nw.lit(1))
    found = found.join(seeing, on=["run_id", "rank"], how="left")
    return select_declared(_charge_remainder(found), TABLE)


def split_waits(spans: Frame, waits: Frame, *also: str) -> Frame:
    """Give each span its class; one that holds waiting becomes two, of which the waiting comes first.

    `also` are further columns to keep.
    """
    columns = ("run_id", "rank", "source_sha256", "ordinal")
    used = (*columns, "ts_ns", "duration_ns", "is_orphan", "_class", "_is_unmatched", *also)
    may_wait = nw.col("kind").is_in(["collective", "transport"])
    plain = spans.filter(~may_wait).with_columns(_class=_class(), _is_unmatched=nw.lit(False))
    known = waits.with_columns(_is_known=nw.lit(True))
    asked = spans.filter(may_wait).join(known, on=list(columns), how="left")
    is_inner = nw.col("is_inner").fill_null(False)
    asked = asked.with_columns(
        _is_unmatched=nw.col("_is_known").fill_null(False) & nw.col("wait_ns").is_null(),
        _wait_ns=nw.col("wait_ns").fill_null(0),
        _class=nw.when(~is_inner).then(_class()),
    )
    transfer = asked.with_columns(
        ts_ns=nw.col("ts_ns") + nw.col("_wait_ns"), duration_ns=nw.col("duration_ns") - nw.col("_wait_ns")
    )
    place = {name: nw.lit(CLASSES.index(name)).cast(nw.Int64) for name in (KERNEL_WAIT, "wait")}
    waited = asked.filter(nw.col("_wait_ns") > 0).with_columns(
        duration_ns=nw.col("_wait_ns"),
        _class=nw.when(nw.col("kind") == "collective").then(place[KERNEL_WAIT]).otherwise(place["wait"]),
    )
    return nw.concat([plain.select(used), transfer.select(used), waited.select(used)])


def _class() -> nw.Expr:
    """A span's place in the priority; null for what is no work: annotations, and Python frames around everything."""
    found = nw.lit(None).cast(nw.Int64)
    for kind in KINDS:
        is_it = (nw.col("kind") == kind) & ~PATTERNS.has_pattern("pattern", *PYTHON_FRAMES)
        found = nw.when(is_it).then(nw.lit(CLASSES.index(kind)).cast(nw.Int64)).otherwise(found)
    return found


def _points(steps: Frame, *, is_end: bool) -> Frame:
    """The starts or ends of steps; a tie between several at one moment is broken by the step."""
    at = nw.col("ts_ns") + nw.col("duration_ns") if is_end else nw.col("ts_ns")
    return steps.select(
        *_STEP,
        _at_ns=at,
        _tie=nw.col("step_ordinal") * 2 + int(is_end),
        _sign=nw.lit(1 if is_end else -1).cast(nw.Int64),
    )


def _lengths() -> dict[str, nw.Expr]:
    """A segment's length under the part that it is charged to, and under each whole that runs during it."""
    zero = nw.lit(0).cast(nw.Int64)
    lengths = {}
    for kind in KINDS:
        is_charged = nw.lit(False)
        for index in _classes_of(kind):
            is_charged |= is_running(index) & ~is_running(*range(index))
        lengths[f"{kind}_ns"] = nw.when(is_charged).then(nw.col("_length_ns")).otherwise(zero)
    for kind in _WHOLES:
        whole = nw.when(is_running(*_classes_of(kind))).then(nw.col("_length_ns")).otherwise(zero)
        lengths[f"{kind}_whole_ns"] = whole
    return lengths


def _classes_of(kind: str) -> tuple[int, ...]:
    """The places in the priority of what is told as one part."""
    names = (KERNEL_WAIT, kind) if kind == "wait" else (kind,)
    return tuple(CLASSES.index(name) for name in names)


def _cover(steps: Frame, spans: Frame, name: str) -> Frame:
    """How long at least one of these spans ran during each step."""
    asking = steps.with_columns(source_sha256=nw.lit(""), ordinal=nw.col("step_number"))
    return add_covered_time(asking, spans).select(*_STEP, nw.col("covered_ns").alias(name))


def _charge_remainder(found: Frame) -> Frame:
    """What is left over: idle where the GPU was observed, unattributed where it was not."""
    zero = nw.lit(0).cast(nw.Int64)
    is_seen = ~nw.col("_sees").is_null()
    rest = nw.col("duration_ns") - nw.sum_horizontal(*(nw.col(f"{kind}_ns") for kind in KINDS))
    blind = [*(f"{kind}_ns" for kind in GPU_PARTS), "collective_whole_ns", "copy_whole_ns", "orphan_ns"]
    found = found.with_columns(_rest_ns=rest)
    return found.with_columns(
        *(nw.when(is_seen).then(nw.col(name)).alias(name) for name in blind),
        idle_ns=nw.when(is_seen).then(nw.col("_rest_ns")),
        unattributed_ns=nw.when(is_seen).then(zero).otherwise(nw.col("_rest_ns")),
        evidence=nw.when(is_seen).then(nw.lit("measured")).otherwise(nw.lit("unobservable")),
        reason=join_reasons(
            (~is_seen, "no GPU rows were recorded, so the GPU's parts are unknown"),
            (
                nw.col("unmatched_ns") > 0,
                "no other rank's record matches some collectives, so waiting in them is not told from transfer",
            ),
        ),
    )
