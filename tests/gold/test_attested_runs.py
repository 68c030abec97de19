from __future__ import annotations

from typing import TYPE_CHECKING, Any

import narwhals as nw
import polars as pl
import pytest

from gold import attested_runs
from silver import recordings, runs
from tests.support.gold_rows import measure_rows
from tests.support.silver_rows import rows_of

if TYPE_CHECKING:
    from tests.support.silver_rows import Bench


UNSIGNED = nw.from_native(pl.LazyFrame(rows_of(recordings.TABLE, [])))


def run(**fields: Any) -> dict[str, Any]:
    return {"regime": "hopper_ppcie", "agreement": "unproven", "gpu_evidence": "measured", **fields}


VERDICTS = {
    "sw_per_hop_aesgcm is what the recording shows: 32 messages sealed, no violation": run(
        regime="sw_per_hop_aesgcm", agreement="agrees", found_sealed_message_count=32
    ),
    "sw_per_hop_aesgcm is what the recording shows: 32 messages sealed, no violation, on 1 of 4 ranks: the others "
    "recorded no trace": run(
        regime="sw_per_hop_aesgcm",
        agreement="agrees",
        found_sealed_message_count=32,
        ranks_count=1,
        found_world_size=4,
    ),
    "sw_per_hop_aesgcm is what the recording shows: 1 message sealed, 1 violation": run(
        regime="sw_per_hop_aesgcm", agreement="agrees", found_sealed_message_count=1, found_violations_count=1
    ),
    "cc_off is what the recording shows: copies are labelled as it labels them, no violation": run(
        regime="cc_off", agreement="agrees"
    ),
    "hopper_ppcie is what the recording shows: conf-compute says that CC is on, no violation; attested": run(
        agreement="agrees", found_cc_evidence="conf-compute says that CC is on", attestation="attested"
    ),
    **{
        f"unproven: nothing in the recording shows hopper_ppcie; not attested, {said}: so it was judged": run(
            attestation=standing, attestation_finding="so it was judged"
        )
        for standing, said in {
            "unverified": "its token cannot be verified",
            "unbound": "its token is not bound to this run",
            "stale": "its token is stale",
            "signature_only": "only its token's signature stands",
        }.items()
    },
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
    assert measure_rows(engine, attested_runs, recordings=[], runs=[row])["verdict"].to_list() == [verdict]


@pytest.mark.parametrize(
    ("signature", "said"),
    [
        ("unsigned", ""),
        ("attested", "; signed when it was recorded, by key 0a1b, which its attestation names"),
        ("signed", "; signed when it was recorded, by key 0a1b, which no attestation names"),
        ("partial", "; signed when it was recorded, by key 0a1b, in part: so it was judged"),
    ],
)
def test_who_signed_the_recording_is_said(engine: Bench, signature: str, said: str) -> None:
    row = {"signature": signature, "signing_key_id": "0a1b", "finding": "so it was judged"}
    found = measure_rows(engine, attested_runs, recordings=[row], runs=[run()])
    assert found["verdict"].to_list() == [f"unproven: nothing in the recording shows hopper_ppcie{said}"]


@pytest.mark.parametrize("signature", ["forged", "broken"])
def test_a_recording_that_is_not_what_was_signed_contradicts_its_claim(engine: Bench, signature: str) -> None:
    row = {"signature": signature, "finding": "run.toml is not the one that was signed"}
    (found,) = measure_rows(engine, attested_runs, recordings=[row], runs=[run(agreement="agrees")]).to_dicts()
    assert found["verdict"] == (
        "contradicted: the recording is not what was signed: run.toml is not the one that was signed"
    )
    assert (found["agreement"], found["signature"], found["evidence"]) == ("contradicted", signature, "measured")


def test_what_was_claimed_and_found_is_kept(engine: Bench) -> None:
    row = {"cc_mode": "on", "is_shipped_mode": True, "conflicts": "world_size: 2 or 4", "found_violations_count": 3}
    (found,) = measure_rows(engine, attested_runs, recordings=[], runs=[run(**row)]).to_dicts()
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
    assert measure_rows(engine, attested_runs, recordings=[], runs=[row]).select("evidence", "reason").rows() == [
        (evidence, reason)
    ]


def test_no_run_is_attested_before_attestations_can_be_read(engine: Bench) -> None:
    assert measure_rows(engine, attested_runs, recordings=[], runs=[run(agreement="agrees")])[
        "has_attestation"
    ].to_list() == [False]


@pytest.mark.parametrize(
    "standing", [None, "forged", "refused", "failed", "signature_only", "stale", "unbound", "unverified"]
)
def test_only_an_attested_run_has_an_attestation(engine: Bench, standing: str | None) -> None:
    rows = measure_rows(engine, attested_runs, recordings=[], runs=[run(agreement="agrees", attestation=standing)])
    assert rows["has_attestation"].to_list() == [False]
    assert not rows["verdict"][0].endswith("; attested")


def test_runs_that_share_an_id_are_found_and_those_that_share_none_are_not() -> None:
    index = {
        name: {"attestation_ids": ids}
        for name, ids in {"a": "nonce:1 id:1", "b": "nonce:2 id:1", "c": "nonce:2", "d": "nonce:3", "e": None}.items()
    }
    assert attested_runs.find_replays(index) == {"a": ["b"], "b": ["a", "c"], "c": ["b"]}


def test_a_replayed_token_that_failed_is_still_failed() -> None:
    own = run(attestation="failed", attestation_finding="secure boot is off", contradictions="secure boot is off")
    rows = pl.LazyFrame(rows_of(runs.TABLE, [{"run_id": "run-1", **own}]))
    (row,) = attested_runs.measure(nw.from_native(rows), UNSIGNED, ["run-2"]).collect().rows(named=True)
    assert (row["attestation"], row["attestation_finding"]) == ("failed", "secure boot is off")
    assert row["contradictions"] == (
        "secure boot is off; its attestation is replayed: an id or nonce of its tokens is also in run-2"
    )


def test_a_replayed_run_is_contradicted_and_names_the_others_up_to_five() -> None:
    rows = pl.LazyFrame(rows_of(runs.TABLE, [{"run_id": "run-1", **run(attestation="attested", found_cc_mode="on")}]))
    others = [f"run-{number}" for number in range(2, 9)]
    (row,) = attested_runs.measure(nw.from_native(rows), UNSIGNED, others).collect().rows(named=True)
    said = "an id or nonce of its tokens is also in run-2, run-3, run-4, run-5, run-6 and 2 more"
    assert row["verdict"] == f"contradicted: its attestation is replayed: {said}"
    assert (row["attestation"], row["attestation_finding"]) == ("replayed", said)
    assert (row["has_attestation"], row["found_cc_mode"], row["evidence"]) == (False, None, "measured")
