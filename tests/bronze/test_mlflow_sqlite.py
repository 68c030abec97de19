"""MLflow's database; `written_logs/write.py` says how the one here was written: with a run, and one that is deleted."""

from __future__ import annotations

import gzip
import json
import random
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from bronze.file_report import FileReport, split_unfinished
from bronze.formats import choose_database_reader
from bronze.mlflow_sqlite import MlflowSqliteReader
from lake.errors import EvidenceRejected
from tests.support.campaigns import pick_size
from tests.support.mlflow_stores import make_store

if TYPE_CHECKING:
    from tests.conftest import LandFiles

WRITTEN = gzip.decompress((Path(__file__).parent / "written_logs" / "mlflow.db.gz").read_bytes())
AT_NS, S = 1_700_000_000_250_000_000, 1_000_000_000
_GUIDE = Path(__file__).parent.parent.parent / "docs" / "landing.md"


def change(*statements: str, data: bytes = WRITTEN) -> bytes:
    """The database after some statements."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as database:
        database.deserialize(data)
        for statement in statements:
            database.execute(statement)
        return database.serialize()


def read(data: bytes) -> tuple[MlflowSqliteReader, list[dict[str, Any]]]:
    known, reader = choose_database_reader(data)
    assert known.name == "mlflow_sqlite"
    assert isinstance(reader, MlflowSqliteReader)
    found = [row for _, batch in reader for row in batch.to_pylist()]
    return reader, [{key: value for key, value in row.items() if value is not None} for row in found]


def test_every_value_that_the_library_wrote_is_a_row() -> None:
    reader, rows = read(WRITTEN)
    assert (reader.unreadable_count, reader.is_complete, len(rows)) == (0, True, 90)
    losses = [row for row in rows if row["record_key"] == "loss"]
    assert [row["step_number"] for row in losses] == list(range(30))
    assert [row["ts_ns"] for row in losses] == [AT_NS + step * S for step in range(30)]
    assert [row["record_value"] for row in losses] == [
        "nan" if step == 7 else repr(2.5 / (step + 1)) for step in range(30)
    ]
    assert [row.get("loss_number") for row in losses[6:8]] == [2.5 / 7, None]
    assert {row["samples_per_second"] for row in rows if row["record_key"] == "samples_per_second"} == {32.0}
    assert rows[1]["record_value"] == "0.25"
    assert not any("args" in row for row in rows)


def test_the_deleted_run_is_passed_by_and_the_run_says_who_it_is() -> None:
    reader, _ = read(WRITTEN)
    assert reader.passed_count == 90
    run = reader.envelope.get("mlflow_run")
    assert (run["name"], run["status"], len(run["run_uuid"])) == ("written", "FINISHED", 32)
    assert {"params", "latest_metrics", "spans"} <= reader.ignored_tables.keys()


def test_a_database_of_several_runs_is_refused_until_the_others_are_deleted_as_the_guide_says() -> None:
    both = change("UPDATE runs SET lifecycle_stage = 'active'")
    with pytest.raises(EvidenceRejected, match="more than one run of MLflow"):
        read(both)
    (statement,) = (line for line in _GUIDE.read_text("utf-8").splitlines() if line.startswith("DELETE FROM metrics"))
    alone = change(statement.replace("RUN_NAME", "deleted"), data=both)
    reader, rows = read(alone)
    assert (len(rows), reader.passed_count, reader.envelope.get("mlflow_run")["name"]) == (90, 0, "deleted")


def test_a_run_that_only_its_metrics_name_is_read() -> None:
    reader, rows = read(make_store([("loss", 0.5, 1_700_000_000_250, "b", 0, 0)]))
    assert ([row["record_value"] for row in rows], reader.envelope.get("mlflow_run")) == (["0.5"], {"run_uuid": "b"})


def test_a_run_of_a_name_that_is_none_is_refused() -> None:
    with pytest.raises(EvidenceRejected, match="one by more than 256 characters"):
        read(make_store([("loss", 0.5, 1, "a" * 300, 0, 0)]))


@pytest.mark.parametrize(
    "statements",
    [
        ["CREATE TABLE metrics (name TEXT, value REAL)"],
        [f"CREATE TABLE {name} (a)" for name in ("metrics", "runs")],
        ["CREATE TABLE bookmarks (url TEXT)"],
    ],
)
def test_somebody_elses_database_is_taken_for_neither(statements: list[str]) -> None:
    with closing(sqlite3.connect(":memory:")) as database:
        for statement in statements:
            database.execute(statement)
        data = database.serialize()
    with pytest.raises(EvidenceRejected, match="without a table of an Nsight Systems export, and no store of MLflow"):
        choose_database_reader(data)


def test_an_export_of_nsight_systems_with_such_tables_stays_one() -> None:
    known, _ = choose_database_reader(change("CREATE TABLE NVTX_EVENTS (start INTEGER)"))
    assert known.name == "nsys_sqlite"


@pytest.mark.parametrize(
    ("statements", "reason"),
    [
        (["ALTER TABLE metrics RENAME TO m", "CREATE VIEW metrics AS SELECT * FROM m"], "its metrics are a view"),
        (
            ["ALTER TABLE metrics ADD COLUMN more GENERATED ALWAYS AS (hex(value))"],
            "its metrics are a table with computed columns",
        ),
        (["ALTER TABLE metrics RENAME COLUMN value TO other"], "its table metrics lacks value of MLflow's"),
    ],
)
def test_a_store_that_is_made_to_do_harm_is_refused(statements: list[str], reason: str) -> None:
    with pytest.raises(EvidenceRejected, match=reason):
        read(change("DROP TABLE logged_model_metrics", "DROP TABLE latest_metrics", *statements))


def test_cells_of_another_kind_are_kept_and_not_believed() -> None:
    store = make_store(
        [
            ("loss", 0.5, "late", "a", 0, 0),
            ("loss", "much", 1_700_000_000_250, "a", 1, 0),
            (b"\x01", 1e308, 1 << 62, "a", "x", 0),
            ("loss", 3, 1_700_000_000_250, "a", 2, 7),
            ("ok", 3, 1_700_000_000_250, "a", 2, 0),
        ]
    )
    reader, rows = read(store)
    assert (len(rows), reader.unreadable_count) == (5, 0)
    assert [json.loads(row.get("args", "{}")) for row in rows] == [
        {"timestamp": "late"},
        {"value": "much", "is_nan": 0},
        {"key": {"blob": "01", "length": 1}, "timestamp": 1 << 62, "step": "x"},
        {"value": 3, "is_nan": 7},
        {},
    ]
    assert [row.get("record_value") for row in rows] == ["0.5", None, "1e+308", None, "3.0"]
    assert [row.get("loss_number") for row in rows] == [0.5, None, None, None, None]


def test_a_name_in_a_damaged_schema_may_be_no_text() -> None:
    """SQLite names it in its error, and Python cannot decode that error."""
    store = make_store([])
    place = store.rindex(b"CREATE TABLE experiments")
    with pytest.raises(EvidenceRejected, match="it is an SQLite file that cannot be opened: its schema is damaged"):
        choose_database_reader(store[:place].replace(b"experiments", b"experi\xd5ents") + b"X" + store[place + 1 :])


def test_a_damaged_database_ends_in_rows_or_in_reasons() -> None:
    """Every page boundary and bytes by chance, of a store of few pages."""
    store = make_store([("loss", step / 8, 1_700_000_000_250 + step, "a", step, 0) for step in range(200)])
    right = {(row["step_number"], row["loss_number"]) for row in read(store)[1]}
    chance = random.Random(3)
    damaged = [store[:cut] for cut in range(1, len(store), len(store) // pick_size(30, 4_000))]
    for _ in range(pick_size(50, 4_000)):
        flipped = bytearray(store)
        flipped[chance.randrange(100, len(store))] ^= 1 << chance.randrange(8)
        damaged.append(bytes(flipped))
    outcomes = set()
    for data in damaged:
        try:
            reader, rows = read(data)
        except EvidenceRejected as error:
            outcomes.add("refused" if len(str(error).split()) > 5 else f"refused without a reason: {error}")
            continue
        assert reader.unreadable_count or reader.is_complete
        outcomes.add("reported" if reader.unreadable_count else "read")
        assert len(rows) <= len(right) + 1
    assert outcomes == {"refused", "reported", "read"}


def test_of_a_run_that_is_still_open_a_database_that_breaks_off_waits() -> None:
    torn = FileReport("mlflow.db", 9, format="mlflow_sqlite", outcome="kept", is_complete=False)
    whole = replace(torn, name="whole.db", is_complete=True)
    kept, held_back = split_unfinished([torn, whole])
    assert ([report.name for report in kept], held_back) == (["whole.db"], {"mlflow.db": "it is not complete yet"})


def test_a_database_lands_under_any_name_and_a_second_run_is_no_crash(land_files: LandFiles) -> None:
    both = change("UPDATE runs SET lifecycle_stage = 'active'")
    landed = land_files({"a.json": WRITTEN, "b.db": both})
    found = landed.file("a.json")
    assert (found["format"], found["outcome"], found["rows_count"], found["passed_count"]) == (
        "mlflow_sqlite",
        "kept",
        90,
        90,
    )
    assert len(landed.training) == 90
    assert landed.file("b.db")["outcome"] == "rejected"
    assert "more than one run of MLflow" in str(landed.file("b.db")["reason"])
