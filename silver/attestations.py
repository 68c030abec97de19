"""One row per attestation token: what it proves of this run, and the sentence that says why it does not."""

from __future__ import annotations

import hashlib
import tomllib
from pathlib import Path
from typing import Any

import narwhals as nw

from bronze.attestations import TABLE as TOKENS
from lake.frames import Frame, divide_down, join_reasons, select_declared, to_flag
from lake.tables import RUN_ID, Table, text

_DATA = Path(__file__).with_name("attestation_policy.toml").read_bytes()
POLICY: dict[str, Any] = tomllib.loads(_DATA.decode())
POLICY_SHA256 = hashlib.sha256(_DATA).hexdigest()

# From the worst to the best: a run stands as its worst token does.
STANDINGS = ("forged", "refused", "failed", "signature_only", "stale", "unbound", "unverified", "attested")
# Taken over as they are: the same words under the same names.
_KEPT = tuple(
    column
    for column in TOKENS.columns
    if column.name not in {"run_id", "source_sha256", "ordinal", "submodule", "header"}
)
# Earlier than this no clock of 1970 is believed: a profiler's session counts from its own start.
_EARLIEST_NS = 10**18
_HOUR_NS = 3600 * 10**9
_AGE_NS, _DELAY_NS = POLICY["most_age_hours"] * _HOUR_NS, POLICY["most_delay_hours"] * _HOUR_NS

TABLE = Table(
    tier="silver",
    name="attestations",
    grain="One row per token of an attestation bundle.",
    key=("source_sha256", "ordinal"),
    inputs=("bronze.attestations", "bronze.runs", "silver.steps", "silver.throughput"),
    is_empty_without_first_input=True,
    columns=(
        RUN_ID,
        TOKENS.column("source_sha256"),
        TOKENS.column("ordinal"),
        TOKENS.column("submodule"),
        text(
            "standing",
            "forged, refused: the signature proves nothing; unverified: no key was given for it. All others are signed "
            "by a key that was given. failed: it says that the device did not pass, or does not say that it passed; "
            "signature_only: it is no attestation token of a known issuer; stale: it had expired, or was issued too "
            "long before the run; unbound: nothing ties it to this run's nonce, devices or time; attested: all of it "
            "stands (silver/attestation_policy.toml).",
            one_of=STANDINGS,
        ),
        text("finding", "What speaks against it, as sentences; null where nothing does.", nullable=True),
        *_KEPT,
    ),
)

_Reasons = tuple[tuple[nw.Expr, str | nw.Expr], ...]


def conform(attestations: Frame, runs: Frame, steps: Frame, throughput: Frame) -> Frame:
    """Believe only what a given key signed, and of that only what is said in full, of this run, in its time."""
    tokens = attestations.join(_find_recording_times(steps, throughput), on="run_id", how="left")
    tokens = tokens.join(runs.select("run_id", "attestation_nonce", "device_ueids"), on="run_id", how="left")
    tokens = _relate_tokens(tokens).with_columns(
        _signature_only=join_reasons(*_find_malformed()),
        _failed=join_reasons(*_find_failures()),
        _stale=join_reasons(*_find_outdated()),
        _unbound=join_reasons(*_find_unbound()),
    )
    verdict, unlike = nw.col("verdict"), nw.col("_signature_only")
    standing = nw.lit("attested")
    for name in ("unbound", "stale", "failed", "signature_only"):
        standing = nw.when(~nw.col(f"_{name}").is_null()).then(nw.lit(name)).otherwise(standing)
    # What is no attestation token has no result either: that alone is said of it.
    against = nw.when(~unlike.is_null()).then(unlike).otherwise(_join_sentences("_failed", "_stale", "_unbound"))
    unsigned = nw.concat_str(nw.lit("it is "), verdict, nw.lit(": "), nw.col("verdict_reason"))
    return select_declared(
        tokens.with_columns(
            standing=nw.when(verdict == "verified").then(standing).otherwise(verdict),
            finding=nw.when(verdict == "verified").then(against).otherwise(unsigned),
        ),
        TABLE,
    )


def _join_sentences(*columns: str) -> nw.Expr:
    """Sentences of several columns as one text; null where none has any."""
    is_any = nw.lit(False)
    for name in columns:
        is_any |= ~nw.col(name).is_null()
    return nw.when(is_any).then(nw.concat_str(*map(nw.col, columns), separator="; ", ignore_nulls=True))


def _relate_tokens(tokens: Frame) -> Frame:
    """Add what a token is, and how its run's tokens cover the devices that the run names."""
    is_overall = (
        nw.col("submodule").is_null()
        | ~nw.col("is_overall_success").is_null()
        | (nw.col("subject") == POLICY["overall_subject"]).fill_null(False)
    )
    named = nw.col("device_ueids").str.replace_all(" ", "", literal=True)
    tokens = tokens.with_columns(_is_overall=is_overall, _named=nw.concat_str(nw.lit(","), named, nw.lit(",")))
    ueid = nw.concat_str(nw.lit(","), nw.col("device_ueid"), nw.lit(","))
    is_device = ~nw.col("_is_overall") & (nw.col("verdict") == "verified")
    tokens = tokens.with_columns(
        _is_device=is_device, _is_named=(is_device & nw.col("_named").str.contains(ueid, literal=True)).fill_null(False)
    )
    named_ids = tokens.filter(nw.col("_is_named")).select("run_id", "device_ueid").unique()
    covered = named_ids.group_by("run_id").agg(_covered=nw.len().cast(nw.Int64))
    devices = tokens.group_by("run_id").agg(_devices=to_flag(nw.col("_is_device")).sum().cast(nw.Int64))
    tokens = tokens.join(covered, on="run_id", how="left").join(devices, on="run_id", how="left")
    # As many as there are commas between and around them, less one.
    commas = nw.col("_named").str.len_chars() - nw.col("_named").str.replace_all(",", "", literal=True).str.len_chars()
    return tokens.with_columns(nw.col("_covered").fill_null(0), _wanted=commas.cast(nw.Int64) - 1)


def _find_malformed() -> _Reasons:
    """Why something signed is no attestation token."""
    issuer, subject, is_overall = nw.col("issuer"), nw.col("subject"), nw.col("_is_overall")
    is_known = issuer.is_in(POLICY["issuers"]).fill_null(False)
    is_platform = (subject == POLICY["overall_subject"]).fill_null(False)
    has_claims = ~(
        nw.col("measurement_result").is_null() | nw.col("hardware_model").is_null() | nw.col("device_ueid").is_null()
    )
    return (
        (issuer.is_null(), "it names no issuer (`iss`)"),
        (
            ~issuer.is_null() & ~is_known,
            nw.concat_str(nw.lit("its issuer is no known verifier: "), issuer),
        ),
        (is_overall & ~is_platform, f"it is not about {POLICY['overall_subject']} (`sub`)"),
        (
            ~is_overall & ~has_claims,
            "it holds no claims of a device (`measres`, `hwmodel`, `ueid`)",
        ),
        (nw.col("nonce").is_null(), "it names no nonce (`eat_nonce`)"),
        (nw.col("token_id").is_null(), "it has no id (`jti`)"),
    )


def _find_failures() -> _Reasons:
    """What it says against the device, and what it does not say for it."""
    is_overall, is_device = nw.col("_is_overall"), ~nw.col("_is_overall")
    is_measured = nw.col("measurement_result").is_in(POLICY["measurement_results"]).fill_null(False)
    debug = nw.col("debug_status")
    return (
        *_require_claim(
            is_overall, "is_overall_success", "its overall result is a failure", "it gives no overall result"
        ),
        (is_device & ~is_measured, "its measurements do not match"),
        *_require_claim(
            is_device, "is_vouched", "the overall token does not hold its digest", "no overall token holds its digest"
        ),
        *_require_claim(
            is_device,
            "is_report_signature_verified",
            "the signature of the device's report failed",
            "it does not say that the signature of the device's report was verified",
        ),
        *_require_claim(
            is_device,
            "is_certificate_chain_valid",
            "the certificate chain of the report is not valid",
            "it does not say that the certificate chain of the report is valid",
        ),
        *_require_claim(
            is_device,
            "is_nonce_matched",
            "the report does not hold the nonce that was asked with",
            "it does not say that the report holds the nonce",
        ),
        *_require_claim(is_device, "is_secure_boot", "secure boot is off", "it does not say that secure boot is on"),
        (is_device & debug.is_null(), "it does not say that debugging is disabled"),
        (is_device & ~debug.is_null() & ~debug.is_in(POLICY["debug_states"]), "debugging is enabled"),
    )


def _require_claim(applies: nw.Expr, column: str, is_false: str, is_unknown: str) -> _Reasons:
    """A claim that must be true: what is said where it is false, and where it is missing or not known."""
    claim = nw.col(column)
    return (applies & ~claim.fill_null(True), is_false), (applies & claim.is_null(), is_unknown)


def _find_outdated() -> _Reasons:
    """Why it says nothing of the time of the run."""
    issued, expires, first = nw.col("issued_ns"), nw.col("expires_ns"), nw.col("_first_ns")
    age = _gap_ns(issued, first)
    return (
        (issued.is_null(), "it does not say when it was issued (`iat`)"),
        (expires.is_null(), "it does not say until when it holds (`exp`)"),
        (
            age > _AGE_NS,
            nw.concat_str(
                nw.lit("it was issued "),
                divide_down(age, nw.lit(_HOUR_NS).cast(nw.Int64)).cast(nw.String),
                nw.lit(f" hours before the run began, and {POLICY['most_age_hours']} are allowed"),
            ),
        ),
        ((expires < first).fill_null(False), "it had expired before the run was recorded"),
    )


def _find_unbound() -> _Reasons:
    """What does not tie it to this run: nonce, devices, time."""
    nonce, asked, last = nw.col("nonce").str.to_lowercase(), nw.col("attestation_nonce"), nw.col("_last_ns")
    is_overall, has_names = nw.col("_is_overall"), ~nw.col("_named").is_null()
    return (
        (asked.is_null(), "run.toml names no attestation_nonce"),
        (
            (nonce != asked.str.to_lowercase()).fill_null(False),
            "its nonce is not the attestation_nonce of run.toml",
        ),
        (is_overall & (nw.col("_devices") == 0), "no token of a device stands beside it"),
        (~has_names, "run.toml names no device_ueids"),
        (~is_overall & has_names & ~nw.col("_is_named"), "its device is not among the device_ueids of run.toml"),
        (
            is_overall & has_names & (nw.col("_covered") < nw.col("_wanted")).fill_null(False),
            nw.concat_str(
                nw.lit("run.toml names "),
                nw.col("_wanted").cast(nw.String),
                nw.lit(" device_ueids, and tokens speak for "),
                nw.col("_covered").cast(nw.String),
            ),
        ),
        (last.is_null(), "no step or log of the run has a time to hold it against"),
        (
            _gap_ns(last, nw.col("issued_ns")) > _DELAY_NS,
            f"it was issued more than {POLICY['most_delay_hours']} hour after the run ended",
        ),
        (_gap_ns(last, nw.col("not_before_ns")) > _DELAY_NS, "it did not hold yet when the run ended"),
    )


def _gap_ns(earlier: nw.Expr, later: nw.Expr) -> nw.Expr:
    """How long after one moment another is; 0 where it is not after it, or one is unknown."""
    nothing = nw.lit(0).cast(nw.Int64)
    # From 1970 on: the difference of two numbers of 64 bits need not be one.
    start = nw.when(earlier > 0).then(earlier).otherwise(nw.when(~earlier.is_null()).then(nothing))
    return nw.when((later > start).fill_null(False)).then(later - start).otherwise(nothing)


def _find_recording_times(steps: Frame, throughput: Frame) -> Frame:
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
