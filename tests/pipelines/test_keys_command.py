"""Keys and sealed columns as a person meets them: `teetotal keys`, `teetotal show --reveal`, and the settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from assets.build import catalogue
from lake.errors import ContractBroken
from lake.keyring import KeyringFile, encode_base64url
from lake.locations import Location
from lake.store import Lake
from pipelines.cli.main import main
from pipelines.settings import settings
from tests.support.sample_tables import FIRST, HOST, NOTE, OWNER, SECOND, VISITS, visits

if TYPE_CHECKING:
    from collections.abc import Callable

    from click.testing import Result

RUNS = ("a", "b", "c")


@pytest.fixture
def keyring(tmp_path: Path) -> KeyringFile:
    """The keyring that the command finds beside the lake."""
    return KeyringFile(tmp_path / "keyring.json", is_made_on_first_use=True)


@pytest.fixture
def teetotal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """The command, in this process, on a lake whose catalogue holds a table with sealed columns."""
    monkeypatch.setitem(catalogue.TABLES, VISITS.full_name, VISITS)
    for name in ("TEETOTAL_KEYRING", "TEETOTAL_KEYRING_SECRET"):
        monkeypatch.delenv(name, raising=False)
    places = ["--lake", str(tmp_path / "lake"), "--landing", str(tmp_path / "landing")]
    return lambda *words: CliRunner().invoke(main, [*places, *words], catch_exceptions=False)


def parse_keys(result: Result) -> dict[str, list[str]]:
    """The lines of `keys list`, by key: when created, whether active, how many partitions."""
    assert result.exit_code == 0, result.output
    lines = [line.split() for line in result.output.splitlines()]
    assert lines[0] == ["key", "created", "active", "partitions"]
    return {words[0]: words[1:] for words in lines[1:]}


def fill(lake: Lake) -> None:
    for run_id in RUNS:
        lake.replace(VISITS, run_id, visits(run_id), FIRST, seen=SECOND)


# -- keys ---------------------------------------------------------------------------------------------------------


def test_rotation_seals_everything_with_the_new_key_and_changes_no_freshness(
    teetotal: Callable[..., Result], lake: Lake, keyring: KeyringFile
) -> None:
    fill(lake)
    (old,) = keyring().keys
    assert parse_keys(teetotal("keys", "list")) == {old.key_id: [old.created, "yes", "3"]}
    done = teetotal("keys", "rotate")
    assert done.exit_code == 0, done.output
    assert all(f"silver.visits, run {run_id}: 4 rows sealed again" in done.output for run_id in RUNS)
    _, new = keyring().keys
    assert parse_keys(teetotal("keys", "list")) == {
        old.key_id: [old.created, "0"],
        new.key_id: [new.created, "yes", "3"],
    }
    snapshot = lake.snapshot(VISITS)
    assert all(snapshot.is_made_from(run_id, FIRST) and snapshot.has_seen(run_id, SECOND) for run_id in RUNS)


def test_resume_finishes_a_rotation_and_adds_no_key(
    teetotal: Callable[..., Result], lake: Lake, keyring: KeyringFile
) -> None:
    fill(lake)
    new = keyring.rotate().active_id
    lake.reseal(VISITS, "b")
    assert [words[-1] for words in parse_keys(teetotal("keys", "list")).values()] == ["2", "1"]
    done = teetotal("keys", "rotate", "--resume")
    assert done.output.count("sealed again") == 2
    assert "run b" not in done.output
    assert lake.sealed_with(VISITS) == {run_id: {new} for run_id in RUNS}
    assert len(keyring().keys) == 2
    assert "sealed again" not in teetotal("keys", "rotate", "--resume").output


def test_a_key_that_the_keyring_lacks_is_listed_as_such(
    teetotal: Callable[..., Result], lake: Lake, keyring: KeyringFile, tmp_path: Path
) -> None:
    fill(lake)
    lost = keyring().active_id
    assert teetotal("--keyring", str(tmp_path / "other.json"), "keys", "create").exit_code == 0
    found = parse_keys(teetotal("--keyring", str(tmp_path / "other.json"), "keys", "list"))
    assert found[lost] == ["not", "in", "this", "keyring", "3"]
    refused = teetotal("--keyring", str(tmp_path / "other.json"), "keys", "rotate")
    assert refused.exit_code == 1
    assert f"was sealed with key {lost}" in refused.stderr


def test_no_command_prints_a_secret(teetotal: Callable[..., Result], lake: Lake, keyring: KeyringFile) -> None:
    fill(lake)
    said = "".join(
        teetotal(*words).output
        for words in (("keys", "list"), ("keys", "rotate"), ("keys", "list"), ("show", "silver.visits"))
    )
    assert len(keyring().keys) == 2
    assert not [
        key.key_id for key in keyring().keys if encode_base64url(key.secret)[:12] in said or key.secret.hex() in said
    ]


def test_create_makes_a_keyring_once(teetotal: Callable[..., Result], tmp_path: Path) -> None:
    path = tmp_path / "apart" / "keyring.json"
    made = teetotal("--keyring", str(path), "keys", "create")
    assert made.exit_code == 0
    assert f"key {KeyringFile(path)().active_id} is active" in made.output
    again = teetotal("--keyring", str(path), "keys", "create")
    assert again.exit_code == 1
    assert again.stderr.count("\n") == 1
    assert "is there already" in again.stderr


# -- show ---------------------------------------------------------------------------------------------------------


def test_show_prints_tokens_and_a_person_sees_them_shortened(
    teetotal: Callable[..., Result], lake: Lake, keyring: KeyringFile
) -> None:
    fill(lake)
    drawn = teetotal("show", "silver.visits").output
    assert f"sealed:{keyring().active_id}:…" in drawn
    rows = json.loads(teetotal("show", "silver.visits", "--format", "json").stdout)
    assert all(row["host"].startswith(f"sealed:1:{keyring().active_id}:") for row in rows)
    assert not [text for text in (HOST, OWNER, NOTE) if text in drawn + str(rows)]


@pytest.mark.parametrize("columns", [[], ["note"], ["colour", "owner"], ["note", "ordinal", "run_id"], ["colour"]])
def test_show_reveals_what_is_sealed_whichever_columns_are_wanted(
    teetotal: Callable[..., Result], lake: Lake, columns: list[str]
) -> None:
    fill(lake)
    wanted = ["--columns", ",".join(columns)] if columns else []
    shown = teetotal("show", "silver.visits", "--reveal", "--format", "json", *wanted)
    names = columns or list(VISITS.column_names)
    expected = [{name: row[name] for name in names} for run_id in RUNS for row in visits(run_id).to_pylist()]
    assert json.loads(shown.stdout) == expected


def test_a_person_is_shown_what_is_revealed(teetotal: Callable[..., Result], lake: Lake) -> None:
    fill(lake)
    drawn = teetotal("show", "silver.visits", "--reveal", "--run", "a").output
    assert all(text in drawn for text in (HOST, OWNER, NOTE))
    assert "sealed:" not in drawn


def test_show_without_the_key_reveals_nothing_and_says_why(
    teetotal: Callable[..., Result], lake: Lake, keyring: KeyringFile
) -> None:
    fill(lake)
    lost = keyring().active_id
    keyring.path.unlink()
    assert teetotal("show", "silver.visits").exit_code == 0
    refused = teetotal("show", "silver.visits", "--reveal")
    assert refused.exit_code == 1
    assert f"was sealed with key {lost}" in refused.stderr
    assert refused.stderr.count("\n") == 1


# -- settings -----------------------------------------------------------------------------------------------------


def test_the_keyring_of_a_local_lake_lies_beside_it(tmp_path: Path) -> None:
    chosen = settings(str(tmp_path / "lake"), environment={})
    assert chosen.keyring == KeyringFile(tmp_path / "keyring.json", is_made_on_first_use=True)
    assert settings(environment={}).keyring == KeyringFile(
        Path("data/keyring.json").resolve(), is_made_on_first_use=True
    )


def test_what_is_typed_wins_over_the_environment(tmp_path: Path) -> None:
    known = {"TEETOTAL_KEYRING": str(tmp_path / "known.json")}
    assert settings(environment=known).keyring == KeyringFile(tmp_path / "known.json")
    assert settings(keyring=str(tmp_path / "typed.json"), environment=known).keyring == KeyringFile(
        tmp_path / "typed.json"
    )


def test_a_keyring_may_be_handed_over_as_text(tmp_path: Path) -> None:
    made = KeyringFile(tmp_path / "keyring.json").create()
    known = {"TEETOTAL_KEYRING_SECRET": (tmp_path / "keyring.json").read_text()}
    chosen = settings("s3://bucket/lake", environment=known)
    assert chosen.keyring().keys == made.keys
    assert encode_base64url(made.active.secret)[:12] not in repr(chosen)
    with pytest.raises(ContractBroken, match="TEETOTAL_KEYRING_SECRET is read, never written"):
        chosen.keyring.rotate()


def test_an_object_store_needs_a_keyring_only_where_something_is_sealed(tmp_path: Path) -> None:
    chosen = settings("s3://bucket/lake", environment={})
    lake = Lake(Location.of(tmp_path / "lake"), chosen.keyring)
    with pytest.raises(ContractBroken, match=r"no keyring for s3://bucket/lake.*TEETOTAL_KEYRING.*_SECRET"):
        lake.replace(VISITS, "a", visits(), FIRST)
    assert not lake.place.directory.exists()


def test_two_keyrings_are_one_too_many(tmp_path: Path) -> None:
    known = {"TEETOTAL_KEYRING": str(tmp_path / "known.json"), "TEETOTAL_KEYRING_SECRET": "{}"}
    with pytest.raises(ContractBroken, match="TEETOTAL_KEYRING and TEETOTAL_KEYRING_SECRET are both set"):
        settings(environment=known).keyring()
    typed = settings(keyring=str(tmp_path / "typed.json"), environment=known)
    assert typed.keyring == KeyringFile(tmp_path / "typed.json")
