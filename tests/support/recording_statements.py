"""Statements of a recorder as text, which no key has signed: what a reader makes of them needs none."""

from __future__ import annotations

import base64
import json
from typing import Any

STATEMENT: dict[str, Any] = {
    "predicateType": "urn:teetotal:recording:v1",
    "subject": [{"name": "a", "digest": {"sha256": "0" * 64}}],
    "predicate": {"runId": "run-1", "publicKey": base64.b64encode(bytes(32)).decode(), "manifestSha256": "1" * 64},
}


def envelop(statement: object = STATEMENT, **members: Any) -> bytes:
    """A statement in an envelope; members of the envelope may be others."""
    payload = base64.b64encode(json.dumps(statement).encode()).decode()
    kind = "application/vnd.in-toto+json"
    signatures = [{"keyid": "k", "sig": base64.b64encode(bytes(64)).decode()}]
    return json.dumps({"payloadType": kind, "payload": payload, "signatures": signatures, **members}).encode()
