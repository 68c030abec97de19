"""What was recorded is signed where it was recorded: an in-toto statement of every file, in a DSSE envelope.

The nonce of a run's attestation is the digest of its id and the public key: a token with that nonce says that the key
was in the environment that the token attests.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from .errors import RecordingRefused
from .manifest import MANIFEST

if TYPE_CHECKING:
    from collections.abc import Mapping

STATEMENT_FILE = "recording.intoto.json"
# Names the key's file where no argument does.
KEY_VARIABLE = "TEETOTAL_RECORDING_KEY"
_PAYLOAD_TYPE = "application/vnd.in-toto+json"
_PREDICATE = "urn:teetotal:recording:v1"
_NONCE_LABEL = b"teetotal recording key v1"


def find_key(named: str | Path | None) -> Ed25519PrivateKey | None:
    """The key that recordings are signed with: of the file named, else of the variable; none without either."""
    path = named or os.environ.get(KEY_VARIABLE)
    return read_key(Path(path)) if path else None


def read_key(path: Path) -> Ed25519PrivateKey:
    """A key from a PEM file that its owner alone may read."""
    try:
        if path.stat().st_mode & 0o077:
            raise RecordingRefused(f"{path} can be read by others: chmod 600 it, or make another key")
        key = serialization.load_pem_private_key(path.read_bytes(), None)
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise RecordingRefused(
            f"{path}: expected an Ed25519 private key as PEM, without a password: {error}"
        ) from error
    if not isinstance(key, Ed25519PrivateKey):
        raise RecordingRefused(f"{path}: expected an Ed25519 private key, found another kind")
    return key


def make_key(path: Path) -> Ed25519PrivateKey:
    """Make a key in a file that is not there yet."""
    key = Ed25519PrivateKey.generate()
    text = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise RecordingRefused(f"{path} is there already: name another file, or use that key") from None
    except OSError as error:
        raise RecordingRefused(f"{path} could not be written: {error.strerror}") from error
    with os.fdopen(handle, "wb") as file:
        file.write(text)
    return key


def make_nonce(key: Ed25519PrivateKey, run_id: str) -> str:
    """The nonce that a run's attestation is asked with, in hexadecimal."""
    return hashlib.sha256(b"\n".join((_NONCE_LABEL, run_id.encode(), _public_bytes(key)))).hexdigest()


def identify_key(key: Ed25519PrivateKey) -> str:
    """What people see of a key."""
    return hashlib.sha256(_public_bytes(key)).hexdigest()[:16]


def sign_files(
    folder: Path, run_id: str, key: Ed25519PrivateKey, manifest: str, known: Mapping[str, str] | None = None
) -> str:
    """The signed statement of all files of a run's folder as they lie there, and of its manifest, as one line.

    A file whose digest is `known` from when it was written is signed as it was then, whatever lies there now.
    """
    found = (path for path in folder.iterdir() if path.is_file() and not path.name.startswith("."))
    digests = {path.name: _digest(path) for path in found if path.name not in (known or {})} | dict(known or {})
    statement = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": name, "digest": {"sha256": digest}} for name, digest in sorted(digests.items())],
        "predicateType": _PREDICATE,
        "predicate": {
            "runId": run_id,
            "manifest": MANIFEST,
            "manifestSha256": hashlib.sha256(manifest.encode()).hexdigest(),
            "publicKey": base64.b64encode(_public_bytes(key)).decode(),
            "finishedOn": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        },
    }
    payload = json.dumps(statement, sort_keys=True, separators=(",", ":")).encode()
    kind = _PAYLOAD_TYPE.encode()
    signature = key.sign(b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload))
    envelope = {
        "payloadType": _PAYLOAD_TYPE,  # first: the format is told by the first bytes
        "payload": base64.b64encode(payload).decode(),
        "signatures": [{"keyid": identify_key(key), "sig": base64.b64encode(signature).decode()}],
    }
    return json.dumps(envelope, separators=(",", ":"))


def _public_bytes(key: Ed25519PrivateKey) -> bytes:
    return key.public_key().public_bytes_raw()


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
