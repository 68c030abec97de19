"""Which reader takes a source: told by its first bytes, never by its name."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bronze import (
    attestations,
    collective_json,
    collective_records,
    copy_rate_csv,
    copy_rates,
    device_monitor,
    device_readings,
    device_samples,
    eat_bundle,
    job_log,
    mlflow_metrics,
    mlflow_sqlite,
    named_values,
    nsys_csv,
    nsys_events,
    nsys_sqlite,
    recording_json,
    recording_statements,
    span_patterns,
    sqlite_tables,
    step_lines,
    tensorboard_events,
    training_csv,
    training_json,
    training_log,
    untrusted_sqlite,
    wandb_history,
    wandb_log,
)
from bronze.csv_records import header_cells
from bronze.file_report import TRACE
from bronze.untrusted_sqlite import MAGIC
from lake.errors import EvidenceRejected

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from bronze.limits import Limits
    from bronze.records import RecordReader
    from lake.attestation_keys import AttestationKeys

TABLES = (
    nsys_events.TABLE,
    training_log.TABLE,
    collective_records.TABLE,
    device_samples.TABLE,
    attestations.TABLE,
    copy_rates.TABLE,
    span_patterns.TABLE,
    recording_statements.TABLE,
)
# The versions of the maps and readers that decide what a source becomes.
VERSIONS = (
    nsys_csv.MAP.version,
    nsys_sqlite.VERSION,
    training_csv.MAP.version,
    job_log.VERSION,
    step_lines.VERSION,
    named_values.VERSION,
    collective_json.VERSION,
    device_readings.VERSION,
    device_monitor.VERSION,
    eat_bundle.VERSION,
    copy_rate_csv.MAP.version,
    span_patterns.VERSION,
    tensorboard_events.VERSION,
    mlflow_metrics.VERSION,
    training_json.VERSION,
    recording_json.VERSION,
    mlflow_sqlite.VERSION,
    wandb_log.VERSION,
)
HEAD_BYTES = 1 << 18
_ZIP, _TAR, _TAR_AT = b"PK\x03\x04", b"ustar", 257
# A number, or a date: no name of a column.
_VALUE = re.compile(r"[-+]?[0-9][0-9.,eE:/ +-]*")


@dataclass(frozen=True)
class Format:
    """One format: its name, how its first bytes look, the tables that it fills, and the reader of its bytes."""

    name: str
    is_it: Callable[[bytes], bool]
    tables: tuple[str, ...]
    reader: Callable[[Iterator[bytes], Limits, AttestationKeys], RecordReader] | None = None


def _ignore_keys(
    reader: Callable[[Iterator[bytes], Limits], RecordReader],
) -> Callable[[Iterator[bytes], Limits, AttestationKeys], RecordReader]:
    return lambda blocks, limits, _keys: reader(blocks, limits)


# In the order in which they are asked: what is told by a mark at its very beginning comes first, and a job's output,
# which may hold lines of anything, last.
SQLITE = Format("nsys_sqlite", lambda head: head.startswith(MAGIC), ("nsys_events",))
# Told from the one before by its tables, once it can be opened.
MLFLOW_SQLITE = Format("mlflow_sqlite", lambda _head: False, ("training_log",))
JOB_LOG = Format(
    "job_log",
    job_log.is_job_log,
    ("training_log", "collective_records"),
    _ignore_keys(job_log.JobLogReader),
)
FORMATS = (
    SQLITE,
    MLFLOW_SQLITE,
    Format("wandb_log", wandb_log.is_log, ("training_log",), _ignore_keys(wandb_log.WandbLogReader)),
    Format(
        "span_kinds",
        span_patterns.is_site_patterns,
        ("span_patterns",),
        _ignore_keys(span_patterns.SpanPatternsReader),
    ),
    Format(
        "tensorboard",
        tensorboard_events.is_events,
        ("training_log",),
        _ignore_keys(tensorboard_events.TensorBoardReader),
    ),
    Format("mlflow", mlflow_metrics.is_metric, ("training_log",), _ignore_keys(mlflow_metrics.MlflowMetricReader)),
    Format("wandb", wandb_history.is_history, ("training_log",), _ignore_keys(wandb_history.WandbHistoryReader)),
    Format(
        "recording_statement",
        recording_json.is_statement,
        ("recording_statements",),
        _ignore_keys(recording_json.RecordingStatementReader),
    ),
    Format("eat_bundle", eat_bundle.is_bundle, ("attestations",), eat_bundle.EatBundleReader),
    Format(
        "nccl_inspector",
        collective_json.is_inspector,
        ("collective_records",),
        _ignore_keys(collective_json.InspectorReader),
    ),
    Format(
        "nccl_tests",
        collective_json.is_nccl_tests,
        ("collective_records",),
        _ignore_keys(collective_json.NcclTestsReader),
    ),
    Format(
        "training_json",
        training_json.is_training_json,
        ("training_log",),
        _ignore_keys(training_json.TrainingJsonReader),
    ),
    Format("nsys_csv", nsys_csv.is_nsys, ("nsys_events",), _ignore_keys(nsys_csv.NsysCsvReader)),
    Format("training_csv", training_csv.is_training, ("training_log",), _ignore_keys(training_csv.TrainingCsvReader)),
    Format("copy_rate_csv", copy_rate_csv.is_sweep, ("copy_rates",), _ignore_keys(copy_rate_csv.CopyRateReader)),
    Format(
        "nvidia_smi",
        device_readings.is_nvidia_smi,
        ("device_samples",),
        _ignore_keys(device_readings.NvidiaSmiReader),
    ),
    Format(
        "nvidia_smi_dmon",
        device_monitor.is_monitor,
        ("device_samples",),
        _ignore_keys(device_monitor.DeviceMonitorReader),
    ),
    Format("dcgm", device_readings.is_dcgm, ("device_samples",), _ignore_keys(device_readings.DcgmReader)),
    JOB_LOG,
    Format(
        "conf_compute",
        device_readings.is_conf_compute,
        ("device_samples",),
        _ignore_keys(device_readings.ConfComputeReader),
    ),
)
NAMES = (TRACE, *(known.name for known in FORMATS), "unknown")


def recognise_format(head: bytes, again: Callable[[], Iterator[bytes]]) -> Format | None:
    """The format of a source by its first bytes; a job's output is looked through, as its first mark may come late."""
    if is_trace(head):
        return None
    found = next((known for known in FORMATS if known.is_it(head)), None)
    if found is None and len(head) >= HEAD_BYTES and job_log.may_be_text(head) and job_log.has_marks(again()):
        return JOB_LOG
    return found


def choose_database_reader(database: Path | bytes) -> tuple[Format, RecordReader]:
    """The format of a database, told by its tables, and its reader."""
    try:
        opened, tables = untrusted_sqlite.open_untrusted(database, ())
    except sqlite3.Error as error:
        raise EvidenceRejected(f"it is an SQLite file that cannot be opened: {error}") from error
    with closing(opened):
        if not tables.keys().isdisjoint(sqlite_tables.NSYS_EVENTS):
            return SQLITE, nsys_sqlite.NsysSqliteReader(database)
        if mlflow_sqlite.is_store(tables):
            return MLFLOW_SQLITE, mlflow_sqlite.MlflowSqliteReader(database)
    raise EvidenceRejected(
        "it is an SQLite database without a table of an Nsight Systems export, and no store of MLflow",
        "of Nsight Systems, export with `nsys export --type sqlite`; docs/landing.md lists what is read",
    )


def is_trace(head: bytes) -> bool:
    """Whether it begins as a trace does; its own reader looks closer."""
    return head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{") and b'"traceEvents"' in head


def describe_unknown(head: bytes) -> str | None:
    """What can be said of an archive, or of a table in a format that no reader knows; none of anything else."""
    if head.startswith(_ZIP) or head[_TAR_AT : _TAR_AT + len(_TAR)] == _TAR:
        return "it is an archive: unpack it, and land the files in it"
    first = head.removeprefix(b"\xef\xbb\xbf").partition(b"\n")[0]
    header = [] if first.lstrip().startswith((b"{", b"[")) or b"\x00" in first else header_cells(first.strip())
    if not header:
        return None
    shown = ", ".join(header)[:160]
    if training_csv.counts_without_time(header):
        return f"it counts epochs or steps and says no time, duration or throughput of them: {shown}"
    if _VALUE.fullmatch(header[0].strip()):
        nameless = "its first line holds values and not the names of columns (nvidia-smi leaves those out at noheader)"
        return f"{nameless}: {shown}"
    return f"it is a table whose columns no reader knows: {shown}"
