from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gold import roofline
from gold.hardware import HARDWARE
from lake.engines import engine as lake_engine
from silver import operator_shapes, runs, spans
from tests.support.silver_rows import RUN, rows_of

if TYPE_CHECKING:
    from tests.support.silver_rows import Bench

END = 1 << 62
POLARS = lake_engine("polars")
A100 = HARDWARE.gpu("a100-40gb")
Rows = list[dict[str, Any]]


def operator(at: int, length: int, name: str = "aten::mm", thread: str = "1", **fields: Any) -> dict[str, Any]:
    return {"category": "cpu_op", "name": name, "ts_ns": at, "duration_ns": length, "thread_id": thread, **fields}


def launch(at: int, work_ns: int, thread: str = "1", kernel: str = "gemm", starts: int = 1000) -> Rows:
    """A call, and the kernel that it launched."""
    call = {"category": "cuda_runtime", "name": "cudaLaunchKernel", "thread_id": thread, "correlation_id": at}
    work = {"category": "kernel", "name": kernel, "is_gpu": True, "correlation_id": at, "launch_ts_ns": at}
    return [{**call, "ts_ns": at, "duration_ns": 1}, {**work, "ts_ns": at + starts, "duration_ns": work_ns}]


def place_operators(
    bench: Bench, *rows: dict[str, Any], shapes: tuple[Rows, str] = ([], ""), cuts: tuple[int, ...] = ()
) -> list[dict[str, Any]]:
    """The table of some rows of one rank; `shapes` are those of operators by their place, and the name of the GPU."""
    common = {"run_id": RUN, "source_sha256": "s"}
    spanned = bench.wrap(rows_of(spans.TABLE, [{**common, "ordinal": at, **row} for at, row in enumerate(rows)]))
    known = bench.wrap(rows_of(operator_shapes.TABLE, [{**common, **row} for row in shapes[0]]))
    launched = pl.concat(
        [
            pl.DataFrame(bench.rows(roofline.sum_launched(spanned, low, high)))
            for low, high in pairwise([0, *sorted(set(cuts)), END])
        ]
    )
    sums: pa.Table = bench.rows(roofline.sum_shapes(bench.wrap(launched.to_arrow()), known))
    found = roofline.measure(sums, rows_of(runs.TABLE, [{"run_id": RUN, "found_gpu": shapes[1]}]))
    return sorted(found.to_pylist(), key=lambda row: [row[name] for name in roofline.TABLE.key])


def shape(ordinal: int, dims: str, kind: str = "float") -> dict[str, Any]:
    return {"ordinal": ordinal, "name": "aten::mm", "input_shapes": dims, "input_types": f'["{kind}","{kind}"]'}


def test_kernels_are_of_the_operator_whose_thread_launched_them_within_it(engine: Bench) -> None:
    (row,) = place_operators(
        engine, operator(10, 20), *launch(12, 500), *launch(29, 300), *launch(30, 7), *launch(9, 5)
    )
    assert (row["operators_count"], row["timed_count"], row["kernels_count"], row["total_ns"]) == (1, 1, 2, 800)
    (row,) = place_operators(engine, operator(10, 20), *launch(12, 500, thread="2"))
    assert (row["timed_count"], row["evidence"]) == (0, "unobservable")
    assert row["reason"].startswith("no work that it launched on a GPU was recorded; the profiler recorded no shapes")


def test_of_operators_within_each_other_the_outer_stands_for_both() -> None:
    rows = (operator(10, 50, "aten::convolution"), operator(20, 10), *launch(25, 500), *launch(40, 300))
    (row,) = place_operators(POLARS, *rows)
    assert (row["operator"], row["operators_count"], row["total_ns"]) == ("aten::convolution", 1, 800)


def test_a_rate_is_held_against_the_lower_of_both_roofs() -> None:
    large, small = "[[4096,4096],[4096,4096]]", "[[1,1024],[1024,1024]]"
    rows = (operator(10, 5), *launch(11, 900_000), operator(20, 5), *launch(21, 2000))
    shapes = [shape(0, large, "c10::Half"), shape(3, small, "c10::Half")]
    fed, full = place_operators(POLARS, *rows, shapes=(shapes, "NVIDIA A100-SXM4-40GB"))
    assert (full["operations_count"], full["bound"], full["number_format"]) == (2 * 4096**3, "compute", "fp16")
    assert full["operations_per_second"] == pytest.approx(2 * 4096**3 / 900e-6)
    assert full["roof_operations_per_second"] == A100.peak_flops["fp16"]
    assert full["roof_fraction"] == pytest.approx(2 * 4096**3 / 900e-6 / A100.peak_flops["fp16"])
    moved = 2 * (1024 + 1024**2 + 1024)
    assert (fed["least_bytes"], fed["bound"], fed["reason"]) == (moved, "memory", None)
    assert fed["roof_operations_per_second"] == pytest.approx(2 * 1024**2 / moved * A100.memory_bytes_per_second)
    assert (fed["evidence"], fed["roof_evidence"], fed["is_above_roof"]) == ("measured", "modelled", False)


def test_a_kernel_whose_name_says_tf32_is_held_against_that_peak() -> None:
    rows = (operator(10, 5), *launch(11, 900_000, kernel="cutlass_80_tensorop_s1688gemm_64x64"))
    (row,) = place_operators(POLARS, *rows, shapes=([shape(0, "[[4096,4096],[4096,4096]]")], "NVIDIA A100"))
    assert (row["number_format"], row["peak_operations_per_second"]) == ("tf32", A100.peak_flops["tf32"])


def test_more_than_the_roof_is_said_not_hidden() -> None:
    rows = (operator(10, 5), *launch(11, 1000))
    (row,) = place_operators(POLARS, *rows, shapes=([shape(0, "[[4096,4096],[4096,4096]]")], "NVIDIA A100"))
    assert (row["is_above_roof"], row["roof_fraction"] > 1) == (True, True)
    assert row["reason"].startswith("more than the roof was reached")


def test_a_gpu_that_nobody_knows_has_no_roof(engine: Bench) -> None:
    rows = (operator(10, 5), *launch(11, 1000))
    (row,) = place_operators(engine, *rows, shapes=([shape(0, "[[2,3],[3,4]]")], "Tesla V100-SXM2-32GB"))
    assert (row["operations_per_second"], row["roof_evidence"]) == (48e6, "unobservable")
    assert row["reason"] == "gold/hardware.toml has no peak of the GPU 'Tesla V100-SXM2-32GB'"


def test_operators_that_launched_nothing_do_not_count_as_work() -> None:
    rows = (operator(10, 5), *launch(11, 1000), operator(20, 5))
    shapes = [shape(0, "[[2,3],[3,4]]"), shape(3, "[[2,3],[3,4]]")]
    (row,) = place_operators(POLARS, *rows, shapes=(shapes, "NVIDIA A100"))
    assert (row["operators_count"], row["timed_count"], row["operations_per_second"]) == (2, 1, 48e6)


# start, length, thread of operators; start, time, thread of launches
OPERATORS = st.lists(st.tuples(st.integers(1, 90), st.integers(0, 30), st.sampled_from("12")), max_size=12)
LAUNCHES = st.lists(
    st.tuples(st.integers(1, 110), st.integers(0, 50), st.sampled_from("12")),
    max_size=20,
    unique_by=lambda one: one[0],
)


def nest(operators: list[tuple[int, int, str]]) -> list[tuple[int, int, str]]:
    """Those that lie within or beside the ones before them: the calls of a thread do."""
    kept: list[tuple[int, int, str]] = []
    for at, length, thread in operators:
        ends = [(b, b + n) for b, n, own in kept if own == thread]
        if not any(b < at < e < at + length or at < b < at + length < e for b, e in ends):
            kept.append((at, length, thread))
    return kept


@given(OPERATORS.map(nest), LAUNCHES, st.lists(st.integers(2, 120), max_size=4))
@settings(max_examples=25)
def test_time_is_charged_as_by_hand_however_time_is_sliced(
    operators: list[tuple[int, int, str]], launches: list[tuple[int, int, str]], cuts: list[int]
) -> None:
    rows = [operator(at, length, thread=thread) for at, length, thread in operators]
    rows += [row for at, work, thread in launches for row in launch(at, work, thread)]
    found = place_operators(POLARS, *rows, cuts=tuple(cuts))
    outer: list[tuple[int, int, str]] = []
    for at, length, thread in sorted(operators, key=lambda one: (one[0], -one[1])):
        if not any(own == thread and begun <= at < begun + lasted for begun, lasted, own in outer):
            outer.append((at, length, thread))
    charged = []
    for at, work, thread in launches:
        holding = [place for place, (b, n, own) in enumerate(outer) if own == thread and b <= at < b + n]
        charged += [(place, work) for place in holding]
    expected = (len(outer), len({place for place, _ in charged}), len(charged), sum(work for _, work in charged))
    columns = ("operators_count", "timed_count", "kernels_count", "total_ns")
    assert [tuple(row[name] for name in columns) for row in found] == ([expected] if outer else [])
