"""`teetotal status`: which runs have landed, which are fresh or stale, and what was kept, merged and rejected."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from assets import bronze
from bronze import manifest, runs, source_files, unreadable
from lake.errors import EvidenceRejected
from lake.identity import MANIFEST

if TYPE_CHECKING:
    from lake.landing_zone import LandingZone
    from lake.store import Lake

_COUNTS = {
    "kept": "kept_files_count",
    "merged": "merged_files_count",
    "rejected": "rejected_files_count",
    "events": "events_count",
    "unreadable": "unreadable_count",
}


_RULE = f"it needs a name of letters, digits, '_', '.', '-' and a {MANIFEST} inside"


@dataclass(frozen=True)
class Status:
    """One line per run, and one sentence per thing that a person should know."""

    lines: list[dict[str, str]]
    notes: list[str]
    has_faults: bool


def status(lake: Lake, zone: LandingZone) -> Status:
    """Compare the landing zone with the lake; nothing is read that the lake knows already."""
    complete, incomplete = zone.run_ids()
    fresh = bronze.fresh(lake, zone, complete)
    landed = {row["run_id"]: row for row in lake.scan(runs.TABLE).collect().to_dicts()}
    lines, notes = [], []
    has_faults = False
    for run_id in sorted({*complete, *landed}):
        state = "gone"
        if run_id in complete:
            state = "fresh" if run_id in fresh else "stale" if run_id in landed else "new"
            try:
                manifest.parse(zone.manifest(run_id), f"{run_id}/{MANIFEST}")
            except EvidenceRejected as error:
                state, has_faults = "invalid", True
                notes.append(f"{run_id}: {error}")
        row = landed.get(run_id, {})
        counts = {name: f"{row[column]:,}" if row else "" for name, column in _COUNTS.items()}
        lines.append({"run": run_id, "state": state, "regime": row.get("regime") or "", **counts})
        if row.get("conflicts"):
            notes.append(f"{run_id}: {row['conflicts']}")
    notes += [f"{name}: not a run yet: {_RULE}" for name in incomplete]
    notes += _reasons(lake)
    return Status(lines, notes, has_faults)


def _reasons(lake: Lake) -> list[str]:
    """Why files were merged or rejected, and why stretches could not be read, each with its count."""
    files = (
        lake.scan(source_files.TABLE)
        .filter(pl.col("reason").is_not_null())
        .select("run_id", "file_name", "outcome", "reason")
        .sort("run_id", "file_name")
        .collect()
    )
    stretches = (
        lake.scan(unreadable.TABLE)
        .group_by("run_id", "reason")
        .agg(stretches=pl.len(), length=pl.col("length_bytes").sum())
        .sort("run_id", "reason")
        .collect()
    )
    residues = (
        lake.scan(source_files.TABLE)
        .group_by("run_id")
        .agg(pl.col("residue_count").sum())
        .filter(pl.col("residue_count") > 0)
        .sort("run_id")
        .collect()
    )
    return [
        *(f"{run}: {name} {outcome}: {reason}" for run, name, outcome, reason in files.iter_rows()),
        *(
            f"{run}: {count:,} {'stretch' if count == 1 else 'stretches'} ({length:,} bytes) unreadable: {reason}"
            for run, reason, count, length in stretches.iter_rows()
        ),
        *(f"{run}: {count:,} events keep their own text in `residue`" for run, count in residues.iter_rows()),
    ]
