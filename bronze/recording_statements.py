"""One row per file that a recorder signed: the digest that it had when it was recorded, by which key, for which run."""

from __future__ import annotations

from lake.tables import RUN_ID, Table, boolean, int64, text

VERDICTS = ("verified", "forged")

TABLE = Table(
    tier="bronze",
    name="recording_statements",
    grain="One row per file that a signed statement of a recording names, the manifest too.",
    key=("source_sha256", "ordinal"),
    partition_by=("run_id", "source_sha256"),
    columns=(
        RUN_ID,
        text("source_sha256", "The statement's file, by the digest of its bytes as they landed."),
        int64("ordinal", "Place of the file among those that the statement names, from 0.", minimum=0),
        text(
            "verdict",
            "verified: the signature is by the key that the statement names; forged: it is not.",
            one_of=VERDICTS,
        ),
        text("signing_key_id", "Start of the digest of the public key that the statement names."),
        text("public_key", "That key, as base64."),
        text("statement_run_id", "The run that the statement was made for."),
        text(
            "key_nonce",
            "Nonce that binds that key to that run: an attestation that was asked with it names the key.",
        ),
        int64("finished_ns", "When the recording was complete, by the recorder's clock, UTC.", nullable=True),
        boolean("is_manifest", "Whether the file is the run's manifest."),
        text("file_name", "Name that the file had.", sensitive=True),
        text("file_sha256", "Digest that it had."),
    ),
)
