from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from gold import trace_summary
from lake.engines import engine as lake_engine
from silver import spans, steps
from tests.support.silver_rows import RUN, rows_of

if TYPE_CHECKING:
    from tests.support.silver_rows import Bench

END = 1 << 62
POLARS = lake_engine("polars")
# name, category: what the peers look at
WORK = {
    "gemm": ("gemm_kernel", "kernel"),
    "nccl": ("ncclDevKernel_AllReduce_Sum_f32_RING_LL", "kernel"),
    "symmetric": ("ncclSymk_AllReduce", "kernel"),
    "rccl": ("rccl_main_kernel", "kernel"),
    "custom": ("Cross_Device_Reduce_1stage", "kernel"),
    "copy": ("Memcpy HtoD (Pinned -> Device)", "gpu_memcpy"),
    "set": ("Memset (Device)", "gpu_memset"),
    "sync": ("SyncThings", "kernel"),
    "dma": ("dma_engine", "kernel"),
}
HTA_OTHER = {"copy", "set", "sync", "dma"}
TL_COMM = {"nccl", "symmetric", "rccl", "custom"}


def summarise(
    bench: Bench, *works: list[tuple[str, int, int]], cuts: tuple[int, ...] = (), **fields: Any
) -> list[dict[str, Any]]:
    """What the GPU work of each rank comes to."""
    rows = [
        {
            "run_id": RUN,
            "rank": rank,
            "source_sha256": "s",
            "ordinal": place,
            "kind": "compute",
            "is_gpu": True,
            "name": WORK[what][0],
            "category": WORK[what][1],
            "ts_ns": at,
            "duration_ns": length,
            **fields,
        }
        for rank, work in enumerate(works)
        for place, (what, at, length) in enumerate(work)
    ]
    spanned = bench.wrap(rows_of(spans.TABLE, rows))
    ranks = bench.wrap(rows_of(steps.TABLE, [{"run_id": RUN, "rank": rank} for rank, _ in enumerate(works)])).select(
        "run_id", "rank"
    )
    bounds = [0, *sorted(set(cuts)), END]
    unions = pl.concat(
        [
            pl.DataFrame(bench.rows(trace_summary.unite_intervals(spanned, low, high)))
            for low, high in itertools.pairwise(bounds)
        ]
    )
    found = bench.rows(trace_summary.measure(bench.wrap(unions.to_arrow()), spanned, ranks))
    return sorted((dict(row) for row in found.to_pylist()), key=lambda row: row["rank"])


def test_both_peers_find_their_numbers(engine: Bench) -> None:
    work = [("gemm", 10, 10), ("nccl", 15, 10), ("copy", 30, 10), ("set", 35, 10), ("custom", 50, 5), ("gemm", 52, 1)]
    (row,) = summarise(engine, work)
    assert row["gpu_events"] == 6
    assert (row["total_ns"], row["busy_ns"], row["idle_ns"]) == (45, 35, 10)
    assert (row["hta_compute_ns"], row["hta_comm_ns"], row["hta_overlap_ns"]) == (15, 10, 5)
    assert row["hta_noncompute_ns"] == 45 - 15 - 10
    assert row["hta_overlap_pct"] == 50.0
    assert (row["tl_compute_ns"], row["tl_comm_ns"], row["tl_exposed_comm_ns"]) == (21, 15, 9)
    assert (row["tl_memcpy_ns"], row["tl_exposed_memcpy_ns"]) == (10, 5)


def test_a_rank_without_gpu_rows_has_no_number_and_a_reason(engine: Bench) -> None:
    (row,) = summarise(engine, [("gemm", 10, 10)], is_gpu=False)
    assert row["gpu_events"] == 0
    assert {name: row[name] for name in row if name.endswith("_ns")} == dict.fromkeys(
        name for name in row if name.endswith("_ns")
    )
    assert (row["evidence"], row["hta_overlap_pct"]) == ("unobservable", None)


def test_work_of_no_length_is_seen_and_takes_no_time() -> None:
    (row,) = summarise(POLARS, [("gemm", 10, 0)])
    assert (row["gpu_events"], row["total_ns"], row["busy_ns"], row["evidence"]) == (1, 0, 0, "measured")


GPU_WORK = st.lists(
    st.tuples(st.sampled_from(sorted(WORK)), st.integers(1, 60), st.integers(0, 25)), min_size=1, max_size=25
)


def list_moments(work: list[tuple[str, int, int]], *names: str) -> set[int]:
    return {moment for what, at, length in work if what in names for moment in range(at, at + length)}


@given(st.lists(GPU_WORK, min_size=1, max_size=12), st.lists(st.integers(2, 80), max_size=3))
@settings(max_examples=20)
def test_unions_equal_a_count_of_moments_however_time_is_sliced(
    works: list[list[tuple[str, int, int]]], cuts: list[int]
) -> None:
    for row, work in zip(summarise(POLARS, *works, cuts=tuple(cuts)), works, strict=True):
        hta_comm = list_moments(work, "nccl")
        hta_compute = list_moments(work, *(set(WORK) - {"nccl"} - HTA_OTHER))
        tl_comm, tl_copy = list_moments(work, *TL_COMM), list_moments(work, "copy")
        tl_compute = list_moments(work, *(set(WORK) - TL_COMM - {"copy"}))
        assert row["busy_ns"] == len(list_moments(work, *WORK))
        assert row["hta_compute_ns"] == len(hta_compute)
        assert row["hta_comm_ns"] == len(hta_comm)
        assert row["hta_overlap_ns"] == len(hta_comm & hta_compute)
        assert row["tl_compute_ns"] == len(tl_compute)
        assert row["tl_exposed_comm_ns"] == len(tl_comm - tl_compute)
        assert row["tl_exposed_memcpy_ns"] == len(tl_copy - tl_comm - tl_compute)
