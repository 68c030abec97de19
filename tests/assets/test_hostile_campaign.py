"""Mutated files of every format, from landing to gold: no crash, every file accounted for, every check held."""

from __future__ import annotations

import gzip
import json
import random
import re
import resource
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from assets.build.context import BuildContext
from assets.build.tiers import TIERS, build_tier
from assets.checks.expectations import check_tables
from bronze import source_files
from bronze.formats import NAMES
from bronze.limits import Limits
from lake.engines import engine
from lake.errors import EvidenceRejected
from lake.identity import MANIFEST
from tests.support import good_tokens
from tests.support.campaigns import pick_size
from tests.support.hostile_corpus import draw_file
from tests.support.mlflow_stores import make_store
from tests.support.nsys_exports import eight_processes
from tests.support.recording_statements import envelop
from tests.support.step_traces import Recorder, Step
from tests.support.tokens import Signer
from tests.support.traces import GOOD

if TYPE_CHECKING:
    from tests.conftest import LandFiles

SAMPLE = Path(__file__).parent.parent.parent / "samples" / "bert-base-sealed-w2"
WRITTEN = Path(__file__).parent.parent / "bronze" / "written_logs"
AT_ONCE = 100
RUNS = pick_size(1, 100)
MANIFESTS = pick_size(25, 1_000)
MIB = 1 << 20
# A process keeps some MB for each run that it has built: freed memory that allocators hold, and the logs of all tables.
GROWTH = pick_size(512, 1_024) * MIB
_SENTENCE = re.compile(r"\S+ \S+ \S.*", re.DOTALL)
_INSPECTOR = {
    "header": {"id": "0xabc", "rank": 3, "n_ranks": 8, "nnodes": 1},
    "metadata": {"dump_timestamp_us": 1700000000123456, "hostname": "node-7", "pid": 41},
    "coll_perf": {"coll": "AllReduce", "coll_sn": 9, "coll_msg_size_bytes": 65536, "coll_exec_time_us": 110},
}
_BENCHMARK = {"results": [{"size": 8, "out_of_place": {"time": 13.125, "alg_bw": 0.1}, "in_place": {"time": 12}}] * 3}
_LOG = b"""hello
:::MLLOG {"time_ms": 1700000000123, "key": "throughput", "value": 5.5, "metadata": {"step_num": 7}}
node-7:41:43 [0] NCCL INFO CC On, workFifoBytes 0
node-7:41:43 [0] NCCL INFO AllReduce: opCount 1e7 sendbuff 0x1 recvbuff 0x2 count 18816 datatype 7 op 0 root 0 comm 0x5
"""
_DCGM = b'DCGM_FI_DEV_POWER_USAGE{gpu="0",UUID="GPU-1",Hostname="h"} 71.329 1700000000123\nDCGM_FI_DEV_X{gpu="1"} 1\n'
_REPORT = b"Start (ns),Duration (ns),Name,Tid,CorrID,Device,Ctx,Strm\n1,2,gemm,9,1,0,1,7\n30,4,relu,9,2,0,1,7\n"


def thin(trace: bytes) -> bytes:
    """The beginning of a recorded trace, with its steps, collectives and seals."""
    document = json.loads(trace)
    events = sorted(document["traceEvents"], key=lambda event: event.get("ts", 0))
    return json.dumps({**document, "traceEvents": events[:300]}).encode()


@pytest.fixture(scope="module")
def seeds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """A good file of every format."""
    (trace,) = SAMPLE.glob("*.json.gz")
    return {
        "kineto": thin(gzip.decompress(trace.read_bytes())),
        "kineto of steps": Recorder().record([Step(100, 80, has_collective=True, does_wait=True)] * 6, world_size=2),
        "nsys_sqlite": eight_processes(7)[0].to_bytes(tmp_path_factory.mktemp("export") / "made.sqlite"),
        "nsys_csv": _REPORT,
        "training_csv": (SAMPLE / "steps-r0.csv").read_bytes(),
        "training_csv of another country": b"# ours\n#step;loss;time\n1;2,5;0,25\n2;2,25;250ms\n",
        "training_json": b'{"step": 1, "loss": 2.5, "time": 0.25}\n{"step": 2, "loss": 2.0, "time": 0.5, "x": [1]}\n',
        "training_json in one": b'{"log_history": [{"step": 1, "loss": 2.5, "elapsed_time": "0:00:05"}]}',
        "nvidia_smi_dmon": b"# gpu    pwr     sm\n# Idx      W      %\n    0    525     99\n    0      -     98\n",
        "job_log of steps": b"iter 1: loss 2.5, time 12.25ms\niter 2: loss 2.25, time 12.5ms\n",
        "nvidia_smi": (SAMPLE / "device_samples.csv").read_bytes(),
        "conf_compute": (SAMPLE / "conf_compute.txt").read_bytes(),
        "job_log": _LOG,
        "dcgm": _DCGM,
        "nccl_inspector": b"\n".join(json.dumps(_INSPECTOR).encode() for _ in range(3)),
        "nccl_tests": json.dumps(_BENCHMARK).encode(),
        "copy_rate_csv": b"type,size,bw\npinned h2d,64,0.002\npageable d2h,1073741824,11.5\n",
        "span_kinds": b'[[pattern]]\nid = "ours"\nkind = "collective"\nname = "^our_all_to_all"\n',
        "tensorboard": (WRITTEN / "tensorboardx.events").read_bytes(),
        "mlflow": (WRITTEN / "mlflow.metric").read_bytes(),
        "mlflow_sqlite": make_store([("loss", step / 8, 1_700_000_000_250 + step, "a", step, 0) for step in range(60)]),
        # Without the record that fills blocks with one letter.
        "wandb_log": gzip.decompress((WRITTEN / "run.wandb.gz").read_bytes())[:15_165],
        "wandb": b'{"_step": 0, "_timestamp": 1700000000.5, "loss": 2}\n{"_step": 1, "_timestamp": 1700000001}\n',
        "eat_bundle": good_tokens.bundle(Signer()),
        "recording_statement": envelop(),
    }


def test_the_campaign_begins_with_a_good_file_of_every_format(land_files: LandFiles, seeds: dict[str, bytes]) -> None:
    landed = land_files(seeds)
    found = dict(landed.files.select("file_name", "format").iter_rows())
    assert {name: name.partition(" ")[0] for name in seeds} == found
    assert set(landed.files["outcome"]) == {"kept"}
    assert set(found.values()) == set(NAMES) - {"unknown"}


@pytest.mark.timeout(pick_size(300, 14_400))
def test_mutated_files_are_kept_or_rejected_with_a_reason_and_every_check_holds(
    land_files: LandFiles, seeds: dict[str, bytes]
) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    outcomes: set[str] = set()
    for number in range(RUNS):
        chance, run_id = random.Random(number), f"run-{number}"
        files = {f"{place}.bin": draw_file(list(seeds.values()), chance) for place in range(AT_ONCE)}
        land_files.write(files, run_id)
        build = partial(build_tier, BuildContext(land_files.lake, land_files.zone, Limits()), run_ids=[run_id])
        for tier, tables in TIERS.items():
            (made,) = build(tier=tier, engines=partial(engine, "polars", None))
            if tier == "silver" and isinstance(made.fault, EvidenceRejected):
                # A site's own patterns decide what its spans are: one that is wrong stops its run.
                assert str(made.fault).startswith("pattern "), made.fault
                break
            assert made.fault is None, f"{tier} of {run_id}: {made.fault}"
            broken = [
                one for table in tables for one in check_tables(land_files.lake, table, [run_id]) if not one.is_held
            ]
            assert broken == [], run_id
        landed = land_files.lake.scan(source_files.TABLE, [run_id]).collect()
        assert sorted(landed["file_name"]) == sorted(files)
        for row in landed.to_dicts():
            outcomes.add(row["outcome"])
            assert row["outcome"] == "kept" or _SENTENCE.fullmatch(row["reason"]), row
    assert outcomes >= {"kept", "rejected"}
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 < GROWTH


@pytest.mark.timeout(pick_size(300, 14_400))
def test_a_mutated_manifest_is_read_or_refused_with_a_reason(land_files: LandFiles) -> None:
    manifest = (SAMPLE / "run.toml").read_bytes()
    texts = [draw_file([manifest], random.Random(number)) for number in range(MANIFESTS)]
    run_ids = [f"run-{number}" for number in range(MANIFESTS)]
    for run_id, text in zip(run_ids, texts, strict=True):
        (land_files.write({"good.json": GOOD}, run_id) / MANIFEST).write_bytes(text)
    build_context = BuildContext(land_files.lake, land_files.zone, Limits())
    made = build_tier(build_context, "bronze", run_ids, partial(engine, "polars", None))
    refused = {one.run_id: one.fault for one in made if one.fault is not None}
    assert {type(fault) for fault in refused.values()} == {EvidenceRejected}, refused
    landed = land_files.lake.scan(source_files.TABLE).collect()
    assert set(landed["run_id"]) == set(run_ids) - refused.keys()
    assert len(landed) == MANIFESTS - len(refused) > 0
