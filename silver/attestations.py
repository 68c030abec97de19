"""One row per attestation token: what it proves, and the sentence that says why it does not."""

from __future__ import annotations

import narwhals as nw

from bronze.attestations import TABLE as TOKENS
from lake.frames import Frame, sentences, shaped
from lake.tables import RUN_ID, Table, text

# From the worst to the best: a run stands as its worst token does.
STANDINGS = ("forged", "refused", "failed", "unverified", "verified")
# Taken over as they are: the same words under the same names.
_KEPT = tuple(
    column
    for column in TOKENS.columns
    if column.name not in {"run_id", "source_sha256", "ordinal", "submodule", "header"}
)
# Earlier than this no clock of 1970 is believed: a profiler's session counts from its own start.
_EARLIEST_NS = 10**18

TABLE = Table(
    tier="silver",
    name="attestations",
    grain="One row per token of an attestation bundle.",
    key=("source_sha256", "ordinal"),
    columns=(
        RUN_ID,
        TOKENS.column("source_sha256"),
        TOKENS.column("ordinal"),
        TOKENS.column("submodule"),
        text(
            "standing",
            "forged, refused: the signature proves nothing; failed: signed, and it does not vouch for the device as it "
            "should; unverified: no key was given for it; verified: signed by a key that was given, and nothing in it "
            "speaks against the device.",
            one_of=STANDINGS,
        ),
        text("finding", "What speaks against it, as sentences; null where nothing does.", nullable=True),
        *_KEPT,
    ),
)


def conform(attestations: Frame, steps: Frame, throughput: Frame) -> Frame:
    """Believe only what a given key signed, and of that only what speaks for the device while it was recorded."""
    tokens = attestations.join(_recorded(steps, throughput), on="run_id", how="left")
    verdict = nw.col("verdict")
    debug = nw.col("debug_status").fill_null("disabled")
    measured = nw.col("measurement_result").fill_null("success")
    against = (
        (~nw.col("is_overall_success").fill_null(True), "its overall result is a failure"),
        (~measured.is_in(["success", "Success", "SUCCESS"]), "its measurements do not match"),
        (~nw.col("is_vouched").fill_null(True), "the overall token does not hold its digest"),
        (~nw.col("is_report_signature_verified").fill_null(True), "the signature of the device's report failed"),
        (~nw.col("is_certificate_chain_valid").fill_null(True), "the certificate chain of the report is not valid"),
        (~nw.col("is_nonce_matched").fill_null(True), "the report does not hold the nonce that was asked with"),
        (~nw.col("is_secure_boot").fill_null(True), "secure boot is off"),
        (~debug.str.starts_with("disabled"), "debugging is enabled"),
        ((nw.col("expires_ns") < nw.col("_first_ns")).fill_null(False), "it had expired before the run was recorded"),
        ((nw.col("not_before_ns") > nw.col("_last_ns")).fill_null(False), "it did not hold yet when the run ended"),
    )
    is_faulty = nw.lit(False)
    for condition, _ in against:
        is_faulty |= condition
    is_void = verdict.is_in(["forged", "refused"])
    standing = nw.when(~is_void & is_faulty).then(nw.lit("failed")).otherwise(verdict)
    signed = (
        (verdict == "forged", nw.concat_str(nw.lit("it is forged: "), nw.col("verdict_reason"))),
        (verdict == "refused", nw.concat_str(nw.lit("it is refused: "), nw.col("verdict_reason"))),
        (verdict == "unverified", nw.concat_str(nw.lit("it is unverified: "), nw.col("verdict_reason"))),
    )
    return shaped(tokens.with_columns(standing=standing, finding=sentences(*signed, *against)), TABLE)


def _recorded(steps: Frame, throughput: Frame) -> Frame:
    """When a run was recorded, as far as a clock says it: a transform has none of its own."""
    times = nw.concat(
        [
            steps.select("run_id", _at_ns=nw.col("ts_ns")),
            steps.select("run_id", _at_ns=nw.col("ts_ns") + nw.col("duration_ns")),
            throughput.select("run_id", _at_ns=nw.col("ts_ns")),
            throughput.select("run_id", _at_ns=nw.col("end_ns")),
        ]
    ).filter(nw.col("_at_ns") > _EARLIEST_NS)
    return times.group_by("run_id").agg(_first_ns=nw.col("_at_ns").min(), _last_ns=nw.col("_at_ns").max())
