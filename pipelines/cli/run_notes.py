"""What `teetotal status` says of a run beside its line: files and events that were not simply kept, and why."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import polars as pl

from bronze import source_files, unreadable
from gold import attested_runs, pairs
from silver import crossings, nonce_budgets, rule_counts
from silver import runs as conformed
from silver.patterns import PATTERNS, UNKNOWN_ON_GPU

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lake.store import Lake
    from lake.tables import Table

_Scan: TypeAlias = "Callable[[Table], pl.LazyFrame]"
# A run, and a sentence.
_Note: TypeAlias = tuple[str, str]
# Every trace has these; they are in silver.rule_counts for whoever asks.
_EVERYDAY = ["flow_arrow", "metadata", "mark", UNKNOWN_ON_GPU]
# What moves data between ranks; an annotation beside a kernel does not, and may outlive the kernel's known name.
_COLLECTIVES = [
    *(pattern.id for pattern in PATTERNS.patterns if pattern.kind == "collective"),
    *("gloo_call", "hook_collective"),
]


def list_notes(lake: Lake, run_ids: Sequence[str]) -> dict[str, list[str]]:
    """What is to be known of some runs, a sentence each that begins with the run."""
    scan = partial(lake.scan, run_ids=run_ids)
    found: dict[str, list[str]] = {}
    for each in (_list_reasons, _list_rules, _list_unknown_collectives):
        for run_id, text in each(scan):
            found.setdefault(run_id, []).append(f"{run_id}: {text}")
    return found


def _list_reasons(scan: _Scan) -> Iterator[_Note]:
    """Why files were merged or rejected, and why byte_ranges could not be read, each with its count."""
    files = (
        scan(source_files.TABLE)
        .filter(pl.col("reason").is_not_null())
        .select("run_id", "file_name", "outcome", "reason")
        .sort("run_id", "file_name")
        .collect()
    )
    byte_ranges = (
        scan(unreadable.TABLE)
        .group_by("run_id", "reason")
        .agg(byte_ranges=pl.len(), length=pl.col("length_bytes").sum())
        .sort("run_id", "reason")
        .collect()
    )
    residues = (
        scan(source_files.TABLE)
        .group_by("run_id")
        .agg(pl.col("residue_count").sum())
        .filter(pl.col("residue_count") > 0)
        .sort("run_id")
        .collect()
    )
    for run, name, outcome, reason in files.iter_rows():
        yield run, f"{name} {outcome}: {reason}"
    for run, reason, count, length in byte_ranges.iter_rows():
        what = "byte range" if count == 1 else "byte ranges"
        yield run, f"{count:,} {what} ({length:,} bytes) unreadable: {reason}"
    for run, count in residues.iter_rows():
        yield run, f"{count:,} events keep their own text in `residue`"


def _list_rules(scan: _Scan) -> Iterator[_Note]:
    """What cleaning did, which promises were broken, and which patterns may have missed something."""
    counted = scan(rule_counts.TABLE).group_by("run_id", "effect", "rule", "sentence").agg(pl.col("events_count").sum())
    rules = counted.filter(pl.col("effect") != "kept", ~pl.col("rule").is_in(_EVERYDAY)).sort(
        "run_id", "effect", "rule"
    )
    broken = (
        scan(crossings.TABLE)
        .filter(pl.col("violation").is_not_null())
        .group_by("run_id", "violation")
        .agg(pl.len())
        .sort("run_id", "violation")
    )
    alone = (
        scan(pairs.TABLE)
        .filter(pl.col("reason").is_not_null(), pl.col("repeated_run_id").is_null())
        .select("run_id", "reason")
        .sort("run_id")
    )
    # Those that forged, refused or failed tokens contradict are told with the run's other contradictions.
    unattested = (
        scan(attested_runs.TABLE)
        .filter(pl.col("attestation").is_in([*attested_runs.NOT_ATTESTED, "replayed"]))
        .select("run_id", "attestation", "attestation_finding")
        .sort("run_id")
    )
    near = scan(nonce_budgets.TABLE).filter(pl.col("is_near_limit")).sort("run_id", "rank")
    for row in rules.collect().iter_rows(named=True):
        yield row["run_id"], f"{row['events_count']:,} {row['effect']}: {row['sentence']}"
    for run, sentence, count in broken.collect().iter_rows():
        yield run, f"{count:,} crossings: {sentence}"
    for row in near.collect().iter_rows(named=True):
        yield row["run_id"], f"the key of {row['key_scope']} has spent {row['used_fraction']:.1%} of its messages"
    for run, standing, finding in unattested.collect().iter_rows():
        why = attested_runs.NOT_ATTESTED.get(standing, "its token is replayed")
        yield run, f"not attested, {why}: {finding}"
    for run, reason in alone.collect().iter_rows():
        yield run, f"no pair: {reason}"


def _list_unknown_collectives(scan: _Scan) -> Iterator[_Note]:
    """Runs of several ranks in which no pattern knew a collective: a pattern that matches nothing is not silent."""
    kinds = (
        scan(rule_counts.TABLE)
        .filter(pl.col("effect") == "kept")
        .group_by("run_id")
        .agg(
            known=pl.col("rule").is_in(_COLLECTIVES).any(),
            unknown=pl.col("events_count").filter(pl.col("rule") == UNKNOWN_ON_GPU).sum(),
        )
        .filter(~pl.col("known"), pl.col("unknown") > 0)
    )
    ranks = pl.coalesce("found_world_size", "world_size", "ranks_count").alias("ranks")
    several = scan(conformed.TABLE).select("run_id", ranks).filter(pl.col("ranks") > 1)
    found = kinds.join(several, on="run_id").select("run_id", "unknown", "ranks").sort("run_id").collect()
    for run, unknown, count in found.iter_rows():
        known = "without a collective that silver/span_kinds.toml knows"
        yield run, f"a job of {count} ranks {known}; all {unknown:,} GPU kernels count as compute"
