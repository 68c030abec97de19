"""What survives a power cut: everything that was reported, in the order in which it is needed."""

from __future__ import annotations

import os
import random
import shutil
import stat
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lake.locations import Location
from lake.store import Lake
from lake.verification import verify_table
from tests.support.campaigns import pick_size
from tests.support.mounts import may_mount, run
from tests.support.sample_tables import CELLS, FIRST, READINGS, SECOND, readings

if TYPE_CHECKING:
    from collections.abc import Iterator

ENTRY = "{:020}.json"


def log_of(lake: Lake) -> Path:
    return lake.place.directory / READINGS.path / "_delta_log"


def mark(number: int) -> str:
    return f"{number + 1:x}".ljust(64, "0")


# -- what is synced, and when ------------------------------------------------------------------------------------------


class Synced:
    """Listens to `os.fsync`: what lay in the directory below a table's log at each call, and what was synced."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, log: Path) -> None:
        self.calls: list[tuple[str, frozenset[str]]] = []
        fsync = os.fsync

        def listen(handle: int) -> None:
            entries = frozenset(path.name for path in log.iterdir()) if log.is_dir() else frozenset()
            slash = "/" if stat.S_ISDIR(os.fstat(handle).st_mode) else ""
            self.calls.append((f"{Path(f'/proc/self/fd/{handle}').readlink()}{slash}", entries))
            fsync(handle)

        monkeypatch.setattr(os, "fsync", listen)

    def names(self, entry: str, *, is_there: bool) -> list[str]:
        """What was synced before a log entry was there, or after."""
        return [name for name, entries in self.calls if (entry in entries) == is_there]


def test_data_files_and_their_directories_are_synced_before_the_log_names_them_and_the_log_before_success(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = lake.place.directory
    synced = Synced(monkeypatch, log_of(lake))
    lake.replace(READINGS, "a", readings(), FIRST)
    table, entry = root / READINGS.path, ENTRY.format(1)
    (data,) = lake.snapshot(READINGS).files("a")
    before, after = synced.names(entry, is_there=False), synced.names(entry, is_there=True)
    created = before.index(f"{table}/_delta_log/{ENTRY.format(0)}")
    assert {f"{folder}/" for folder in (table / "_delta_log", table, table.parent, root, root.parent)} <= set(
        before[created:]
    ), "a new table and all above it"
    named = before[before.index(f"{table / data}") :]
    assert {f"{(table / data).parent}/", f"{table}/"} <= set(named), "where the file got its name"
    assert after == [f"{table}/_delta_log/{entry}", f"{table}/_delta_log/"]


def test_a_second_commit_syncs_only_what_is_new(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    root = lake.place.directory
    lake.replace(READINGS, "a", readings(), FIRST)
    synced = Synced(monkeypatch, log_of(lake))
    lake.replace(READINGS, "b", readings("b"), FIRST)
    names = [name for name, _ in synced.calls]
    table = root / READINGS.path
    assert f"{table}/" in names, "it holds a new directory"
    assert f"{root}/" not in names
    assert [name for name in names if name.endswith(".json")] == [f"{table}/_delta_log/{ENTRY.format(2)}"]


def test_an_entry_that_another_process_has_not_synced_yet_is_synced_with_ours(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place, run_id in enumerate("abc"):
        Lake(lake.place).replace(READINGS, run_id, readings(run_id), mark(place))
    old = log_of(lake) / ENTRY.format(1)
    os.utime(old, (1, 1))
    synced = Synced(monkeypatch, log_of(lake))
    lake.replace(READINGS, "d", readings("d"), FIRST)
    entries = [Path(name).name for name, _ in synced.calls if name.endswith(".json")]
    assert sorted(entries) == [ENTRY.format(2), ENTRY.format(3), ENTRY.format(4)]


def test_a_checkpoint_is_synced_before_entries_that_it_stands_for_may_be_deleted(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in range(18):
        lake.replace(READINGS, f"r{place}", readings(f"r{place}"), FIRST)
    synced = Synced(monkeypatch, log_of(lake))
    lake.replace(READINGS, "z", readings("z"), FIRST)
    lake.replace(READINGS, "y", readings("y"), FIRST)
    names = {Path(name).name for name, _ in synced.calls}
    (checkpoint,) = log_of(lake).glob("*.checkpoint.parquet")
    assert {checkpoint.name, "_last_checkpoint"} <= names
    synced.calls.clear()
    lake.tidy(READINGS, 168)
    assert {Path(name).name for name, _ in synced.calls} >= {
        f"{lake.snapshot(READINGS).version:020}.checkpoint.parquet",
        "_last_checkpoint",
    }


def test_a_repaired_file_is_synced_too(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.replace(READINGS, "a", readings(), FIRST)
    (data,) = lake.snapshot(READINGS).files("a")
    path = lake.place.directory / READINGS.path / data
    path.unlink()
    synced = Synced(monkeypatch, log_of(lake))
    lake.replace(READINGS, "a", readings(), FIRST)
    names = [name for name, _ in synced.calls]
    assert names[0] == f"{path}"
    assert f"{path.parent}/" in names


# -- a log that was cut ------------------------------------------------------------------------------------------------


def half(data: bytes) -> bytes:
    return data[: len(data) // 2]


CUTS = {
    "empty": lambda _: b"",
    "zeros": lambda data: bytes(len(data)),
    "zeros at the end": lambda data: half(data) + bytes(len(data) - len(half(data))),
    "half": half,
}


@pytest.mark.parametrize("cut", CUTS)
def test_a_last_entry_that_was_not_wholly_written_is_set_aside_told_and_made_good(
    lake: Lake, cut: str, caplog: pytest.LogCaptureFixture
) -> None:
    lake.replace(READINGS, "a", readings(), FIRST)
    lake.replace(READINGS, "b", readings("b"), FIRST)
    entry = log_of(lake) / ENTRY.format(2)
    entry.write_bytes(CUTS[cut](entry.read_bytes()))
    snapshot = lake.snapshot(READINGS)
    assert (snapshot.version, snapshot.run_ids) == (1, ["a"])
    assert not snapshot.is_made_from("b", FIRST)
    assert not entry.exists()
    (answer,) = caplog.messages
    assert answer.startswith(f"{READINGS.full_name}: {entry.name} was not wholly written")
    lake.replace(READINGS, "b", readings("b"), FIRST)
    assert lake.scan(READINGS).collect().height == 6
    assert len(caplog.messages) == 1
    aside = lake.place.directory / "_staging" / READINGS.full_name / "unreadable"
    assert [path.name for path in aside.glob("*.json.*")] == [Path(answer.split(" as ")[1].split(";")[0]).name]


def test_a_table_whose_first_entry_was_cut_is_made_anew(lake: Lake) -> None:
    lake.replace(READINGS, "a", readings(), FIRST)
    for version in (0, 1):
        (log_of(lake) / ENTRY.format(version)).write_bytes(b"")
    assert lake.snapshot(READINGS).version is None
    lake.replace(READINGS, "a", readings(), FIRST)
    assert lake.scan(READINGS).collect().height == 3


def test_entries_after_a_cut_one_go_too_since_none_of_them_was_reported(lake: Lake) -> None:
    for place, run_id in enumerate("abc"):
        lake.replace(READINGS, run_id, readings(run_id), mark(place))
    (log_of(lake) / ENTRY.format(2)).write_bytes(b"")
    assert lake.snapshot(READINGS).run_ids == ["a"]


def test_an_entry_with_wrong_bytes_is_no_power_cut_and_stays_where_it_is_for_verify_to_find(lake: Lake) -> None:
    for place, run_id in enumerate("abc"):
        lake.replace(READINGS, run_id, readings(run_id), mark(place))
    entry = log_of(lake) / ENTRY.format(2)
    damaged = entry.read_bytes().replace(b'"add"', b'"ad"d', 1)
    entry.write_bytes(damaged)
    (damage,) = verify_table(lake, READINGS).damages
    assert (damage.path, damage.reason) == (f"_delta_log/{entry.name}", "is not readable")
    assert entry.read_bytes() == damaged


@pytest.fixture(scope="module")
def checkpointed_lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A lake whose log has a checkpoint and entries after it."""
    lake = Lake(Location.of(tmp_path_factory.mktemp("checkpointed")))
    for place in range(22):
        lake.replace(READINGS, f"r{place}", readings(f"r{place}"), FIRST)
    return lake


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("name", ["checkpoint", "hint"])
def test_a_checkpoint_that_was_cut_is_set_aside_and_the_entries_before_it_are_read(
    checkpointed_lake: Lake, lake: Lake, cut: str, name: str
) -> None:
    shutil.copytree(checkpointed_lake.place.directory, lake.place.directory)
    (checkpoint,) = log_of(lake).glob("*.checkpoint.parquet")
    path = checkpoint if name == "checkpoint" else log_of(lake) / "_last_checkpoint"
    path.write_bytes(CUTS[cut](path.read_bytes()))
    assert len(lake.snapshot(READINGS).run_ids) == 22
    assert not path.exists()
    lake.replace(READINGS, "z", readings("z"), FIRST)
    assert len(lake.snapshot(READINGS).run_ids) == 23


def test_a_first_entry_that_was_cut_at_the_end_of_a_line_is_set_aside(lake: Lake) -> None:
    lake.replace(READINGS, "a", readings("a"), FIRST)
    for entry in sorted(log_of(lake).glob("*.json"))[1:]:
        entry.unlink()
    first = log_of(lake) / ENTRY.format(0)
    first.write_bytes(first.read_bytes().splitlines()[0])
    assert lake.snapshot(READINGS).run_ids == []
    lake.replace(READINGS, "a", readings("a"), FIRST)
    assert lake.snapshot(READINGS).run_ids == ["a"]


@pytest.mark.parametrize("lines", [1, 2, 3, 4])
@pytest.mark.parametrize("version", [2, 3])
def test_an_entry_that_was_cut_at_the_end_of_a_line_is_set_aside_with_those_after_it(
    lake: Lake, version: int, lines: int
) -> None:
    for run_id in ("a", "b"):
        lake.replace(READINGS, run_id, readings(run_id), FIRST)
    lake.replace(READINGS, "a", readings("a", (1.0,) * 5), SECOND)
    entry = log_of(lake) / ENTRY.format(version)
    whole = entry.read_bytes().splitlines(keepends=True)
    entry.write_bytes(b"".join(whole[:lines]))
    if lines == len(whole):
        assert lake.scan(READINGS).collect().height == 8
        return
    assert lake.snapshot(READINGS).run_ids == ["a", "b"][: version - 1]
    assert lake.scan(READINGS).collect().height == 3 * (version - 1)
    lake.replace(READINGS, "b", readings("b"), FIRST)
    lake.replace(READINGS, "a", readings("a", (1.0,) * 5), SECOND)
    assert lake.scan(READINGS).collect().height == 8


@pytest.mark.parametrize("place", range(1, 400, 19))
def test_an_entry_before_the_last_that_ends_with_a_bracket_of_a_longer_line_is_cut(lake: Lake, place: int) -> None:
    for run_id in ("a", "b"):
        lake.replace(READINGS, run_id, readings(run_id), FIRST)
    entry = log_of(lake) / ENTRY.format(1)
    data = entry.read_bytes()
    ends = [end for end in range(1, len(data)) if data[end - 1 : end] == b"}"]
    entry.write_bytes(data[: ends[place % len(ends)]])
    assert lake.snapshot(READINGS).run_ids == []


def test_any_cut_of_any_last_entries_leaves_a_lake_that_goes_on(lake: Lake, tmp_path: Path) -> None:
    runs = [f"r{place}" for place in range(6)]
    for run_id in runs:
        lake.replace(READINGS, run_id, readings(run_id), FIRST)
    chance = random.Random(3)
    for number in range(pick_size(5, 400)):
        copy = Lake(Location.of(tmp_path / f"copy{number}"))
        shutil.copytree(lake.place.directory, copy.place.directory)
        first = chance.randrange(7)
        for version in range(first, 7):
            entry = log_of(copy) / ENTRY.format(version)
            data = entry.read_bytes()
            if version == first or chance.random() < 0.5:
                entry.write_bytes(data[: chance.randrange(len(data))].ljust(chance.choice((0, len(data))), b"\0"))
        kept = copy.snapshot(READINGS).run_ids
        assert kept == runs[: max(first - 1, 0)]
        for run_id in runs:
            copy.replace(READINGS, run_id, readings(run_id), FIRST)
        assert copy.scan(READINGS).collect().height == 18
        assert verify_table(copy, READINGS).damages == []
        shutil.rmtree(copy.place.directory)


# -- what killed writers leave in a log --------------------------------------------------------------------------------


def test_unnamed_log_entries_of_killed_writers_are_removed_once_they_are_old(lake: Lake) -> None:
    lake.replace(READINGS, "a", readings(), FIRST)
    names = [f"{ENTRY.format(2)}#1", "_last_checkpoint#2", "_commit_5a6c.json.tmp"]
    for name in [*names, f"{ENTRY.format(3)}#1"]:
        (log_of(lake) / name).write_bytes(b"{}")
    for name in names:
        os.utime(log_of(lake) / name, (1, 1))
    lake.tidy(READINGS, 168)
    left = {path.name for path in log_of(lake).iterdir()}
    assert left.isdisjoint(names)
    assert f"{ENTRY.format(3)}#1" in left, "a writer may be at it"
    assert lake.scan(READINGS).collect().height == 3


# -- a real power cut --------------------------------------------------------------------------------------------------


@contextmanager
def disk(image: Path, mounted: Path) -> Iterator[Path]:
    """A file system of its own in a file; what the kernel holds back is not in the file."""
    mounted.mkdir(exist_ok=True)
    run("mount", "-o", "loop", image, mounted)
    try:
        yield mounted
    finally:
        run("umount", mounted)


def test_power_cuts_lose_nothing_that_was_reported(tmp_path: Path) -> None:
    """A copy of a disk's backing file while it is mounted is what a power cut leaves: what was not synced is not there.

    Each cut is taken right after a commit returned. The copy is mounted, its journal is replayed, and every run that
    was reported by then must be there, whole; then the lake must go on.
    """
    if not may_mount(tmp_path):
        pytest.skip("nobody may mount a disk here; the order of the syncs is tested above")
    image, cuts = tmp_path / "disk.img", pick_size(3, 60)
    with image.open("wb") as file:
        file.truncate(128 << 20)
    run("mkfs.ext4", "-q", image)
    images = []
    with disk(image, tmp_path / "disk") as root:
        lake = Lake(Location.of(root / "lake"))
        for number in range(cuts):
            run_id = f"r{number}"
            lake.replace(READINGS, run_id, readings(run_id, [1.0] * 50), mark(number))
            if number % 3 == 0:
                lake.replace(CELLS, run_id, CELLS.arrow_schema.empty_table(), mark(number))
            images.append(tmp_path / f"cut{number}.img")
            run("cp", "--sparse=always", image, images[-1])
    lost = unusable = 0
    for number, cut in enumerate(images):
        with disk(cut, tmp_path / "cut") as root:
            lake = Lake(Location.of(root / "lake"))
            try:
                snapshot = lake.snapshot(READINGS)
                whole = lake.scan(READINGS).collect()
            except Exception:  # noqa: BLE001 - whatever it is, it counts
                unusable += 1
                continue
            reported = [f"r{place}" for place in range(number + 1)]
            is_made = [snapshot.is_made_from(run_id, mark(place)) for place, run_id in enumerate(reported)]
            lost += not (all(is_made) and whole.height == 50 * len(reported))
            assert verify_table(lake, READINGS).damages == []
            lake.replace(READINGS, "next", readings("next"), FIRST)
        cut.unlink()
    assert (lost, unusable) == (0, 0), f"of {cuts} power cuts, {lost} lost a commit, {unusable} left no usable lake"
