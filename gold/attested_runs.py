"""One row per training run: the regime that it claims, what the recording says to that, and a verdict to read."""

from __future__ import annotations

import narwhals as nw

from lake.frames import Frame, sentences, shaped
from lake.tables import RUN_ID, Table, boolean, text
from silver.runs import TABLE as RUNS
from silver.steps import EVIDENCE

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
    "found_cc_mode",
    "found_cc_evidence",
    "attestation",
    "attestation_finding",
    "gpu_evidence",
)

TABLE = Table(
    tier="gold",
    name="attested_runs",
    grain="One row per training run.",
    key=("run_id",),
    columns=(
        RUN_ID,
        *(RUNS.column(name) for name in _KEPT),
        boolean(
            "has_attestation",
            "Whether the run has attestation tokens, and each is signed by a key that was given and stands.",
        ),
        text("verdict", "The claim against the recording, as a sentence."),
        text("evidence", "measured: the recording bears on the claim; unobservable: it does not.", one_of=EVIDENCE),
        text("reason", "Why the claim stays unproven, as sentences.", nullable=True),
    ),
)


def measure(runs: Frame) -> Frame:
    """Put claim, device evidence and attestation into one sentence; without the last, agreeing is all it can be."""
    is_unproven = nw.col("agreement") == "unproven"
    has_regime = ~nw.col("regime").is_null()
    is_blind = nw.col("gpu_evidence") == "unobservable"
    return shaped(
        runs.with_columns(
            has_attestation=(nw.col("attestation") == "verified").fill_null(False),
            verdict=_verdict(),
            evidence=nw.when(is_unproven).then(nw.lit("unobservable")).otherwise(nw.lit("measured")),
            reason=sentences(
                (~has_regime, "the run claims no regime"),
                (is_unproven & is_blind, "no GPU rows were recorded"),
                (nw.col("attestation").is_null() & ~nw.col("found_cc_mode").is_null(), "nothing attests it"),
                (is_unproven & has_regime & ~is_blind, "nothing was recorded that only this regime leaves behind"),
            ),
        ),
        TABLE,
    )


def _verdict() -> nw.Expr:
    """The agreement as a sentence, with what speaks for it."""
    regime = nw.col("regime")
    sealed, broken = "found_sealed_message_count", "found_violations_count"
    proof = (
        nw.when(nw.col(sealed) > 0)
        .then(_counted(sealed, "message", "sealed"))
        .otherwise(nw.col("found_cc_evidence").fill_null("copies are labelled as it labels them"))
    )
    violations = nw.when(nw.col(broken) > 0).then(_counted(broken, "violation")).otherwise(nw.lit("no violation"))
    agrees = nw.concat_str(regime, nw.lit(" is what the recording shows: "), proof, nw.lit(", "), violations)
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
    attested = (
        nw.when(standing == "verified")
        .then(nw.lit("; attested"))
        .otherwise(
            nw.when(standing == "unverified")
            .then(nw.concat_str(nw.lit("; attestation "), nw.col("attestation_finding")))
            .otherwise(nw.lit(""))
        )
    )
    found = nw.concat_str(found, attested.fill_null(""))
    is_devtools = (~nw.col("is_shipped_mode")).fill_null(False)
    return (
        nw.when(is_devtools)
        .then(nw.concat_str(found, nw.lit("; devtools is not a mode that people ship")))
        .otherwise(found)
    )


def _counted(count: str, noun: str, *rest: str) -> nw.Expr:
    """A number with its noun, in the plural where it must be, and what else is to be said."""
    told = nw.col(count).cast(nw.Int64).cast(nw.String)
    one, many = " ".join(("", noun, *rest)), " ".join(("", f"{noun}s", *rest))
    return (
        nw.when(nw.col(count) == 1).then(nw.concat_str(told, nw.lit(one))).otherwise(nw.concat_str(told, nw.lit(many)))
    )
