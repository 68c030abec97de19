"""One row per training run: whether its files are those that a recorder signed, and whether that key is attested."""

from __future__ import annotations

import narwhals as nw

from lake.frames import Frame, join_reasons, select_declared, to_flag
from lake.tables import RUN_ID, Table, int64, text

# From the worst to the best.
SIGNATURES = ("forged", "broken", "partial", "unsigned", "signed", "attested")
# What proves itself: a statement is checked with its key, a token with the keys that were given.
_SELF_PROVING = ("recording_statement", "eat_bundle")

TABLE = Table(
    tier="silver",
    name="recordings",
    grain="One row per training run.",
    key=("run_id",),
    inputs=("bronze.recording_statements", "bronze.source_files", "bronze.runs", "silver.attestations"),
    columns=(
        RUN_ID,
        text(
            "signature",
            "unsigned: no statement landed; forged: a signature is not by the key that its statement names; broken: "
            "the files are not those that were signed for this run; partial: some files, or run.toml, nobody signed; "
            "signed: all are as they were signed; attested: and an attestation of this run names the key.",
            one_of=SIGNATURES,
        ),
        text("signing_key_id", "The key; null where there is none, or several.", nullable=True),
        int64("files_count", "Files of the run that a recorder should have signed.", minimum=0),
        int64("signed_files_count", "Those of them that are as they were signed.", minimum=0),
        int64("missing_files_count", "Files that were signed and have not landed so.", minimum=0),
        text("finding", "What speaks against it, as sentences; null where nothing does.", nullable=True),
    ),
)
_INT = nw.Int64
_FILE = ["run_id", "file_sha256"]


def conform(statements: Frame, sources: Frame, runs: Frame, attestations: Frame) -> Frame:
    """Hold the digests that were signed for this run against those that landed, and its key against its attestation."""
    is_own = nw.col("statement_run_id") == nw.col("run_id")
    is_good = nw.col("verdict") == "verified"
    said = statements.filter(is_good, is_own)
    manifests = runs.select("run_id", file_sha256=nw.col("manifest_sha256"), _has_landed=nw.lit(1).cast(_INT))
    files = sources.select("run_id", "format", file_sha256=nw.col("source_sha256").fill_null(""))
    signed = said.filter(~nw.col("is_manifest")).select(*_FILE).unique()
    claimed = said.filter(nw.col("is_manifest")).select(*_FILE).unique().join(manifests, on=_FILE, how="left")
    landed = files.filter(~nw.col("format").is_in(_SELF_PROVING))
    landed = landed.join(signed.with_columns(_is_signed=nw.lit(1).cast(_INT)), on=_FILE, how="left")
    keys = said.select("run_id", "signing_key_id", "key_nonce").unique()
    tokens = attestations.filter(nw.col("standing") == "attested")
    tokens = tokens.select("run_id", key_nonce=nw.col("nonce").str.to_lowercase()).unique()
    known = keys.join(tokens.with_columns(_is_named=nw.lit(1).cast(_INT)), on=["run_id", "key_nonce"], how="left")
    found = runs.select("run_id")
    for counts in (
        _count(statements, _statements=nw.lit(1), _forged=to_flag(~is_good), _foreign=to_flag(is_good & ~is_own)),
        _count(landed, files_count=nw.lit(1), signed_files_count=nw.col("_is_signed")),
        _count(signed.join(files.select(*_FILE).unique(), on=_FILE, how="anti"), missing_files_count=nw.lit(1)),
        _count(claimed, _manifests=nw.lit(1), _own_manifests=nw.col("_has_landed")),
        _count(known, _keys=nw.lit(1), _attested=nw.col("_is_named")),
        keys.group_by("run_id").agg(_key=nw.col("signing_key_id").min()),
    ):
        found = found.join(counts, on="run_id", how="left")
    names = ("_statements", "_forged", "_foreign", "_manifests", "_own_manifests", "_keys", "_attested")
    found = found.with_columns(nw.col(*names, "files_count", "signed_files_count", "missing_files_count").fill_null(0))
    return select_declared(_judge(found), TABLE)


def _judge(found: Frame) -> Frame:
    """The word for a run, from the worst on, and the sentences behind it."""
    unsigned = nw.col("files_count") - nw.col("signed_files_count")
    is_any = nw.col("_statements") > 0
    faults = {
        "partial": (
            (unsigned > 0, _join_count(unsigned, "of its files nobody signed")),
            (nw.col("_manifests") == 0, nw.lit("nobody signed its run.toml")),
        ),
        "broken": (
            (nw.col("_foreign") > 0, nw.lit("a statement was made for another run")),
            (
                nw.col("missing_files_count") > 0,
                _join_count(
                    nw.col("missing_files_count"), "of the files that were signed have not landed as they were"
                ),
            ),
            (nw.col("_own_manifests") < nw.col("_manifests"), nw.lit("run.toml is not the one that was signed")),
        ),
        "forged": ((nw.col("_forged") > 0, nw.lit("a signature is not by the key that its statement names")),),
    }
    is_attested = (nw.col("_keys") == 1) & (nw.col("_attested") == 1)
    signature = nw.when(is_attested).then(nw.lit("attested")).otherwise(nw.lit("signed"))
    for name, reasons in faults.items():
        is_it = nw.lit(False)
        for condition, _ in reasons:
            is_it |= condition
        signature = nw.when(is_it).then(nw.lit(name)).otherwise(signature)
    said = join_reasons(*(reason for name in ("forged", "broken", "partial") for reason in faults[name]))
    return found.with_columns(
        signature=nw.when(is_any).then(signature).otherwise(nw.lit("unsigned")),
        signing_key_id=nw.when(nw.col("_keys") == 1).then(nw.col("_key")),
        finding=nw.when(is_any).then(said),
    )


def _count(rows: Frame, **columns: nw.Expr) -> Frame:
    """Sums of a run."""
    counted = rows.select("run_id", **{name: value.cast(_INT) for name, value in columns.items()})
    return counted.group_by("run_id").agg(nw.col(name).sum().cast(_INT) for name in columns)


def _join_count(count: nw.Expr, after: str) -> nw.Expr:
    return nw.concat_str(count.cast(_INT).cast(nw.String), nw.lit(f" {after}"))
