"""Someone who may write to the lake, and what finds them out: `verify`, and a verifier that shares no code with us."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest

from pipelines.cli.session import open_signed_lake
from tests.support import signed_lakes
from tests.support.signed_lakes import build, build_both, check_bundle, land, teetotal

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

GOLD = "gold.kernel_breakdown, run tee"


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A signed lake of two runs of which one was made again, as it was before, and a checkpoint of each time."""
    root = tmp_path_factory.mktemp("signed")
    build_both(root)
    shutil.copytree(root / "lake", root / "before")
    land(root, "tee", 140)
    build(root)
    assert teetotal(root, "anchor", "--out", str(root / "checkpoint")).exit_code == 0
    return root


@pytest.fixture
def root(signed: Path, tmp_path: Path) -> Path:
    """A copy of it, to be attacked."""
    shutil.copytree(signed, tmp_path / "copy")
    return tmp_path / "copy"


def make_bundle(root: Path, *words: str) -> Path:
    made = teetotal(root, "evidence", "tee", "--out", str(root / "bundle"), *words)
    assert made.exit_code == 0, made.stderr
    return root / "bundle"


def test_an_intact_lake_and_its_bundle_pass_and_lead_to_the_bytes_of_the_source_files(root: Path) -> None:
    kept = ("--since", str(root / "checkpoint"))
    found = teetotal(root, "verify", "--require-signed", *kept)
    assert (found.exit_code, found.stderr) == (0, "")
    assert "2 runs traced to the bytes of their source files" in found.stdout
    trust, landing = root / "signing-trust.txt", ("--landing", str(root / "landing"))
    checked = check_bundle(make_bundle(root), trust, *kept, *landing)
    assert (checked.returncode, checked.stderr) == (0, "")
    assert "2 source files: 0 faults" in checked.stdout
    made = teetotal(root, "evidence", "tee", "--out", str(root / "b.zip"), "--only-run", "--data", "all", *kept)
    assert made.exit_code == 0
    checked = check_bundle(root / "b.zip", trust, *kept, *landing)
    assert (checked.returncode, checked.stderr) == (0, "")


# What is done to the lake, what `verify` says of it, and what the independent verifier says of a bundle made from it.
ATTACKS: list[tuple[Callable[[Path], None], str, str]] = [
    (
        signed_lakes.change_number,
        f"{GOLD}: the partition holds rows that nobody signed: expected",
        "which nobody signed",
    ),
    (
        signed_lakes.swap_partitions,
        f"{GOLD}: the partition holds rows that nobody signed: expected",
        "which nobody signed",
    ),
    (
        signed_lakes.replay_table,
        f"{GOLD}: the partition was put back to an older version: expected",
        "an older version",
    ),
    (signed_lakes.replay_lake, "the last were taken away", "it was put back"),
    (signed_lakes.drop_run, f"{GOLD}: the partition is gone: expected", "gold.kernel_breakdown/tee: expected rows"),
    (signed_lakes.forge_statement, "which it names: it was forged or changed", "it was forged or changed"),
    (signed_lakes.sign_with_another_key, "signing-trust.txt does not list", "has signed the checkpoint"),
    (signed_lakes.flip_bit, f"{GOLD}: run_id=tee/", "expected SHA-256"),
]


@pytest.mark.parametrize(("attack", "said", "checked"), ATTACKS, ids=[one[0].__name__ for one in ATTACKS])
def test_an_attack_on_the_lake_is_found_by_both(
    root: Path, attack: Callable[[Path], None], said: str, checked: str
) -> None:
    attack(root)
    kept = ("--since", str(root / "checkpoint"))
    found = teetotal(root, "verify", *kept)
    assert found.exit_code == 1
    assert said in found.stderr
    # The bundle is made by whoever attacks: with a key of their own, or the one that is there.
    own = root / "own-key.pem"
    words = () if not own.exists() else ("--keyring", str(root / "keyring.json"))
    if own.exists():
        own.replace(root / "signing-key.pem")
        shutil.copy(root / "signing-trust.txt", root / "pinned.txt")
        (root / "own-trust.txt").replace(root / "signing-trust.txt")
    trust = root / "pinned.txt" if (root / "pinned.txt").exists() else root / "signing-trust.txt"
    answer = check_bundle(make_bundle(root, *words), trust, *kept)
    assert answer.returncode == 1
    assert checked in answer.stderr


def test_a_run_that_appears_without_a_statement_is_found_by_both(root: Path) -> None:
    signed_lakes.add_run(root)
    found = teetotal(root, "verify")
    assert found.exit_code == 1
    assert "run forged: the partition appeared without a statement" in found.stderr
    assert teetotal(root, "evidence", "forged", "--out", str(root / "bundle")).exit_code == 0
    answer = check_bundle(root / "bundle", root / "signing-trust.txt")
    assert answer.returncode == 1
    assert "gold.kernel_breakdown/forged has no statement" in answer.stderr


@pytest.mark.parametrize("attack", [signed_lakes.drop_statement, signed_lakes.reorder_log])
def test_an_edited_log_is_found_and_not_written_on(root: Path, attack: Callable[[Path], None]) -> None:
    bundle = make_bundle(root)
    attack(root)
    found = teetotal(root, "verify")
    assert found.exit_code == 1
    assert "as its last writer signed it" in found.stderr
    lines = (bundle / "log.jsonl").read_bytes().splitlines(keepends=True)
    changed = lines[1:] if attack is signed_lakes.drop_statement else [lines[1], lines[0], *lines[2:]]
    (bundle / "log.jsonl").write_bytes(b"".join(changed))
    answer = check_bundle(bundle, root / "signing-trust.txt")
    assert answer.returncode == 1
    assert "log.jsonl is not the log" in answer.stderr


def test_a_bundle_that_was_tampered_with_is_refused(root: Path) -> None:
    bundle, trust = make_bundle(root), root / "signing-trust.txt"
    (file,) = (bundle / "data" / "gold" / "kernel_breakdown").rglob("*.parquet")
    intact = file.read_bytes()
    file.write_bytes(intact[:-1] + b"x")
    assert "expected SHA-256" in check_bundle(bundle, trust).stderr
    file.unlink()
    assert "is not in the bundle" in check_bundle(bundle, trust).stderr
    file.write_bytes(intact)
    evidence = json.loads((bundle / "evidence.json").read_text())
    evidence["statements"][0]["proof"][0] = evidence["statements"][1]["proof"][-1]
    (bundle / "evidence.json").write_text(json.dumps(evidence))
    assert "is not in the log that the checkpoint is of" in check_bundle(bundle, trust).stderr


def test_the_report_says_who_signed_and_what_is_not_signed_before_any_number(root: Path) -> None:
    out = ("report", "--run", "tee", "--out", str(root / "page.html"))
    assert teetotal(root, *out).exit_code == 0
    (line,) = teetotal(root, "signing", "list").stdout.splitlines()
    assert f"Signed by key {line.split()[0]}: " in (root / "page.html").read_text()
    signed_lakes.change_number(root)
    found = teetotal(root, *out)
    assert found.exit_code == 1
    page = (root / "page.html").read_text()
    assert page.index("Not what was signed, so do not rely on these numbers") < page.index('id="verdicts"')


def test_a_changed_source_file_is_found_by_both(root: Path) -> None:
    bundle = make_bundle(root)
    land(root, "tee", 150)
    found = teetotal(root, "verify", "tee")
    assert found.exit_code == 1
    assert f"is not in {root}/landing/tee any more, or was changed" in found.stderr
    answer = check_bundle(bundle, root / "signing-trust.txt", "--landing", str(root / "landing"))
    assert answer.returncode == 1
    assert "or was changed" in answer.stderr


def test_a_number_that_its_own_signer_made_up_is_found_by_making_it_again(root: Path) -> None:
    lake = open_signed_lake(signed_lakes.choose(root))
    signed_lakes.halve_numbers(lake)
    lake.log_statements()
    assert teetotal(root, "verify").exit_code == 0
    found = teetotal(root, "verify", "tee", "--recompute")
    assert found.exit_code == 1
    assert f"{GOLD}: the partition comes out otherwise when it is made again: expected rows" in found.stderr
