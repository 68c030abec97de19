"""`teetotal status`: which runs have landed, which are up to date or stale, and what was kept, merged and rejected."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from assets.build.landing_memory import list_held_back
from assets.build.state import add_comparisons, assess_comparisons, assess_gone, assess_runs, list_left_over
from bronze import manifest, runs, source_files, unreadable
from gold import attested_runs, pairs
from gold.margin import MARGIN
from lake.attestation_keys import NO_KEYS, AttestationKeys
from lake.errors import EvidenceRejected, LakeError
from lake.forgetting import list_pending
from lake.identity import MANIFEST
from pipelines.cli.verification import find_damages, format_damage
from silver import crossings, nonce_budgets, rule_counts
from silver import runs as conformed
from silver.patterns import PATTERNS, UNKNOWN_ON_GPU

if TYPE_CHECKING:
    from lake.landing_zone import LandingZone
    from lake.store import Lake

_COUNTS = {
    "kept": "kept_files_count",
    "merged": "merged_files_count",
    "rejected": "rejected_files_count",
    "events": "events_count",
    "records": "records_count",
    "unreadable": "unreadable_count",
}
_FOUND = {"spans": "found_spans_count", "crossings": "found_crossings_count", "violations": "found_violations_count"}


_RULE = f"it needs a name of letters, digits, '_', '.', '-' and a {MANIFEST} inside"


@dataclass(frozen=True)
class Status:
    """One line per run, and one sentence per thing that a person should know."""

    lines: list[dict[str, str]]
    notes: list[str]
    has_faults: bool


def collect_status(lake: Lake, zone: LandingZone, keys: AttestationKeys = NO_KEYS, margin: float = MARGIN) -> Status:
    """Compare the landing zone with the lake; nothing is read that the lake knows already."""
    zone = zone.listed_once()
    complete, incomplete = zone.run_ids()
    damages = find_damages(lake)
    lake = lake.skipping_damaged()
    states = add_comparisons(lake, assess_runs(lake, zone, complete, keys, margin=margin))
    landed = {row["run_id"]: row for row in lake.scan(runs.TABLE).collect().to_dicts()}
    meant = {row["run_id"]: row for row in lake.scan(conformed.TABLE).collect().to_dicts()}
    gone = assess_gone(lake, landed.keys() - set(complete), margin)
    lines, notes = [], []
    has_faults = False
    for run_id in sorted({*complete, *landed}):
        state, reasons = "gone", [f"stale: {gone[run_id]}"] if run_id in gone else []
        if run_id in complete:
            state, reasons = ("new", []) if run_id not in landed else (states[run_id].word, states[run_id].reasons)
            has_faults |= state == "failed"
            try:
                manifest.parse(zone.manifest(run_id), f"{run_id}/{MANIFEST}")
            except EvidenceRejected as error:
                state, has_faults = "invalid", True
                notes.append(f"{run_id}: {error}")
        row = landed.get(run_id, {})
        counts = {name: f"{row[column]:,}" if row else "" for name, column in _COUNTS.items()}
        found = meant.get(run_id, {})
        counts |= {name: f"{found[column]:,}" if found else "" for name, column in _FOUND.items()}
        if run_id in complete and zone.is_open(run_id):
            notes += _describe_open(lake, run_id, found.get("so_far"))
        lines.append({"run": run_id, "state": state, "regime": row.get("regime") or "", **counts})
        notes += [f"{run_id}: {text}" for text in (*reasons, row.get("conflicts"), found.get("contradictions")) if text]
    for damage in damages:
        how = f"teetotal run {damage.run_id}" if damage.run_id in complete else "teetotal run --full"
        notes.append(f"{format_damage(damage)}: `{how}` builds it again")
    notes += list_left_over(lake)
    notes += [
        f"{run_id}: forgetting it was stopped halfway: `teetotal forget {run_id} --yes` finishes"
        for run_id in list_pending(lake.place)
    ]
    notes += [f"{name}: not a run yet: {_RULE}" for name in incomplete]
    compared = assess_comparisons(lake) if landed else {}
    notes += [f"{name}: {reason}" for (name, _), state in compared.items() for reason in state.reasons]
    has_faults |= any(state.failed for state in compared.values())
    notes += _reasons(lake)
    notes += _rules(lake)
    return Status(lines, notes, has_faults)


def _describe_open(lake: Lake, run_id: str, so_far: str | None) -> list[str]:
    """That a run is open, how far it has come, and which of its files are still being written."""
    try:
        waiting = list_held_back(lake.read_landing_note(run_id))
    except LakeError:  # without the keyring nobody knows; the rest of the status needs none
        waiting = []
    closing = f"`teetotal close {run_id}` when its last file is there"
    return [
        f"{run_id}: open, {so_far or 'nothing read yet'}: {closing}",
        *(
            f"{run_id}: {name} is not complete yet: it is read when it is, or when the run is closed"
            for name in waiting
        ),
    ]


def _reasons(lake: Lake) -> list[str]:
    """Why files were merged or rejected, and why byte_ranges could not be read, each with its count."""
    files = (
        lake.scan(source_files.TABLE)
        .filter(pl.col("reason").is_not_null())
        .select("run_id", "file_name", "outcome", "reason")
        .sort("run_id", "file_name")
        .collect()
    )
    byte_ranges = (
        lake.scan(unreadable.TABLE)
        .group_by("run_id", "reason")
        .agg(byte_ranges=pl.len(), length=pl.col("length_bytes").sum())
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
            f"{run}: {count:,} {'byte range' if count == 1 else 'byte ranges'} ({length:,} bytes) unreadable: {reason}"
            for run, reason, count, length in byte_ranges.iter_rows()
        ),
        *(f"{run}: {count:,} events keep their own text in `residue`" for run, count in residues.iter_rows()),
    ]


def _rules(lake: Lake) -> list[str]:
    """What cleaning did, which promises were broken, and which patterns may have missed something."""
    counted = (
        lake.scan(rule_counts.TABLE).group_by("run_id", "effect", "rule", "sentence").agg(pl.col("events_count").sum())
    )
    rules = counted.filter(pl.col("effect") != "kept", ~pl.col("rule").is_in(_EVERYDAY)).sort(
        "run_id", "effect", "rule"
    )
    broken = (
        lake.scan(crossings.TABLE)
        .filter(pl.col("violation").is_not_null())
        .group_by("run_id", "violation")
        .agg(pl.len())
        .sort("run_id", "violation")
    )
    alone = (
        lake.scan(pairs.TABLE)
        .filter(pl.col("reason").is_not_null(), pl.col("repeated_run_id").is_null())
        .select("run_id", "reason")
        .sort("run_id")
    )
    # Those that forged, refused or failed tokens contradict are told with the run's other contradictions.
    unattested = (
        lake.scan(attested_runs.TABLE)
        .filter(pl.col("attestation").is_in([*attested_runs.NOT_ATTESTED, "replayed"]))
        .select("run_id", "attestation", "attestation_finding")
        .sort("run_id")
    )
    near = lake.scan(nonce_budgets.TABLE).filter(pl.col("is_near_limit")).sort("run_id", "rank")
    return [
        *(
            f"{row['run_id']}: {row['events_count']:,} {row['effect']}: {row['sentence']}"
            for row in rules.collect().iter_rows(named=True)
        ),
        *(f"{run}: {count:,} crossings: {sentence}" for run, sentence, count in broken.collect().iter_rows()),
        *(
            f"{row['run_id']}: the key of {row['key_scope']} has spent {row['used_fraction']:.1%} of its messages"
            for row in near.collect().iter_rows(named=True)
        ),
        *(
            f"{run}: not attested, {attested_runs.NOT_ATTESTED.get(standing, 'its token is replayed')}: {finding}"
            for run, standing, finding in unattested.collect().iter_rows()
        ),
        *(f"{run}: no pair: {reason}" for run, reason in alone.collect().iter_rows()),
        *_strangers(lake),
    ]


# Every trace has these; they are in silver.rule_counts for whoever asks.
_EVERYDAY = ["flow_arrow", "metadata", "mark", UNKNOWN_ON_GPU]


# What moves data between ranks; an annotation beside a kernel does not, and may outlive the kernel's known name.
_COLLECTIVES = [
    *(pattern.id for pattern in PATTERNS.patterns if pattern.kind == "collective"),
    *("gloo_call", "hook_collective"),
]


def _strangers(lake: Lake) -> list[str]:
    """Runs of several ranks in which no pattern knew a collective: a pattern that matches nothing is not silent."""
    kinds = (
        lake.scan(rule_counts.TABLE)
        .filter(pl.col("effect") == "kept")
        .group_by("run_id")
        .agg(
            known=pl.col("rule").is_in(_COLLECTIVES).any(),
            unknown=pl.col("events_count").filter(pl.col("rule") == UNKNOWN_ON_GPU).sum(),
        )
        .filter(~pl.col("known"), pl.col("unknown") > 0)
    )
    ranks = pl.coalesce("found_world_size", "world_size", "ranks_count").alias("ranks")
    several = lake.scan(conformed.TABLE).select("run_id", ranks).filter(pl.col("ranks") > 1)
    return [
        f"{run}: a job of {ranks} ranks without a collective that silver/span_kinds.toml knows; "
        f"all {unknown:,} GPU kernels count as compute"
        for run, unknown, ranks in kinds.join(several, on="run_id")
        .select("run_id", "unknown", "ranks")
        .sort("run_id")
        .collect()
        .iter_rows()
    ]
