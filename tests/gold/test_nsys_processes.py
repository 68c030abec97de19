"""Nsight exports of many processes and GPUs, from the file to gold, held against a count of single nanoseconds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pytest

from assets.build import chunking, gold, silver
from gold import trace_summary
from lake.engines import engine as open_engine
from silver import clock_offsets, nsys_ranks, spans
from tests.support.campaigns import pick_engines
from tests.support.nsys_exports import SESSION_NS, Export, eight_processes, tell_truth

if TYPE_CHECKING:
    from pathlib import Path

    from lake.store import Lake
    from tests.conftest import LandFiles

_NUMBERS = ("gpu_events", "total_ns", "busy_ns", "idle_ns", "hta_compute_ns", "hta_comm_ns", "hta_overlap_ns")


def measure(lake: Lake, land_files: LandFiles, files: dict[str, bytes], engine: str = "polars") -> pl.DataFrame:
    """Land files as a run, take it to gold, and give its summary."""
    land_files(files)
    silver.materialise(lake, "run-1", open_engine(engine))
    gold.materialise(lake, "run-1", open_engine(engine), [trace_summary.TABLE])
    return lake.scan(trace_summary.TABLE, ["run-1"]).sort("rank").collect()


def two_processes() -> Export:
    """The shape of a real export: two processes on two GPUs, colliding ids, records of the profiler that say GPU 0."""
    export = Export()
    for process, device in ((144, 0), (145, 1)):
        export.call(process, "cudaLaunchKernel_v7000", 10, 12, 1)
        export.call(process, "cudaLaunchKernel_v7000", 30 + device, 32 + device, 2 + device)
        export.kernel(process, device, "gemm", 20, 50, 1)
        export.kernel(process, device, "ncclDevKernel_SendRecv", 60 - device * 15, 90, 2 + device)
        export.sync(process, device, 95, 99)
        export.mark(process, "aten::to", 5, 15)
    return export


def test_two_processes_on_two_gpus_are_two_ranks(lake: Lake, land_files: LandFiles, tmp_path: Path) -> None:
    export = two_processes()
    summary = measure(lake, land_files, {"two.sqlite": export.to_bytes(tmp_path / "a.sqlite")})
    assert summary.select("rank", *_NUMBERS).rows() == [
        (0, 2, 70, 60, 10, 30, 30, 0),
        (1, 2, 70, 70, 0, 30, 45, 5),
    ]
    placed = lake.scan(nsys_ranks.TABLE, ["run-1"]).collect()
    synchronised = placed.filter(report="CUPTI_ACTIVITY_KIND_SYNCHRONIZATION").sort("context_id")
    assert synchronised.select("device_id", "context_id", "rank").rows() == [(0, 1, 0), (0, 2, 1)]


def test_processes_of_one_host_have_one_clock(lake: Lake, land_files: LandFiles, tmp_path: Path) -> None:
    measure(lake, land_files, {"two.sqlite": two_processes().to_bytes(tmp_path / "a.sqlite")})
    offsets = lake.scan(clock_offsets.TABLE, ["run-1"]).sort("rank").collect()
    columns = ("rank", "reference_rank", "offset_ns", "uncertainty_ns", "evidence")
    assert offsets.select(columns).rows() == [(0, 0, 0, 0, "measured"), (1, 0, 0, 0, "measured")]


@pytest.mark.parametrize(
    ("engine", "chunk_events"),
    [("polars", 25), *((engine, chunking.CHUNK_EVENTS) for engine in pick_engines())],
)
def test_eight_processes_with_colliding_ids_and_graphs_are_told_exactly(
    lake: Lake,
    land_files: LandFiles,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    engine: str,
    chunk_events: int,
) -> None:
    monkeypatch.setattr(chunking, "CHUNK_EVENTS", chunk_events)
    export, ranks = eight_processes(seed=7)
    summary = measure(lake, land_files, {"eight.sqlite": export.to_bytes(tmp_path / "a.sqlite")}, engine)
    by_rank = {row["rank"]: {name: row[name] for name in _NUMBERS} for row in summary.to_dicts()}
    work = {rank: [one for one in export.work if (one.process, one.device) == cell] for rank, cell in ranks.items()}
    assert by_rank == {rank: tell_truth(mine) for rank, mine in work.items()}
    found = lake.scan(spans.TABLE, ["run-1"]).filter(pl.col("is_gpu")).collect()
    answer = sorted(found.select("rank", "name", "ts_ns", "duration_ns", "launch_ts_ns").rows())
    assert answer == sorted(
        (rank, one.name, SESSION_NS + one.start, one.end - one.start, SESSION_NS + (one.launched_at or 0))
        for rank, mine in work.items()
        for one in mine
    )
