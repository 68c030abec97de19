"""A lake knows the key that it was sealed with: a lost keyring is not replaced, and another is not used."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from lake.errors import ContractBroken
from lake.keyring import KeyringFile, KeyringSecret
from lake.keyring_guard import MARKER, KeyringGuard
from lake.store import Lake
from pipelines.cli.main import main
from tests.support.sample_tables import FIRST, READINGS, SECOND, VISITS, files_under, readings, visits

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def keyring(tmp_path: Path) -> KeyringFile:
    """The keyring of the `lake` fixture."""
    return KeyringFile(tmp_path / "keyring.json", is_made_on_first_use=True)


def teetotal(lake: Lake, *words: str) -> tuple[int, str]:
    done = CliRunner().invoke(main, ["--lake", str(lake.place), *words], catch_exceptions=False)
    return done.exit_code, done.output


def test_a_lost_keyring_is_not_replaced_by_a_new_one(lake: Lake, keyring: KeyringFile) -> None:
    lake.replace(VISITS, "a", visits(), FIRST)
    lost, before = keyring().active_id, files_under(lake.place.directory)
    keyring.path.unlink()
    said = rf"was sealed with key {lost}, and there is no keyring at {keyring.path}.*put that keyring back.*keys adopt"
    for use in (
        lambda: lake.replace(VISITS, "b", visits("b"), SECOND),
        lambda: lake.reveal(VISITS, lake.scan(VISITS).collect().to_arrow()),
        lambda: lake.unlock([VISITS]),
    ):
        with pytest.raises(ContractBroken, match=said):
            use()
    for words in (["keys", "list"], ["keys", "rotate"], ["keys", "rotate", "--resume"]):
        status, answer = teetotal(lake, *words)
        assert (status, answer.count("\n")) == (1, 1)
        assert f"was sealed with key {lost}" in answer
    assert not keyring.path.exists()
    assert files_under(lake.place.directory) == before


def test_another_keyring_is_refused_before_anything_is_written(
    lake: Lake, keyring: KeyringFile, tmp_path: Path
) -> None:
    lake.replace(VISITS, "a", visits(), FIRST)
    before = files_under(lake.place.directory)
    other = KeyringFile(tmp_path / "other.json")
    other.create()
    stranger = Lake(lake.place, other)
    with pytest.raises(ContractBroken, match=f"was sealed with key {keyring().active_id}, which .*other.json does not"):
        stranger.replace(VISITS, "b", visits("b"), SECOND)
    assert files_under(lake.place.directory) == before
    stranger.replace(READINGS, "b", readings("b"), FIRST)  # nothing in it is sealed


def test_a_key_of_the_same_id_that_is_another_is_refused(lake: Lake, keyring: KeyringFile) -> None:
    lake.replace(VISITS, "a", visits(), FIRST)
    forged = json.loads(keyring.path.read_text())
    forged["keys"][0]["secret"] = "A" * 86
    with pytest.raises(ContractBroken, match="holds as another key"):
        Lake(lake.place, KeyringSecret("S", json.dumps(forged))).replace(VISITS, "b", visits("b"), SECOND)


def test_rotation_moves_the_mark_and_a_copy_from_before_it_is_refused(lake: Lake, keyring: KeyringFile) -> None:
    lake.replace(VISITS, "a", visits(), FIRST)
    old = KeyringSecret("OLD", keyring.path.read_text())
    keyring.rotate()
    Lake(lake.place, old).replace(VISITS, "b", visits("b"), FIRST)  # nothing was sealed with the new key yet
    lake.replace(VISITS, "c", visits("c"), FIRST)
    with pytest.raises(ContractBroken, match=f"was sealed with key {keyring().active_id}, which OLD does not hold"):
        Lake(lake.place, old).replace(VISITS, "d", visits("d"), FIRST)
    retired = json.loads(keyring.path.read_text())
    retired["keys"] = retired["keys"][1:]
    Lake(lake.place, KeyringSecret("NEW", json.dumps(retired))).replace(VISITS, "e", visits("e"), FIRST)


def test_a_lake_of_an_older_version_is_looked_at_once(lake: Lake, keyring: KeyringFile, tmp_path: Path) -> None:
    lake.replace(VISITS, "a", visits(), FIRST)
    (lake.place.directory / MARKER).unlink()
    stranger = Lake(lake.place, KeyringFile(tmp_path / "other.json", is_made_on_first_use=True))
    with pytest.raises(ContractBroken, match=f"visits was sealed with key {keyring().active_id}, which .*other.json"):
        stranger.replace(VISITS, "b", visits("b"), SECOND)
    assert not (lake.place.directory / MARKER).exists()
    lake.replace(VISITS, "b", visits("b"), SECOND)
    assert keyring().active_id in (lake.place.directory / MARKER).read_text()


def test_a_keyring_that_is_lost_for_good_can_be_given_up(lake: Lake, keyring: KeyringFile) -> None:
    lake.replace(VISITS, "a", visits(), FIRST)
    keyring.path.unlink()
    assert teetotal(lake, "keys", "create")[0] == 0
    with pytest.raises(ContractBroken, match="keys adopt"):
        lake.replace(VISITS, "a", visits(), SECOND)
    status, answer = teetotal(lake, "keys", "adopt")
    assert (status, f"sealed with key {keyring().active_id} from now on" in answer) == (0, True)
    lake.replace(VISITS, "a", visits(), SECOND)
    assert lake.sealed_with(VISITS) == {"a": {keyring().active_id}}


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"version": 1, "key": 7, "check": ""}', "[" * 100_000])
def test_a_mark_that_was_changed_is_told(lake: Lake, keyring: KeyringFile, text: str) -> None:
    lake.replace(VISITS, "a", visits(), FIRST)
    (lake.place.directory / MARKER).write_text(text)
    with pytest.raises(ContractBroken, match="does not say which key"):
        lake.replace(VISITS, "b", visits("b"), FIRST)
    KeyringGuard(lake.place, keyring).adopt(keyring())
    lake.replace(VISITS, "b", visits("b"), FIRST)


def test_the_mark_holds_no_secret(lake: Lake, keyring: KeyringFile) -> None:
    lake.replace(VISITS, "a", visits(), FIRST)
    marked = json.loads((lake.place.directory / MARKER).read_text())
    assert marked["key"] == keyring().active_id
    assert marked["check"] not in keyring.path.read_text()
    assert sorted(path.name for path in (lake.place.directory / "_staging").glob("keyring*")) == ["keyring.lock"]


# -- what a killed writer leaves ----------------------------------------------------------------------------------

KILLED = """
import os, signal, sys
from pathlib import Path
from lake.keyring import KeyringFile
Path.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
KeyringFile(Path(sys.argv[1])).rotate()
"""


def test_what_a_killed_writer_left_of_the_keys_is_removed_by_the_next_use(keyring: KeyringFile) -> None:
    made = keyring()
    killed = subprocess.run([sys.executable, "-c", KILLED, str(keyring.path)], check=False)
    assert killed.returncode == -signal.SIGKILL
    (left,) = keyring.path.parent.glob(".keyring.json.*")
    assert made.active_id in left.read_text()
    assert keyring() == made
    assert sorted(path.name for path in keyring.path.parent.iterdir()) == ["keyring.json", "keyring.json.lock"]


def test_what_lies_beside_a_keyring_under_other_names_is_left_alone(keyring: KeyringFile) -> None:
    keyring()
    kept = {".keyring.json.bak", ".keyring.json.0123456789abcdef.old", "keyring.json.0123456789abcdef"}
    for name in kept:
        keyring.path.with_name(name).touch()
    keyring.rotate()
    keyring()
    assert kept <= {path.name for path in keyring.path.parent.iterdir()}
