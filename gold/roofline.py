"""One row per operator and shapes of its inputs: operations per second of its kernels, beside what its GPU allows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import narwhals as nw
import pyarrow as pa

from gold.hardware import HARDWARE, find_gpu
from gold.operator_work import count_work
from lake.frames import Frame, Moment, add_latest_end, compute_once, number_rows, to_flag
from lake.tables import RUN_ID, Table, boolean, float64, int64, text
from silver.operator_shapes import OPERATORS
from silver.span_context import find_containing
from silver.steps import EVIDENCE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gold.hardware import Gpu
    from gold.operator_work import Work

BOUNDS = ("compute", "memory")

TABLE = Table(
    tier="gold",
    name="roofline",
    grain="One row per matrix product, convolution or attention of a run, by the shapes and types of its inputs.",
    key=("operator", "input_shapes", "input_types", "input_values"),
    inputs=("silver.spans", "silver.operator_shapes", "silver.runs"),
    columns=(
        RUN_ID,
        text("operator", "Name of the operator.", one_of=OPERATORS),
        text("input_shapes", "Sizes of its inputs, as the source's own list; empty where none were recorded."),
        text("input_types", "Element types of its inputs; empty where none were recorded."),
        text("input_values", "Values of inputs that are no tensors; empty where none were recorded."),
        int64(
            "operators_count", "How often it ran, over all ranks; one within another is part of the outer.", minimum=1
        ),
        int64("timed_count", "Of these, those that launched work on a GPU; the rest is in no other number.", minimum=0),
        int64("kernels_count", "Kernels, copies and memsets that they launched.", minimum=0),
        int64("total_ns", "Time of all of these; what ran side by side counts each for itself.", minimum=0),
        int64(
            "operations_count",
            "Operations of one, of floating point: a multiply and an add are two (torch.utils.flop_counter).",
            nullable=True,
            minimum=0,
        ),
        float64("operations_per_second", "Operations of all over that time.", nullable=True, minimum=0),
        text("evidence", "measured: kernels were timed and shapes recorded.", one_of=EVIDENCE),
        int64("least_bytes", "Inputs and outputs of one, each moved once.", nullable=True, minimum=0),
        float64("operations_per_byte_ratio", "Operations over these bytes.", nullable=True, minimum=0),
        text("number_format", "Format that the peak is of; tf32 where a kernel's name says so.", nullable=True),
        float64("peak_operations_per_second", "Dense peak of the GPU in it.", nullable=True, minimum=0),
        float64(
            "roof_operations_per_second",
            "The lower of that peak and what its memory feeds at so many operations per byte.",
            nullable=True,
            minimum=0,
        ),
        text("bound", "Which of the two is lower.", nullable=True, one_of=BOUNDS),
        float64("roof_fraction", "Part of the roof that was reached.", nullable=True, minimum=0),
        boolean(
            "is_above_roof", "Whether more was reached than the roof allows: then it is not the roof.", nullable=True
        ),
        text("roof_evidence", "modelled: from the GPU's data sheet and bytes moved once.", one_of=EVIDENCE),
        text("reason", "What could not be told, and why, as sentences.", nullable=True),
    ),
)
_INT = nw.Int64
_ID = ("run_id", "rank", "source_sha256", "ordinal")
_CALL = ("run_id", "rank", "source_sha256", "correlation_id", "ts_ns")
# Kernels of cuBLAS and CUTLASS that round float inputs to TF32.
_TF32 = "tf32|TF32|s1688"
_FOUND = ("operators_count", "timed_count", "kernels_count", "total_ns")


def sum_launched(spans: Frame, low_ns: Moment, high_ns: Moment) -> Frame:
    """The GPU work of each operator, by the calls that its thread made within it and within this slice of time.

    Operators of one thread are calls: they lie within or beside each other, never across.
    """
    start, end = nw.col("ts_ns"), nw.col("ts_ns") + nw.col("duration_ns")
    keys, order = ["run_id", "rank", "source_sha256", "_thread"], ["ts_ns", "_length", "ordinal"]
    thread = nw.col("thread_id").fill_null("")
    operators = spans.filter(nw.col("name").is_in(OPERATORS), ~nw.col("is_gpu"), start < high_ns, end >= low_ns)
    operators = operators.select(
        *(*_ID, "ts_ns", "duration_ns"),
        operator=nw.col("name"),
        _thread=thread,
        _end_ns=end,
        _length=-nw.col("duration_ns"),
        _is_begun=start >= low_ns,
    )
    # A library may fall back from one operator to another: the outer one stands for both.
    outer = add_latest_end(operators, keys, order).filter(start >= nw.col("_before_ns"))
    outer = compute_once(
        number_rows(
            outer.select(*keys, "ts_ns", "duration_ns", "_length", "ordinal", "operator", "_is_begun"),
            "_nth",
            keys,
            order,
        )
    )
    launched = nw.col("launch_ts_ns")
    work = spans.filter(nw.col("is_gpu"), launched >= low_ns, launched < high_ns).select(
        *_CALL[:4], "duration_ns", ts_ns=launched, is_tf32=to_flag(nw.col("name").fill_null("").str.contains(_TF32))
    )
    work = work.group_by(*_CALL).agg(
        kernels_count=nw.len().cast(_INT),
        total_ns=nw.col("duration_ns").sum().cast(_INT),
        is_tf32=nw.col("is_tf32").max(),
    )
    calls = spans.filter(
        nw.col("category").is_in(["cuda_runtime", "cuda_driver"]), start >= low_ns, start < high_ns
    ).select(*_CALL, _thread=thread)
    sums = ("kernels_count", "total_ns", "is_tf32")
    # A call that is there twice, at one time, is one.
    work = work.join(calls, on=list(_CALL), how="inner").group_by(*_CALL, *sums).agg(_thread=nw.col("_thread").min())
    held = find_containing(work, outer.select(*keys, "ts_ns", "duration_ns", "_nth"), keys, "_nth")
    held = (
        held.filter(~nw.col("_nth").is_null())
        .group_by(*keys, "_nth")
        .agg(
            *(nw.col(name).sum().cast(_INT) for name in ("kernels_count", "total_ns")), is_tf32=nw.col("is_tf32").max()
        )
    )
    found = outer.join(held, on=[*keys, "_nth"], how="left").filter(
        nw.col("_is_begun") | ~nw.col("kernels_count").is_null()
    )
    return found.select(*_ID, "operator", nw.col("kernels_count", "total_ns", "is_tf32").fill_null(0))


def sum_shapes(launched: Frame, shapes: Frame) -> Frame:
    """Put the slices of each operator together, and operators of the same shapes."""
    whole = launched.group_by(*_ID, "operator").agg(
        *(nw.col(name).sum().cast(_INT) for name in ("kernels_count", "total_ns")), is_tf32=nw.col("is_tf32").max()
    )
    lists = ("input_shapes", "input_types", "input_values")
    known = shapes.select(*_ID, *lists)
    whole = whole.join(known, on=list(_ID), how="left").with_columns(nw.col(*lists).fill_null(""))
    whole = whole.with_columns(timed_count=to_flag(nw.col("kernels_count") > 0))
    return whole.group_by("run_id", *TABLE.key).agg(
        *(nw.col(name).sum().cast(_INT) for name in ("timed_count", "kernels_count", "total_ns")),
        operators_count=nw.len().cast(_INT),
        is_tf32=nw.col("is_tf32").max(),
    )


def measure(found: pa.Table, runs: pa.Table) -> pa.Table:
    """Count each shape's operations once, and hold the rate of all its kernels against the run's GPU."""
    (run,) = runs.to_pylist() or [{}]
    name = run.get("gpu") or run.get("found_gpu") or ""
    gpu = find_gpu(name, HARDWARE)
    rows = [_describe(row, gpu, name) for row in found.to_pylist()]
    return pa.Table.from_pylist(rows, schema=TABLE.arrow_schema)


def _describe(row: Mapping[str, Any], gpu: Gpu | None, name: str) -> dict[str, Any]:
    """One row of the table; what is not known is null, with the reason."""
    work = count_work(*(row[key] for key in TABLE.key))
    seconds = row["total_ns"] / 1e9
    is_timed = row["timed_count"] > 0 and seconds > 0
    rate = work.operations * row["timed_count"] / seconds if is_timed and work.operations is not None else None
    reasons = [] if is_timed else ["no work that it launched on a GPU was recorded"]
    reasons += [work.reason] if work.reason else []
    roof = _find_roof(work, gpu, is_tf32=row["is_tf32"] == 1)
    if gpu is None:
        reasons.append(f"gold/hardware.toml has no peak of the GPU {name[:80]!r}" if name else "the GPU is not named")
    elif work.format is not None and work.format not in gpu.peak_flops:
        reasons.append(f"gold/hardware.toml has no peak of {gpu.name} in {work.format}")
    height = roof["roof_operations_per_second"]
    fraction = rate / height if rate is not None and height else None
    if fraction is not None and fraction > 1:
        reasons.append("more than the roof was reached: data stayed in a cache, or the kernels used another format")
    return {
        **{key: row[key] for key in ("run_id", *TABLE.key, *_FOUND)},
        "operations_count": work.operations,
        "operations_per_second": rate,
        "evidence": "unobservable" if rate is None else "measured",
        "least_bytes": work.least_bytes,
        **roof,
        "roof_fraction": fraction,
        "is_above_roof": None if fraction is None else fraction > 1,
        "roof_evidence": "unobservable" if height is None else "modelled",
        "reason": "; ".join(reasons) or None,
    }


def _find_roof(work: Work, gpu: Gpu | None, *, is_tf32: bool) -> dict[str, Any]:
    """How high the roof is above an operator, and what it is made of."""
    form = "tf32" if is_tf32 and work.format == "fp32" else work.format
    peak = gpu.peak_flops.get(form or "") if gpu is not None else None
    per_byte = work.operations / work.least_bytes if work.operations is not None and work.least_bytes else None
    fed = per_byte * gpu.memory_bytes_per_second if per_byte is not None and gpu is not None else None
    roof = min(peak, fed) if peak is not None and fed is not None else None
    return {
        "operations_per_byte_ratio": per_byte,
        "number_format": form,
        "peak_operations_per_second": peak,
        "roof_operations_per_second": roof,
        "bound": None if roof is None else BOUNDS[roof != peak],
    }
