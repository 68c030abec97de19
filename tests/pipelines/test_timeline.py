"""`silver.timeline`: a step with its device's readings, its collectives and its log, in one query."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from assets.build import silver
from lake.engines import engine
from lake.errors import EvidenceRejected
from pipelines.cli import sandbox
from pipelines.cli.main import main
from silver import timeline

if TYPE_CHECKING:
    from lake.store import Lake
    from tests.conftest import LandFiles

PAGE = (Path(__file__).parent.parent.parent / "docs" / "landing.md").read_text("utf-8")
S = 1_000_000_000
NOON = 1_700_000_000


def trace() -> bytes:
    """Two steps of a second, an all-reduce in each."""
    events: list[dict[str, Any]] = []
    for at in range(2):
        start = (NOON + at) * 1_000_000
        events += [
            {"cat": "user_annotation", "name": f"ProfilerStep#{at}", "tid": 1, "ts": start, "dur": 1_000_000},
            {
                "cat": "kernel",
                "name": "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
                "tid": 7,
                "ts": start + 100,
                "dur": 50,
                "args": {"Collective name": "allreduce", "dtype": "Float", "In msg nelems": 1000, "Group size": 2},
            },
        ]
    shown = [{"ph": "X", "pid": 1, **event} for event in events]
    return json.dumps({"distributedInfo": {"rank": 0, "world_size": 2}, "traceEvents": shown}).encode()


def scrapes() -> bytes:
    times = [(NOON + quarter / 4, 100 + quarter) for quarter in range(8)]
    lines = [f'DCGM_FI_DEV_POWER_USAGE{{gpu="0",UUID="G"}} {watts} {int(at * 1000)}\n' for at, watts in times]
    return "".join(lines).encode()


LOG = f"step,began,duration,samples/s\n0,{NOON},1,32\n1,{NOON + 1},1,31\n".encode()
INSPECTOR = (
    b'{"header": {"id": "0xab", "rank": 0, "n_ranks": 2, "nnodes": 1}, "metadata": {"inspector_output_format_version":'
    b' "v4.0", "git_rev": "", "rec_mechanism": "nccl_profiler_interface", "dump_timestamp_us": %d, "hostname": "h",'
    b' "pid": 1}, "coll_perf": {"coll": "AllReduce", "coll_sn": 1, "coll_msg_size_bytes": 4000,'
    b' "coll_exec_time_us": 50, "coll_timing_source": "kernel_gpu", "coll_algobw_gbs": 1.5, "coll_busbw_gbs": 1.5}}\n'
    % (NOON * 1_000_000)
)


@pytest.fixture
def mixed_lake(lake: Lake, land_files: LandFiles) -> Lake:
    """A run with a trace, readings, a log and the Inspector's lines."""
    files = {"rank0.json": trace(), "dcgm.prom": scrapes(), "log-r0.csv": LOG, "inspector.jsonl": INSPECTOR}
    assert set(land_files(files).files["outcome"]) == {"kept"}
    silver.materialise(lake, "run-1", engine("polars"))
    return lake


def ask(lake: Lake, sql: str) -> list[dict[str, Any]]:
    with sandbox.ask(lake, sql) as answer:
        return list(answer.rows().read_all().to_pylist())


def test_every_source_stands_in_it_with_its_rows(mixed_lake: Lake) -> None:
    rows = ask(mixed_lake, "SELECT source, kind, count(*) AS n FROM silver.timeline GROUP BY ALL ORDER BY ALL")
    assert [tuple(row.values()) for row in rows] == [
        ("bronze.collective_records", "collective", 1),
        ("silver.collectives", "collective", 2),
        ("silver.device_samples", "reading", 8),
        ("silver.steps", "step", 2),
        ("silver.throughput", "step", 2),
    ]
    assert {row["source"] for row in rows} == {table.full_name for table in timeline.READS}


def test_the_query_on_the_page_joins_a_step_to_its_readings_and_its_collectives(mixed_lake: Lake) -> None:
    (text,) = re.findall(r"```sql\n(SELECT[^`]*silver\.timeline[^`]*)```", PAGE)
    assert ask(mixed_lake, text) == [
        {"rank": 0, "step_number": 0, "duration_ns": S, "collectives": 1, "collective_ns": 50_000, "mean_w": 101.5},
        {"rank": 0, "step_number": 1, "duration_ns": S, "collectives": 1, "collective_ns": 50_000, "mean_w": 105.5},
    ]


def test_every_row_has_its_evidence_and_a_run_that_is_not_there_has_none(mixed_lake: Lake) -> None:
    known = (
        "SELECT DISTINCT evidence FROM silver.timeline WHERE evidence NOT IN ('measured', 'modelled', 'unobservable')"
    )
    assert ask(mixed_lake, known) == []
    assert ask(mixed_lake, "SELECT * FROM silver.timeline WHERE run_id = 'nobody'") == []


def test_it_is_listed_and_a_near_miss_is_answered_with_its_name(mixed_lake: Lake) -> None:
    assert "timeline" in {row["name"] for row in ask(mixed_lake, "SHOW ALL TABLES")}
    with pytest.raises(EvidenceRejected, match=re.escape("silver.timeline")):
        ask(mixed_lake, "SELECT * FROM silver.timelines")


def test_show_prints_it_like_a_table(mixed_lake: Lake) -> None:
    words = ["--lake", str(mixed_lake.place), "show", "silver.timeline", "--format", "json"]
    shown = json.loads(CliRunner().invoke(main, [*words, "--run", "run-1"], catch_exceptions=False).stdout)
    assert len(shown) == 15
    assert [row["ts_ns"] for row in shown if row["ts_ns"]] == sorted(row["ts_ns"] for row in shown if row["ts_ns"])
    two = CliRunner().invoke(main, [*words, "--columns", "kind,unit", "--limit", "2"], catch_exceptions=False)
    assert [list(row) for row in json.loads(two.stdout)] == [["kind", "unit"]] * 2
    wrong = CliRunner().invoke(main, [*words, "--columns", "kinds"])
    assert (wrong.exit_code, "did you mean 'kind'?" in wrong.stderr) == (2, True)
