from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
from typing import TYPE_CHECKING

import pytest

from lake.errors import EvidenceRejected, LakeError, SourceUnavailable
from lake.identity import MANIFEST, OPEN
from lake.landing_zone import LandingZone
from lake.locations import Location
from tests.support.processes import await_ready, start
from tests.support.sample_tables import files_under

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """Two files to land, by the names that they shall have."""
    source = tmp_path / "source"
    source.mkdir()
    for name in ("one.json", "two.json"):
        (source / name).write_text(name)
    return {name: source / name for name in ("one.json", "two.json")}


def directory(zone: LandingZone) -> Path:
    return zone.place.directory


def problems(zone: LandingZone, run_id: str = "run-1") -> dict[str, str | None]:
    return {file.name: file.problem for file in zone.files(run_id)}


# -- landing --------------------------------------------------------------------------------------------------


def test_a_landed_run_is_complete_and_holds_what_was_landed(zone: LandingZone, files: dict[str, Path]) -> None:
    zone.land("run-1", files, 'model = "m"\n')
    assert zone.run_ids() == (["run-1"], [])
    assert files_under(directory(zone)) == {
        "run-1/one.json": b"one.json",
        "run-1/two.json": b"two.json",
        "run-1/run.toml": b'model = "m"\n',
    }
    assert zone.manifest("run-1") == b'model = "m"\n'
    assert [(file.name, file.size_bytes, file.problem) for file in zone.files("run-1")] == [
        ("one.json", 8, None),
        ("two.json", 8, None),
    ]


def test_a_fetched_file_is_its_bytes_and_their_digest(zone: LandingZone, files: dict[str, Path]) -> None:
    zone.land("run-1", files, "")
    with asyncio.run(zone.files("run-1")[0].fetch()) as fetched:
        assert fetched.sha256 == hashlib.sha256(b"one.json").hexdigest()
        assert b"".join(fetched.blocks()) == b"".join(fetched.blocks()) == b"one.json"
    assert (directory(zone) / "run-1" / "one.json").exists()


def test_a_file_that_vanished_is_a_transient_error(zone: LandingZone, files: dict[str, Path]) -> None:
    zone.land("run-1", files, "")
    listed = zone.files("run-1")
    (directory(zone) / "run-1" / "one.json").unlink()
    with pytest.raises(SourceUnavailable, match=r"run-1/one\.json could not be read"):
        asyncio.run(listed[0].fetch())


def test_an_existing_run_is_refused_and_left_alone(zone: LandingZone, files: dict[str, Path]) -> None:
    zone.land("run-1", files, "")
    before = files_under(directory(zone))
    with pytest.raises(EvidenceRejected, match="run run-1 is already in the landing zone") as caught:
        zone.land("run-1", {"other.json": files["one.json"]}, "")
    assert "--run-id" in caught.value.hint
    assert files_under(directory(zone)) == before
    assert sorted(path.name for path in directory(zone).iterdir()) == ["run-1"]


@pytest.mark.parametrize("inside", [(), ("stray.json",)], ids=["empty", "without a manifest"])
def test_a_directory_that_is_not_complete_is_refused_too(
    zone: LandingZone, files: dict[str, Path], inside: tuple[str, ...]
) -> None:
    (directory(zone) / "run-1").mkdir(parents=True)
    for name in inside:
        (directory(zone) / "run-1" / name).touch()
    with pytest.raises(EvidenceRejected, match="already in the landing zone"):
        zone.land("run-1", files, "")
    assert zone.run_ids() == ([], ["run-1"])


def test_a_source_that_cannot_be_read_leaves_no_trace(zone: LandingZone, files: dict[str, Path]) -> None:
    files["two.json"].unlink()
    with pytest.raises(LakeError, match=r"two\.json"):
        zone.land("run-1", files, "")
    assert list(directory(zone).iterdir()) == []


@pytest.mark.parametrize("name", ["../evil.json", "{outside}/evil.json", "a/b.json", "..", ".", "", MANIFEST])
def test_a_name_that_is_no_plain_file_name_is_refused(zone: LandingZone, files: dict[str, Path], name: str) -> None:
    before = files_under(directory(zone).parent)
    with pytest.raises(EvidenceRejected):
        zone.land("run-1", {name.format(outside=directory(zone).parent): files["one.json"]}, "")
    assert files_under(directory(zone).parent) == before
    assert zone.run_ids() == ([], [])


def test_killed_while_it_copies_a_landing_leaves_no_run(zone: LandingZone, files: dict[str, Path]) -> None:
    process = start("land_halfway", str(zone.place), "run-1", *map(str, files.values()))
    await_ready(process)
    assert zone.run_ids() == ([], [])
    process.kill()
    process.communicate()
    assert zone.run_ids() == ([], [])
    zone.land("run-1", files, "")
    assert zone.run_ids() == (["run-1"], [])
    assert sorted(problems(zone)) == ["one.json", "two.json"]


# -- listing --------------------------------------------------------------------------------------------------


def test_an_absent_landing_zone_holds_no_runs_and_is_not_made(zone: LandingZone) -> None:
    assert zone.run_ids() == ([], [])
    assert not directory(zone).exists()


def test_directories_that_are_no_complete_runs_are_reported(zone: LandingZone, files: dict[str, Path]) -> None:
    zone.land("good", files, "")
    for name in ("no-manifest", "not an id", ".hidden"):
        (directory(zone) / name).mkdir()
    (directory(zone) / "not an id" / MANIFEST).touch()
    (directory(zone) / "manifest-is-a-directory" / MANIFEST).mkdir(parents=True)
    (directory(zone) / "stray file").touch()
    assert zone.run_ids() == (["good"], ["manifest-is-a-directory", "no-manifest", "not an id"])


def test_what_may_not_be_read_says_why_and_the_others_are_listed(zone: LandingZone, files: dict[str, Path]) -> None:
    zone.land("run-1", files, "")
    run = directory(zone) / "run-1"
    (run / "folder.json").mkdir()
    (run / "inward.json").symlink_to(run / "one.json")
    (run / "outward.json").symlink_to(files["one.json"])
    (run / "sideways.json").symlink_to(directory(zone).parent)
    (run / "nowhere.json").symlink_to(run / "absent")
    (run / "loop.json").symlink_to(run / "loop.json")
    os.mkfifo(run / "pipe.json")
    shutil.copyfile(files["one.json"], os.fsencode(run) + b"/b\xffd.json")
    found = problems(zone)
    assert {name for name, problem in found.items() if problem is None} == {"inward.json", "one.json", "two.json"}
    assert found["folder.json"] == "it is a directory; a run's files lie side by side"
    assert (
        found["outward.json"]
        == found["sideways.json"]
        == "it is a link out of the landing zone, which is never followed"
    )
    assert str(found["nowhere.json"]).startswith("it leads nowhere: No such file")
    assert str(found["loop.json"]).startswith("it leads nowhere")
    assert found["pipe.json"] == "it is not a regular file"
    assert found["b\\xffd.json"] == "its name is not valid UTF-8; rename it"
    assert {file.size_bytes for file in zone.files("run-1") if file.problem} == {None}


def test_a_run_that_is_not_there_is_refused_with_the_runs_that_are(zone: LandingZone, files: dict[str, Path]) -> None:
    zone.land("run-1", files, "")
    for use in (zone.manifest, zone.files, zone.manifest_etag):
        with pytest.raises(EvidenceRejected, match="run-1"):
            use("run-2")


def test_a_manifest_that_links_out_of_the_landing_zone_is_never_followed(
    zone: LandingZone, files: dict[str, Path], tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("secret")
    (directory(zone) / "run-1").mkdir(parents=True)
    (directory(zone) / "run-1" / MANIFEST).symlink_to(tmp_path / "secret")
    with pytest.raises(EvidenceRejected):
        zone.manifest("run-1")
    assert zone.run_ids() == ([], ["run-1"])


def test_a_run_directory_that_links_out_of_the_landing_zone_is_never_followed(
    zone: LandingZone, files: dict[str, Path], tmp_path: Path
) -> None:
    outside = LandingZone(Location.of(tmp_path / "outside"))
    outside.land("run-1", files, "")
    directory(zone).mkdir()
    (directory(zone) / "run-1").symlink_to(directory(outside) / "run-1")
    with pytest.raises(EvidenceRejected):
        zone.manifest("run-1")
    assert zone.run_ids() == ([], ["run-1"])


def test_the_mark_of_a_manifest_changes_with_it(zone: LandingZone, files: dict[str, Path]) -> None:
    zone.land("run-1", files, "")
    before = zone.manifest_etag("run-1")
    assert zone.manifest_etag("run-1") == before
    (directory(zone) / "run-1" / MANIFEST).write_text('model = "m"\n')
    assert zone.manifest_etag("run-1") != before


# -- marks ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["plain files", "an open run", "a name that is not ASCII", "a link", "a directory"])
def test_what_stands_for_a_directory_is_the_same_from_one_listing_and_file_by_file(
    zone: LandingZone, files: dict[str, Path], what: str
) -> None:
    zone.land("run-1", files, 'model = "m"\n')
    run = directory(zone) / "run-1"
    if what == "an open run":
        (run / OPEN).touch()
    elif what == "a name that is not ASCII":
        (run / "größe.json").write_text("{}")
    elif what == "a link":
        (run / "link.json").symlink_to("one.json")
    elif what == "a directory":
        (run / "more").mkdir()
    listed = zone.list_marks("run-1")
    names = [file.name for file in zone.files("run-1")]
    assert [name for name, _ in listed.listing] == names
    assert listed.listing == [(file.name, file.problem or file.etag) for file in zone.files("run-1")]
    assert (listed.manifest_etag, listed.is_open) == (zone.manifest_etag("run-1"), zone.is_open("run-1"))
    assert listed.manifest_etag == str(zone.place.store.head(f"run-1/{MANIFEST}")["e_tag"])


def test_a_mark_is_never_of_a_later_listing_than_the_files_that_are_read(
    zone: LandingZone, files: dict[str, Path]
) -> None:
    """Else a file that comes in between would be taken for one that was read."""
    zone.land("run-1", files, 'model = "m"\n')
    before = zone.list_marks("run-1")
    once, other = zone.listed_once(), zone.listed_once()
    assert len(once.files("run-1")) == 2
    assert other.list_marks("run-1") == before
    (directory(zone) / "run-1" / "three.json").write_text("{}")
    assert once.list_marks("run-1") == before
    assert (len(other.files("run-1")), other.list_marks("run-1").listing == before.listing) == (3, False)
    assert once.relist().list_marks("run-1") != before
