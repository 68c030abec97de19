"""`teetotal land --seal` and `keys recipient`: sealed on the way in, whoever sealed, and never twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from lake.keyring import KeyringFile
from lake.landing_zone import LandingZone
from lake.locations import Location
from lake.sealed_files import MAGIC, LandingSeals
from pipelines.cli.main import main
from tests.support.planted_texts import finds
from tests.support.traces import GOOD

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

SECRET = "planted-owner-erika"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """The files of a run that nobody has sealed."""
    directory = tmp_path / "job-1"
    directory.mkdir()
    (directory / "trace.json").write_bytes(GOOD.replace(b'"a"', f'"{SECRET}"'.encode()))
    (directory / "run.toml").write_text(f'regime = "cc_off"\nowner = "{SECRET}"\n', "utf-8")
    return directory


def teetotal(home: Path, *words: str, **env: str) -> Result:
    places = ["--lake", str(home / "lake"), "--landing", str(home / "landing")]
    return CliRunner().invoke(main, [*places, *words], env=env)


def list_plain(home: Path) -> list[str]:
    """What lies in a landing zone and is not sealed."""
    files = (path for path in (home / "landing").rglob("*") if path.is_file())
    return [path.name for path in files if not path.read_bytes().startswith(MAGIC)]


def test_a_run_is_sealed_for_the_lakes_own_key(tmp_path: Path, source: Path) -> None:
    home = tmp_path / "here"
    said = teetotal(home, "land", "--seal", str(source))
    assert "landed job-1: 1 files in" in said.output
    assert ", sealed for r" in said.output
    assert list_plain(home) == finds(home, SECRET) == []
    zone = LandingZone(Location.of(home / "landing"), LandingSeals(KeyringFile(home / "keyring.json")))
    assert SECRET in zone.manifest("job-1").decode()


def test_what_was_sealed_elsewhere_lands_as_it_is_with_its_manifest_sealed(tmp_path: Path, source: Path) -> None:
    home, away = tmp_path / "here", tmp_path / "away"
    (tmp_path / "lake.pem").write_text(teetotal(home, "keys", "recipient").output, "utf-8")
    assert teetotal(away, "land", "--seal-for", str(tmp_path / "lake.pem"), str(source)).exit_code == 0
    landed = away / "landing" / "job-1"
    for how in ([], ["--seal"]):
        said = teetotal(home, "land", *how, str(landed), TEETOTAL_ACCEPT_ONLY_SEALED="1")
        assert said.exit_code == 0, said.output
        assert (home / "landing/job-1/trace.json").read_bytes() == (landed / "trace.json").read_bytes()
        assert list_plain(home) == finds(home, SECRET) == []
        LandingZone(Location.of(home / "landing")).remove("job-1")
    moved = teetotal(home, "land", "--run-id", "job-2", str(landed))
    assert moved.exit_code != 0
    assert "it was sealed as" in moved.output


def test_a_lake_that_accepts_sealed_files_alone_says_how_to_land(tmp_path: Path, source: Path) -> None:
    said = teetotal(tmp_path / "here", "land", str(source), TEETOTAL_ACCEPT_ONLY_SEALED="1")
    assert said.exit_code != 0
    assert "accepts sealed files alone" in said.output
    assert "land them with --seal" in said.output
    wrong = teetotal(tmp_path / "here", "land", str(source), TEETOTAL_ACCEPT_ONLY_SEALED="yes")
    assert "TEETOTAL_ACCEPT_ONLY_SEALED is 'yes'" in str(wrong.output) + str(wrong.exception)


def test_files_of_an_open_run_are_sealed_on_their_way_in_or_taken_as_they_were_sealed(
    tmp_path: Path, source: Path
) -> None:
    home, away, strict = tmp_path / "here", tmp_path / "away", {"TEETOTAL_ACCEPT_ONLY_SEALED": "1"}
    opened = teetotal(home, "land", "--open", "--seal", "--run-id", "job-1", str(source / "run.toml"), **strict)
    assert opened.exit_code == 0, opened.output
    added = teetotal(home, "land", "--append", "job-1", "--seal", str(source / "trace.json"), **strict)
    assert added.exit_code == 0, added.output
    (tmp_path / "lake.pem").write_text(teetotal(home, "keys", "recipient").output, "utf-8")
    assert teetotal(away, "land", "--seal-for", str(tmp_path / "lake.pem"), str(source)).exit_code == 0
    sealed = away / "landing/job-1/trace.json"
    assert "replaced in job-1: trace.json" in teetotal(home, "land", "--append", "job-1", str(sealed), **strict).output
    assert (home / "landing/job-1/trace.json").read_bytes() == sealed.read_bytes()
    (tmp_path / "late.json").write_bytes((source / "trace.json").read_bytes())
    assert teetotal(home, "land", "--append", "job-1", str(tmp_path / "late.json")).exit_code == 0  # as its run is
    assert sorted(list_plain(home)) == [".open"]
    assert finds(home, SECRET) == []
    (tmp_path / "moved.json").write_bytes(sealed.read_bytes())
    moved = teetotal(home, "land", "--append", "job-1", str(tmp_path / "moved.json"))
    assert moved.exit_code != 0
    assert "moved.json: it was sealed as trace.json of run job-1" in moved.output
