"""Attestation bundles from their bytes to the sentence that a reader sees."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from assets.build import bronze, gold, silver
from bronze.limits import Limits
from gold import attested_runs
from lake.attestation_keys import load_keys
from lake.engines import engine
from silver import attestations
from tests.support.campaigns import pick_engines
from tests.support.good_tokens import DEVICE, bundle, log, manifest
from tests.support.tokens import Signer

if TYPE_CHECKING:
    from lake.store import Lake
    from tests.conftest import LandFiles

GIVEN, STRANGER = Signer(), Signer()


def verdict(lake: Lake, land_files: LandFiles, signer: Signer, name: str, **claims: Any) -> dict[str, Any]:
    """What is said of a run whose GPU is attested by someone, while keys of `GIVEN` are given."""
    data = bundle(signer, device={**DEVICE, **claims})
    query = b"==NVSMI CONF-COMPUTE LOG==\n\n  CC State : ON\n"
    land_files.write({"token.json": data, "cc.txt": query, "steps.csv": log()}, "run-1", manifest())
    path = land_files.zone.place.directory.parent / "keys.pem"
    path.write_bytes(GIVEN.pem)
    bronze.materialise(lake, land_files.zone, "run-1", Limits(), keys=load_keys(path))
    silver.materialise(lake, "run-1", engine(name))
    gold.materialise(lake, "run-1", engine(name))
    (row,) = lake.scan(attested_runs.TABLE).collect().to_dicts()
    return dict(row)


@pytest.mark.parametrize("name", pick_engines())
def test_claim_device_and_attestation_that_agree_are_one_sentence(lake: Lake, land_files: LandFiles, name: str) -> None:
    row = verdict(lake, land_files, GIVEN, name)
    assert row["verdict"] == (
        "hopper_spt_cc is what the recording shows: conf-compute says that CC is on; a GPU attested itself, which it "
        "does in CC only, no violation; attested"
    )
    assert (row["has_attestation"], row["attestation"], row["agreement"]) == (True, "attested", "agrees")


def test_a_forged_token_is_named_as_forged(lake: Lake, land_files: LandFiles) -> None:
    row = verdict(lake, land_files, STRANGER, "polars")
    assert row["verdict"] == (
        "contradicted: an attestation token does not stand: it is forged: the ES384 signature is not by any key that "
        "was given"
    )
    assert (row["has_attestation"], row["attestation"]) == (False, "forged")


def test_a_token_that_contradicts_the_manifest_is_told_in_one_sentence(lake: Lake, land_files: LandFiles) -> None:
    row = verdict(lake, land_files, GIVEN, "polars", **{"x-nvidia-gpu-driver-version": "550.54"})
    assert row["verdict"] == "contradicted: it claims driver 580.95, yet the attested driver is 550.54; attested"


def test_the_token_itself_is_sealed(lake: Lake, land_files: LandFiles) -> None:
    verdict(lake, land_files, GIVEN, "polars")
    rows = lake.scan(attestations.TABLE).collect()
    assert rows["token"].str.starts_with("sealed:").all()
    assert rows["claims"].str.starts_with("sealed:").all()
    assert rows["device_ueid"].drop_nulls().str.starts_with("sealed:").all()
