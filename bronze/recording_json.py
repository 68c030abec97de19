"""The reader of a signed statement of a recording: its signature is checked with the key that it names itself.

That a key made the signature says nothing of whose key it is: silver asks the run's attestation for that.
"""

from __future__ import annotations

import hashlib
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from bronze import json_text
from bronze.collective_json import read_document
from bronze.decimals import fit_nanoseconds
from bronze.lines import as_text
from bronze.recording_statements import TABLE
from bronze.records import RecordReader
from lake.errors import EvidenceRejected
from lake.identity import MANIFEST
from lake.lineage.envelope import STATEMENT, parse_envelope
from lake.lineage.notes import PublicKey, decode_base64

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bronze.limits import Limits

VERSION = 1
PREDICATE = "urn:teetotal:recording:v1"
_HEAD = re.compile(rb'\s*\{.*"payloadType"\s*:\s*"application/vnd\.in-toto\+json"', re.DOTALL)
_DIGEST = re.compile(r"[0-9a-f]{64}")
_MOST_BYTES = 64 << 20
_KEY_BYTES = 32
_NONCE_LABEL = b"teetotal recording key v1"
_ROW_BYTES = 512


def is_statement(head: bytes) -> bool:
    """Whether it begins as an in-toto statement in an envelope does."""
    return _HEAD.match(head) is not None


def make_nonce(run_id: str, raw: bytes) -> str:
    """The nonce that binds a key to a run, as the recorder computes it."""
    return hashlib.sha256(b"\n".join((_NONCE_LABEL, run_id.encode("utf-8", "replace"), raw))).hexdigest()


class RecordingStatementReader(RecordReader):
    """One statement, read whole: it holds a line a file."""

    def __init__(self, blocks: Iterator[bytes], limits: Limits) -> None:
        super().__init__(TABLE)
        self._blocks = blocks
        self._most_bytes = min(_MOST_BYTES, limits.max_event_bytes)

    def _read(self) -> Iterator[None]:
        envelope = parse_envelope(as_text(read_document(self._blocks, self._most_bytes)))
        if envelope is None or envelope.kind != STATEMENT:
            raise EvidenceRejected(
                "it begins as a signed statement and is no envelope of one payload and one signature"
            )
        statement = json_text.parse_object(as_text(envelope.payload)) or {}
        if statement.get("predicateType") != PREDICATE:
            raise EvidenceRejected(
                f"it is a signed statement of another kind: {str(statement.get('predicateType'))[:160]!r}",
                f"of signed statements only those of recordings ({PREDICATE}) are read",
            )
        try:
            said, key, subjects = _take_apart(statement)
        except (KeyError, TypeError, ValueError) as error:
            raise EvidenceRejected("it is a signed statement of a recording with parts missing") from error
        row = {
            "verdict": "verified" if envelope.is_signed_by(key) else "forged",
            "signing_key_id": key.key_id,
            "public_key": said["publicKey"],
            "statement_run_id": said["runId"],
            "key_nonce": make_nonce(said["runId"], key.raw),
            "finished_ns": _read_moment(said.get("finishedOn")),
        }
        for name, digest in subjects:
            is_manifest = name == MANIFEST
            # Of the manifest its text counts: where it landed sealed, its bytes are others.
            known = said["manifestSha256"] if is_manifest else digest
            named = {"is_manifest": is_manifest, "file_name": name, "file_sha256": known}
            self.add(TABLE, row | named, _ROW_BYTES + len(name))
            yield


def _take_apart(statement: dict[str, Any]) -> tuple[dict[str, Any], PublicKey, list[tuple[str, str]]]:
    """What it says of itself, its key, and the files that it names with their digests."""
    said = statement["predicate"]
    raw = decode_base64(said["publicKey"])
    subjects = [(one["name"], one["digest"]["sha256"]) for one in statement["subject"]]
    texts = [said["runId"], *(name for name, _ in subjects)]
    if len(raw) != _KEY_BYTES or not subjects or not all(isinstance(one, str) for one in texts):
        raise ValueError(PREDICATE)
    if not all(_DIGEST.fullmatch(digest) for digest in (said["manifestSha256"], *(digest for _, digest in subjects))):
        raise ValueError(PREDICATE)
    return said, PublicKey("recorder", raw), subjects


def _read_moment(text: object) -> int | None:
    """A moment to the second, as the recorder writes it; none where it is none."""
    try:
        moment = datetime.strptime(str(text), "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    except ValueError:
        return None
    return fit_nanoseconds(int(moment.timestamp()) * 10**9)
