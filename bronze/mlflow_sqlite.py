"""The reader of MLflow's database (`mlflow.db`): every value of every metric of the one run in it."""

from __future__ import annotations

import math
import sqlite3
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from bronze import json_text, sqlite_tables, training_log, untrusted_sqlite
from bronze.decimals import fit_int64, fit_nanoseconds
from bronze.records import RecordReader
from bronze.scalars import make_scalar
from bronze.tolerant_parser import make_range
from lake.errors import EvidenceRejected

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

VERSION = 1
_MS_NS = 1_000_000
_RUN = "SELECT name, status, start_time, end_time, lifecycle_stage FROM runs WHERE run_uuid = ?"
_OF_RUN = ("name", "status", "start_time", "end_time", "lifecycle_stage")
_COLUMNS = {"key", "value", "timestamp", "run_uuid"}
# `metrics` and `runs` alone are names that anybody may give; all these together are MLflow's.
_TABLES = ("alembic_version", "experiments", "metrics", "runs")
# Deleted runs stay in the database until `mlflow gc`.
_MOST_RUNS = 10_000
_MOST_ID = 256


def is_store(tables: Mapping[str, str]) -> bool:
    """Whether a database has the tables that every store of MLflow has."""
    return all(name in tables for name in _TABLES)


class MlflowSqliteReader(RecordReader):
    """One pass over one database; what was logged in a run that is deleted is passed by."""

    def __init__(self, database: Path | bytes) -> None:
        super().__init__(training_log.TABLE)
        self._database = database
        self._can_ask_runs = self._has_run = False
        self._is_kept: dict[object, bool] = {}

    def _read(self) -> Iterator[None]:
        try:
            database, present = untrusted_sqlite.open_untrusted(self._database, {"metrics", "runs"})
        except sqlite3.Error as error:
            raise EvidenceRejected(f"it is an SQLite file that cannot be opened: {error}") from error
        try:
            if present["metrics"] != "table":
                raise EvidenceRejected(f"its metrics are a {present['metrics']}, no plain table: it is not run")
            self._can_ask_runs = present["runs"] == "table"
            self.ignored_tables = dict.fromkeys(sorted(present.keys() - {"metrics", "runs"})[:1000])
            for row in sqlite_tables.read_rows(database, sqlite_tables.METRICS):
                self._take(database, row)
                yield
        finally:
            database.close()

    def _take(self, database: sqlite3.Connection, row: dict[str, Any] | sqlite_tables.Fault) -> None:
        if isinstance(row, sqlite_tables.Fault):
            self.report(make_range(0, 0, row.reason, b""))
            self.is_complete = self.is_complete and not row.is_end
        elif not row.keys() >= _COLUMNS:
            raise EvidenceRejected(f"its table metrics lacks {', '.join(sorted(_COLUMNS - row.keys()))} of MLflow's")
        elif self._is_of_run(database, row["run_uuid"]):
            self._keep(row)
        else:
            self.passed_count += 1

    def _is_of_run(self, database: sqlite3.Connection, run: object) -> bool:
        """Whether a run is the one that lands here: a second one that is not deleted is refused."""
        if run in self._is_kept:
            return self._is_kept[run]
        if len(self._is_kept) >= _MOST_RUNS or (isinstance(run, str | bytes) and len(run) > _MOST_ID):
            raise EvidenceRejected(f"it names more than {_MOST_RUNS:,} runs, or one by more than {_MOST_ID} characters")
        said = self._ask_run(database, run)
        self._is_kept[run] = said.pop("lifecycle_stage", None) != "deleted"
        if self._is_kept[run]:
            if self._has_run:
                raise EvidenceRejected(
                    "it holds metrics of more than one run of MLflow, and what lands is one run",
                    "land a copy in which the other runs' metrics are deleted (docs/landing.md shows how)",
                )
            self._has_run = True
            plain = {name: untrusted_sqlite.to_json_value(value) for name, value in said.items()}
            self.envelope.keep("mlflow_run", json_text.write_json(plain))
        return self._is_kept[run]

    def _ask_run(self, database: sqlite3.Connection, run: object) -> dict[str, Any]:
        """What the database says of a run; only its id where it says nothing."""
        found = None
        if self._can_ask_runs:
            with suppress(sqlite3.Error):
                found = database.execute(_RUN, (run,)).fetchone()
        return {"run_uuid": run, **dict(zip(_OF_RUN, found or (), strict=False))}

    def _keep(self, found: dict[str, Any]) -> None:
        """A value as a row; a cell that is not of its kind stays in `args` and is not believed."""
        left = {key: value for key, value in found.items() if key != "run_uuid" and value is not None}
        step, ts_ns = fit_int64(left.get("step")), _to_nanoseconds(left.get("timestamp"))
        name, value = left.get("key"), left.get("value")
        row = make_scalar(ts_ns, step, name if isinstance(name, str) else None, math.nan)
        if isinstance(value, int | float) and left.get("is_nan") in {0, 1, None}:
            row = make_scalar(ts_ns, step, row["record_key"], math.nan if left.get("is_nan") else float(value))
            left = {key: value for key, value in left.items() if key not in {"value", "is_nan"}}
        else:
            row["record_value"] = None
        carried = {"step": step, "timestamp": ts_ns, "key": row["record_key"]}
        left = {key: untrusted_sqlite.to_json_value(value) for key, value in left.items() if carried.get(key) is None}
        row["args"] = json_text.compact_json(left)
        self.add(training_log.TABLE, {**row, "offset_bytes": 0}, 256 + len(row["args"] or "") + len(str(name)))


def _to_nanoseconds(milliseconds: object) -> int | None:
    number = fit_int64(milliseconds)
    return None if number is None else fit_nanoseconds(number * _MS_NS)
