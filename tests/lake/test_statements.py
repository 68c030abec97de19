"""Statements of commits: what they say, when there is none, and that a kill loses none of them."""

from __future__ import annotations

import base64
import json
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from assets.build.provenance import make_lineage
from lake.digest import digest_file
from lake.errors import ContractBroken
from lake.keyring import KeyringFile
from lake.lineage.audit import Audit, audit_chain, audit_table
from lake.lineage.history import read_history
from lake.lineage.keys import SigningKeys
from lake.lineage.log import StatementLog
from lake.lineage.statements import Material
from lake.locations import Location
from lake.store import Lake
from tests.support.sample_tables import FIRST, READINGS, SECOND, VISITS, readings, visits

if TYPE_CHECKING:
    from pathlib import Path

MADE_FROM_READINGS = replace(READINGS, tier="gold", inputs=("silver.readings",))
TABLES = (READINGS, MADE_FROM_READINGS, VISITS)


def open_keys(root: Path) -> SigningKeys:
    return SigningKeys(root / "signing-trust.txt", root / "signing-key.pem", is_made_on_first_use=True)


def open_lake(root: Path, *, signs: bool = True) -> Lake:
    place = Location.of(root / "lake")
    lineage = make_lineage(place, open_keys(root), {"margin": "0.02"}) if signs else None
    return Lake(place, KeyringFile(root / "keyring.json", is_made_on_first_use=True), lineage)


def read_statements(root: Path) -> list[dict[str, Any]]:
    lines = StatementLog(Location.of(root / "lake")).read().lines
    return [json.loads(base64.b64decode(json.loads(line)["payload"])) for line in lines]


def audit(root: Path) -> tuple[Audit, list[str], int]:
    lake, found = open_lake(root, signs=False), Audit()
    history = read_history(lake.place, open_keys(root).trust, [table.full_name for table in TABLES])
    for table in TABLES:
        audit_table(history, lake.snapshot(table), None, found)
    return found, history.faults, history.unlogged


def test_a_statement_names_the_rows_the_bytes_what_they_were_made_from_and_how(tmp_path: Path) -> None:
    lake = open_lake(tmp_path)
    source = Material("landing/a/1", "5" * 64)
    upstream = lake.replace(READINGS, "a", readings(), FIRST, sources=[source])
    made = lake.noting(engine="duckdb").replace(MADE_FROM_READINGS, "a", readings(), SECOND)
    assert lake.log_statements() is not None
    statements = {one["subject"][0]["name"]: one for one in read_statements(tmp_path)}
    assert sorted(statements) == ["gold.readings/a", "silver.readings/a"]
    one = statements["gold.readings/a"]
    (path,) = lake.snapshot(MADE_FROM_READINGS).files("a")
    assert one["subject"] == [
        {"name": "gold.readings/a", "digest": {"rowsSha256": made.content_sha256}},
        {"name": f"gold/readings/{path}", "digest": {"sha256": digest_file(tmp_path / "lake/gold/readings" / path)}},
    ]
    build = one["predicate"]["buildDefinition"]
    assert build["resolvedDependencies"] == [
        {"name": "silver.readings/a", "digest": {"rowsSha256": upstream.content_sha256}}
    ]
    parameters = build["internalParameters"]
    assert (parameters["engine"], parameters["margin"], parameters["made_from_sha256"]) == ("duckdb", "0.02", SECOND)
    dependencies = statements["silver.readings/a"]["predicate"]["buildDefinition"]["resolvedDependencies"]
    assert {"name": "landing/a/1", "digest": {"sha256": "5" * 64}} in dependencies
    assert {"policy/silver/patterns", "policy/silver/sealing_policy"} < {one["name"] for one in dependencies}
    assert {"teetotal", "polars", "python"} < set(one["predicate"]["runDetails"]["builder"]["version"])


def test_rows_that_another_writer_replaced_are_named_as_they_are_now(tmp_path: Path) -> None:
    lake = open_lake(tmp_path)
    lake.replace(READINGS, "a", readings(), FIRST)
    lake.replace(MADE_FROM_READINGS, "a", readings(), FIRST)
    other = open_lake(tmp_path).replace(READINGS, "a", readings(powers=[9.0]), SECOND)
    open_lake(tmp_path).replace(READINGS, "b", readings("b"), SECOND)
    lake.replace(MADE_FROM_READINGS, "a", readings(), SECOND)
    lake.log_statements()
    said = [one for one in read_statements(tmp_path) if one["subject"][0]["name"] == "gold.readings/a"]
    (named,) = said[-1]["predicate"]["buildDefinition"]["resolvedDependencies"]
    assert named["digest"] == {"rowsSha256": other.content_sha256}


def test_the_same_rows_made_again_from_the_same_are_not_signed_again(tmp_path: Path) -> None:
    for lake in (open_lake(tmp_path), open_lake(tmp_path)):
        lake.replace(READINGS, "a", readings(), FIRST)
        lake.log_statements()
    assert len(read_statements(tmp_path)) == 1
    lake = open_lake(tmp_path)
    lake.rewriting().replace(READINGS, "a", readings(), FIRST)
    state = lake.log_statements()
    assert state is not None
    assert state.size == len(read_statements(tmp_path)) == 1


def test_an_unsigned_past_is_named_and_signed_when_it_is_made_again(tmp_path: Path) -> None:
    open_lake(tmp_path, signs=False).replace(READINGS, "a", readings(), FIRST)
    lake = open_lake(tmp_path)
    lake.replace(READINGS, "b", readings("b"), FIRST)
    lake.log_statements()
    found, faults, _ = audit(tmp_path)
    assert (found.unsigned, found.damages, faults) == ([("silver.readings", "a")], [], [])
    before = lake.snapshot(READINGS).content_sha256("a")
    open_lake(tmp_path, signs=False).replace(READINGS, "a", readings(powers=[7.0]), FIRST)
    (damage,) = audit(tmp_path)[0].damages
    assert damage.reason.startswith(f"was unsigned when signing began, and changed since: expected rows {before[:16]}…")
    lake.replace(READINGS, "a", readings(), FIRST)
    lake.log_statements()
    found, faults, _ = audit(tmp_path)
    assert (found.unsigned, sorted(found.signed)) == ([], [("silver.readings", "a"), ("silver.readings", "b")])


def test_a_launch_that_was_killed_before_the_log_loses_no_statement_and_the_next_one_adds_it(tmp_path: Path) -> None:
    open_lake(tmp_path).replace(READINGS, "a", readings(), FIRST)
    found, faults, unlogged = audit(tmp_path)
    assert (sorted(found.signed), faults, unlogged) == ([("silver.readings", "a")], [], 1)
    open_lake(tmp_path).log_statements()
    found, faults, unlogged = audit(tmp_path)
    assert (sorted(found.signed), faults, unlogged) == ([("silver.readings", "a")], [], 0)


def test_a_launch_that_was_killed_between_the_log_and_its_signed_end_is_healed(tmp_path: Path) -> None:
    lake, state = open_lake(tmp_path), tmp_path / "lake" / "_lineage" / "state.json"
    lake.replace(READINGS, "a", readings(), FIRST)
    lake.log_statements()
    shutil.copy(state, tmp_path / "state")
    lake.replace(READINGS, "b", readings("b"), FIRST)
    lake.log_statements()
    shutil.copy(tmp_path / "state", state)
    lake.replace(READINGS, "c", readings("c"), FIRST)
    lake.log_statements()
    found, faults, unlogged = audit(tmp_path)
    assert (len(found.signed), faults, unlogged, len(read_statements(tmp_path))) == (3, [], 0, 3)


def test_a_log_that_lost_statements_is_not_written_on(tmp_path: Path) -> None:
    lake = open_lake(tmp_path)
    for run_id in "ab":
        lake.replace(READINGS, run_id, readings(run_id), FIRST)
        lake.log_statements()
    (tmp_path / "lake" / "_lineage" / f"{1:020}.jsonl").unlink()
    lake.replace(READINGS, "c", readings("c"), FIRST)
    with pytest.raises(ContractBroken, match="holds 1 statements before the end that was signed, not 2"):
        lake.log_statements()


def test_rows_that_are_sealed_again_are_made_from_the_rows_before(tmp_path: Path) -> None:
    lake = open_lake(tmp_path)
    before = lake.replace(VISITS, "a", visits(), FIRST)
    KeyringFile(tmp_path / "keyring.json").rotate()
    lake = open_lake(tmp_path)
    after = lake.reseal(VISITS, "a")
    lake.log_statements()
    _, last = read_statements(tmp_path)
    assert last["subject"][0]["digest"] == {"rowsSha256": after.content_sha256}
    dependencies = last["predicate"]["buildDefinition"]["resolvedDependencies"]
    assert {"name": "silver.visits/a", "digest": {"rowsSha256": before.content_sha256}} in dependencies
    assert audit(tmp_path)[0].damages == []


def test_an_unsigned_past_that_is_sealed_again_leads_to_what_was_found_when_signing_began(tmp_path: Path) -> None:
    open_lake(tmp_path, signs=False).replace(VISITS, "a", visits(), FIRST)
    open_lake(tmp_path).log_statements()
    KeyringFile(tmp_path / "keyring.json").rotate()
    lake = open_lake(tmp_path)
    lake.reseal(VISITS, "a")
    lake.log_statements()
    found, faults, _ = audit(tmp_path)
    audit_chain(read_history(lake.place, open_keys(tmp_path).trust, [VISITS.full_name]), found)
    assert (found.damages, faults, sorted(found.signed)) == ([], [], [("silver.visits", "a")])


def test_rows_sealed_again_from_others_than_were_found_when_signing_began_are_damage(tmp_path: Path) -> None:
    open_lake(tmp_path, signs=False).replace(VISITS, "a", visits(), FIRST)
    open_lake(tmp_path).log_statements()
    open_lake(tmp_path, signs=False).replace(VISITS, "a", visits(host="mallory"), FIRST)
    KeyringFile(tmp_path / "keyring.json").rotate()
    lake = open_lake(tmp_path)
    lake.reseal(VISITS, "a")
    lake.log_statements()
    found, *_ = audit(tmp_path)
    audit_chain(read_history(lake.place, open_keys(tmp_path).trust, [VISITS.full_name]), found)
    (damage,) = found.damages
    assert damage.reason.endswith("which nobody signed")


def test_what_a_revoked_key_signed_counts_no_longer_or_up_to_a_statement(tmp_path: Path) -> None:
    lake = open_lake(tmp_path)
    for run_id in "ab":
        lake.replace(READINGS, run_id, readings(run_id), FIRST)
    lake.log_statements()
    (old,) = open_keys(tmp_path).trust.current
    open_keys(tmp_path).rotate()
    lake = open_lake(tmp_path)
    lake.replace(READINGS, "c", readings("c"), FIRST)
    lake.log_statements()
    assert audit(tmp_path)[1] == []
    open_keys(tmp_path).revoke(old.key_id, 1)
    found, (fault,), _ = audit(tmp_path)
    assert fault == f"the log: statement 1 (silver.readings, run b) is signed by key {old.key_id}, which was revoked"
    assert sorted(run_id for _, run_id in found.signed) == ["a", "c"]


def test_a_table_that_another_version_wrote_is_emptied_by_a_statement(tmp_path: Path) -> None:
    other = replace(READINGS, columns=READINGS.columns[:-1])
    lake = open_lake(tmp_path)
    lake.replace(other, "a", readings().drop_columns(["is_valid"]), FIRST)
    lake.replace_outdated(READINGS)
    lake.log_statements()
    found, faults, _ = audit(tmp_path)
    assert (found.signed, found.damages, faults) == ({}, [], [])
    lake.replace(READINGS, "a", readings(), SECOND)
    lake.log_statements()
    assert list(audit(tmp_path)[0].signed) == [("silver.readings", "a")]
