from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from gold import attested_runs
from tests.gold.answers import answered

if TYPE_CHECKING:
    from tests.silver.rows import Bench


def run(**fields: Any) -> dict[str, Any]:
    return {"regime": "hopper_ppcie", "agreement": "unproven", "gpu_evidence": "measured", **fields}


VERDICTS = {
    "sw_per_hop_aesgcm is what the recording shows: 32 messages sealed, no violation": run(
        regime="sw_per_hop_aesgcm", agreement="agrees", found_sealed_message_count=32
    ),
    "sw_per_hop_aesgcm is what the recording shows: 1 message sealed, 1 violation": run(
        regime="sw_per_hop_aesgcm", agreement="agrees", found_sealed_message_count=1, found_violations_count=1
    ),
    "cc_off is what the recording shows: copies are labelled as it labels them, no violation": run(
        regime="cc_off", agreement="agrees"
    ),
    "hopper_ppcie is what the recording shows: conf-compute says that CC is on, no violation; attested": run(
        agreement="agrees", found_cc_evidence="conf-compute says that CC is on", attestation="verified"
    ),
    "unproven: nothing in the recording shows hopper_ppcie; attestation it is unverified: no keys were given": run(
        attestation="unverified", attestation_finding="it is unverified: no keys were given"
    ),
    "contradicted: it claims cc_off, yet 4 messages were sealed": run(
        regime="cc_off", agreement="contradicted", contradictions="it claims cc_off, yet 4 messages were sealed"
    ),
    "unproven: nothing in the recording shows hopper_ppcie": run(),
    "unproven: nothing in the recording shows hopper_ppcie; devtools is not a mode that people ship": run(
        cc_mode="devtools", is_shipped_mode=False
    ),
    "unproven: the run claims no regime": run(regime=None),
}


@pytest.mark.parametrize(("verdict", "row"), VERDICTS.items(), ids=range(len(VERDICTS)))
def test_a_verdict_is_a_sentence(engine: Bench, verdict: str, row: dict[str, Any]) -> None:
    assert answered(engine, attested_runs, runs=[row])["verdict"].to_list() == [verdict]


def test_what_was_claimed_and_found_is_kept(engine: Bench) -> None:
    row = {"cc_mode": "on", "is_shipped_mode": True, "conflicts": "world_size: 2 or 4", "found_violations_count": 3}
    (found,) = answered(engine, attested_runs, runs=[run(**row)]).to_dicts()
    assert {name: found[name] for name in row} == row


@pytest.mark.parametrize(
    ("row", "evidence", "reason"),
    [
        (run(agreement="agrees"), "measured", None),
        (run(), "unobservable", "nothing was recorded that only this regime leaves behind"),
        (run(gpu_evidence="unobservable"), "unobservable", "no GPU rows were recorded"),
        (run(regime=None), "unobservable", "the run claims no regime"),
    ],
    ids=["agrees", "unproven", "blind", "claims nothing"],
)
def test_what_is_unproven_says_why(engine: Bench, row: dict[str, Any], evidence: str, reason: str | None) -> None:
    assert answered(engine, attested_runs, runs=[row]).select("evidence", "reason").rows() == [(evidence, reason)]


def test_no_run_is_attested_before_attestations_can_be_read(engine: Bench) -> None:
    assert answered(engine, attested_runs, runs=[run(agreement="agrees")])["has_attestation"].to_list() == [False]
