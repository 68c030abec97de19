"""One row per token of an attestation bundle: what it claims, who signed it, and whether that was proven here."""

from __future__ import annotations

from lake.tables import RUN_ID, Table, boolean, int64, text

VERDICTS = ("verified", "unverified", "forged", "refused")

TABLE = Table(
    tier="bronze",
    name="attestations",
    grain="One row per token of a detached EAT bundle: the overall one, and one for each device.",
    key=("source_sha256", "ordinal"),
    partition_by=("run_id", "source_sha256"),
    columns=(
        RUN_ID,
        text("source_sha256", "The source file, by the digest of its bytes as they landed."),
        int64("ordinal", "Place of the token in its bundle, from 0.", minimum=0),
        text(
            "submodule", "Where in the bundle it stands, for example GPU-0; null for the overall token.", nullable=True
        ),
        text(
            "verdict",
            "verified: the signature is by a key that was given; unverified: no key was given for it; forged: the keys "
            "that were given did not make it; refused: it has no signature to speak of.",
            one_of=VERDICTS,
        ),
        text("verdict_reason", "Why, as a sentence."),
        text("signature_algorithm", "Algorithm that the token names.", nullable=True),
        text("signing_key_id", "Key that the token names.", nullable=True),
        boolean(
            "is_vouched",
            "Whether the overall token of the bundle holds the digest of this one; null where it says nothing of it.",
            nullable=True,
        ),
        text("issuer", "Who issued it (`iss`).", nullable=True),
        text("subject", "What it is about (`sub`).", nullable=True),
        text("token_id", "Id of the token (`jti`).", nullable=True),
        int64("issued_ns", "When it was issued (`iat`), UTC.", nullable=True),
        int64("not_before_ns", "From when it holds (`nbf`), UTC.", nullable=True),
        int64(
            "expires_ns", "Until when it holds (`exp`), UTC; a local verifier may say the next century.", nullable=True
        ),
        text("nonce", "Nonce that the evidence was asked with.", nullable=True),
        text("claims_version", "Version of the claims.", nullable=True),
        boolean("is_overall_success", "Overall result.", nullable=True),
        text("measurement_result", "Result of the measurements, as the source spells it.", nullable=True),
        text("hardware_model", "Hardware model.", nullable=True),
        text("device_ueid", "Id of the device: dozens of digits, so a text.", nullable=True, sensitive=True),
        text("oem_id", "Maker.", nullable=True),
        boolean("is_secure_boot", "Whether secure boot is on.", nullable=True),
        text("debug_status", "Whether debugging is possible.", nullable=True),
        text("driver_version", "Driver.", nullable=True),
        text("vbios_version", "VBIOS.", nullable=True),
        boolean("is_nonce_matched", "Whether the report held the nonce.", nullable=True),
        boolean("is_report_signature_verified", "Whether the report's own signature was verified.", nullable=True),
        boolean("is_certificate_chain_valid", "Whether the certificate chain of the report was valid.", nullable=True),
        text("warning", "What the verifier warns of.", nullable=True),
        text("header", "Header of the token as its own JSON text.", nullable=True),
        text(
            "claims",
            "All claims as their own JSON text.",
            nullable=True,
            sensitive=True,
            is_free_text=True,
            repeats=False,
        ),
        text(
            "token",
            "The token itself. In bronze it stands as it landed, as everything in bronze does.",
            nullable=True,
            sensitive=True,
            is_free_text=True,
            repeats=False,
        ),
    ),
)
