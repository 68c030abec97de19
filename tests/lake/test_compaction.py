"""Compacted copies: a question about many runs opens few files and gets the rows of the table as it is."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lake import compaction
from lake.compaction import COPIES, choose_copies
from lake.forgetting import drop_runs, purge_history
from lake.locations import Location
from lake.store import Lake
from lake.verification import verify_table
from pipelines.cli.verification import advise, format_damage
from tests.support.campaigns import pick_size
from tests.support.planted_texts import finds
from tests.support.sample_tables import (
    CELLS,
    FIRST,
    HOST,
    NOTE,
    OWNER,
    READINGS,
    SECOND,
    VISITS,
    readings,
    visits,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

WEEK = 168
RUNS = [f"run-{place:02}" for place in range(8)]


@pytest.fixture(autouse=True)
def few_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies of three data files and more, at most six."""
    monkeypatch.setattr(compaction, "_FEWEST_FILES", 3)
    monkeypatch.setattr(compaction, "_MOST_FILES", 6)
    monkeypatch.setattr(compaction, "_LARGE_FILES", 5)


def fill(lake: Lake, run_ids: list[str]) -> None:
    for run_id in run_ids:
        lake.replace(READINGS, run_id, readings(run_id, [float(len(run_id)), 0.5]), FIRST)


def list_copies(lake: Lake) -> list[Path]:
    return sorted((lake.place.directory / READINGS.path / COPIES).glob("*"))


def list_members(lake: Lake) -> list[int]:
    """How many data files each copy in use stands for."""
    held = [path for run_id in lake.snapshot(READINGS).run_ids for path in lake.snapshot(READINGS).files(run_id)]
    return sorted(len(copy.members) for copy in choose_copies(lake.root(READINGS), held).copies)


def ask(lake: Lake) -> pa.Table:
    """All rows, by way of the copies."""
    return lake.compacted_dataset(READINGS).to_table().sort_by([(name, "ascending") for name in READINGS.column_names])


def read(lake: Lake) -> pa.Table:
    """All rows of the data files."""
    return lake.dataset(READINGS).to_table().sort_by([(name, "ascending") for name in READINGS.column_names])


def test_every_row_of_many_small_files_comes_from_few_copies(lake: Lake) -> None:
    fill(lake, RUNS)
    before, digests = read(lake), [lake.snapshot(READINGS).content_sha256(run_id) for run_id in RUNS]
    assert list_copies(lake) == []
    lake.tidy(READINGS, WEEK)
    assert list_members(lake) == [2, 6]
    assert ask(lake) == read(lake) == before
    assert [lake.snapshot(READINGS).content_sha256(run_id) for run_id in RUNS] == digests
    assert verify_table(lake, READINGS).damages == []


def test_copies_stay_as_they_are_while_the_table_does(lake: Lake) -> None:
    fill(lake, RUNS)
    lake.tidy(READINGS, WEEK)
    before = {path: path.stat().st_mtime_ns for path in list_copies(lake)}
    lake.tidy(READINGS, WEEK)  # deletes what no version holds, and leaves copies alone
    assert {path: path.stat().st_mtime_ns for path in list_copies(lake)} == before


def test_partition_values_inside_a_run_are_columns_of_a_copy(lake: Lake) -> None:
    for run_id in RUNS[:2]:
        rows = [(run_id, rank, site, f"{rank}{site}") for rank in (0, 11) for site in ("a.b", "c")]
        names = CELLS.column_names
        cells = [dict(zip(names, row, strict=True)) for row in rows]
        lake.replace(CELLS, run_id, pa.Table.from_pylist(cells, CELLS.arrow_schema), FIRST)
    before = lake.dataset(CELLS).to_table()
    lake.tidy(CELLS, WEEK)
    after = lake.compacted_dataset(CELLS)
    assert len(after.files) == 2  # six of the eight data files in one copy, two in another
    order = [(name, "ascending") for name in CELLS.column_names]
    assert after.to_table().sort_by(order) == before.sort_by(order)
    assert after.schema == CELLS.arrow_schema


def test_a_copy_is_read_only_while_the_table_holds_all_that_it_stands_for(lake: Lake) -> None:
    fill(lake, RUNS[:5])
    lake.tidy(READINGS, WEEK)
    assert list_members(lake) == [5]
    lake.replace(READINGS, RUNS[2], readings(RUNS[2], [9.0]), SECOND)
    assert list_members(lake) == []
    assert ask(lake) == read(lake)
    assert 9.0 in ask(lake)["power_w"].to_pylist()
    lake.tidy(READINGS, WEEK)
    assert list_members(lake) == [5]
    assert len(list_copies(lake)) == 1
    assert ask(lake) == read(lake)


def test_new_files_join_a_copy_of_few_and_leave_a_copy_of_many(lake: Lake) -> None:
    fill(lake, RUNS[:3])
    lake.tidy(READINGS, WEEK)
    fill(lake, RUNS[3:5])
    lake.tidy(READINGS, WEEK)
    assert list_members(lake) == [3]  # two more are opened as quickly
    fill(lake, RUNS[5:6])
    lake.tidy(READINGS, WEEK)
    (first,) = list_copies(lake)
    fill(lake, RUNS[6:])
    lake.tidy(READINGS, WEEK)
    assert list_members(lake) == [6]
    assert list_copies(lake) == [first]
    assert ask(lake) == read(lake)


def test_a_large_file_is_read_by_itself(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(lake, RUNS[:4])
    large = max(lake.snapshot(READINGS).sizes(RUNS[0]).values())
    lake.replace(READINGS, "large", readings("large", [place / 7 for place in range(3_000)]), FIRST)
    monkeypatch.setattr(compaction, "_SMALL_BYTES", large + 50)
    lake.tidy(READINGS, WEEK)
    assert list_members(lake) == [4]
    assert ask(lake) == read(lake)


def test_copies_of_two_machines_count_no_row_twice(lake: Lake) -> None:
    fill(lake, RUNS[:4])
    lake.tidy(READINGS, WEEK)
    (first,) = list_copies(lake)
    shutil.move(first, first.parent.parent / "aside.parquet")
    fill(lake, RUNS[4:6])
    lake.tidy(READINGS, WEEK)
    shutil.move(first.parent.parent / "aside.parquet", first)
    assert len(list_copies(lake)) == 2
    assert list_members(lake) == [6]
    assert ask(lake) == read(lake)
    lake.tidy(READINGS, WEEK)
    assert len(list_copies(lake)) == 1


def test_what_a_forgotten_run_said_is_in_no_copy(lake: Lake) -> None:
    for run_id in RUNS[:6]:
        lake.replace(READINGS, run_id, readings(run_id, label=f"said-in-{run_id}"), FIRST)
    lake.tidy(READINGS, WEEK)
    assert any(COPIES in where for where in finds(lake.place.directory, f"said-in-{RUNS[3]}"))
    drop_runs(lake.place, READINGS.full_name, [RUNS[3]])
    purge_history(lake.place, READINGS.full_name, [RUNS[3]])
    assert finds(lake.place.directory, f"said-in-{RUNS[3]}") == []
    assert ask(lake) == read(lake)
    assert ask(lake).num_rows == 5 * 3


def test_sensitive_columns_are_sealed_in_a_copy_too(lake: Lake) -> None:
    for run_id in RUNS[:3]:
        lake.replace(VISITS, run_id, visits(run_id), FIRST)
    lake.tidy(VISITS, WEEK)
    assert lake.compacted_dataset(VISITS).to_table().num_rows == 12
    assert len(list((lake.place.directory / VISITS.path / COPIES).iterdir())) == 1
    assert finds(lake.place.directory, HOST, OWNER, NOTE) == []


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def rewrite_members(path: Path) -> None:
    held = pq.read_table(path)
    pq.write_table(held.replace_schema_metadata({"teetotal.members": '{"run_id=run-00/x.parquet": 1}'}), path)


@pytest.mark.parametrize("damage", [cut, rewrite_members])
def test_a_copy_that_does_not_say_what_it_holds_is_not_read_and_made_anew(
    lake: Lake, damage: Callable[[Path], None]
) -> None:
    fill(lake, RUNS[:4])
    lake.tidy(READINGS, WEEK)
    (copy,) = list_copies(lake)
    intact = copy.read_bytes()
    damage(copy)
    assert list_members(lake) == []
    assert ask(lake) == read(lake)
    assert verify_table(lake, READINGS).damages == []
    lake.tidy(READINGS, WEEK)
    assert copy.read_bytes() == intact


def change_a_value(path: Path) -> None:
    held = pq.read_table(path)
    powers = [8.0, *held["power_w"].to_pylist()[1:]]
    held = held.set_column(held.column_names.index("power_w"), held.schema.field("power_w"), [powers])
    pq.write_table(held, path)


def move_a_row(path: Path) -> None:
    held = pq.read_table(path)
    runs = [RUNS[3], *held["run_id"].to_pylist()[1:]]
    pq.write_table(held.set_column(held.column_names.index("run_id"), held.schema.field("run_id"), [runs]), path)


def flip_a_page(path: Path) -> None:
    column = pq.read_metadata(path).row_group(0).column(0)
    data = bytearray(path.read_bytes())
    data[(column.dictionary_page_offset or column.data_page_offset) + column.total_compressed_size - 1] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [(change_a_value, "holds other rows of"), (move_a_row, "holds other rows of"), (flip_a_page, "cannot be read")],
)
def test_verify_names_a_copy_that_was_changed_and_says_to_delete_it(
    lake: Lake, damage: Callable[[Path], None], reason: str
) -> None:
    fill(lake, RUNS[:4])
    lake.tidy(READINGS, WEEK)
    (copy,) = list_copies(lake)
    damage(copy)
    (found,) = verify_table(lake, READINGS).damages
    assert reason in format_damage(found)
    (advice,) = advise([found])
    assert advice.startswith(f"next: delete {COPIES}/{copy.name} of {READINGS.full_name}: it is a copy of rows")
    # A run that it does not speak of has nothing to do with it.
    lake.replace(READINGS, "other", readings("other"), FIRST)
    assert verify_table(lake, READINGS, ["other"]).damages == []


def test_a_damaged_data_file_is_left_out_of_a_copy_and_still_named(lake: Lake) -> None:
    fill(lake, RUNS[:5])
    (path,) = lake.snapshot(READINGS).files(RUNS[1])
    flip_a_page(lake.place.directory / READINGS.path / path)
    lake.tidy(READINGS, WEEK)
    assert list_members(lake) == [4]
    assert [damage.path for damage in verify_table(lake, READINGS).damages] == [path]
    with pytest.raises(OSError, match="CRC checksum"):
        ask(lake)


OPERATIONS = st.lists(
    st.tuples(st.sampled_from(["replace", "drop", "purge", "tidy"]), st.sampled_from(RUNS), st.integers(0, 3)),
    max_size=24,
)


@settings(max_examples=pick_size(15, 300))
@given(OPERATIONS)
def test_by_way_of_copies_a_table_has_its_rows_whatever_was_done_to_it(
    tmp_path_factory: pytest.TempPathFactory, operations: list[tuple[str, str, int]]
) -> None:
    lake = Lake(Location.of(tmp_path_factory.mktemp("any") / "lake"))
    fill(lake, RUNS)
    for operation, run_id, count in operations:
        if operation == "replace":
            lake.replace(READINGS, run_id, readings(run_id, [float(count)] * count), f"{count}" * 64)
        elif operation == "drop":
            drop_runs(lake.place, READINGS.full_name, [run_id])
        elif operation == "purge":
            purge_history(lake.place, READINGS.full_name, [])
        else:
            lake.tidy(READINGS, WEEK)
        lake = Lake(lake.place)
        assert ask(lake) == read(lake)
    assert verify_table(lake, READINGS).damages == []


def test_copies_in_an_object_store_serve_as_on_a_disk(remote_lake: Lake) -> None:
    fill(remote_lake, RUNS[:4])
    remote_lake.tidy(READINGS, WEEK)
    assert list_members(remote_lake) == [4]
    assert ask(remote_lake) == read(remote_lake)
    assert verify_table(remote_lake, READINGS).damages == []
    purge_history(remote_lake.place, READINGS.full_name, [])
    assert list_members(remote_lake) == [4]
    remote_lake.replace(READINGS, RUNS[0], readings(RUNS[0], [7.0]), SECOND)
    remote_lake.tidy(READINGS, WEEK)
    assert list_members(remote_lake) == [4]
    assert len(choose_copies(remote_lake.root(READINGS), []).copies) == 0
    assert ask(remote_lake) == read(remote_lake)
