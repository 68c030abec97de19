"""`teetotal demo`: the bundled recordings, landed and brought into the lake, and a first look at them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from bronze import trace_events
from lake.errors import EvidenceRejected
from lake.identity import MANIFEST

if TYPE_CHECKING:
    from lake.landing_zone import LandingZone
    from lake.store import Lake

_SAMPLES = Path(__file__).parent.parent / "samples"


def land_samples(zone: LandingZone) -> list[str]:
    """Land every bundled run that is not in the landing zone yet; give the ids of all of them."""
    recordings = sorted(path.parent for path in _SAMPLES.glob(f"*/{MANIFEST}"))
    if not recordings:
        raise EvidenceRejected(f"no recordings in {_SAMPLES}", "run the demo from a checkout of the repository")
    present, _ = zone.run_ids()
    for recording in recordings:
        if recording.name not in present:
            files = {path.name: path for path in sorted(recording.iterdir()) if path.name != MANIFEST}
            zone.land(recording.name, files, (recording / MANIFEST).read_text("utf-8"))
    return [recording.name for recording in recordings]


def first_look(lake: Lake, run_ids: list[str]) -> list[dict[str, str]]:
    """Per run: ranks, events, GPU events and the stretch of time that they cover, all measured."""
    gpu = pl.col("category").str.to_lowercase().is_in(["kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset"])
    timed = pl.col("phase") == "X"
    looked = (
        lake.scan(trace_events.TABLE, run_ids)
        .group_by("run_id")
        .agg(
            ranks=pl.col("rank").n_unique(),
            events=pl.len(),
            gpu_events=gpu.sum(),
            hook_spans=pl.col("name").str.starts_with("tee::").sum(),
            wall_ns=(pl.col("ts_ns") + pl.col("duration_ns")).filter(timed).max() - pl.col("ts_ns").filter(timed).min(),
        )
        .sort("run_id")
        .collect()
    )
    return [
        {
            "run": row["run_id"],
            "ranks": f"{row['ranks']}",
            "events": f"{row['events']:,}",
            "on the GPU": f"{row['gpu_events']:,}",
            "tee:: spans": f"{row['hook_spans']:,}",
            "recorded s": f"{row['wall_ns'] / 1e9:.3f}",
        }
        for row in looked.to_dicts()
    ]
