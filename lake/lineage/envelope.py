"""DSSE envelopes by hand: what is signed is the type and the bytes, framed (PAE), never JSON that is parsed again.

The format takes ten lines; securesystemslib would bring a second key format and its own signers for them.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lake.lineage.notes import decode_base64

if TYPE_CHECKING:
    from lake.lineage.notes import PublicKey, Signer

STATEMENT = "application/vnd.in-toto+json"


@dataclass(frozen=True)
class Envelope:
    """A payload with one signature."""

    kind: str
    payload: bytes
    key_id: str
    signature: bytes

    def is_signed_by(self, key: PublicKey) -> bool:
        """Whether this key has signed the type and the payload."""
        return key.has_signed(frame_payload(self.kind, self.payload), self.signature)


def frame_payload(kind: str, payload: bytes) -> bytes:
    """DSSE's pre-authentication encoding: lengths before texts, so that no two pairs give the same bytes."""
    return b"DSSEv1 %d %s %d %s" % (len(kind.encode()), kind.encode(), len(payload), payload)


def sign_payload(kind: str, content: object, signer: Signer) -> str:
    """A JSON value in a signed envelope, as one line."""
    payload = write_json(content).encode()
    signature = {
        "keyid": signer.public.key_id,
        "sig": base64.b64encode(signer.sign(frame_payload(kind, payload))).decode(),
    }
    return write_json({"payload": base64.b64encode(payload).decode(), "payloadType": kind, "signatures": [signature]})


def parse_envelope(text: str | bytes) -> Envelope | None:
    """An envelope from its text; none where it is not one of ours."""
    try:
        loaded: Any = json.loads(text)
        (signature,) = loaded["signatures"]
        return Envelope(
            str(loaded["payloadType"]),
            decode_base64(loaded["payload"]),
            str(signature["keyid"]),
            decode_base64(signature["sig"]),
        )
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def write_json(content: object) -> str:
    """A JSON text that the same value always gives."""
    return json.dumps(content, sort_keys=True, separators=(",", ":"))
