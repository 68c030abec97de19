"""One row per run, rank and step: where the step's time went, in exclusive parts that sum to it exactly."""

from __future__ import annotations

from typing import TYPE_CHECKING

import narwhals as nw

from gold.interval_sweep import clip_to_slice, cut_segments, is_running, merge_intervals, sum_before
from lake.frames import select_declared
from lake.tables import RUN_ID, Table, boolean, int32, int64, text
from silver.interval_cover import add_covered_time
from silver.steps import EVIDENCE

if TYPE_CHECKING:
    from lake.frames import Frame

# The fixed priority: a moment belongs to the first of these that runs. What the GPU does comes before what the host
# does, so that the host's parts are idle GPU time, charged to what the host was doing.
GPU_PARTS = ("compute", "collective", "copy", "memset")
HOST_PARTS = ("crypto", "transport", "launch", "sync", "host")
KINDS = (*GPU_PARTS, *HOST_PARTS)
PARTS = (*KINDS, "idle", "unattributed")
# Parts of which also the whole is told, hidden behind compute or not.
_WHOLES = ("collective", "copy", "crypto", "transport")

_MEANINGS = {
    "compute": "A compute kernel ran.",
    "collective": "A collective kernel ran, and no compute kernel.",
    "copy": "A copy ran, and no kernel.",
    "memset": "A memset ran, and nothing above.",
    "crypto": "The GPU was idle while the host sealed or opened (or a crypto kernel ran).",
    "transport": "The GPU was idle while the host sent or received.",
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
    inputs=("silver.spans", "silver.steps"),
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
        int64("collective_whole_ns", "Collective kernels, hidden or not.", nullable=True, minimum=0),
        int64("copy_whole_ns", "Copies, hidden or not.", nullable=True, minimum=0),
        int64("crypto_whole_ns", "Sealing and opening, hidden or not.", nullable=True, minimum=0),
        int64("transport_whole_ns", "Sending and receiving, hidden or not.", nullable=True, minimum=0),
        int64("orphan_ns", "GPU work without a recorded launch, within the parts above.", nullable=True, minimum=0),
        text("evidence", "measured: spans show it; unobservable: the GPU's parts are null.", one_of=EVIDENCE),
        text("reason", "Why a part is null, as a sentence.", nullable=True),
    ),
)
CHARGED = (*(f"{kind}_ns" for kind in KINDS), *(f"{kind}_whole_ns" for kind in _WHOLES), "orphan_ns")
_STEP = ["run_id", "rank", "step_number"]


def charge_parts(spans: Frame, steps: Frame, low_ns: int, high_ns: int) -> Frame:
    """Charge every moment of a step within a slice of time to the first thing in the priority that ran."""
    spans, steps = clip_to_slice(spans, low_ns, high_ns), clip_to_slice(steps, low_ns, high_ns)
    working = spans.with_columns(_class=_class()).filter(~nw.col("_class").is_null())
    points = nw.concat([_points(steps, is_end=False), _points(steps, is_end=True)])
    swept = cut_segments(merge_intervals(working), points)
    known = sum_before(swept, **_lengths()).join(points, on=["run_id", "rank", "_at_ns", "_tie"], how="inner")
    names = [name for name in CHARGED if name != "orphan_ns"]
    # What had lasted before the step's end, less what had lasted before its start.
    known = known.with_columns((nw.col(name) * nw.col("_sign")).alias(name) for name in names)
    known = known.group_by(*_STEP).agg(*(nw.col(name).sum().cast(nw.Int64) for name in names))
    return known.join(_find_orphans(spans, steps), on=_STEP, how="left").select(*_STEP, *CHARGED)


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


def _class() -> nw.Expr:
    """A span's place in the priority; null for what is no work: annotations, and Python frames around everything."""
    found = nw.lit(None).cast(nw.Int64)
    for index, kind in enumerate(KINDS):
        is_it = (nw.col("kind") == kind) & (nw.col("pattern") != "python_frame")
        found = nw.when(is_it).then(nw.lit(index).cast(nw.Int64)).otherwise(found)
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
    for index, kind in enumerate(KINDS):
        is_charged = is_running(index) & ~is_running(*range(index))
        lengths[f"{kind}_ns"] = nw.when(is_charged).then(nw.col("_length_ns")).otherwise(zero)
    for kind in _WHOLES:
        whole = nw.when(is_running(KINDS.index(kind))).then(nw.col("_length_ns")).otherwise(zero)
        lengths[f"{kind}_whole_ns"] = whole
    return lengths


def _find_orphans(spans: Frame, steps: Frame) -> Frame:
    """How long GPU work without a recorded launch ran during each step."""
    asking = steps.with_columns(source_sha256=nw.lit(""), ordinal=nw.col("step_number"))
    found = add_covered_time(asking, spans.filter(nw.col("is_orphan")))
    return found.select(*_STEP, orphan_ns=nw.col("covered_ns"))


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
        reason=nw.when(~is_seen).then(nw.lit("no GPU rows were recorded, so the GPU's parts are unknown")),
    )
