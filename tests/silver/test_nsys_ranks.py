"""Whose a row of Nsight Systems is: told by what files say, numbered in order, or refused with the reason."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from assets.build import silver
from lake.engines import PolarsEngine
from silver import nsys_ranks, rejects, rule_counts, spans, steps
from tests.support.nsys_exports import SESSION_NS, Export

if TYPE_CHECKING:
    from pathlib import Path

    from lake.store import Lake
    from tests.conftest import LandFiles

_API = "Start (ns),Duration (ns),Name,Result,CorrID,Pid,Tid"
_GPU = "Start (ns),Duration (ns),CorrId,Device,Ctx,Strm,Name"
_LAUNCHES = "API Start (ns),API Dur (ns),Kernel Start (ns),Kernel Dur (ns),PID,TID,DevId,API Function,Kernel Name"


class Conformed:
    """A run of some files, from landing to silver."""

    def __init__(self, lake: Lake, land_files: LandFiles, files: dict[str, bytes]) -> None:
        land_files(files)
        silver.materialise(lake, "run-1", PolarsEngine())
        self._lake = lake

    def rows(self, table: Any, *columns: str, **where: Any) -> list[tuple[Any, ...]]:
        """Some columns of a table, sorted."""
        found = self._lake.reveal(table, self._lake.scan(table, ["run-1"]).collect().to_arrow())
        wanted = [row for row in found.to_pylist() if all(row[key] == value for key, value in where.items())]
        return sorted((tuple(row[column] for column in columns) for row in wanted), key=str)

    def gpu(self) -> list[tuple[Any, ...]]:
        """The work on GPUs: rank, name and the start of its launch."""
        return [row[1:] for row in self.rows(spans.TABLE, "is_gpu", "rank", "name", "launch_ts_ns") if row[0]]


def table(header: str, *rows: str) -> bytes:
    return "\n".join((header, *rows, "")).encode()


def calls(*called: tuple[int, int]) -> bytes:
    """A report of calls: process and correlation of each."""
    return table(_API, *(f"{10 + tie},2,cudaLaunchKernel,0,{tie},{pid},{pid}" for pid, tie in called))


def work(*worked: tuple[int, int]) -> bytes:
    """A report of GPU work: device and correlation of each."""
    return table(_GPU, *(f"{20 + tie},5,{tie},NVIDIA H100 ({device}),1,7,gemm{device}" for device, tie in worked))


# -- CSV ------------------------------------------------------------------------------------------------------------


def test_reports_of_two_processes_are_told_apart_by_their_calls(lake: Lake, land_files: LandFiles) -> None:
    files = {
        "a_cuda_api_trace.csv": calls((50, 1), (50, 2), (60, 2), (60, 3)),
        "a_cuda_gpu_trace.csv": work((0, 1), (0, 2), (1, 2), (1, 3)),
    }
    assert Conformed(lake, land_files, files).gpu() == [
        (0, "gemm0", 12),
        (0, "gemm0", 13),
        (1, "gemm1", 13),
        (1, "gemm1", 14),
    ]


def test_work_that_two_processes_may_have_launched_is_refused(lake: Lake, land_files: LandFiles) -> None:
    files = {
        "a_cuda_api_trace.csv": calls((50, 1), (60, 1)),
        "a_cuda_gpu_trace.csv": work((0, 1), (1, 1)),
    }
    found = Conformed(lake, land_files, files)
    assert found.gpu() == []
    assert found.rows(rule_counts.TABLE, "rule", "events_count", effect="rejected") == [("unknown_rank", 2)]
    reasons = [reason for (reason,) in found.rows(rejects.TABLE, "reason", level="process")]
    assert reasons == [
        f"its work on GPU {device} names no process, 2 processes made calls, and 2 of them have calls for all of it: "
        "`nsys export --type sqlite` names the process"
        for device in (0, 1)
    ]


def test_a_report_of_launches_tells_whose_the_work_is(lake: Lake, land_files: LandFiles) -> None:
    files = {
        "a_cuda_api_trace.csv": calls((50, 1), (60, 1)),
        "a_cuda_gpu_trace.csv": work((0, 1), (1, 1)),
        "a_cuda_kern_exec_trace.csv": table(
            _LAUNCHES, "11,2,21,5,50,50,0,cudaLaunchKernel,gemm0", "11,2,21,5,60,60,1,cudaLaunchKernel,gemm1"
        ),
    }
    found = Conformed(lake, land_files, files)
    assert found.gpu() == [(0, "gemm0", 12), (1, "gemm1", 12)]
    assert found.rows(rule_counts.TABLE, "events_count", rule="seen_elsewhere") == [(2,)]


def test_a_process_that_drives_two_gpus_has_each_call_beside_its_work(lake: Lake, land_files: LandFiles) -> None:
    files = {
        "a_cuda_api_trace.csv": calls((50, 1), (50, 2), (50, 3)),
        "a_cuda_gpu_trace.csv": work((0, 1), (1, 2), (1, 3)),
    }
    found = Conformed(lake, land_files, files)
    assert found.gpu() == [(0, "gemm1", 13), (0, "gemm1", 14), (1, "gemm0", 12)], "the GPU with most work comes first"
    assert found.rows(spans.TABLE, "rank", "ts_ns", is_gpu=False) == [(0, 13), (0, 14), (1, 12)]


# -- exports --------------------------------------------------------------------------------------------------------


def two(host: str | None = "node-a", said: tuple[str | None, str | None] = (None, None), first: int = 10) -> Export:
    """Two processes on one number of a GPU each, as MIG instances and masked devices appear."""
    export = Export(host)
    for process, json_text in zip((70, 71), said, strict=True):
        export.call(process, "cudaLaunchKernel", first, first + 2, 1)
        export.kernel(process, 0, f"gemm{process}", first + 10, first + 20, 1)
        if json_text is not None:
            export.mark(process, "ncclCommInitRank", first, first + 1, json_text)
    return export


def nccl(rank: int, count: int = 2) -> str:
    return json.dumps({"NCCL communicator ID": 5, "No. of ranks": count, "Rank": rank, "CUDA device": 0})


def test_processes_that_all_see_their_gpu_as_number_0_are_ranks_of_their_own(
    lake: Lake, land_files: LandFiles, tmp_path: Path
) -> None:
    found = Conformed(lake, land_files, {"a.sqlite": two().to_bytes(tmp_path / "a")})
    assert [row[:2] for row in found.gpu()] == [(0, "gemm70"), (1, "gemm71")]


def test_ranks_are_those_that_nccl_gives(lake: Lake, land_files: LandFiles, tmp_path: Path) -> None:
    export = two(said=(nccl(1), nccl(0)))
    found = Conformed(lake, land_files, {"a.sqlite": export.to_bytes(tmp_path / "a")})
    assert [row[:2] for row in found.gpu()] == [(0, "gemm71"), (1, "gemm70")]
    assert {source for (source,) in found.rows(nsys_ranks.TABLE, "rank_source")} == {"nccl"}


def test_ranks_that_nccl_gives_twice_are_not_believed(lake: Lake, land_files: LandFiles, tmp_path: Path) -> None:
    export = two(said=(nccl(1), nccl(1)))
    found = Conformed(lake, land_files, {"a.sqlite": export.to_bytes(tmp_path / "a")})
    assert [row[:2] for row in found.gpu()] == [(0, "gemm70"), (1, "gemm71")]
    assert {source for (source,) in found.rows(nsys_ranks.TABLE, "rank_source")} == {"assumed"}


def test_later_reports_of_the_same_processes_are_the_same_ranks(
    lake: Lake, land_files: LandFiles, tmp_path: Path
) -> None:
    files = {"a.1.sqlite": two().to_bytes(tmp_path / "a"), "a.2.sqlite": two(first=500).to_bytes(tmp_path / "b")}
    found = Conformed(lake, land_files, files)
    assert [row[:2] for row in found.gpu()] == [(0, "gemm70"), (0, "gemm70"), (1, "gemm71"), (1, "gemm71")]


def test_processes_of_equal_number_on_two_hosts_are_four_ranks(
    lake: Lake, land_files: LandFiles, tmp_path: Path
) -> None:
    files = {"a.sqlite": two("node-a").to_bytes(tmp_path / "a"), "b.sqlite": two("node-b").to_bytes(tmp_path / "b")}
    assert sorted(row[0] for row in Conformed(lake, land_files, files).gpu()) == [0, 1, 2, 3]


def test_the_same_time_of_the_same_process_in_a_second_file_is_refused(
    lake: Lake, land_files: LandFiles, tmp_path: Path
) -> None:
    again = two()
    again.mark(70, "something more", 1, 2)
    files = {"a.sqlite": two().to_bytes(tmp_path / "a"), "b.sqlite": again.to_bytes(tmp_path / "b")}
    found = Conformed(lake, land_files, files)
    assert [row[:2] for row in found.gpu()] == [(0, "gemm70"), (1, "gemm71")]
    reasons = {reason for (reason,) in found.rows(rejects.TABLE, "reason", level="process")}
    assert reasons == {"another file has the same process on the same GPU at the same time: land one of the two"}


def test_a_process_without_gpu_work_beside_others_is_no_rank(lake: Lake, land_files: LandFiles, tmp_path: Path) -> None:
    export = two()
    export.mark(99, "load", 1, 2)
    found = Conformed(lake, land_files, {"a.sqlite": export.to_bytes(tmp_path / "a")})
    assert found.rows(rule_counts.TABLE, "effect", "events_count", rule="idle_process") == [("merged", 1)]


def test_a_graph_whose_nodes_are_told_is_not_counted_again(lake: Lake, land_files: LandFiles, tmp_path: Path) -> None:
    export = Export()
    export.call(70, "cudaGraphLaunch_v10000", 1, 2, 9)
    export.kernel(70, 0, "first", 10, 20, 9, node=1)
    export.kernel(70, 0, "second", 25, 30, 9, node=2)
    export.graph(70, 0, 10, 30, 9, is_told=False)
    found = Conformed(lake, land_files, {"a.sqlite": export.to_bytes(tmp_path / "a")})
    assert found.gpu() == [(0, "first", SESSION_NS + 1), (0, "second", SESSION_NS + 1)]
    assert found.rows(rule_counts.TABLE, "effect", "events_count", rule="graph_nodes") == [("merged", 1)]


def test_calls_that_name_no_process_in_a_recording_of_several_are_no_ranks(lake: Lake, land_files: LandFiles) -> None:
    files = {
        "a_cuda_api_trace.csv": calls((50, 1), (60, 2)) + b"40,2,cudaDeviceSynchronize,0,9,,\n",
        "a_cuda_gpu_trace.csv": work((0, 1), (1, 2)),
    }
    found = Conformed(lake, land_files, files)
    assert [row[:2] for row in found.gpu()] == [(0, "gemm0"), (1, "gemm1")]
    assert found.rows(rule_counts.TABLE, "effect", "events_count", rule="no_process") == [("merged", 1)]


# -- steps ----------------------------------------------------------------------------------------------------------


def find_steps(lake: Lake, land_files: LandFiles, path: Path, export: Export, **more: bytes) -> list[tuple[Any, ...]]:
    """The steps of an export with one kernel on each of two GPUs of one process."""
    for tie, device in ((1, 0), (2, 1)):
        export.call(70, "cudaLaunchKernel", 1, 2, tie)
        export.kernel(70, device, "gemm", 3, 900, tie)
    found = Conformed(lake, land_files, {"a.sqlite": export.to_bytes(path), **more})
    columns = ("rank", "step_number", "ts_ns", "duration_ns", "step_source", "evidence")
    return [(rank, number, at - SESSION_NS, *rest) for rank, number, at, *rest in found.rows(steps.TABLE, *columns)]


def test_ranges_named_a_step_are_the_steps_of_every_gpu_of_their_process(
    lake: Lake, land_files: LandFiles, tmp_path: Path
) -> None:
    export = Export()
    for number in (7, 8):
        export.mark(70, f"iteration {number}", number * 100, number * 100 + 90)
        export.mark(70, "step", number * 100 + 50, number * 100 + 80)
    assert find_steps(lake, land_files, tmp_path / "a", export) == [
        (rank, number, number * 100, 90, "step_annotation", "measured") for rank in (0, 1) for number in (7, 8)
    ]


def test_what_lies_between_the_profilers_start_and_stop_is_an_inferred_step(
    lake: Lake, land_files: LandFiles, tmp_path: Path
) -> None:
    export = Export()
    for at in (100, 300):
        export.call(70, "cudaProfilerStart_v4000", at, at + 1)
        export.call(70, "cudaProfilerStop_v4000", at + 50, at + 51)
    assert find_steps(lake, land_files, tmp_path / "a", export) == [
        (rank, place, at, 50, "profiler_capture", "modelled") for rank in (0, 1) for place, at in enumerate((100, 300))
    ]


@pytest.mark.parametrize("sizes", [(1, 3, 3, 3, 2), (1, 3, 2, 3, 2)])
def test_bursts_of_collectives_that_are_alike_are_inferred_steps(
    lake: Lake, land_files: LandFiles, tmp_path: Path, sizes: tuple[int, ...]
) -> None:
    export = Export()
    for burst, size in enumerate(sizes):
        for place in range(size):
            at = burst * 1000 + place * 20
            export.kernel(70, 0, "ncclDevKernel_AllReduce", at + 10, at + 25, 100 + burst * 10 + place)
    found = Conformed(lake, land_files, {"a.sqlite": export.to_bytes(tmp_path / "a")})
    answer = found.rows(steps.TABLE, "step_number", "ts_ns", "duration_ns", "step_source", "evidence")
    alike = [(place, SESSION_NS + place * 1000 + 1010, 1000, "collective_bursts", "modelled") for place in range(3)]
    assert answer == (alike if sizes[2] == 3 else [(0, SESSION_NS + 10, 4035, "inferred", "modelled")])


_SITE = b"""
[[pattern]]
id = "my_step"
kind = "annotation"
name = '^Megatron tick [0-9]{1,9}\\z'
is_step = true

[[pattern]]
id = "my_all_to_all"
kind = "collective"
name = "^gemm"
"""


def test_a_sites_own_patterns_name_steps_and_collectives(lake: Lake, land_files: LandFiles, tmp_path: Path) -> None:
    export = Export()
    export.mark(70, "Megatron tick 4", 100, 190)
    files = {"span_kinds.toml": _SITE}
    assert [row[:2] for row in find_steps(lake, land_files, tmp_path / "a", export, **files)] == [(0, 4), (1, 4)]
    found = lake.scan(spans.TABLE, ["run-1"]).collect().filter(is_gpu=True)
    assert set(found.select("kind", "pattern").rows()) == {("collective", "site_collective")}


@pytest.mark.parametrize("table", [nsys_ranks.TABLE, steps.TABLE])
def test_an_export_of_nothing_has_no_ranks(lake: Lake, land_files: LandFiles, tmp_path: Path, table: Any) -> None:
    assert Conformed(lake, land_files, {"a.sqlite": Export().to_bytes(tmp_path / "a")}).rows(table, "rank") == []
