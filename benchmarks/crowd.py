"""`python -m benchmarks.crowd FOLDER FROM TO`: fills a lake with small runs, so that one more can be added to many."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path

from assets.build.tiers import TIERS, build_tier
from benchmarks.measuring import peak_bytes
from lake.engines import engine
from pipelines.definitions import build_context
from pipelines.settings import settings

_BATCH = 32
# One step with one kernel: a crowd is there to be many, not to be large.
_TRACE = """{"traceEvents": [
{"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "pid": 1, "tid": 1, "ts": %d, "dur": 100},
{"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": %d, "dur": 50, "args": {"stream": 7}}
]}"""


def main(folder: str, first: str, last: str) -> None:
    """Land small runs and make all of their tables."""
    places = settings(f"{folder}/lake", f"{folder}/landing")
    run_ids = [f"small-{number:05d}" for number in range(int(first), int(last))]
    for number, run_id in enumerate(run_ids):
        run = Path(folder) / "landing" / run_id
        run.mkdir(parents=True)
        (run / "rank0.json").write_text(_TRACE % (1000 + number, 1010 + number))
        (run / "run.toml").write_text('regime = "cc_off"\n')
    place = build_context(places)
    for start in range(0, len(run_ids), _BATCH):
        for tier in TIERS:
            faults = [
                made.fault
                for made in build_tier(place, tier, run_ids[start : start + _BATCH], partial(engine, "polars"))
            ]
            if any(faults):
                raise SystemExit(f"a small run failed: {[fault for fault in faults if fault]}")
    print(json.dumps({"peak_bytes": peak_bytes()}))


if __name__ == "__main__":
    main(*sys.argv[1:])
