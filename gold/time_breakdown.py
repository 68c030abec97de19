"""One row per run, rank and step: where the step's time went, in exclusive parts that sum to it exactly."""

from __future__ import annotations

from typing import TYPE_CHECKING

import narwhals as nw
import numpy as np
import pyarrow as pa

from gold.covered_time import CoveredTime
from gold.interval_sweep import clip_to_slice, cut_segments, is_running, merge_intervals
from gold.step_series import read_flags, read_numbers
from lake.frames import join_reasons, select_declared
from lake.tables import RUN_ID, Table, boolean, int32, int64, text
from silver.patterns import PATTERNS, PYTHON_FRAMES
from silver.steps import EVIDENCE

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from lake.frames import Frame

    Numbers = npt.NDArray[np.int64]
    Flags = npt.NDArray[np.bool_]

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
CHARGED = (
    *(f"{kind}_ns" for kind in KINDS),
    *(f"{kind}_whole_ns" for kind in _WHOLES),
    "unmatched_ns",
    "orphan_ns",
)
_STEP = ["run_id", "rank", "step_number"]


def select_work(spans: Frame, waits: Frame) -> Frame:
    """What ran, with its place in the priority; -1 for what is only told beside the parts.

    `waits` are those of gold.waiting, of all ranks.
    """
    found = split_waits(spans, waits)
    is_told = ~nw.col("_class").is_null() | nw.col("is_orphan") | nw.col("_is_unmatched")
    columns = ("rank", "ts_ns", "duration_ns", "is_orphan", "_is_unmatched")
    return found.filter(is_told).select(*columns, nw.col("_class").fill_null(-1))


def charge_parts(work: pa.Table, steps: pa.Table, low_ns: int, high_ns: int) -> pa.Table:
    """Charge every moment of a step within a slice of time to the first thing in the priority that ran.

    `work` is that of `select_work`, and the steps are those of one run.
    """
    begun = np.maximum(read_numbers(steps, "ts_ns"), low_ns)
    ended = np.minimum(read_numbers(steps, "ts_ns") + read_numbers(steps, "duration_ns"), high_ns)
    charged = {name: np.zeros(len(begun), np.int64) for name in CHARGED}
    ranks = read_numbers(work, "rank")
    for rank in np.unique(ranks):
        mine = (read_numbers(steps, "rank") == rank) & (ended > begun)
        for name, lengths in _charge_rank(work.filter(pa.array(ranks == rank)), begun[mine], ended[mine]):
            charged[name][mine] += lengths
    return pa.table({**{name: steps.column(name) for name in _STEP}, **charged})


def _charge_rank(work: pa.Table, lows: Numbers, highs: Numbers) -> Iterator[tuple[str, Numbers]]:
    """What of each step of a rank is charged to each part; some are told in two pieces."""
    # In order once, and not for each part.
    work = work.take(pa.array(np.argsort(read_numbers(work, "ts_ns"), kind="stable")))
    classes, starts = read_numbers(work, "_class"), read_numbers(work, "ts_ns")
    ends = starts + read_numbers(work, "duration_ns")

    def sum_running(rows: Flags) -> Numbers:
        return CoveredTime.of(starts[rows], ends[rows]).sum_between(lows, highs)

    # What any of the first classes took, less what any of those before the last of them took, is charged to the last.
    before = np.zeros(len(lows), np.int64)
    for place, name in enumerate(CLASSES):
        upto = sum_running((classes >= 0) & (classes <= place))
        yield f"{'wait' if name == KERNEL_WAIT else name}_ns", upto - before
        before = upto
    for kind in _WHOLES:
        yield f"{kind}_whole_ns", sum_running(np.isin(classes, _classes_of(kind)))
    yield "unmatched_ns", sum_running(read_flags(work, "_is_unmatched"))
    yield "orphan_ns", sum_running(read_flags(work, "is_orphan"))


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


def _classes_of(kind: str) -> tuple[int, ...]:
    """The places in the priority of what is told as one part."""
    names = (KERNEL_WAIT, kind) if kind == "wait" else (kind,)
    return tuple(CLASSES.index(name) for name in names)


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
