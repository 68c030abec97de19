"""Directory entries that are no trace, or no file: each leaves a sentence, and the others go on."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from lake.errors import LakeError
from tests.support.traces import GOOD, trace

if TYPE_CHECKING:
    from pathlib import Path

    from tests.bronze.conftest import Beside
    from tests.conftest import LandFiles

_TRACE = trace('{"name": "x"}')

# -- content ---------------------------------------------------------------------------------------------------

_STRANGERS = {
    "empty": b"",
    "zeros": b"\x00" * 100,
    "blanks": b" \n",
    "picture.png": b"\x89PNG\r\n\x1a\n" + bytes(range(256)),
    "strange.csv": b"colour,taste\nred,sweet\n",
    "other.json": b'{"schemaVersion": 1, "events": [1, 2, 3]}',
    "number.json": b'{"traceEvents": 5}',
    "text.json": b'"traceEvents"',
    "braces": b"{hello}",
    "utf16.json": '{"traceEvents": []}'.encode("utf-16"),
    "archive.zip": b"PK\x03\x04" + bytes(60),
    "nsys.sqlite": b"SQLite format 3\x00" + bytes(100),
}
_BRACKETED = {
    "stderr.log": b"[rank0]: Traceback (most recent call last):\n  File ...\n",
    "train.log": b"[2024-01-01 00:00:00] step 1 loss 2.5\n[2024-01-01 00:00:01] step 2 loss 2.4\n",
    "numbers.json": b"[1, 2, 3]",
    "texts.json": b'["a", "b"]',
    "deep.json": b"[" * 100_000,
}


def test_files_in_no_known_format_are_rejected(beside: Beside) -> None:
    company = beside(_STRANGERS)
    assert all(company.rejected(name) for name in _STRANGERS)


def test_files_that_begin_with_a_bracket_and_hold_no_event_are_rejected(beside: Beside) -> None:
    company = beside(_BRACKETED)
    assert all(company.rejected(name) for name in _BRACKETED)


# -- names -----------------------------------------------------------------------------------------------------


def test_files_may_have_any_name(beside: Beside) -> None:
    names = [
        "a'; DROP TABLE events; --.json",
        'a".json',
        "a;b.json",
        "$(id) `id` & | > <.json",
        "%2e%2e%2fetc.json",
        "..json",
        "-rf.json",
        "run_id=x",
        "rank99999999999999999999.json",
        "ü 🙂.json",
        "a\nb.json",
        "*?[a].json",
        "\u202efdp.json",
        "n" * 250,
    ]
    company = beside({name: trace(f'{{"name": "{place}"}}') for place, name in enumerate(names)})
    assert [company.names(name) for name in names] == [[f"{place}"] for place in range(len(names))]


def test_name_that_is_not_utf8_is_refused_with_a_reason(beside: Beside) -> None:
    (beside.land_files.write({}) / os.fsdecode(b"caf\xe9.json")).write_bytes(_TRACE)
    assert "UTF-8" in beside(None).rejected("caf\\xe9.json")


# -- what is no file -------------------------------------------------------------------------------------------


def test_directory_named_like_a_file_is_refused(beside: Beside) -> None:
    directory = beside.land_files.write({}) / "bad.json"
    directory.mkdir()
    (directory / "inner.json").write_bytes(_TRACE)
    assert "directory" in beside(None).rejected()


def test_link_out_of_the_landing_zone_is_refused(beside: Beside, tmp_path: Path) -> None:
    (tmp_path / "secret.json").write_bytes(_TRACE)
    (beside.land_files.write({}) / "bad.json").symlink_to(tmp_path / "secret.json")
    company = beside(None)
    assert "link out of the landing zone" in company.rejected()
    assert company.landed.file("bad.json")["source_sha256"] is None


def test_link_through_a_directory_out_of_the_landing_zone_is_refused(beside: Beside, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.json").write_bytes(_TRACE)
    directory = beside.land_files.write({})
    (directory.parent / ".hop").symlink_to(tmp_path / "outside")
    (directory / "bad.json").symlink_to("../.hop/secret.json")
    assert "link out of the landing zone" in beside(None).rejected()


def test_link_inside_the_landing_zone_is_followed(beside: Beside) -> None:
    other = beside.land_files.write({"other.json": _TRACE}, run_id="run-2")
    (beside.land_files.write({}) / "bad.json").symlink_to(other / "other.json")
    assert beside(None).names() == ["x"]


@pytest.mark.parametrize("target", ["nowhere.json", "bad.json"], ids=["dangling", "in a circle"])
def test_link_that_leads_nowhere_is_refused(beside: Beside, target: str) -> None:
    (beside.land_files.write({}) / "bad.json").symlink_to(target)
    assert "leads nowhere" in beside(None).rejected()


def test_pipe_is_refused_without_being_opened(beside: Beside) -> None:
    os.mkfifo(beside.land_files.write({}) / "bad.json")
    assert "not a regular file" in beside(None).rejected()


def test_manifest_that_is_a_link_out_of_the_landing_zone_is_refused(land_files: LandFiles, tmp_path: Path) -> None:
    (tmp_path / "secret.toml").write_text('note = "secret"\n', "utf-8")
    manifest = land_files.write({"good.json": GOOD}) / "run.toml"
    manifest.unlink()
    manifest.symlink_to(tmp_path / "secret.toml")
    with pytest.raises(LakeError, match="landing zone"):
        land_files.materialise()


def test_run_that_is_a_link_out_of_the_landing_zone_is_refused(land_files: LandFiles, tmp_path: Path) -> None:
    run = land_files.write({"good.json": GOOD})
    run.rename(tmp_path / "outside")
    run.symlink_to(tmp_path / "outside")
    with pytest.raises(LakeError, match="landing zone"):
        land_files.materialise()
