from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from assets.build import silver
from lake.engines import engine
from silver import rule_counts, spans
from tests.support.campaigns import pick_engines

if TYPE_CHECKING:
    from lake.store import Lake
    from tests.conftest import LandFiles

CALLS = "Start (ns),Duration (ns),Name,Result,CorrID,Pid,Tid,T-Pri,Thread Name\n"
WORK = "Start (ns),Duration (ns),CorrId,Bytes (MB),SrcMemKd,DstMemKd,Device,Ctx,Strm,Name\n"


def reports(count: int) -> dict[str, bytes]:
    calls = "".join(f"{at * 100},40,cudaMemcpy,0,{at},1,1,20,app\n" for at in range(count))
    memories = "0.400,Managed,Device,NVIDIA H100 NVL (0),1,7"
    work = "".join(f"{at * 100 + 10},30,{at},{memories},[CUDA memcpy Device-to-Device]\n" for at in range(count))
    return {"app_cuda_api_trace.csv": (CALLS + calls).encode(), "app_cuda_gpu_trace.csv": (WORK + work).encode()}


@pytest.mark.parametrize("name", pick_engines())
def test_a_recording_shared_out_in_parts_gives_the_same_spans(
    lake: Lake, land_files: LandFiles, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    land_files(reports(20), "run-1", 'regime = "hopper_spt_cc"\ncc_mode = "on"\n')
    silver.materialise(lake, "run-1", engine(name))
    whole = lake.scan(spans.TABLE).sort("source_sha256", "ordinal").collect()
    assert whole.filter(whole["is_relabelled"])["launch_duration_ns"].to_list() == [40] * 20
    monkeypatch.setattr("assets.build.chunking.CHUNK_EVENTS", 7)
    silver.materialise(lake, "run-1", engine(name))
    assert lake.scan(spans.TABLE).sort("source_sha256", "ordinal").collect().equals(whole)
    kept = lake.scan(rule_counts.TABLE).collect().filter(effect="kept")["events_count"].sum()
    assert kept == 40
