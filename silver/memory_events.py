"""One row per block of memory that PyTorch's allocators handed out or took back while the profiler watched them."""

from __future__ import annotations

import narwhals as nw

from lake.frames import Frame, select_declared
from lake.tables import RUN_ID, Table, int32, int64, text

DEVICE_TYPES = ("cpu", "cuda", "other")

TABLE = Table(
    tier="silver",
    name="memory_events",
    grain="One row per such event that states the total; a run recorded without profile_memory has none.",
    key=("source_sha256", "ordinal"),
    partition_by=("run_id", "rank"),
    inputs=("bronze.trace_events",),
    columns=(
        RUN_ID,
        int32("rank", "Rank that recorded the trace.", minimum=0),
        text("source_sha256", "The source file, by the digest of its bytes as they landed."),
        int64("ordinal", "Place of the event among the readable events of its source, from 0.", minimum=0),
        text("device_type", "Whose memory it is, as torch names devices (`Device Type`).", one_of=DEVICE_TYPES),
        int64("device_id", "Number of the GPU (`Device Id`), 0 where the source names none.", minimum=0),
        int64("ts_ns", "When, UTC, as the rank's own clock says.", minimum=1),
        int64("block_bytes", "Size of the block (`Bytes`), negative where it was taken back."),
        int64("allocated_bytes", "All that is handed out after that (`Total Allocated`).", minimum=0),
        int64(
            "reserved_bytes",
            "What the allocator itself holds of the device after that (`Total Reserved`), 0 on the host.",
            minimum=0,
        ),
    ),
)
_NAME = "[memory]"
_LATEST_NS = 1 << 62
# Up to a petabyte: no allocator counts further.
_NUMBER = "^-?[0-9]{1,15}\\z"
_LONGEST = 17
_ZERO = nw.lit(0).cast(nw.Int64)


def conform(events: Frame) -> Frame:
    """Take the numbers out of the arguments' text; an event that does not state the total is of an older profiler."""
    args = nw.col("args")
    stated = events.filter(
        nw.col("name") == _NAME,
        nw.col("phase") == "i",
        nw.col("ts_ns") > 0,
        nw.col("ts_ns") < _LATEST_NS,
        args.str.contains('"Total Allocated"', literal=True),
    )
    found = stated.with_columns(
        _type=_take_number(args, "Device Type"),
        device_id=_take_number(args, "Device Id"),
        block_bytes=_take_number(args, "Bytes"),
        allocated_bytes=_take_number(args, "Total Allocated"),
        reserved_bytes=_take_number(args, "Total Reserved").fill_null(0),
    )
    is_cpu, is_cuda = nw.col("_type") == 0, nw.col("_type") == 1
    is_whole = (nw.col("allocated_bytes") >= 0) & (nw.col("reserved_bytes") >= 0) & ~nw.col("block_bytes").is_null()
    return select_declared(
        found.filter(is_whole.fill_null(False)).with_columns(
            device_type=nw.when(is_cpu)
            .then(nw.lit("cpu"))
            .otherwise(nw.when(is_cuda).then(nw.lit("cuda")).otherwise(nw.lit("other"))),
            # Of the host it is -1.
            device_id=nw.when(nw.col("device_id") > 0).then(nw.col("device_id")).otherwise(_ZERO),
        ),
        TABLE,
    )


def _take_number(args: nw.Expr, key: str) -> nw.Expr:
    """The whole number under a key; null where there is none."""
    # Cut short first: what follows a number is looked at once for each key.
    taken = args.str.replace_all(f'(?s)^.*?"{key}": ?', "").str.slice(0, _LONGEST)
    taken = taken.str.replace_all("(?s)[^0-9-].*", "")
    return nw.when(taken.str.contains(_NUMBER)).then(taken).cast(nw.Int64)
