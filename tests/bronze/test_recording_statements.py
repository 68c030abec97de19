"""A signed statement that is not one of a recording, or is broken, is refused with its reason."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from lake.errors import EvidenceRejected
from tests.support.bronze_sources import read_source

STATEMENT: dict[str, Any] = {
    "predicateType": "urn:teetotal:recording:v1",
    "subject": [{"name": "a", "digest": {"sha256": "0" * 64}}],
    "predicate": {"runId": "run-1", "publicKey": base64.b64encode(bytes(32)).decode(), "manifestSha256": "1" * 64},
}


def envelop(statement: object, **members: Any) -> bytes:
    payload = base64.b64encode(json.dumps(statement).encode()).decode()
    kind = "application/vnd.in-toto+json"
    signatures = [{"keyid": "k", "sig": base64.b64encode(bytes(64)).decode()}]
    return json.dumps({"payloadType": kind, "payload": payload, "signatures": signatures, **members}).encode()


def test_a_statement_that_nobody_signed_is_forged() -> None:
    (row,) = read_source(envelop(STATEMENT)).table("recording_statements")
    assert (row["verdict"], row.get("finished_ns"), row["file_sha256"]) == ("forged", None, "0" * 64)


BROKEN: dict[str, tuple[bytes, str]] = {
    "another kind": (envelop({**STATEMENT, "predicateType": "https://slsa.dev/provenance/v1"}), "of another kind"),
    "no statement": (envelop([1]), "of another kind: 'None'"),
    "no payload": (envelop(STATEMENT, payload=7), "no envelope of one payload and one signature"),
    "two signatures": (envelop(STATEMENT, signatures=[{}, {}]), "no envelope of one payload and one signature"),
    "no files": (envelop({**STATEMENT, "subject": []}), "with parts missing"),
    "a name that is no text": (
        envelop({**STATEMENT, "subject": [{"name": 7, "digest": {"sha256": "0" * 64}}]}),
        "with parts missing",
    ),
    "another digest": (
        envelop({**STATEMENT, "subject": [{"name": "a", "digest": {"sha256": "../../etc"}}]}),
        "with parts missing",
    ),
    "a digest that is no text": (
        envelop({**STATEMENT, "subject": [{"name": "a", "digest": {"sha256": 7}}]}),
        "with parts missing",
    ),
    "a short key": (
        envelop({**STATEMENT, "predicate": {**STATEMENT["predicate"], "publicKey": "AAAA"}}),
        "with parts missing",
    ),
    "no predicate": (envelop({**STATEMENT, "predicate": None}), "with parts missing"),
    "cut": (envelop(STATEMENT)[:-20], "no envelope of one payload and one signature"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_statement_is_refused_with_its_reason(name: str) -> None:
    data, reason = BROKEN[name]
    with pytest.raises(EvidenceRejected, match=reason):
        read_source(data)
