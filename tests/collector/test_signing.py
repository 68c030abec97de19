"""What a recorder signed reaches the sentence that a reader sees, and what was changed on the way is found."""

from __future__ import annotations

import base64
import json
import stat
from typing import TYPE_CHECKING, Any

import pytest

from assets.build import bronze, gold, silver
from bronze import recording_json, recording_statements, source_files
from bronze.limits import Limits
from collector.command import run_command
from collector.errors import RecordingRefused
from collector.landing import Landing
from collector.signing import STATEMENT_FILE, find_key, make_key, make_nonce, read_key, sign_files
from gold import attested_runs
from lake.attestation_keys import load_keys
from lake.engines import engine
from lake.lineage import check_evidence
from tests.support.bronze_sources import read_source
from tests.support.good_tokens import DEVICE, OVERALL, bundle, log, manifest
from tests.support.tokens import Signer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from lake.store import Lake
    from tests.conftest import LandFiles

GIVEN = Signer()


@pytest.fixture
def key(tmp_path: Path) -> Ed25519PrivateKey:
    return make_key(tmp_path / "key.pem")


def record_files(folder: Path, key: Ed25519PrivateKey, run_id: str = "run-1") -> dict[str, bytes]:
    """The files of a run as the recorder leaves them: a log, a token that names the key, and the statement."""
    folder.mkdir()
    nonce = make_nonce(key, run_id)
    token = bundle(GIVEN, {**OVERALL, "eat_nonce": nonce}, {**DEVICE, "eat_nonce": nonce})
    files = {
        "steps.csv": log(),
        "attestation.json": token,
        "run.toml": manifest(attestation_nonce=nonce).encode(),
    }
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return files | {STATEMENT_FILE: sign_files(folder, run_id, key, files["run.toml"].decode()).encode()}


def judge(lake: Lake, land_files: LandFiles, files: dict[str, bytes]) -> dict[str, Any]:
    """What is said of a run with these files."""
    own = dict(files)
    land_files.write(own, "run-1", own.pop("run.toml").decode())
    path = land_files.zone.place.directory.parent / "keys.pem"
    path.write_bytes(GIVEN.pem)
    bronze.materialise(lake, land_files.zone, "run-1", Limits(), keys=load_keys(path))
    silver.materialise(lake, "run-1", engine("polars"))
    gold.materialise(lake, "run-1", engine("polars"))
    (row,) = lake.scan(attested_runs.TABLE).collect().to_dicts()
    return dict(row)


CHANGES: dict[str, tuple[Callable[[dict[str, bytes]], None], str, str]] = {
    "nothing": (lambda _: None, "attested", "which its attestation names"),
    "a step": (
        lambda files: files.update({"steps.csv": files["steps.csv"].replace(b",60\n", b",50\n")}),
        *("broken", "1 of the files that were signed have not landed as they were"),
    ),
    "the regime": (
        lambda files: files.update({"run.toml": files["run.toml"] + b"nodes_count = 2\n"}),
        *("broken", "run.toml is not the one that was signed"),
    ),
    "the token": (lambda files: files.update({"attestation.json": bundle(GIVEN)}), "broken", "have not landed"),
    "a file more": (lambda files: files.update({"more.csv": log(7)}), "partial", "1 of its files nobody signed"),
    "the statement": (
        lambda files: files.update({STATEMENT_FILE: forge(files[STATEMENT_FILE])}),
        *("forged", "a signature is not by the key that its statement names"),
    ),
}


def forge(statement: bytes) -> bytes:
    """The statement with another moment in it."""
    envelope = json.loads(statement)
    payload = base64.b64decode(envelope["payload"]).replace(b"Z", b"Y")
    return json.dumps({**envelope, "payload": base64.b64encode(payload).decode()}).encode()


@pytest.mark.parametrize("changed", CHANGES)
def test_what_is_changed_after_the_recording_is_found(
    lake: Lake, land_files: LandFiles, tmp_path: Path, key: Ed25519PrivateKey, changed: str
) -> None:
    change, signature, said = CHANGES[changed]
    files = record_files(tmp_path / "recorded", key)
    change(files)
    row = judge(lake, land_files, files)
    assert (row["signature"], row["agreement"] == "contradicted") == (signature, signature in {"forged", "broken"})
    assert said in row["verdict"]
    (kept,) = lake.scan(source_files.TABLE).filter(format="recording_statement").collect().to_dicts()
    assert (kept["outcome"], kept["rows_count"]) == ("kept", 3)
    assert lake.scan(recording_statements.TABLE).collect().height == 3


def test_a_verifier_of_its_own_finds_the_same(
    tmp_path: Path, key: Ed25519PrivateKey, capsys: pytest.CaptureFixture[str]
) -> None:
    files = record_files(tmp_path / "recorded", key)
    landed = {check_evidence.digest(data) for data in files.values()}
    bundle_of_run = tmp_path / "bundle"
    bundle_of_run.mkdir()
    (bundle_of_run / "evidence.json").write_text('{"run": "run-1"}')
    checker = check_evidence.Checker(check_evidence.Bundle(bundle_of_run), check_evidence.Keys(""))
    checker.check_recording(files[STATEMENT_FILE], landed)
    assert checker.faults == []
    assert f"nonce {make_nonce(key, 'run-1')}" in capsys.readouterr().out
    with pytest.raises(ValueError, match="it was forged or changed"):
        checker.check_recording(forge(files[STATEMENT_FILE]), landed)
    checker.check_recording(files[STATEMENT_FILE], landed - {check_evidence.digest(files["steps.csv"])})
    (fault,) = checker.faults
    assert fault.startswith("the recorder signed steps.csv with SHA-256 ")


def test_recorder_and_reader_agree_on_the_nonce(key: Ed25519PrivateKey) -> None:
    assert make_nonce(key, "run-1") == recording_json.make_nonce("run-1", key.public_key().public_bytes_raw())
    assert make_nonce(key, "run-1") != make_nonce(key, "run-2")


def test_the_directory_that_is_landed_holds_a_statement_of_all_its_files(
    tmp_path: Path, key: Ed25519PrivateKey
) -> None:
    landing = Landing(tmp_path / "landing", "run-1", 0, 1, 1.0)
    (landing.folder / "steps-r0.csv").write_bytes(log())
    landing.finish('regime = "cc_off"\n', key)
    folder = tmp_path / "landing" / "run-1"
    assert sorted(path.name for path in folder.iterdir()) == [STATEMENT_FILE, "run.toml", "steps-r0.csv"]
    rows = read_source((folder / STATEMENT_FILE).read_bytes()).table("recording_statements")
    assert [(row["file_name"], row["is_manifest"], row["verdict"]) for row in rows] == [
        ("run.toml", True, "verified"),
        ("steps-r0.csv", False, "verified"),
    ]


def test_a_key_is_made_once_and_is_its_owners_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "key.pem"
    for run_id in ("run-1", "run-1", "run-2"):
        assert run_command(["key", str(path), "--run-id", run_id], "collector") == 0
    first, again, other = capsys.readouterr().out.split("key ")[1:]
    assert first == again
    assert first.split()[0] == other.split()[0]
    assert first.split()[2] == make_nonce(read_key(path), "run-1") != other.split()[2]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(RecordingRefused, match="is there already"):
        make_key(path)
    path.chmod(0o644)
    with pytest.raises(RecordingRefused, match="can be read by others"):
        find_key(path)


@pytest.mark.parametrize("text", ["", "no key", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"])
def test_what_is_no_key_is_refused(tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "key.pem"
    path.write_text(text)
    path.chmod(0o600)
    monkeypatch.setenv("TEETOTAL_RECORDING_KEY", str(path))
    with pytest.raises(RecordingRefused, match="expected an Ed25519 private key"):
        find_key(None)
    monkeypatch.delenv("TEETOTAL_RECORDING_KEY")
    assert find_key(None) is None
