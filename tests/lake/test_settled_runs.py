"""What is remembered of runs holds only while their marks, their files and the logs say so."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from lake.forgetting import drop_runs, remove_notes
from lake.settled_runs import SettledRuns
from tests.support.sample_tables import CELLS, FIRST, READINGS, SECOND, readings

if TYPE_CHECKING:
    from pathlib import Path

    from lake.store import Lake

RULES = "3" * 64
TABLES = [READINGS, CELLS]
MARKS = {"a": "first", "b": "second"}


def read(lake: Lake, rules: str = RULES) -> SettledRuns:
    return SettledRuns.read(lake.place, rules, TABLES)


def settle(lake: Lake) -> None:
    """Two runs, remembered; of one table there is nothing yet."""
    memory = read(lake)
    assert not memory
    for run_id in MARKS:
        lake.replace(READINGS, run_id, readings(run_id), FIRST)
    memory = read(lake)
    memory.add(MARKS, [lake.snapshot(table) for table in TABLES])
    memory.add_texts({"a": ["said"], "c": ["never settled"]})
    memory.write()
    assert read(lake).find(MARKS) == {"a", "b"}
    assert (read(lake).find_text("a"), read(lake).find_text("c")) == (["said"], None)


def memory_file(lake: Lake) -> Path:
    return lake.place.directory / "_staging" / "settled_runs.parquet"


def test_a_run_stays_while_its_landing_directory_bears_the_same_mark(lake: Lake) -> None:
    settle(lake)
    assert read(lake).find({"a": "another", "b": "second", "c": "third"}) == {"b"}


def test_a_commit_takes_its_own_run_out_and_no_other(lake: Lake) -> None:
    settle(lake)
    lake.replace(READINGS, "a", readings("a"), SECOND)  # the same rows, made from something else
    lake.replace(READINGS, "c", readings("c"), FIRST)
    memory = read(lake)
    assert (memory.find(MARKS), memory.find_text("a")) == ({"b"}, None)
    memory.add({"a": "first"}, [lake.snapshot(table) for table in TABLES])
    memory.write()
    assert read(lake).find(MARKS) == {"a", "b"}


def test_a_table_that_comes_to_be_is_another_lake(lake: Lake) -> None:
    settle(lake)
    lake.replace(CELLS, "c", CELLS.arrow_schema.empty_table(), FIRST)
    assert not read(lake)


@pytest.mark.parametrize("how", ["lost", "cut", "long"])
def test_a_run_whose_data_file_is_not_as_it_was_is_out(lake: Lake, how: str) -> None:
    settle(lake)
    path = lake.root(READINGS).directory / lake.snapshot(READINGS).files("a")[0]
    data = path.read_bytes()
    if how == "lost":
        path.unlink()
    else:
        path.write_bytes(data[:-1] if how == "cut" else data + b" ")
    assert read(lake).find(MARKS) == {"b"}


def test_a_log_that_was_put_back_is_another_one(lake: Lake, tmp_path: Path) -> None:
    settle(lake)
    log = lake.root(READINGS).directory / "_delta_log"
    shutil.copytree(log, tmp_path / "earlier")
    lake.replace(READINGS, "a", readings("a", [1.0]), SECOND)
    memory = read(lake)
    memory.add({"a": "first"}, [lake.snapshot(table) for table in TABLES])
    memory.write()
    assert read(lake).find(MARKS) == {"a", "b"}
    shutil.rmtree(log)
    shutil.copytree(tmp_path / "earlier", log)
    assert not read(lake)
    # And where as many commits have followed as were taken back.
    lake.replace(READINGS, "c", readings("c"), FIRST)
    assert not read(lake)


@pytest.mark.parametrize("harm", ["gone", "cut", "other bytes", "no notes", "other rules"])
def test_a_memory_that_is_not_what_was_written_is_an_empty_one(lake: Lake, harm: str) -> None:
    settle(lake)
    path = memory_file(lake)
    if harm == "gone":
        path.unlink()
    elif harm == "cut":
        path.write_bytes(path.read_bytes()[:-5])
    elif harm == "other bytes":
        path.write_bytes(b"PAR1" + b"\0" * 100)
    elif harm == "no notes":
        pq.write_table(pq.read_table(path).replace_schema_metadata(), path)
    memory = read(lake, SECOND if harm == "other rules" else RULES)
    assert not memory
    assert memory.find(MARKS) == set()


def test_after_upkeep_it_goes_on(lake: Lake) -> None:
    settle(lake)
    lake.tidy(READINGS, 168)
    assert read(lake).find(MARKS) == {"a", "b"}


def test_a_place_that_takes_no_file_costs_the_memory_alone(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    settle(lake)

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("lake.settled_runs.write_private", refuse)
    memory = read(lake)
    memory.add({"c": "third"}, [lake.snapshot(table) for table in TABLES])
    memory.write()
    assert "c" not in read(lake).find({"c": "third"})


def test_nothing_of_a_forgotten_run_is_remembered(lake: Lake) -> None:
    settle(lake)
    drop_runs(lake.place, READINGS.full_name, ["a"])
    assert "a" not in read(lake).find(MARKS)
    remove_notes(lake.place, ["a"])
    assert not memory_file(lake).exists()
    assert not SettledRuns.is_kept(lake.place)


def test_it_is_kept_in_an_object_store_too(remote_lake: Lake) -> None:
    assert not SettledRuns.is_kept(remote_lake.place)
    settle(remote_lake)
    assert SettledRuns.is_kept(remote_lake.place)
    remote_lake.replace(READINGS, "a", readings("a"), SECOND)
    assert read(remote_lake).find(MARKS) == {"b"}
    root = remote_lake.root(READINGS)
    root.store.delete(remote_lake.snapshot(READINGS).files("b"))
    assert read(remote_lake).find(MARKS) == set()
    remove_notes(remote_lake.place, ["a"])
    assert not SettledRuns.is_kept(remote_lake.place)
