"""What a trusted key signed is attested only if it is an attestation, of this run's devices, for this run, in its time.

Each case goes from the bytes of a bundle to the sentence that a reader sees.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from assets.build import bronze, gold, silver
from bronze.limits import Limits
from gold import attested_runs
from lake.attestation_keys import load_keys
from lake.engines import engine
from pipelines.cli.status import collect_status
from silver import attestations, runs, throughput
from tests.support.good_tokens import DEVICE, ISSUED_S, OVERALL, bundle, change_claims, log, manifest
from tests.support.tokens import Signer
from tests.support.up_to_date import find_made

if TYPE_CHECKING:
    from lake.store import Lake
    from tests.conftest import LandFiles

TRUSTED = Signer()
DAY_S = 86_400
# The others stay empty: the run has no trace.
SILVER = (throughput.TABLE, attestations.TABLE, runs.TABLE)


def make(land_files: LandFiles, data: bytes, run_id: str = "run-1", **fields: str | None) -> None:
    """Bring a run with that bundle to gold, while the key of `TRUSTED` is given; the log of every run is the same."""
    files = {"token.json": data, "steps.csv": log(), "cc.txt": b"==NVSMI CONF-COMPUTE LOG==\n\n  CC State : ON\n"}
    land_files.write(files, run_id, manifest(**fields))
    path = land_files.zone.place.directory.parent / "keys.pem"
    path.write_bytes(TRUSTED.pem)
    bronze.materialise(land_files.lake, land_files.zone, run_id, Limits(), keys=load_keys(path))
    silver.materialise(land_files.lake, run_id, engine("polars"), SILVER)
    gold.materialise(land_files.lake, run_id, engine("polars"), [attested_runs.TABLE])


def read(lake: Lake, run_id: str = "run-1") -> dict[str, Any]:
    """What is said of a run."""
    (row,) = lake.scan(attested_runs.TABLE, [run_id]).collect().to_dicts()
    return dict(row)


def test_a_good_bundle_is_attested(lake: Lake, land_files: LandFiles) -> None:
    make(land_files, bundle(TRUSTED))
    row = read(lake)
    assert (row["has_attestation"], row["attestation"], row["agreement"]) == (True, "attested", "agrees")
    assert row["verdict"] == (
        "hopper_spt_cc is what the recording shows: conf-compute says that CC is on; a GPU attested itself, which it "
        "does in CC only, no violation; attested"
    )


BAD = {
    "empty claims": (json.dumps([["JWT", TRUSTED.token({})], {}]).encode(), "signature_only"),
    "an unrelated JWT": (TRUSTED.token({"sub": "alice", "scope": "read", "iat": ISSUED_S}).encode(), "signature_only"),
    "a result of 0": (bundle(TRUSTED, change_claims(OVERALL, x_nvidia_overall_att_result=0)), "failed"),
    "a result of no": (bundle(TRUSTED, change_claims(OVERALL, x_nvidia_overall_att_result="no")), "failed"),
    "300 days old": (
        bundle(
            TRUSTED,
            change_claims(OVERALL, iat=ISSUED_S - 300 * DAY_S, nbf=ISSUED_S - 300 * DAY_S, exp=4_881_600_000),
            change_claims(DEVICE, iat=ISSUED_S - 300 * DAY_S, nbf=ISSUED_S - 300 * DAY_S, exp=4_881_600_000),
        ),
        "stale",
    ),
}


@pytest.mark.parametrize(("data", "standing"), BAD.values(), ids=BAD.keys())
def test_a_trusted_signature_alone_attests_nothing(
    lake: Lake, land_files: LandFiles, data: bytes, standing: str
) -> None:
    make(land_files, data)
    row = read(lake)
    assert not row["has_attestation"]
    assert row["attestation"] == standing
    assert not row["verdict"].endswith("; attested")


def test_a_token_in_a_second_run_is_replayed_in_both(lake: Lake, land_files: LandFiles) -> None:
    make(land_files, bundle(TRUSTED), "run-1")
    assert read(lake, "run-1")["has_attestation"]
    make(land_files, bundle(TRUSTED), "run-2")
    # The first run is not made again with the second: it is stale until it says so too, and then only once.
    assert find_made(lake, ["run-1", "run-2"], [attested_runs.TABLE]) == {"run-2"}
    assert [one.run_id for one in gold.flag_replays(lake)] == ["run-1"]
    assert find_made(lake, ["run-1", "run-2"], [attested_runs.TABLE]) == {"run-1", "run-2"}
    assert gold.flag_replays(lake) == []
    for run_id, other in (("run-1", "run-2"), ("run-2", "run-1")):
        row = read(lake, run_id)
        assert (row["has_attestation"], row["attestation"], row["agreement"]) == (False, "replayed", "contradicted")
        assert row["verdict"] == (
            f"contradicted: its attestation is replayed: an id or nonce of its tokens is also in {other}"
        )


def test_the_status_says_why_a_run_is_not_attested(lake: Lake, land_files: LandFiles) -> None:
    make(land_files, bundle(TRUSTED), attestation_nonce=None)
    assert (
        "run-1: not attested, its token is not bound to this run: run.toml names no attestation_nonce"
        in collect_status(lake, land_files.zone).notes
    )
