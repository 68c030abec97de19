"""A table of few rows is judged in memory; what that cannot judge, DuckDB does: what comes out is the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from assets.build.catalogue import table
from assets.checks import relations
from assets.checks.duckdb_backend import DuckDBBackend
from assets.checks.expectations import check_tables
from assets.checks.rules import list_rules
from lake.connections import open_parallel
from lake.locations import Location
from lake.store import Lake
from lake.tables import RUN_ID, Table, float64, int64, text
from tests.support.tampered_tables import count_broken, put

if TYPE_CHECKING:
    from assets.checks.expectations import CheckResult
    from assets.checks.relation import Relation

FIRST = "1" * 64
TABLE = Table(
    "silver",
    "readings",
    "One row per reading.",
    ("ordinal",),
    (
        RUN_ID,
        int64("ordinal", "Place.", minimum=0),
        text("source_sha256", "Digest.", nullable=True),
        text("outcome", "What became of it.", nullable=True, one_of=("kept", "lost")),
        float64("share_fraction", "Share.", nullable=True, minimum=0, maximum=1),
    ),
)
ROWS: dict[str, list[Any]] = {
    "run_id": ["a"] * 3,
    "ordinal": [0, 1, 2],
    "source_sha256": ["0" * 64, None, "f" * 64],
    "outcome": ["kept", None, "lost"],
    "share_fraction": [0.0, None, 1.0],
}
FAULTS: dict[str, tuple[dict[str, list[Any]], dict[str, int]]] = {
    "nothing": ({}, {}),
    "key": ({"ordinal": [1, 1, 2]}, {"key_is_unique": 2}),
    "null": ({"ordinal": [None, 1, 2]}, {"ordinal_is_never_null": 1}),
    "range": ({"ordinal": [-1, 1, 2]}, {"ordinal_is_in_its_range": 1}),
    "set": ({"outcome": ["KEPT", None, ""]}, {"outcome_is_of_its_set": 2}),
    "shape": ({"source_sha256": ["0", None, "f" * 64 + "\n"]}, {"source_sha256_is_a_digest": 2}),
    "no numbers": ({"share_fraction": [float("nan")] * 3}, {"share_fraction_is_finite": 3}),
    "infinite": (
        {"share_fraction": [float("inf"), None, 0.5]},
        {"share_fraction_is_finite": 1, "share_fraction_is_in_its_range": 1},
    ),
}


@pytest.fixture
def small_lake(tmp_path: Path) -> Lake:
    lake = Lake(Location.of(tmp_path / "lake"))
    lake.replace(TABLE, "a", make_rows(), FIRST)
    return lake


def make_rows(**changes: list[Any]) -> pa.Table:
    anything = TABLE.nullable_schema
    return pa.table({**ROWS, **changes}, schema=anything)


def check_by_duckdb(lake: Lake, checked: Table, run_ids: list[str] | None) -> list[CheckResult]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Lake, "read_few", lambda *_: None)
        return check_tables(lake, checked, run_ids)


@pytest.mark.parametrize(("changes", "counts"), FAULTS.values(), ids=FAULTS.keys())
def test_few_rows_are_judged_as_duckdb_judges_them(
    small_lake: Lake, changes: dict[str, list[Any]], counts: dict[str, int]
) -> None:
    put(small_lake, TABLE, "a", make_rows(**changes))
    assert small_lake.read_few(TABLE, ["a"], 10) is not None
    for run_ids in (["a"], None):
        found = check_tables(small_lake, TABLE, run_ids)
        assert count_broken(found) == counts
        assert repr(found) == repr(check_by_duckdb(small_lake, TABLE, run_ids))  # what is no number equals nothing


def test_rows_that_violate_nothing_are_not_shown_to_duckdb(small_lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DuckDBBackend, "read", lambda *_: pytest.fail("the engine was asked"))
    for run_ids in (["a"], ["nobody"], None):
        assert count_broken(check_tables(small_lake, TABLE, run_ids)) == {}


@pytest.mark.parametrize("run_ids", [["a"], ["nobody"], None])
def test_a_log_with_other_columns_is_noticed_with_rows_and_without(small_lake: Lake, run_ids: list[str] | None) -> None:
    changed = replace(TABLE, columns=(*TABLE.columns[:-1], int64("share_fraction", "Share.", nullable=True)))
    first, *others = check_tables(small_lake, changed, run_ids)
    assert (first.is_held, first.broken_count) == (False, 1)
    assert "was written with other columns: share_fraction" in (first.reason or "")
    assert {one.is_held for one in others} == {False}
    assert [first, *others] == check_by_duckdb(small_lake, changed, run_ids)


@pytest.mark.parametrize(
    ("name", "kind", "word"),
    [
        ("ordinal", pa.string(), "VARCHAR"),
        ("ordinal", pa.int32(), "INTEGER"),
        ("ordinal", pa.timestamp("us"), "TIMESTAMP"),
        ("share_fraction", pa.float32(), "FLOAT"),
        ("source_sha256", pa.binary(), "BLOB"),
    ],
)
def test_a_data_file_with_a_column_of_another_kind_is_noticed(
    small_lake: Lake, name: str, kind: pa.DataType, word: str
) -> None:
    rows = make_rows()
    put(small_lake, TABLE, "a", rows.set_column(TABLE.column_names.index(name), name, rows.column(name).cast(kind)))
    found = check_tables(small_lake, TABLE, ["a"])
    declared = TABLE.duckdb_types[name]
    assert found[0].samples == [{"column": f"{name} {word} where {name} {declared} is declared"}]
    assert found == check_by_duckdb(small_lake, TABLE, ["a"])


def test_a_page_of_few_rows_shows_every_rule(small_lake: Lake, tmp_path: Path) -> None:
    found = check_tables(small_lake, TABLE, ["a"], tmp_path / "docs", is_documented=True)
    page = (found[0].page or tmp_path).read_text("utf-8")
    assert count_broken(found) == {}
    for rule in list_rules(TABLE):
        assert rule.sentence in page
    assert "0 of 3 rows violate it" in page


def test_relations_of_few_rows_are_found_as_duckdb_finds_them(recorded_lake: Lake) -> None:
    for name in ("bronze.runs", "silver.steps", "gold.step_overhead", "gold.scaling", "gold.history"):
        run_ids = recorded_lake.snapshot(table(name)).run_ids[:2]
        assert recorded_lake.read_few(table(name), run_ids, 10_000) is not None
        found = check_tables(recorded_lake, table(name), run_ids)
        assert found == check_by_duckdb(recorded_lake, table(name), run_ids), name


def test_a_view_follows_a_file_that_is_replaced_under_its_name(small_lake: Lake) -> None:
    backend, asked = DuckDBBackend(open_parallel()), "SELECT min(ordinal) FROM silver.readings"
    put(small_lake, TABLE, "a", make_rows(ordinal=[1, 2, 3]))
    backend.show(small_lake, TABLE, ["a"])
    assert backend.connection.execute(asked).fetchall() == [(1,)]
    path = Path(small_lake.files(TABLE, ["a"])[0])
    other = path.with_name("other.parquet")
    pq.write_table(make_rows(ordinal=[7, 8, 9]).drop_columns(["run_id"]), other)
    other.replace(path)  # as large as the log says
    backend.show(small_lake, TABLE, ["a"])
    assert backend.connection.execute(asked).fetchall() == [(7,)]


@pytest.mark.parametrize(
    "relation", [one for one in relations.RELATIONS if one.matched_column], ids=lambda one: one.table.full_name
)
def test_a_relation_that_is_looked_up_is_of_rows_and_reads_one_table_that_has_the_column(relation: Relation) -> None:
    (read,) = relation.reads
    assert relation.is_of_rows
    assert relation.matched_column in read.column_names
    assert relation.matched_column in relation.table.column_names


def test_only_values_that_are_all_in_the_other_table_are_matched(small_lake: Lake) -> None:
    backend = DuckDBBackend(open_parallel())
    backend.show(small_lake, TABLE, ["a"])
    for outcomes, is_expected in ((["kept", "lost", "lost"], True), (["kept", "x", "lost"], False)):
        put(small_lake, TABLE, "a", make_rows(outcome=outcomes))
        backend.select(small_lake, TABLE, ["a"])
        assert backend.has_all_values("outcome", TABLE) is is_expected
    put(small_lake, TABLE, "a", make_rows(outcome=["kept", None, "lost"]))
    backend.select(small_lake, TABLE, ["a"])
    assert not backend.has_all_values("outcome", TABLE)  # a null is no value that can be found
    assert not backend.has_all_values("outcome", table("silver.runs"))
