"""A signed statement that is not one of a recording, or is broken, is refused with its reason."""

from __future__ import annotations

import pytest

from lake.errors import EvidenceRejected
from tests.support.bronze_sources import read_source
from tests.support.recording_statements import STATEMENT, envelop


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
