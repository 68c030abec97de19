"""Data files that were damaged behind the lake's back: noticed, told in one line, and written again."""

from __future__ import annotations

import random
import shutil
from typing import TYPE_CHECKING

import polars as pl
import pytest

from lake.errors import DataDamaged
from lake.locations import Location
from lake.store import Lake
from lake.verification import verify_table
from tests.support.campaigns import pick_size
from tests.support.sample_tables import CELLS, FIRST, READINGS, SECOND, readings

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lake.tables import Table

ROWS = readings("a", [float(place % 7) for place in range(500)])


def data_files(lake: Lake, table: Table = READINGS, run_id: str = "a") -> list[Path]:
    return [lake.place.directory / table.path / path for path in lake.snapshot(table).files(run_id)]


def flip(path: Path, bit: int) -> None:
    data = bytearray(path.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def delete(path: Path) -> None:
    path.unlink()


def empty(path: Path) -> None:
    path.write_bytes(b"")


DAMAGES = [delete, truncate, empty]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_partition_with_a_damaged_file_is_stale_and_replacing_it_by_the_same_rows_repairs_it(
    lake: Lake, damage: Callable[[Path], None]
) -> None:
    lake.replace(READINGS, "a", ROWS, FIRST, seen=SECOND)
    lake.replace(READINGS, "b", readings("b"), FIRST, seen=SECOND)
    (path,) = data_files(lake)
    intact = path.read_bytes()
    damage(path)
    snapshot = lake.snapshot(READINGS)
    assert (snapshot.mark("a"), snapshot.has_seen("a", SECOND), snapshot.is_made_from("a", FIRST)) == (
        None,
        False,
        False,
    )
    assert snapshot.is_made_from("b", FIRST)
    assert snapshot.has_seen("b", SECOND)
    assert lake.replace(READINGS, "a", ROWS, FIRST, seen=SECOND).is_changed
    assert path.read_bytes() == intact
    assert lake.snapshot(READINGS).is_made_from("a", FIRST)
    assert not lake.replace(READINGS, "a", ROWS, FIRST, seen=SECOND).is_changed


@pytest.mark.parametrize("damage", DAMAGES)
def test_reading_a_damaged_file_says_which_one_and_what_to_do(lake: Lake, damage: Callable[[Path], None]) -> None:
    lake.replace(READINGS, "a", ROWS, FIRST)
    lake.replace(READINGS, "b", readings("b"), FIRST)
    (path,) = data_files(lake)
    damage(path)
    with pytest.raises(DataDamaged, match=path.name) as caught:
        lake.scan(READINGS)
    assert "run a: data file" in str(caught.value)
    assert "`teetotal run --full` builds it again" in str(caught.value)
    assert lake.scan(READINGS, ["b"]).collect().height == 3


def test_a_lake_that_skips_damaged_partitions_reads_the_others(lake: Lake) -> None:
    lake.replace(READINGS, "a", ROWS, FIRST)
    lake.replace(READINGS, "b", readings("b"), FIRST)
    data_files(lake)[0].unlink()
    assert set(lake.skipping_damaged().scan(READINGS).collect()["run_id"]) == {"b"}


def test_a_flipped_bit_is_repaired_only_where_everything_is_written_again(lake: Lake) -> None:
    lake.replace(READINGS, "a", ROWS, FIRST)
    (path,) = data_files(lake)
    intact = path.read_bytes()
    flip(path, 8 * (len(intact) // 3))
    assert not lake.replace(READINGS, "a", ROWS, FIRST).is_changed, "a normal replacement does not read the old file"
    assert lake.rewriting().replace(READINGS, "a", ROWS, FIRST).is_changed
    assert path.read_bytes() == intact
    assert not lake.rewriting().replace(READINGS, "a", ROWS, FIRST).is_changed


def test_a_file_that_an_older_version_wrote_with_other_bytes_is_replaced_and_its_size_is_right_in_the_log(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("lake.staging.PAGE_CHECKSUMS", False)
        lake.replace(READINGS, "a", ROWS, FIRST)
    (path,) = data_files(lake)
    old = path.stat().st_size
    assert not lake.replace(READINGS, "a", ROWS, FIRST).is_changed, "an older lake stays as it is"
    written = lake.rewriting().replace(READINGS, "a", ROWS, FIRST)
    assert data_files(lake) == [path]
    assert path.stat().st_size == written.bytes == lake.snapshot(READINGS).partition("a").bytes != old
    assert lake.scan(READINGS).collect().height == ROWS.num_rows
    assert verify_table(lake, READINGS).damages == []


def test_every_flipped_bit_is_found_or_changes_nothing_for_any_reader(lake: Lake, tmp_path: Path) -> None:
    lake.replace(READINGS, "a", ROWS, FIRST)
    (path,) = data_files(lake)
    intact, chance = path.read_bytes(), random.Random(29)
    want = lake.scan(READINGS).collect()
    late = pl.col("ordinal") >= 490
    found = 0
    flips = pick_size(60, 8 * len(intact))
    for bit in chance.sample(range(8 * len(intact)), flips) if flips < 8 * len(intact) else range(flips):
        flip(path, bit)
        if verify_table(lake, READINGS).damages:
            found += 1
        else:
            assert lake.scan(READINGS).collect().equals(want), bit
            assert lake.scan(READINGS).filter(late).collect().equals(want.filter(late)), bit
        path.write_bytes(intact)
    assert found > flips // 2
    shutil.rmtree(tmp_path / "lake")


def test_inner_partitions_are_repaired_file_by_file(lake: Lake) -> None:
    rows = pl.DataFrame(
        {"run_id": "a", "rank": [0, 1, 1], "site": ["x", "x", "y"], "cell": ["p", "q", "r"]},
        schema=CELLS.polars_schema,
    ).to_arrow()
    lake.replace(CELLS, "a", rows, FIRST)
    paths = data_files(lake, CELLS)
    intact = [path.read_bytes() for path in paths]
    paths[1].unlink()
    truncate(paths[2])
    assert {damage.path for damage in verify_table(lake, CELLS).damages} == {
        str(path.relative_to(lake.place.directory / CELLS.path)) for path in paths[1:]
    }
    lake.replace(CELLS, "a", rows, FIRST)
    assert [path.read_bytes() for path in paths] == intact


def test_a_deleted_object_of_a_remote_lake_is_noticed_and_put_back(remote_lake: Lake) -> None:
    import obstore

    remote_lake.replace(READINGS, "a", ROWS, FIRST)
    remote_lake.replace(READINGS, "b", readings("b"), FIRST)
    root = remote_lake.place.child(*READINGS.path.split("/"))
    (key,) = remote_lake.snapshot(READINGS).files("a")
    intact = bytes(obstore.get(root.store, key).bytes())
    obstore.delete(root.store, key)
    assert remote_lake.snapshot(READINGS).mark("a") is None
    assert remote_lake.snapshot(READINGS).is_made_from("b", FIRST)
    assert [damage.path for damage in verify_table(remote_lake, READINGS).damages] == [key]
    assert remote_lake.replace(READINGS, "a", ROWS, FIRST).is_changed
    assert bytes(obstore.get(root.store, key).bytes()) == intact
    obstore.put(root.store, key, bytes(len(intact)))
    (damage,) = verify_table(remote_lake, READINGS).damages
    assert damage.path == key
    remote_lake.rewriting().replace(READINGS, "a", ROWS, FIRST)
    assert bytes(obstore.get(root.store, key).bytes()) == intact


def test_a_lake_elsewhere_is_not_touched_by_a_repair(lake: Lake, tmp_path: Path) -> None:
    lake.replace(READINGS, "a", ROWS, FIRST)
    shutil.copytree(lake.place.directory, tmp_path / "copy")
    copy = Lake(Location.of(tmp_path / "copy"))
    data_files(copy)[0].unlink()
    copy.replace(READINGS, "a", ROWS, FIRST)
    assert data_files(copy)[0].read_bytes() == data_files(lake)[0].read_bytes()
