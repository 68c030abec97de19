"""One row per training run: what its manifest claims, what its files say, and where the two disagree."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from bronze.file_report import overlap
from bronze.manifest import CLAIMS, Manifest
from lake.tables import RUN_ID, Table, boolean, int64, text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bronze.file_report import FileReport

# Parquet keeps no statistics of values above 4 KiB. A run of more nonces than one is not attested whatever it holds.
_MOST_ATTESTATION_IDS = 128

TABLE = Table(
    tier="bronze",
    name="runs",
    grain="One row per training run that has landed completely.",
    key=("run_id",),
    columns=(
        RUN_ID,
        *CLAIMS,
        text("extra", "The manifest's `[extra]` table as JSON text.", nullable=True, sensitive=True),
        text("manifest_sha256", "Digest of `run.toml`."),
        int64("found_world_size", "Ranks of the job, as the traces say.", nullable=True, minimum=1),
        text("found_backend", "Collective backend, as the traces say.", nullable=True),
        text("found_gpu", "GPU model, as the traces say.", nullable=True),
        int64("ranks_count", "Ranks that a trace has landed from.", minimum=0),
        int64("files_count", "Files in the landing directory, the manifest aside.", minimum=0),
        int64("kept_files_count", "Files whose rows are here.", minimum=0),
        int64("merged_files_count", "Files that repeat the content of another.", minimum=0),
        int64("rejected_files_count", "Files that were refused, each with its reason.", minimum=0),
        int64("events_count", "Trace events landed.", minimum=0),
        int64("records_count", "Rows landed from files that are no traces.", minimum=0),
        int64("unreadable_count", "Byte ranges that no reader could parse.", minimum=0),
        text(
            "attestation_ids",
            "Nonces of the run's verified attestation tokens, and ids of those of whole platforms, each as the start "
            "of a digest: no other run may have one of them.",
            nullable=True,
        ),
        boolean("is_open", "Whether more files were to come when it was read (`.open` in its directory)."),
        int64("cycles_count", "Cycles of the profiler: the most traces that one rank has landed.", minimum=0),
        text("conflicts", "Where claim and files disagree, as sentences; null where they agree.", nullable=True),
    ),
)


def rows(
    run_id: str, manifest: bytes, claims: Manifest, reports: Sequence[FileReport], *, is_open: bool = False
) -> pa.Table:
    """The one row of a run."""
    kept = [report for report in reports if report.is_trace]
    others = [report for report in reports if report.outcome == "kept" and not report.is_trace]
    outcomes = Counter(report.outcome for report in reports)
    found = {
        "world_size": _most({report.world_size for report in kept}),
        "backend": _most({report.backend for report in kept}),
        "gpu": _most({report.gpu for report in kept}),
    }
    ranks = {report.rank for report in kept}
    row = {
        "run_id": run_id,
        **{claim.name: claims.claims.get(claim.name) for claim in CLAIMS},
        "extra": json.dumps(claims.extra, sort_keys=True, default=str) if claims.extra else None,
        "manifest_sha256": hashlib.sha256(manifest).hexdigest(),
        "found_world_size": found["world_size"],
        "found_backend": found["backend"],
        "found_gpu": found["gpu"],
        "ranks_count": len(ranks),
        "files_count": len(reports),
        "kept_files_count": outcomes["kept"],
        "merged_files_count": outcomes["merged"],
        "rejected_files_count": outcomes["rejected"],
        "events_count": sum(report.events_count for report in kept),
        "records_count": sum(report.rows_count for report in others),
        "unreadable_count": sum(report.unreadable_count for report in (*kept, *others)),
        "attestation_ids": _attestation_ids(others),
        "is_open": is_open,
        "cycles_count": max(Counter(report.rank for report in kept).values(), default=0),
        "conflicts": "; ".join(_conflicts(claims, found, kept)) or None,
    }
    return pa.Table.from_pylist([row], schema=TABLE.arrow_schema)


def _attestation_ids(reports: Sequence[FileReport]) -> str | None:
    """The ids of all files' tokens, nonces first; so few that the log, which leaves out long values, keeps them."""
    found = {name for report in reports for name in report.attestation_ids}
    ordered = sorted(found, key=lambda name: (not name.startswith("nonce:"), name))
    return " ".join(ordered[:_MOST_ATTESTATION_IDS]) or None


def _most(values: set[Any]) -> Any:
    """The one value that the files give; where they differ, the largest (the conflict is recorded beside it)."""
    known = sorted(value for value in values if value is not None)
    return known[-1] if known else None


def _conflicts(claims: Manifest, found: dict[str, Any], kept: list[FileReport]) -> Iterator[str]:
    """Where the manifest and the traces, or the traces among themselves, say different things."""
    for name, value in found.items():
        claimed = claims.claims.get(name)
        if claimed is not None and value is not None and claimed != value:
            yield f"{name}: the manifest says {claimed}, the traces say {value}"
    for what in ("world_size", "gpu"):
        said = sorted({str(value) for report in kept if (value := getattr(report, what)) is not None})
        if len(said) > 1:
            yield f"{what}: the traces differ ({', '.join(said)})"
    size = found["world_size"]
    missing = sorted(set(range(min(size, 1 << 16))) - {report.rank for report in kept}) if size else []
    if missing and kept:
        yield f"ranks: {size} in the job, no trace from {', '.join(map(str, missing[:8]))}{' …' if missing[8:] else ''}"
    doubled = sorted({one.rank or 0 for one, next_one in _list_neighbours(kept) if overlap(one, next_one)})
    if doubled:
        yield f"ranks: more than one trace of rank {', '.join(map(str, doubled))}"


def _list_neighbours(kept: list[FileReport]) -> Iterator[tuple[FileReport, FileReport]]:
    """Traces of one rank that follow each other in time."""
    ordered = sorted(kept, key=lambda report: (report.rank or 0, report.first_ns or 0, report.sha256 or ""))
    return ((one, later) for one, later in pairwise(ordered) if one.rank == later.rank)
