"""One row per training run: the regime that it claims, what the recording says to that, and a verdict to read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import narwhals as nw

from lake.frames import Frame, join_reasons, select_declared
from lake.tables import RUN_ID, Table, boolean, text
from silver.attestations import STANDINGS
from silver.recordings import TABLE as RECORDINGS
from silver.runs import TABLE as RUNS
from silver.steps import EVIDENCE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# Taken over as they are: the same words under the same names.
_KEPT = (
    "regime",
    "cc_mode",
    "is_shipped_mode",
    "agreement",
    "contradictions",
    "conflicts",
    "found_sealed_message_count",
    "found_violations_count",
    "ranks_count",
    "found_world_size",
    "world_size",
    "found_cc_mode",
    "found_cc_evidence",
)
# What is said of a token that a trusted key signed and that is still no attestation of this run.
NOT_ATTESTED = {
    "signature_only": "only its token's signature stands",
    "stale": "its token is stale",
    "unbound": "its token is not bound to this run",
    "unverified": "its token cannot be verified",
}

_MOST_NAMED = 5

TABLE = Table(
    tier="gold",
    name="attested_runs",
    grain="One row per training run.",
    key=("run_id",),
    inputs=("silver.runs", "silver.recordings"),
    columns=(
        RUN_ID,
        *(RUNS.column(name) for name in _KEPT),
        text(
            "attestation",
            "Standing of the run's worst token (silver.attestations), or replayed: an id or nonce of its tokens is "
            "also in another run of the lake; null where the run has no token.",
            nullable=True,
            one_of=("replayed", *STANDINGS),
        ),
        RUNS.column("attestation_finding"),
        RECORDINGS.column("signature"),
        RECORDINGS.column("signing_key_id"),
        text("signature_finding", "What speaks against the recorder's signature, as sentences.", nullable=True),
        RUNS.column("gpu_evidence"),
        boolean(
            "has_attestation",
            "Whether the run is attested: it has tokens, each stands, and no other run has them.",
        ),
        text("verdict", "The claim against the recording, as a sentence."),
        text("evidence", "measured: the recording bears on the claim; unobservable: it does not.", one_of=EVIDENCE),
        text("reason", "Why the claim stays unproven, as sentences.", nullable=True),
    ),
)


def find_replays(index: Mapping[str, Mapping[str, str | None]]) -> dict[str, list[str]]:
    """The runs that share an id or a nonce of their attestation tokens, each with the others."""
    ids = {run_id: set((run["attestation_ids"] or "").split()) for run_id, run in index.items()}
    holders: dict[str, set[str]] = {}
    for run_id, own in ids.items():
        for one in own:
            holders.setdefault(one, set()).add(run_id)
    found = {run_id: set().union(*(holders[one] for one in own)) - {run_id} for run_id, own in ids.items()}
    return {run_id: sorted(others) for run_id, others in found.items() if others}


def measure(runs: Frame, recordings: Frame, replayed_in: Sequence[str] = ()) -> Frame:
    """Put claim, device evidence, attestation and signature into one sentence; without proof it can only agree.

    `replayed_in` are other runs that hold tokens of this one. Nothing says which of them the token was issued for, so
    it attests none of them, and what it said of the device's mode is not believed either.
    """
    signed = recordings.select("run_id", "signature", "signing_key_id", signature_finding=nw.col("finding"))
    runs = runs.join(signed, on="run_id", how="left").with_columns(nw.col("signature").fill_null("unsigned"))
    if replayed_in:
        runs = _apply_replay(runs, replayed_in)
    runs = _apply_tampering(runs)
    is_unproven = nw.col("agreement") == "unproven"
    has_regime = ~nw.col("regime").is_null()
    is_blind = nw.col("gpu_evidence") == "unobservable"
    return select_declared(
        runs.with_columns(
            has_attestation=(nw.col("attestation") == "attested").fill_null(False),
            verdict=_verdict(),
            evidence=nw.when(is_unproven).then(nw.lit("unobservable")).otherwise(nw.lit("measured")),
            reason=join_reasons(
                (~has_regime, "the run claims no regime"),
                (is_unproven & is_blind, "no GPU rows were recorded"),
                (nw.col("attestation").is_null() & ~nw.col("found_cc_mode").is_null(), "nothing attests it"),
                (is_unproven & has_regime & ~is_blind, "nothing was recorded that only this regime leaves behind"),
            ),
        ),
        TABLE,
    )


def _apply_replay(runs: Frame, others: Sequence[str]) -> Frame:
    """The run as a token that is not its own leaves it."""
    named = ", ".join(others[:_MOST_NAMED]) + (f" and {len(others) - _MOST_NAMED} more" if others[_MOST_NAMED:] else "")
    finding = f"an id or nonce of its tokens is also in {named}"
    said = nw.lit(f"its attestation is replayed: {finding}")
    is_void = nw.col("attestation").is_in(["forged", "refused", "failed"]).fill_null(False)
    return runs.with_columns(
        attestation=nw.when(is_void).then(nw.col("attestation")).otherwise(nw.lit("replayed")),
        attestation_finding=nw.when(is_void).then(nw.col("attestation_finding")).otherwise(nw.lit(finding)),
        agreement=nw.lit("contradicted"),
        contradictions=nw.concat_str(nw.col("contradictions"), said, separator="; ", ignore_nulls=True),
        found_cc_mode=nw.lit(None).cast(nw.String),
        signature=nw.when(nw.col("signature") == "attested").then(nw.lit("signed")).otherwise(nw.col("signature")),
    )


def _apply_tampering(runs: Frame) -> Frame:
    """A recording that is not what was signed shows nothing that could agree."""
    is_changed = nw.col("signature").is_in(["forged", "broken"])
    said = nw.when(is_changed).then(
        nw.concat_str(nw.lit("the recording is not what was signed: "), nw.col("signature_finding"))
    )
    either = nw.concat_str(nw.col("contradictions"), said, separator="; ", ignore_nulls=True)
    return runs.with_columns(
        agreement=nw.when(is_changed).then(nw.lit("contradicted")).otherwise(nw.col("agreement")),
        contradictions=nw.when(is_changed).then(either).otherwise(nw.col("contradictions")),
    )


def _verdict() -> nw.Expr:
    """The agreement as a sentence, with what speaks for it."""
    regime = nw.col("regime")
    sealed, broken = "found_sealed_message_count", "found_violations_count"
    proof = (
        nw.when(nw.col(sealed) > 0)
        .then(_format_count(sealed, "message", "sealed"))
        .otherwise(nw.col("found_cc_evidence").fill_null("copies are labelled as it labels them"))
    )
    violations = nw.when(nw.col(broken) > 0).then(_format_count(broken, "violation")).otherwise(nw.lit("no violation"))
    agrees = nw.concat_str(
        regime, nw.lit(" is what the recording shows: "), proof, nw.lit(", "), violations, _describe_missing_ranks()
    )
    contradicted = nw.concat_str(nw.lit("contradicted: "), nw.col("contradictions"))
    unproven = nw.concat_str(nw.lit("unproven: nothing in the recording shows "), regime)
    found = (
        nw.when(regime.is_null())
        .then(nw.lit("unproven: the run claims no regime"))
        .otherwise(
            nw.when(nw.col("agreement") == "agrees")
            .then(agrees)
            .otherwise(nw.when(nw.col("agreement") == "contradicted").then(contradicted).otherwise(unproven))
        )
    )
    standing = nw.col("attestation")
    attested = nw.when(standing == "attested").then(nw.lit("; attested")).otherwise(nw.lit(""))
    for name, said in NOT_ATTESTED.items():
        sentence = nw.concat_str(nw.lit(f"; not attested, {said}: "), nw.col("attestation_finding").fill_null(""))
        attested = nw.when(standing == name).then(sentence).otherwise(attested)
    found = nw.concat_str(found, attested.fill_null(""), _describe_signature())
    is_devtools = (~nw.col("is_shipped_mode")).fill_null(False)
    return (
        nw.when(is_devtools)
        .then(nw.concat_str(found, nw.lit("; devtools is not a mode that people ship")))
        .otherwise(found)
    )


def _describe_signature() -> nw.Expr:
    """Who signed what was recorded; nothing where nobody did."""
    key = nw.concat_str(nw.lit("; signed when it was recorded, by key "), nw.col("signing_key_id").fill_null("several"))
    ends = {
        "attested": nw.lit(", which its attestation names"),
        "signed": nw.lit(", which no attestation names"),
        "partial": nw.concat_str(nw.lit(", in part: "), nw.col("signature_finding").fill_null("")),
    }
    found = nw.lit("")
    for name, end in ends.items():
        found = nw.when(nw.col("signature") == name).then(nw.concat_str(key, end)).otherwise(found)
    return found


def _describe_missing_ranks() -> nw.Expr:
    """What agrees is what was recorded: ranks without a trace are said."""
    world = nw.coalesce(nw.col("found_world_size"), nw.col("world_size"))
    seen = nw.col("ranks_count").cast(nw.Int64).cast(nw.String)
    sentence = nw.concat_str(
        nw.lit(", on "), seen, nw.lit(" of "), world.cast(nw.String), nw.lit(" ranks: the others recorded no trace")
    )
    is_short = ((nw.col("ranks_count") > 0) & (nw.col("ranks_count") < world)).fill_null(False)
    return nw.when(is_short).then(sentence).otherwise(nw.lit(""))


def _format_count(count: str, noun: str, *rest: str) -> nw.Expr:
    """A number with its noun, in the plural where it must be, and what else is to be said."""
    digits = nw.col(count).cast(nw.Int64).cast(nw.String)
    one, many = " ".join(("", noun, *rest)), " ".join(("", f"{noun}s", *rest))
    return (
        nw.when(nw.col(count) == 1)
        .then(nw.concat_str(digits, nw.lit(one)))
        .otherwise(nw.concat_str(digits, nw.lit(many)))
    )
