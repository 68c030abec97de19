"""`land` and what others lay into the landing zone: links out, pipes, devices and swapped directories are refused."""

from __future__ import annotations

import asyncio
import fcntl
import os
import socket
import stat
from contextlib import ExitStack, closing
from io import FileIO
from typing import TYPE_CHECKING, cast

import pytest
from click.testing import CliRunner

from bronze import land
from bronze.limits import Limits
from lake.errors import EvidenceRejected, SourceUnavailable
from lake.landing_zone import LandingZone
from lake.locations import Location
from lake.regular_files import SourceFile, Tree, copy_file, open_named
from pipelines.cli.main import main
from tests.support.processes import await_ready, start
from tests.support.recording_statements import envelop
from tests.support.traces import GOOD

if TYPE_CHECKING:
    from collections.abc import Callable
    from io import BufferedReader
    from pathlib import Path

    from click.testing import Result

    from tests.conftest import LandFiles


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A directory of a run's files, to be landed."""
    directory = tmp_path / "job"
    (directory / "sub").mkdir(parents=True)
    (directory / "rank0.json").write_bytes(GOOD)
    (directory / "sub" / "rank1.json").write_bytes(GOOD)
    return directory


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A file that nobody meant to land."""
    path = tmp_path / "keyring.json"
    path.write_text("secret")
    return path


@pytest.fixture
def land_paths(tmp_path: Path) -> Callable[..., Result]:
    """`teetotal land`, in this process."""
    places = ["--lake", str(tmp_path / "lake"), "--landing", str(tmp_path / "landing")]
    return lambda *words: CliRunner().invoke(main, [*places, "land", *map(str, words)], catch_exceptions=False)


def read_landed(tmp_path: Path, run_id: str = "job") -> dict[str, bytes]:
    """What a landed run holds, its manifest aside."""
    directory = tmp_path / "landing" / run_id
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.name != "run.toml"}


def plant(job: Path, kind: str, secret: Path) -> Path:
    """Put something that is no file of the run into its directory."""
    path = job / "sub" / "planted"
    if kind == "link out":
        path.symlink_to(secret)
    elif kind == "link to a directory outside":
        path.symlink_to(secret.parent)
    elif kind == "link to a device":
        path.symlink_to("/dev/zero")
    elif kind == "dangling link":
        path.symlink_to("nowhere")
    elif kind == "link to itself":
        path.symlink_to(path)
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "link to a pipe inside":
        os.mkfifo(job / ".pipe")
        path.symlink_to(job / ".pipe")
    else:
        with closing(socket.socket(socket.AF_UNIX)) as bound:
            bound.bind(f"/proc/self/fd/{(at := os.open(path.parent, os.O_RDONLY))}/{path.name}")  # must be short
            os.close(at)
    return path


def test_what_is_no_telemetry_in_a_directory_is_left_out_and_named(
    job: Path, land_paths: Callable[..., Result], tmp_path: Path
) -> None:
    for name in ("model.safetensors", "optimizer.pt", "rng.pth", "sub/tokens.bin"):
        (job / name).write_bytes(b"\x10\0\0\0" + name.encode())
    (job / "notes.txt").write_text("tried again at noon\n")
    done = land_paths(job)
    assert "landed job: 3 files" in done.stdout
    assert {path.name for path in (tmp_path / "landing" / "job").iterdir()} == {
        *("rank0.json", "sub-rank1.json", "notes.txt", "run.toml")
    }
    unread, left_out = done.stderr.splitlines()
    assert unread == "note: in no format that teetotal reads: notes.txt; docs/landing.md lists what is read"
    assert left_out == (
        "note: left out, as no telemetry: model.safetensors, optimizer.pt, rng.pth and 1 more; "
        "name a file to land it all the same"
    )
    named = land_paths(job / "rank0.json", job / "model.safetensors", "--run-id", "named")
    assert "landed named: 2 files" in named.stdout


def test_a_directory_without_any_telemetry_is_refused(land_paths: Callable[..., Result], tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "model.safetensors").write_bytes(b"\x10\0\0\0")
    done = land_paths(tmp_path / "model")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "none of these files is in a format that teetotal reads" in done.stderr
    assert not (tmp_path / "landing" / "model").exists()


def test_where_a_recorder_signed_which_files_a_run_has_none_is_left_out(
    job: Path, land_paths: Callable[..., Result]
) -> None:
    (job / "weights.bin").write_bytes(b"\x10\0\0\0")
    (job / "recording.json").write_bytes(envelop())
    assert "landed job: 4 files" in land_paths(job).stdout


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("link out", "is a link out of"),
        ("link to a directory outside", "is a link out of"),
        ("link to a device", "is a link out of"),
        ("dangling link", "is a link that leads nowhere"),
        ("link to itself", "is a link that leads nowhere"),
        ("pipe", "is a named pipe, not a regular file"),
        ("link to a pipe inside", "is a named pipe, not a regular file"),
        ("socket", "is a socket, not a regular file"),
    ],
)
def test_what_is_no_file_of_the_directory_is_refused_by_name_and_nothing_lands(
    land_paths: Callable[..., Result], job: Path, secret: Path, tmp_path: Path, kind: str, said: str
) -> None:
    planted = plant(job, kind, secret)
    done = land_paths(job)
    assert done.exit_code == 2, done.output
    assert f"{planted} {said}" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "landing").exists()


def test_a_link_to_a_file_of_the_directory_is_landed_as_that_file(
    land_paths: Callable[..., Result], job: Path, tmp_path: Path
) -> None:
    (job / "again.json").symlink_to("sub/rank1.json")
    (job / "folder").symlink_to("sub")
    assert land_paths(job).exit_code == 0
    assert read_landed(tmp_path) == dict.fromkeys(("again.json", "rank0.json", "sub-rank1.json"), GOOD)


def test_hidden_files_are_left_out_whatever_they_are(
    land_paths: Callable[..., Result], job: Path, secret: Path, tmp_path: Path
) -> None:
    (job / ".hidden").symlink_to(secret)
    (job / ".git").mkdir()
    os.mkfifo(job / ".git" / "pipe")
    assert land_paths(job).exit_code == 0
    assert sorted(read_landed(tmp_path)) == ["rank0.json", "sub-rank1.json"]


def test_a_link_that_a_person_names_is_followed(land_paths: Callable[..., Result], job: Path, tmp_path: Path) -> None:
    (tmp_path / "chosen.json").symlink_to(job / "rank0.json")
    (tmp_path / "chosen").symlink_to(job)
    assert land_paths(tmp_path / "chosen.json").exit_code == 0
    assert read_landed(tmp_path, "chosen") == {"chosen.json": GOOD}
    assert land_paths(tmp_path / "chosen", "--run-id", "b").exit_code == 0
    assert sorted(read_landed(tmp_path, "b")) == ["rank0.json", "sub-rank1.json"]


@pytest.mark.parametrize("name", ["/dev/zero", "pipe", "link"])
def test_a_device_or_pipe_that_a_person_names_is_refused(
    land_paths: Callable[..., Result], tmp_path: Path, name: str
) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/dev/zero")
    done = land_paths(tmp_path / name, "--run-id", "a")
    assert done.exit_code == 2
    assert "not a regular file" in done.stderr
    assert not (tmp_path / "landing" / "a").exists()


def test_a_file_that_becomes_a_link_or_a_pipe_after_it_was_listed_is_refused(job: Path, secret: Path) -> None:
    with Tree(job) as tree:
        first, second = tree.files().values()
        for path in (job / "rank0.json", job / "sub" / "rank1.json"):
            path.unlink()
        (job / "rank0.json").symlink_to(secret)
        os.mkfifo(job / "sub" / "rank1.json")
        for file in (first, second):
            with pytest.raises(EvidenceRejected, match=r"rank\d\.json is a (link|named pipe), not a regular file"):
                file.open()


def test_a_directory_that_is_swapped_while_it_is_landed_is_never_followed(job: Path, secret: Path) -> None:
    outside = secret.parent / "outside"
    outside.mkdir()
    for name in ("rank0.json", "rank1.json"):
        (outside / name).write_text("secret")
    with Tree(job) as tree:
        first, second = tree.files().values()
        (job / "sub").rename(job / "moved")
        (job / "sub").symlink_to(outside)
        with pytest.raises(EvidenceRejected, match="replaced by a link"):
            second.open()
        job.rename(job.parent / "moved")
        job.symlink_to(outside)
        with first.open() as file:
            assert file.read() == GOOD, "the directory that was looked at, whatever its name means now"


def test_a_file_that_grows_while_it_is_copied_is_refused_and_nothing_is_left(zone: LandingZone, job: Path) -> None:
    class Growing(FileIO):
        """A file to which another process appends whenever we read."""

        def read(self, size: int | None = -1, /) -> bytes:
            with (job / "rank0.json").open("ab") as more:
                more.write(b"more")
            return super().read(size) or b""

    with pytest.raises(SourceUnavailable, match="changed while it was copied"):
        zone.land(
            "job", {"a.json": SourceFile("rank0.json", lambda: cast("BufferedReader", Growing(job / "rank0.json")))}, ""
        )
    assert list(zone.place.directory.iterdir()) == []


# -- the copies themselves -----------------------------------------------------------------------------------------


def test_what_is_landed_can_be_read_by_its_owner_alone(
    land_paths: Callable[..., Result], job: Path, tmp_path: Path
) -> None:
    assert land_paths(job).exit_code == 0
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "landing").rglob("*")}
    assert modes == {"job": 0o700, "rank0.json": 0o600, "sub-rank1.json": 0o600, "run.toml": 0o600}
    assert stat.S_IMODE((tmp_path / "landing").stat().st_mode) == 0o700


def test_a_copy_that_a_killed_landing_left_is_removed_and_one_in_the_making_is_not(
    zone: LandingZone, job: Path
) -> None:
    process = start("land_halfway", str(zone.place), "run-1", str(job / "rank0.json"))
    await_ready(process)
    directory = zone.place.directory
    (copy,) = directory.glob(".landing-*")
    assert zone.remove_abandoned() == []
    zone.land("run-2", {"a.json": job / "rank0.json"}, "")
    assert (copy / "rank0.json").read_bytes() == GOOD, "its process lives"
    process.kill()
    process.communicate()
    assert zone.remove_abandoned() == [copy.name]
    assert sorted(path.name for path in directory.iterdir()) == ["run-2"]


def test_a_landing_removes_what_an_older_one_left_and_follows_no_link_of_that_name(
    zone: LandingZone, job: Path, secret: Path
) -> None:
    directory = zone.place.directory
    (directory / ".landing-old").mkdir(parents=True)
    (directory / ".landing-old" / "rank0.json").write_bytes(GOOD)
    (directory / ".landing-old" / "link").symlink_to(secret.parent)
    (directory / ".landing-link").symlink_to(job)
    zone.land("run-1", {"a.json": job / "rank0.json"}, "")
    assert sorted(path.name for path in directory.iterdir()) == [".landing-link", "run-1"]
    assert (job / "rank0.json").exists()
    assert secret.exists()


def test_a_directory_that_is_locked_is_left_alone(zone: LandingZone) -> None:
    copy = zone.place.directory / ".landing-busy"
    copy.mkdir(parents=True)
    handle = os.open(copy, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    assert zone.remove_abandoned() == []
    os.close(handle)
    assert zone.remove_abandoned() == [copy.name]


# -- the landing zone, which others write to ------------------------------------------------------------------------


def test_a_landed_file_that_becomes_a_link_out_or_a_pipe_costs_no_other_file(
    land_files: LandFiles, secret: Path
) -> None:
    run = land_files.write({"good.json": GOOD, "pipe.json": GOOD + b" ", "link.json": GOOD + b"  "})
    listed = land_files.zone.files("run-1")
    for name in ("pipe.json", "link.json"):
        (run / name).unlink()
    os.mkfifo(run / "pipe.json")
    (run / "link.json").symlink_to(secret)
    desk = {table.name: land_files.lake.stage(table, "run-1") for table in land.STAGED}
    with ExitStack() as exits:
        sinks = {name: exits.enter_context(stage) for name, stage in desk.items()}
        reports = asyncio.run(
            land.land_run("run-1", b"", listed, sinks=sinks, limits=Limits(), progress=lambda *_: None)
        ).files
    assert {report.name: report.outcome for report in reports} == {
        "good.json": "kept",
        "link.json": "rejected",
        "pipe.json": "rejected",
    }
    assert all("landing zone" in str(one.reason) or "pipe" in str(one.reason) for one in reports if one.reason)


def test_a_landed_file_that_changes_after_it_was_digested_is_not_read_as_if_it_were_the_same(
    land_files: LandFiles,
) -> None:
    run = land_files.write({"good.json": GOOD})
    (file,) = land_files.zone.files("run-1")
    with asyncio.run(file.fetch()) as fetched:
        assert b"".join(fetched.blocks()) == GOOD
        (run / "good.json").unlink()
        (run / "good.json").write_bytes(GOOD)
        with pytest.raises(SourceUnavailable, match="changed while it was read"):
            b"".join(fetched.blocks())


def test_a_copy_is_made_only_of_what_is_there_when_it_is_opened(tmp_path: Path, job: Path) -> None:
    copy_file(open_named(job / "rank0.json"), tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == GOOD
    with pytest.raises(FileExistsError):
        copy_file(open_named(job / "rank0.json"), tmp_path / "copy")


def test_a_landing_zone_without_directory_has_nothing_to_remove(tmp_path: Path) -> None:
    assert LandingZone(Location.of(tmp_path / "absent")).remove_abandoned() == []
