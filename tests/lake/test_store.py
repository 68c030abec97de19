from __future__ import annotations

import errno
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from lake.connections import open_ordered
from lake.digest import combine
from lake.errors import ContractBroken, LakeError
from lake.locations import Location
from lake.store import Lake
from lake.tables import Scope, Table
from tests.support.sample_tables import CELLS, FIRST, READINGS, SECOND, files_under, readings, replace_column

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def rows_of(lake: Lake, run_id: str, table: Table = READINGS) -> list[dict[str, Any]]:
    return lake.scan(table, [run_id]).sort(table.key).collect().to_dicts()


def root(lake: Lake, table: Table = READINGS) -> Path:
    return lake.place.directory / table.path


def log_of(lake: Lake, table: Table = READINGS) -> list[list[dict[str, Any]]]:
    """The actions of every commit."""
    entries = sorted((root(lake, table) / "_delta_log").glob("*.json"))
    return [[json.loads(line) for line in entry.read_text().splitlines()] for entry in entries]


def data_files(lake: Lake, table: Table = READINGS) -> set[str]:
    return {path.name for path in root(lake, table).rglob("*.parquet") if "_delta_log" not in path.parts}


def cells(**columns: list[Any]) -> pa.Table:
    return pa.table({"run_id": ["a"] * len(columns["cell"]), **columns}, schema=CELLS.arrow_schema)


# -- what it refuses ------------------------------------------------------------------------------------------

REFUSED: dict[str, tuple[Callable[[pa.Table], pa.Table], str]] = {
    "missing column": (lambda rows: rows.drop_columns(["slot"]), r"missing: slot; not declared: none"),
    "unknown column": (lambda rows: rows.append_column("sloth", rows["slot"]), r"missing: none; not declared: sloth"),
    "renamed column": (
        lambda rows: rows.rename_columns({"slot": "Slot"}),
        r"silver\.readings wants columns run_id, .*missing: slot; not declared: Slot",
    ),
    "doubled column": (lambda rows: rows.append_column("slot", rows["slot"]), r"slot"),
    "float for int": (lambda rows: replace_column(rows, "ordinal", [0.0, 1.5, 2.0]), r"ordinal is declared .*double"),
    "whole floats for int": (lambda rows: replace_column(rows, "ordinal", [0.0, 1.0, 2.0]), r"ordinal is declared int"),
    "wider int": (lambda rows: replace_column(rows, "slot", [1, 2, 3]), r"slot is declared int32, the frame has int64"),
    "narrower int": (lambda rows: replace_column(rows, "ordinal", [0, 1, 2], pa.int32()), r"ordinal is declared int64"),
    "text for int": (lambda rows: replace_column(rows, "slot", ["1", "2", "3"]), r"slot is declared int32, .*string"),
    "int for text": (lambda rows: replace_column(rows, "label", [1, 2, 3]), r"label is declared string, .*has int64"),
    "int for bool": (lambda rows: replace_column(rows, "is_valid", [1, 0, 1]), r"is_valid is declared bool"),
    "untyped nulls": (lambda rows: replace_column(rows, "label", [None] * 3, pa.null()), r"label is declared string"),
    "null where none may be": (
        lambda rows: replace_column(rows, "slot", [1, None, 3], pa.int32()),
        r"silver\.readings\.slot may not be null, 1 rows are",
    ),
    "null in the key": (lambda rows: replace_column(rows, "ordinal", [0, None, 2]), r"ordinal may not be null"),
    "row of another run": (lambda rows: replace_column(rows, "run_id", ["a", "b", "a"]), r"do not belong"),
    "row of no run": (lambda rows: replace_column(rows, "run_id", ["a", None, "a"]), r"do not belong"),
}  # fmt: skip


@pytest.mark.parametrize(("spoil", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_a_frame_that_is_not_of_the_declared_schema_is_refused_and_nothing_is_written(
    lake: Lake, spoil: Callable[[pa.Table], pa.Table], message: str
) -> None:
    lake.replace(READINGS, "a", readings(), FIRST)
    before = files_under(root(lake))
    with pytest.raises(ContractBroken, match=message):
        lake.replace(READINGS, "a", spoil(readings()), SECOND)
    assert files_under(root(lake)) == before


@pytest.mark.parametrize("column", ["rank", "site"])
def test_a_null_in_an_inner_partition_column_is_refused_and_not_dropped(lake: Lake, column: str) -> None:
    columns: dict[str, list[Any]] = {"rank": [0, 1], "site": ["x", "y"], "cell": ["one", "two"]}
    columns[column][1] = None
    with pytest.raises(ContractBroken, match=f"{column} may not be null"):
        lake.replace(CELLS, "a", cells(**columns), FIRST)


def test_a_unit_refuses_a_batch_of_another_schema(lake: Lake) -> None:
    with lake.stage(READINGS, "a") as stage, pytest.raises(ContractBroken, match="is not of the declared"):
        stage.unit().write(readings().to_batches()[0])


def test_a_unit_refuses_other_partition_values_than_the_declared(lake: Lake) -> None:
    with lake.stage(CELLS, "a") as stage, pytest.raises(ContractBroken, match=r"needs \['rank', 'site'\]"):
        stage.unit().finish(rank=0)


@pytest.mark.parametrize("rank", [None, "abc", 1.5, True, 1 << 40], ids=str)
def test_a_unit_refuses_a_partition_value_that_its_column_cannot_hold(lake: Lake, rank: Any) -> None:
    with lake.stage(CELLS, "a") as stage:
        unit = stage.unit()
        unit.write(pa.record_batch({"cell": ["one"]}, schema=CELLS.file_schema))
        with pytest.raises(ContractBroken, match="rank"):
            unit.finish(rank=rank, site="x")


def test_a_disk_that_is_full_is_an_error_that_says_so(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    for name in ("write", "write_batch", "write_table"):
        monkeypatch.setattr(pq.ParquetWriter, name, write)
    with pytest.raises(LakeError, match="No space left on device"):
        lake.replace(READINGS, "a", readings(), FIRST)


def test_a_table_that_was_written_with_other_columns_is_refused_with_a_hint(lake: Lake) -> None:
    write_deltalake(str(root(lake)), readings().rename_columns({"slot": "socket"}), partition_by=["run_id"])
    before = files_under(root(lake))
    for use in (lambda: lake.replace(READINGS, "a", readings(), FIRST), lambda: lake.scan(READINGS)):
        with pytest.raises(ContractBroken, match="was written with other columns: slot, socket") as caught:
            use()
        assert "`teetotal run` builds it again" in caught.value.hint
    assert files_under(root(lake)) == before


def test_a_table_that_was_written_with_other_partitions_is_refused(lake: Lake) -> None:
    rows = cells(rank=[0], site=["x"], cell=["one"])
    write_deltalake(str(root(lake, CELLS)), rows, partition_by=["run_id"])
    assert lake.snapshot(CELLS).outdated == ("partitions run_id",)
    with pytest.raises(ContractBroken, match="partition"):
        lake.scan(CELLS)


def test_a_table_that_another_version_wrote_is_replaced_whole_and_no_mark_of_it_fits(lake: Lake) -> None:
    older = replace(READINGS, columns=tuple(c for c in READINGS.columns if c.name != "slot"))
    for run_id in ("a", "b"):
        lake.replace(older, run_id, readings(run_id).drop_columns("slot"), FIRST)
    assert lake.snapshot(READINGS).outdated == ("slot",)
    assert lake.snapshot(READINGS).mark("a") is None
    assert lake.skipping_damaged().scan(READINGS).collect().height == 0, "an overview goes on without it"
    assert lake.replace_outdated(READINGS) == ("slot",)
    assert lake.replace_outdated(READINGS) == ()
    lake.replace(READINGS, "a", readings(), SECOND)
    assert lake.snapshot(READINGS).is_made_from("a", SECOND)
    assert lake.scan(READINGS).collect().height == readings().num_rows
    assert DeltaTable(str(root(lake)), version=2).file_uris(), "its history is kept until maintenance deletes it"


def test_a_bronze_table_that_another_version_wrote_is_kept(lake: Lake) -> None:
    landed = replace(READINGS, tier="bronze")
    older = replace(landed, columns=tuple(c for c in READINGS.columns if c.name != "slot"))
    lake.replace(older, "a", readings().drop_columns("slot"), FIRST)
    assert lake.replace_outdated(landed) == ("slot",)
    assert lake.scan(older).collect().height == readings().num_rows, "its source may be gone from the landing zone"


def test_a_partition_may_bear_another_name_than_run_id(lake: Lake) -> None:
    names = tuple(replace(c, name="family_id") if c.name == "run_id" else c for c in READINGS.columns)
    table = replace(READINGS, columns=names, partition_by=("family_id",), scope=Scope.FAMILY)
    for family in ("one", "two"):
        lake.replace(table, family, readings(family).rename_columns({"run_id": "family_id"}), FIRST)
    assert lake.snapshot(table).run_ids == ["one", "two"]
    assert lake.snapshot(table).is_made_from("two", FIRST)
    assert lake.scan(table, ["two"]).collect()["family_id"].unique().to_list() == ["two"]
    assert lake.relation(open_ordered(), table, ["one"]).fetchall() == lake.scan(table, ["one"]).collect().rows()
    batches = lake.batches(table, "one", ["family_id", "ordinal"])
    assert pa.Table.from_batches(batches)["family_id"].unique().to_pylist() == ["one"]
    with pytest.raises(ContractBroken, match="do not belong into the partition of two"):
        lake.replace(table, "two", readings("one").rename_columns({"run_id": "family_id"}), FIRST)


def test_a_lake_that_cannot_be_written_to_is_an_error_that_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    with pytest.raises(LakeError, match="file/lake"):
        Lake(Location.of(tmp_path / "file" / "lake")).replace(READINGS, "a", readings(), FIRST)


# -- what it writes -------------------------------------------------------------------------------------------


def test_what_went_in_comes_out(lake: Lake) -> None:
    written = lake.replace(READINGS, "a", readings(powers=[1.5, None, -0.0]), FIRST)
    assert rows_of(lake, "a") == readings(powers=[1.5, None, -0.0]).to_pylist()
    assert (written.table, written.run_id, written.rows, written.files) == ("silver.readings", "a", 3, 1)
    assert written.is_changed
    assert written.bytes == sum((root(lake) / path).stat().st_size for path in lake.snapshot(READINGS).files("a"))


def test_inner_partitions_come_out_as_they_went_in(lake: Lake) -> None:
    rows = cells(rank=[0, 1, 0, 10], site=["x", "x", "y", "x"], cell=["one", "two", "three", "four"])
    assert lake.replace(CELLS, "a", rows, FIRST).files == 4
    assert rows_of(lake, "a", CELLS) == sorted(rows.to_pylist(), key=lambda row: str(row["cell"]))


@pytest.mark.parametrize(
    "same",
    [
        pytest.param(lambda rows: rows.take([2, 0, 1]), id="rows in another order"),
        pytest.param(lambda rows: rows.select(rows.column_names[::-1]), id="columns in another order"),
        pytest.param(lambda rows: pa.concat_tables([rows.slice(0, 1), rows.slice(1)]), id="other chunks"),
        pytest.param(lambda rows: replace_column(rows, "label", ["x"] * 3, pa.large_string()), id="large text"),
        pytest.param(lambda rows: replace_column(rows, "label", ["x"] * 3, pa.string_view()), id="text views"),
        pytest.param(pl.from_arrow, id="a Polars frame"),
    ],
)
def test_the_same_content_in_another_shape_is_the_same_partition(lake: Lake, same: Callable[[pa.Table], Any]) -> None:
    first = lake.replace(READINGS, "a", readings(), FIRST)
    before = files_under(root(lake))
    again = lake.replace(READINGS, "a", same(readings()), FIRST)
    assert not again.is_changed
    assert (again.content_sha256, again.version) == (first.content_sha256, first.version)
    assert files_under(root(lake)) == before


def test_unchanged_content_made_from_something_else_is_one_commit_without_data(lake: Lake) -> None:
    first = lake.replace(READINGS, "a", readings(), FIRST)
    files = data_files(lake)
    again = lake.replace(READINGS, "a", readings(), SECOND)
    assert (again.is_changed, again.version) == (False, first.version + 1)
    assert data_files(lake) == files
    assert not any("add" in action or "remove" in action for action in log_of(lake)[-1])
    assert lake.snapshot(READINGS).is_made_from("a", SECOND)


def test_changed_content_replaces_the_partition_whole_in_one_commit(lake: Lake) -> None:
    lake.replace(READINGS, "a", readings(powers=[1.0, 2.0, 3.0]), FIRST)
    commits = len(log_of(lake))
    written = lake.replace(READINGS, "a", readings(powers=[9.0]), SECOND)
    assert rows_of(lake, "a") == readings(powers=[9.0]).to_pylist()
    assert len(log_of(lake)) == commits + 1 == written.version + 1
    actions = [name for action in log_of(lake)[-1] for name in action]
    assert (actions.count("add"), actions.count("remove")) == (1, 1)


def test_only_the_inner_partitions_that_changed_are_written_again(lake: Lake) -> None:
    lake.replace(CELLS, "a", cells(rank=[0, 1, 2], site=["x"] * 3, cell=["one", "two", "three"]), FIRST)
    lake.replace(CELLS, "a", cells(rank=[0, 1], site=["x"] * 2, cell=["one", "2"]), SECOND)
    changes = [action for action in log_of(lake, CELLS)[-1] if "add" in action or "remove" in action]
    paths = sorted((name, facts["path"].split("/")[1]) for action in changes for name, facts in action.items())
    assert paths == [("add", "rank=1"), ("remove", "rank=1"), ("remove", "rank=2")]


def test_other_runs_are_untouched(lake: Lake) -> None:
    for run_id in ("a", "b", "aa", "a.b"):
        lake.replace(READINGS, run_id, readings(run_id), FIRST)
    others = {run_id: (rows_of(lake, run_id), lake.snapshot(READINGS).files(run_id)) for run_id in ("b", "aa", "a.b")}
    lake.replace(READINGS, "a", readings(powers=[7.0]), SECOND)
    snapshot = lake.snapshot(READINGS)
    assert {run_id: (rows_of(lake, run_id), snapshot.files(run_id)) for run_id in others} == others
    assert all(snapshot.is_made_from(run_id, FIRST) for run_id in others)
    assert snapshot.run_ids == ["a", "a.b", "aa", "b"]


def test_content_may_change_and_change_back(lake: Lake) -> None:
    one, two = readings(powers=[1.0]), readings(powers=[2.0])
    seen = []
    for rows, made_from in ((one, SECOND), (two, FIRST), (one, SECOND), (two, FIRST)):
        written = lake.replace(READINGS, "a", rows, made_from)
        snapshot = lake.snapshot(READINGS)
        assert written.is_changed
        assert rows_of(lake, "a") == rows.to_pylist()
        assert snapshot.is_made_from("a", made_from)
        assert snapshot.content_sha256("a") == written.content_sha256
        seen.append((written.version, written.content_sha256))
    assert [version for version, _ in seen] == [1, 2, 3, 4]
    assert [digest for _, digest in seen] == [seen[0][1], seen[1][1]] * 2


def test_no_rows_empty_the_partition(lake: Lake) -> None:
    lake.replace(READINGS, "a", readings(), FIRST)
    written = lake.replace(READINGS, "a", readings(powers=[]), SECOND)
    snapshot = lake.snapshot(READINGS)
    assert (written.rows, written.files, written.content_sha256) == (0, 0, combine(()))
    assert (snapshot.run_ids, rows_of(lake, "a"), snapshot.content_sha256("a")) == ([], [], combine(()))
    assert snapshot.is_made_from("a", SECOND)


def test_the_commit_says_what_it_holds_and_what_it_was_made_from(lake: Lake) -> None:
    lake.replace(READINGS, "b", readings("b"), FIRST)
    written = lake.replace(READINGS, "a", readings(), SECOND)
    (last,) = DeltaTable(str(root(lake))).history(1)
    assert last["teetotal.content_sha256"] == written.content_sha256 == lake.snapshot(READINGS).content_sha256("a")
    assert (last["teetotal.run_id"], last["teetotal.made_from_sha256"]) == ("a", SECOND)


def test_the_content_digest_is_that_of_the_rows_and_not_of_the_run(lake: Lake) -> None:
    digests = {lake.replace(READINGS, run_id, readings(run_id), FIRST).content_sha256 for run_id in ("a", "b")}
    digests.add(lake.replace(READINGS, "c", readings("c", label="y"), FIRST).content_sha256)
    assert len(digests) == 2


def test_marks_tell_what_a_partition_was_made_from_and_saw(lake: Lake) -> None:
    assert not lake.snapshot(READINGS).is_made_from("a", FIRST)
    lake.replace(READINGS, "a", readings(), FIRST, seen=SECOND)
    snapshot = lake.snapshot(READINGS)
    assert (snapshot.is_made_from("a", FIRST), snapshot.is_made_from("a", SECOND)) == (True, False)
    assert (snapshot.has_seen("a", SECOND), snapshot.has_seen("a", FIRST)) == (True, False)
    assert not snapshot.is_made_from("b", FIRST)
    assert not snapshot.has_seen("b", SECOND)


def test_a_partition_made_without_a_look_at_the_landing_zone_has_seen_nothing(lake: Lake) -> None:
    lake.replace(READINGS, "a", readings(), FIRST, seen=SECOND)
    lake.replace(READINGS, "a", readings(powers=[9.0]), FIRST)
    assert not lake.snapshot(READINGS).has_seen("a", SECOND)


def test_no_stage_is_left_behind(lake: Lake) -> None:
    lake.replace(READINGS, "a", readings(), FIRST)
    with pytest.raises(ContractBroken):
        lake.replace(READINGS, "a", replace_column(readings(), "slot", [1, None, 3], pa.int32()), FIRST)
    staged = list((lake.place.directory / "_staging").rglob("*"))
    assert [path for path in staged if "spool" in path.parent.parts or (path.is_file() and path.stat().st_size)] == []


def test_an_old_log_is_folded_into_checkpoints_and_still_says_everything(lake: Lake) -> None:
    for version in range(45):
        lake.replace(READINGS, f"run-{version % 3}", readings(f"run-{version % 3}", [float(version)]), FIRST)
    assert list((root(lake) / "_delta_log").glob("*.checkpoint.parquet"))
    assert [rows_of(lake, f"run-{place}")[0]["power_w"] for place in range(3)] == [42.0, 43.0, 44.0]
    assert all(lake.snapshot(READINGS).is_made_from(f"run-{place}", FIRST) for place in range(3))
